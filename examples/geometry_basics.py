# %% [markdown]
# # Geometry basics
#
# The functions of `ghrq.ball` work on plain tensors `(..., d)`. This page shows what is different from flat space, and
# why codes have to be added in the right order.

# %%
import matplotlib.pyplot as plt
import torch

from ghrq import ball

torch.manual_seed(0)
x, y = torch.tensor([0.5, 0.0]), torch.tensor([0.0, 0.5])

# %% [markdown]
# ## Distances grow towards the boundary
#
# The same step of 0.09 is longer the farther out it is. There is no end: the boundary is infinitely far away.

# %%
for radius in (0.0, 0.5, 0.9):
    start, stop = torch.tensor([radius, 0.0]), torch.tensor([radius + 0.09, 0.0])
    print(f"from {radius:.2f} to {radius + 0.09:.2f}: distance {ball.distance(start, stop):.3f}")

# %% [markdown]
# ## Möbius addition
#
# It takes the place of `+`. `mobius_sub(x, y)` is what has to be added to `x` on the right to reach `y`.

# %%
print("x ⊕ y =", ball.mobius_add(x, y))
print("y ⊕ x =", ball.mobius_add(y, x), "(not the same)")
r = ball.mobius_sub(x, y)
print("x ⊕ ((-x) ⊕ y) =", ball.mobius_add(x, r), "(y again)")

# %% [markdown]
# ## It is not associative
#
# A residual quantizer takes a point apart: a code, then a code for what is left, and so on. The residuals are
# `r₁ = (-q₁) ⊕ z` and `r₂ = (-q₂) ⊕ r₁`. So `z = q₁ ⊕ (q₂ ⊕ r₂)`, the *nested* sum. The *chained* sum
# `(q₁ ⊕ q₂) ⊕ r₂` has the same parts and is another point.

# %%
z, q1, q2 = ball.expmap0(torch.randn(3, 2) * 0.4)
r1 = ball.mobius_sub(q1, z)
r2 = ball.mobius_sub(q2, r1)
nested = ball.mobius_add(q1, ball.mobius_add(q2, r2))
chained = ball.mobius_add(ball.mobius_add(q1, q2), r2)
print(f"nested:  {ball.distance(nested, z):.1e} away from z")
print(f"chained: {ball.distance(chained, z):.2f} away from z")

# %% [markdown]
# ## Straight lines
#
# A geodesic is the shortest way. It bends to the middle, because distances are short there: the way from one leaf of a
# tree to another also goes through what is above both.

# %%
figure, axes = plt.subplots(figsize=(4.5, 4.5))
axes.add_patch(plt.Circle((0, 0), 1, fill=False, color="gray"))
leaves = 0.92 * torch.tensor([[torch.cos(a), torch.sin(a)] for a in torch.linspace(0, 2 * torch.pi, 9)[:-1]])
for leaf in leaves[1:]:
    steps = torch.linspace(0, 1, 50).unsqueeze(-1)
    line = ball.expmap(leaves[0], steps * ball.logmap(leaves[0], leaf))
    axes.plot(*line.T, color="#4051b5")
axes.scatter(*leaves.T, color="#d9713a", zorder=3)
axes.set_aspect("equal")
axes.axis("off")
axes.set_title("Shortest ways from one point to seven others")
# %% [markdown]
# ## Means and curvature
#
# `midpoint` is the mean of points. `c` is the curvature: 1 by default, and flat space as it goes to 0. It may be a
# parameter that learns.

# %%
points = ball.expmap0(torch.randn(100, 2) * 0.4)
print("midpoint:", ball.midpoint(points))
c = torch.tensor(0.7, requires_grad=True)
ball.distance(x, y, c).backward()
print(f"d distance / d c = {c.grad:.3f}")
