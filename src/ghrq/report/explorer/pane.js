// One disk: a canvas with a tree, and what pointer, wheel and keys do to it.

import { carrying, distance, origin, step } from "./disk.js";
import { Painter } from "./draw.js";
import { Scene, View } from "./view.js";

const SLOTS = 9000;
const EDGE = 0.97; // the farthest radius that can be grabbed: the rim itself is infinitely far
const CLICK = 5, REACH = 16; // pixels: a pointer that moves less clicks; how far from a node a click counts
const BEHIND = 1.3; // how far behind a leaf the centre is
const MOVING = 0.65, SLOW = 19; // detail while it moves; milliseconds between frames, above which it is lowered
const KEPT = 600; // frame costs that are kept

/** Calls `owner.moved(pane, isometry, since)`, `owner.picked(pane, node)` and `owner.key(pane, event)`. */
export class Pane {
  constructor(canvas, tree, layouts, owner) {
    this.canvas = canvas;
    this.tree = tree;
    this.layouts = layouts;
    this.owner = owner;
    this.view = new View(layouts.tree);
    this.scene = new Scene(SLOTS);
    this.painter = new Painter(canvas.getContext("2d"));
    this.look = { tree, path: new Set(), selected: 0, hovered: -1 };
    this.detail = MOVING;
    this.drawn = 0;
    this.costs = [];
    this.pointers = new Map();
    this.listen();
  }

  /** Show the tree or the true radii. */
  use(name) {
    this.view = new View(this.layouts[name]);
    this.request();
  }

  /** Take the size of the canvas on the page; returns whether it is another one. */
  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (box.width === this.look.width && box.height === this.look.height) return false;
    const scale = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(box.width * scale);
    this.canvas.height = Math.round(box.height * scale);
    this.canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    this.look.width = box.width;
    this.look.height = box.height;
    this.look.radius = Math.max(40, Math.min(box.width, box.height) / 2 - 14);
    return true;
  }

  /** Draw soon, once. */
  request() {
    if (this.requested) return;
    this.requested = requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.requested);
    this.requested = 0;
    const start = performance.now(), moving = this.moving || this.flying, between = start - this.drawn;
    this.drawn = start;
    this.view.collect(this.scene, this.look.radius, moving ? this.detail : 1);
    this.look.most = moving ? 34 : 60;
    this.painter.paint(this.scene, this.look);
    const cost = performance.now() - start;
    this.costs.push(cost);
    if (this.costs.length > KEPT) this.costs.shift();
    if (moving) {
      // Most of the work of a frame is done by the browser afterwards, so its length counts.
      const late = between > SLOW && between < 20 * SLOW; // longer ones are pauses
      this.detail = late ? Math.max(0.3, 0.9 * this.detail) : Math.min(MOVING, 1.02 * this.detail);
      clearTimeout(this.rest);
      this.rest = setTimeout(() => this.request(), 150);
    }
  }

  /** Bring a node to the centre, in steps unless the reader wants no motion. */
  fly(node, still = false) {
    cancelAnimationFrame(this.flying);
    // A whole tuple is seen best among its relatives, any other node with what comes after it.
    const along = this.view.flightTo(node, this.tree.children[node] ? 0 : BEHIND), far = distance(this.view.frameOf(node));
    const start = performance.now(), lasting = Math.min(1500, 350 + 110 * far);
    const next = (now) => {
      const time = still ? 1 : Math.min(1, Math.max(0, (now - start) / lasting));
      this.view.state = along(time < 0.5 ? 2 * time * time : 1 - 2 * (1 - time) ** 2);
      this.flying = time < 1 ? requestAnimationFrame(next) : 0;
      this.draw();
    };
    next(start);
  }

  stop() {
    cancelAnimationFrame(this.flying);
    this.flying = 0;
  }

  /** Where a pointer is on the disk. */
  at(event) {
    const box = this.canvas.getBoundingClientRect(), { width, height, radius } = this.look;
    const x = (event.clientX - box.left - width / 2) / radius, y = (height / 2 - (event.clientY - box.top)) / radius;
    const f = Math.min(1, EDGE / Math.hypot(x, y));
    return [f * x, f * y];
  }

  /** The node at a point of the disk, or −1. */
  nodeAt([x, y]) {
    const slot = this.scene.nearest(x, y, REACH / this.look.radius, this.tree.size);
    return slot < 0 ? -1 : this.scene.node[slot];
  }

  listen() {
    const { canvas } = this, on = (name, handler) => canvas.addEventListener(name, handler, { passive: false });
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) on(name, (event) => this.up(event));
    on("pointerleave", () => this.hover(-1));
    on("wheel", (event) => this.wheel(event));
    on("keydown", (event) => this.owner.key(this, event));
  }

  down(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.stop();
    this.pointers.set(event.pointerId, event);
    this.grab();
  }

  /** Begin a drag or a pinch with the pointers that are down. */
  grab() {
    const [one, two] = [...this.pointers.values()];
    this.grabbed = one && { at: this.at(middle(one, two)), x: one.clientX, y: one.clientY, spread: spread(one, two) };
    this.since = this.owner.states();
  }

  drag(event) {
    if (!this.pointers.has(event.pointerId)) {
      if (event.pointerType !== "touch") this.hover(this.nodeAt(this.at(event)));
      return;
    }
    this.pointers.set(event.pointerId, event);
    const [one, two] = [...this.pointers.values()], { grabbed } = this;
    if (!this.moving && !two && Math.hypot(one.clientX - grabbed.x, one.clientY - grabbed.y) < CLICK) return;
    this.moving = true;
    if (two) {
      const now = spread(one, two);
      this.deeper(2.2 * Math.log(now / grabbed.spread), this.at(middle(one, two)));
      grabbed.spread = now;
    } else {
      this.owner.moved(this, carrying(...grabbed.at, ...this.at(one)), this.since);
    }
  }

  up(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    const clicked = !this.moving && event.type === "pointerup" && !this.pointers.size;
    if (this.pointers.size) {
      this.grab();
    } else {
      this.moving = false;
      this.request();
    }
    if (clicked) {
      const node = this.nodeAt(this.at(event));
      if (node >= 0) this.owner.picked(this, node);
    }
  }

  hover(node) {
    if (node === this.look.hovered) return;
    this.look.hovered = node;
    this.canvas.style.cursor = node >= 0 ? "pointer" : "";
    this.request();
  }

  wheel(event) {
    event.preventDefault();
    this.stop();
    const lines = event.deltaMode ? 30 : 1;
    this.deeper(-0.0032 * lines * Math.max(-240, Math.min(240, event.deltaY)), this.at(event));
    this.moving = true;
    clearTimeout(this.wheeled);
    this.wheeled = setTimeout(() => {
      this.moving = false;
      this.request();
    }, 160);
  }

  /** Go by a distance toward a point of the disk; back, where the distance is negative, toward the root. */
  deeper(by, [x, y]) {
    if (by < 0) {
      const root = this.view.frameOf(0), far = distance(root);
      [x, y] = origin(root);
      by = Math.min(-by, far);
    } else if (Math.hypot(x, y) < 0.12) {
      const child = this.tree.largestChild(this.view.anchor < this.tree.size ? this.view.anchor : 0);
      if (child < 0) return;
      [x, y] = origin(this.view.frameOf(child));
    }
    const length = Math.hypot(x, y);
    if (length > 1e-9) this.owner.moved(this, step(x / length, y / length, -by), this.owner.states());
  }
}

const middle = (one, two) =>
  two ? { clientX: (one.clientX + two.clientX) / 2, clientY: (one.clientY + two.clientY) / 2 } : one;

const spread = (one, two) =>
  two ? Math.max(1, Math.hypot(one.clientX - two.clientX, one.clientY - two.clientY)) : 0;
