// Where the nodes are: a step from each parent, as a direction and a distance in the frame of the parent.
//
// Each node has a wedge of half angle ω in front of it, of which each child gets a share 2a. A translation by d along the
// middle of that share opens it to the half angle 2 atan(eᵈ tan(a/2)), with the same two ends on the rim. So wedges of
// siblings never overlap and edges never cross, whatever the distances are; and as ω stays below 90°, all that comes
// after a node is in the half-plane in front of it, which lets the view leave out what is too small to see.

import { compose, inverse, step, translation } from "./disk.js";

const WIDEST = 1.45, SHARE = 0.94; // half angle of a wedge at most; how much of it the children take
const FAN = 9; // more children are gathered by joints
const LEAF_APART = 0.2, LEAST = 0.42; // distance between leaves; of a step, at least
const OPEN = { joint: 0.66, least: 0.44, most: 0.95 }; // half angles that a child's wedge is opened to
const POWER = 0.62; // shares go with this power of the leaves below

/** A layout of `count` nodes: those of the tree, then joints, which only gather edges. */
class Layout {
  constructor(tree, count) {
    this.tree = tree;
    this.capacity = count;
    this.count = tree.size;
    this.parent = new Int32Array(count).fill(-1);
    this.first = new Uint32Array(count);
    this.children = new Uint32Array(count);
    for (const name of ["ar", "ai", "br", "bi", "ux", "uy"]) this[name] = new Float64Array(count);
    this.ar[0] = this.ux[0] = 1;
    this.room = null; // of the true layout: half the width of the arc of a node, as a distance
  }

  /** The step from the parent to a node, as a frame. */
  step(node) {
    return [this.ar[node], this.ai[node], this.br[node], this.bi[node]];
  }

  setStep(node, frame) {
    [this.ar[node], this.ai[node], this.br[node], this.bi[node]] = frame;
  }
}

/** The hyperbolic tree. */
export function treeLayout(tree) {
  const weight = new Float64Array(Math.ceil(1.5 * tree.size) + 16);
  const layout = new Layout(tree, weight.length);
  for (let node = tree.size - 1; node > 0; node--) {
    if (!tree.children[node]) weight[node] = 1;
    weight[tree.parent[node]] += weight[node];
  }
  for (let node = 0; node < tree.size; node++) weight[node] = weight[node] ** POWER;
  for (let node = 0; node < tree.size; node++) gather(layout, weight, node, tree.first[node], tree.children[node]);
  place(layout, weight);
  return layout;
}

/** Give a node its children, directly or through joints of about equal weight. */
function gather(layout, weight, node, first, count) {
  if (count <= FAN) {
    layout.first[node] = first;
    layout.children[node] = count;
    for (let i = first; i < first + count; i++) layout.parent[i] = node;
    return;
  }
  const groups = Math.min(FAN, Math.round(Math.sqrt(count)));
  const joints = layout.count;
  layout.count += groups;
  layout.first[node] = joints;
  layout.children[node] = groups;
  let total = 0;
  for (let i = first; i < first + count; i++) total += weight[i];
  let taken = 0, next = first;
  for (let group = 0; group < groups; group++) {
    const from = next, joint = joints + group, spare = first + count - (groups - 1 - group);
    while (next < spare && (next === from || taken + weight[next] / 2 <= (total * (group + 1)) / groups)) {
      taken += weight[next];
      weight[joint] += weight[next++];
    }
    if (group === groups - 1) for (; next < first + count; next++) weight[joint] += weight[next];
    layout.parent[joint] = node;
    gather(layout, weight, joint, from, next - from);
  }
}

function place(layout, weight) {
  const angle = new Float64Array(layout.count), open = new Float64Array(layout.count);
  open[0] = Math.PI / SHARE;
  const waiting = [0];
  while (waiting.length) {
    const node = waiting.pop(), first = layout.first[node], end = first + layout.children[node];
    let total = 0;
    for (let child = first; child < end; child++) total += weight[child];
    let at = angle[node] - SHARE * open[node];
    for (let child = first; child < end; child++) {
      const half = (SHARE * open[node] * weight[child]) / total, tan = Math.tan(Math.min(half, 3) / 2);
      const inner = layout.children[child];
      let away = Math.asinh(LEAF_APART / 2 / Math.sin(Math.min(half, Math.PI / 2)));
      if (inner) {
        const wanted = child >= layout.tree.size ? OPEN.joint : Math.min(OPEN.most, OPEN.least + 0.06 * inner);
        away = inner === 1 && layout.children[node] === 1 ? LEAST : Math.log(Math.tan(wanted / 2) / tan);
        waiting.push(child);
      }
      away = Math.max(LEAST, away);
      angle[child] = at + half;
      open[child] = Math.min(WIDEST, 2 * Math.atan(Math.exp(away) * tan));
      at += 2 * half;
      layout.ux[child] = Math.cos(angle[child]);
      layout.uy[child] = Math.sin(angle[child]);
      layout.setStep(child, step(layout.ux[child], layout.uy[child], away));
    }
  }
  layout.angle = angle;
}

/** The same angles, seen from the root, with the true distance of each decoded point from the origin. */
export function trueLayout(from) {
  const { tree } = from, layout = new Layout(tree, tree.size);
  layout.first = tree.first;
  layout.children = tree.children;
  layout.parent = tree.parent;
  layout.angle = from.angle;
  layout.room = new Float64Array(tree.size).fill(Math.PI);
  // Items are in the order of the leaves, so the items of a node are an arc.
  const frames = [translation(0, 0)], items = tree.order.length;
  for (let node = 1; node < tree.size; node++) {
    const round = (Math.PI * (tree.from[node] + tree.to[node])) / items - Math.PI;
    frames.push(step(Math.cos(round), Math.sin(round), tree.distance[node]));
    layout.setStep(node, compose(inverse(frames[tree.parent[node]]), frames[node]));
    layout.room[node] = ((Math.PI * (tree.to[node] - tree.from[node])) / items) * Math.sinh(tree.distance[node]);
  }
  return layout;
}
