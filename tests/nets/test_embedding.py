import pytest
import torch

from ghrq.nets.embedding import Embedding


@pytest.mark.parametrize("hidden", [0, 64])
@pytest.mark.parametrize("scale", [0.05, 1.0])
def test_vectors_start_at_the_scale_of_the_recipe(hidden: int, scale: float) -> None:
    torch.manual_seed(0)
    vectors = Embedding(5000, 16, scale, hidden)()
    assert vectors.shape == (5000, 16)
    assert vectors.std().item() == pytest.approx(scale, rel=0.15)


@pytest.mark.parametrize("hidden", [0, 8])
def test_every_vector_learns(hidden: int) -> None:
    embedding = Embedding(10, 4, hidden=hidden)
    embedding().square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in embedding.parameters())
    assert (embedding.table.grad.norm(dim=1) > 0.0).all()


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match="size"):
        Embedding(0, 4)
    with pytest.raises(ValueError, match="initial_scale"):
        Embedding(3, 4, -1.0)
