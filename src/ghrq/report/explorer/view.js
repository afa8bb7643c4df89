// What can be seen: the frames of the nodes that are large enough, found from the node at the centre outward.

import { compose, flight, inverse, normal, step } from "./disk.js";

// Pixels: what comes after a node is left out if it is smaller than this, and its children if it is smaller than that.
const SEEN = 0.9, OPENED = 2.6;

/** The visible nodes, each in a slot. The first slots lead from the node at the centre up to the root. */
export class Scene {
  constructor(capacity) {
    this.capacity = capacity;
    this.count = 0;
    this.node = new Int32Array(capacity);
    this.from = new Int32Array(capacity); // slot of the parent, −1 for the root
    for (const name of ["ar", "ai", "br", "bi", "x", "y", "gap"]) this[name] = new Float64Array(capacity);
  }

  add(node, from, ar, ai, br, bi) {
    const slot = this.count++, gap = 1 / (ar * ar + ai * ai);
    this.node[slot] = node;
    this.from[slot] = from;
    this.ar[slot] = ar;
    this.ai[slot] = ai;
    this.br[slot] = br;
    this.bi[slot] = bi;
    this.x[slot] = gap * (br * ar - bi * ai);
    this.y[slot] = gap * (br * ai + bi * ar);
    this.gap[slot] = gap;
    return slot;
  }

  frame(slot) {
    return [this.ar[slot], this.ai[slot], this.br[slot], this.bi[slot]];
  }

  /** The slot of the node nearest to a point of the disk, within a distance, or −1. Joints have no slot here. */
  nearest(x, y, within, nodes) {
    let best = -1, least = within * within;
    for (let slot = 0; slot < this.count; slot++) {
      const square = (this.x[slot] - x) ** 2 + (this.y[slot] - y) ** 2;
      if (square < least && this.node[slot] < nodes) {
        best = slot;
        least = square;
      }
    }
    return best;
  }
}

/** A layout seen through a frame: `frame` is that of the node `anchor`, near the centre, so that no digits are lost. */
export class View {
  constructor(layout) {
    this.layout = layout;
    this.anchor = 0;
    this.frame = [1, 0, 0, 0];
  }

  get state() {
    return { anchor: this.anchor, frame: this.frame };
  }

  set state({ anchor, frame }) {
    this.anchor = anchor;
    this.frame = normal(frame);
  }

  /** Move everything by an isometry, from a state on (by default the present one). */
  move(isometry, { anchor, frame } = this.state) {
    this.state = { anchor, frame: compose(isometry, frame) };
  }

  /** The frame of any node, by the steps between it and the anchor. */
  frameOf(node) {
    const { parent } = this.layout, down = [];
    const above = new Set();
    for (let at = this.anchor; at >= 0; at = parent[at]) above.add(at);
    for (; !above.has(node); node = parent[node]) down.push(node);
    let frame = this.frame;
    for (let at = this.anchor; at !== node; at = parent[at]) frame = compose(frame, inverse(this.layout.step(at)));
    while (down.length) frame = compose(frame, this.layout.step(down.pop()));
    return frame;
  }

  /**
   * States on the way that brings a node to the centre, or the point at some distance `behind` it, as a function of the
   * time from 0 to 1.
   */
  flightTo(node, behind = 0) {
    const forth = step(this.layout.ux[node], this.layout.uy[node], behind);
    const start = this.state, along = flight(compose(this.frameOf(node), inverse(forth))), back = inverse(along(0));
    // Each half is computed from its own end, where the numbers are small.
    return (time) =>
      time < 0.5
        ? { anchor: start.anchor, frame: compose(compose(along(time), back), start.frame) }
        : { anchor: node, frame: compose(along(time), forth) };
  }

  /**
   * Fill `scene` with what is visible on a disk of `radius` pixels. `detail` below 1 leaves out more. Returns whether
   * everything had room. The node nearest to the centre becomes the anchor.
   */
  collect(scene, radius, detail = 1) {
    const { layout } = this, { parent } = layout;
    scene.count = 0;
    let frame = this.frame, node = this.anchor;
    for (; node >= 0 && scene.count < scene.capacity; node = parent[node]) {
      scene.add(node, parent[node] < 0 ? -1 : scene.count + 1, ...frame);
      frame = compose(frame, inverse(layout.step(node)));
    }
    const chain = scene.count;
    const far = layout.room ? null : { seen: (2 * radius * detail) / SEEN, opened: (2 * radius * detail) / OPENED };
    let whole = true;
    for (let slot = 0; slot < scene.count && whole; slot++) whole = this.open(scene, slot, chain, far, radius * detail);
    let best = 0;
    for (let slot = 1; slot < scene.count; slot++) if (scene.gap[slot] > scene.gap[best]) best = slot;
    this.state = { anchor: scene.node[best], frame: scene.frame(best) };
    return whole;
  }

  /** Add the visible children of a slot. */
  open(scene, slot, chain, far, radius) {
    const { layout } = this, node = scene.node[slot];
    if (slot >= chain && !this.opens(scene, slot, far, radius)) return true;
    const above = slot > 0 && slot < chain ? scene.node[slot - 1] : -1;
    const ar = scene.ar[slot], ai = scene.ai[slot], br = scene.br[slot], bi = scene.bi[slot];
    const first = layout.first[node], end = first + layout.children[node];
    for (let child = first; child < end; child++) {
      if (child === above) continue;
      const cr = layout.ar[child], ci = layout.ai[child], dr = layout.br[child], di = layout.bi[child];
      const pr = ar * cr - ai * ci + br * dr + bi * di, pi = ar * ci + ai * cr - br * di + bi * dr;
      const qr = ar * dr - ai * di + br * cr + bi * ci, qi = ar * di + ai * dr - br * ci + bi * cr;
      if (far && front(pr, pi, qr, qi, layout.ux[child], layout.uy[child]) > far.seen) continue;
      if (scene.count === scene.capacity) return false;
      scene.add(child, slot, pr, pi, qr, qi);
    }
    return true;
  }

  /** Whether the children of a slot may be large enough to be seen. */
  opens(scene, slot, far, radius) {
    const { layout } = this, node = scene.node[slot];
    const ar = scene.ar[slot], ai = scene.ai[slot], br = scene.br[slot], bi = scene.bi[slot];
    if (far) return front(ar, ai, br, bi, layout.ux[node], layout.uy[node]) <= far.opened;
    return radius * scene.gap[slot] * layout.room[node] > OPENED;
  }
}

/**
 * sinh of the distance between the centre and the half-plane in front of a node, below 0 if the centre is inside. On a
 * disk of radius R, all of that half-plane is smaller than 2R divided by it.
 */
function front(ar, ai, br, bi, ux, uy) {
  return 2 * (ux * (br * ar + bi * ai) + uy * (bi * ar - br * ai));
}
