// Draw a scene on a canvas: edges in few strokes, dots by number of items, labels where there is room.

import { circle } from "./disk.js";

// Edges by the gap of their outer end: at least, opacity, width in pixels. Near the rim they are faint.
const EDGES = [[0.3, 0.85, 1.7], [0.09, 0.62, 1.25], [0.02, 0.42, 0.9], [0, 0.26, 0.7]];
const BENT = 0.2; // pixels between an arc and its chord: less is drawn as a line
const SHORT = 4; // pixels: shorter edges are drawn as lines
const SPECK = 0.8, TINY = 1.4; // pixels: dots below these radii are left out, or squares
const TIGHT = 0.6; // arcs below this angle are drawn as parabolas, which differ by less than a tenth of a pixel
const FONTS = [[0.45, 15, 600], [0.18, 13, 500], [0, 11.5, 400]]; // by the gap: at least, pixels, weight
const LONGEST = 30; // characters of a label
const FAMILY = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const OTHER = 255; // the colour of nodes without one

/** The radius of a node in pixels, on a disk of `radius` pixels. */
export function dotRadius(radius, gap, items, room = Infinity) {
  return Math.min(24, radius * gap * Math.min(room / 2, 0.0085 + 0.0026 * Math.log2(1 + items)));
}

/** Draws scenes of one canvas; it remembers which labels it showed, so that they stay. */
export class Painter {
  constructor(context) {
    this.context = context;
    this.widths = new Map();
    this.shown = new Set();
    this.boxes = [];
    this.order = new Int32Array(0);
    this.bucket = new Uint16Array(0);
  }

  /**
   * `look`: { width, height, radius, tree, colours (of nodes), palette, mixed, theme, label (of a node), path (nodes from
   * the root to the selected one), selected, hovered, most (labels) }. The middle of the canvas is the centre.
   */
  paint(scene, look) {
    const { context } = this, { theme } = look;
    context.clearRect(0, 0, look.width, look.height);
    this.cx = look.width / 2;
    this.cy = look.height / 2;
    context.lineCap = "round";
    this.sort(scene, look);
    this.edges(scene, look);
    this.path(scene, look);
    this.dots(scene, look);
    this.rings(scene, look);
    this.labels(scene, look);
    context.globalAlpha = 1;
    context.fillStyle = theme.ink;
  }

  /** Put the slots in the order of colour and level of opacity. */
  sort(scene, look) {
    if (this.order.length < scene.count) {
      this.order = new Int32Array(scene.capacity);
      this.bucket = new Uint16Array(scene.capacity);
    }
    const levels = EDGES.length, start = (this.start = new Uint32Array(256 * levels + 1));
    for (let slot = 0; slot < scene.count; slot++) {
      let level = 0;
      while (scene.gap[slot] < EDGES[level][0]) level++;
      const bucket = look.colours[scene.node[slot]] * levels + level;
      this.bucket[slot] = bucket;
      start[bucket + 1]++;
    }
    for (let i = 1; i < start.length; i++) start[i] += start[i - 1];
    const next = start.slice();
    for (let slot = 0; slot < scene.count; slot++) this.order[next[this.bucket[slot]]++] = slot;
  }

  edges(scene, look) {
    const { context, start } = this, levels = EDGES.length;
    for (let bucket = 0; bucket + 1 < start.length; bucket++) {
      if (start[bucket] === start[bucket + 1]) continue;
      const colour = Math.floor(bucket / levels), [, opacity, width] = EDGES[bucket % levels];
      context.strokeStyle = colour === OTHER ? look.mixed : look.palette[colour];
      context.globalAlpha = opacity;
      context.lineWidth = width;
      context.beginPath();
      for (let i = start[bucket]; i < start[bucket + 1]; i++) this.edge(scene, look.radius, this.order[i]);
      context.stroke();
    }
  }

  /** Add the geodesic from the parent of a slot to the path. */
  edge(scene, radius, slot) {
    const from = scene.from[slot];
    if (from < 0) return;
    const ax = scene.x[from], ay = scene.y[from], bx = scene.x[slot], by = scene.y[slot];
    const { context, cx, cy } = this, x = cx + radius * bx, y = cy - radius * by;
    context.moveTo(cx + radius * ax, cy - radius * ay);
    const chord = (bx - ax) ** 2 + (by - ay) ** 2, round = chord * radius * radius < SHORT ** 2 ? null : circle(ax, ay, bx, by);
    if (round === null || (radius * chord) / (8 * round[2]) < BENT) {
      context.lineTo(x, y);
    } else if (chord < (TIGHT * round[2]) ** 2) {
      // The tangents at both ends meet here.
      const mx = (ax + bx) / 2 - round[0], my = (ay + by) / 2 - round[1], f = round[2] ** 2 / (mx * mx + my * my);
      context.quadraticCurveTo(cx + radius * (round[0] + f * mx), cy - radius * (round[1] + f * my), x, y);
    } else {
      const one = Math.atan2(round[1] - ay, ax - round[0]), two = Math.atan2(round[1] - by, bx - round[0]);
      const back = Math.sin(two - one) < 0;
      context.arc(cx + radius * round[0], cy - radius * round[1], radius * round[2], one, two, back);
    }
  }

  /** The way from the root to the selected node, above the other edges. */
  path(scene, look) {
    const { context } = this;
    context.globalAlpha = 1;
    for (const [style, width] of [[look.theme.paper, 6], [look.theme.accent, 2.6]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.beginPath();
      for (let slot = 0; slot < scene.count; slot++) {
        if (look.path.has(scene.node[slot])) this.edge(scene, look.radius, slot);
      }
      context.stroke();
    }
  }

  /** The radius of a slot's dot in pixels. */
  radius(scene, look, slot) {
    const node = scene.node[slot];
    return dotRadius(look.radius, scene.gap[slot], look.tree.count[node], look.room?.[node]);
  }

  dots(scene, look) {
    const { context, start, cx, cy } = this, levels = EDGES.length, { radius, tree } = look;
    context.globalAlpha = 1;
    for (let colour = 0; colour <= OTHER; colour++) {
      const from = start[colour * levels], to = start[(colour + 1) * levels];
      if (from === to) continue;
      context.fillStyle = colour === OTHER ? look.mixed : look.palette[colour];
      context.beginPath();
      for (let i = from; i < to; i++) {
        const slot = this.order[i], node = scene.node[slot];
        if (node >= tree.size) continue;
        const r = this.radius(scene, look, slot);
        if (r < SPECK) continue; // the end of its edge is as large
        const x = cx + radius * scene.x[slot], y = cy - radius * scene.y[slot];
        if (r < TINY) {
          context.rect(x - r, y - r, 2 * r, 2 * r);
        } else {
          context.moveTo(x + r, y);
          context.arc(x, y, r, 0, 2 * Math.PI);
        }
      }
      context.fill();
    }
  }

  /** Rings around the selected node and the one under the pointer. */
  rings(scene, look) {
    const { context, cx, cy } = this;
    for (let slot = 0; slot < scene.count; slot++) {
      const node = scene.node[slot];
      if (node !== look.selected && node !== look.hovered) continue;
      const r = this.radius(scene, look, slot);
      context.strokeStyle = node === look.selected ? look.theme.accent : look.theme.ink;
      context.lineWidth = 2.5;
      context.beginPath();
      context.arc(cx + look.radius * scene.x[slot], cy - look.radius * scene.y[slot], r + 4, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  labels(scene, look) {
    const wanted = [], { tree } = look;
    for (let slot = 0; slot < scene.count; slot++) {
      const node = scene.node[slot], gap = scene.gap[slot];
      if (node >= tree.size || node === 0 || gap < 0.012) continue;
      if (tree.children[node] === 1 && node !== look.selected && node !== look.hovered) continue; // its child says it
      let score = gap ** 0.8 * (1 + 0.15 * Math.log2(1 + tree.count[node]));
      if (this.shown.has(node)) score *= 1.2;
      if (node === look.hovered || node === look.selected) score = 1e9 + gap;
      wanted.push([score, slot]);
    }
    wanted.sort((a, b) => b[0] - a[0]);
    this.boxes = this.large(scene, look);
    const placed = new Set();
    for (const [score, slot] of wanted.slice(0, 6 * look.most)) {
      if (placed.size === look.most) break;
      if (this.text(scene, look, slot, score >= 1e9)) placed.add(scene.node[slot]);
    }
    this.shown = placed;
  }

  /** The boxes of dots that a label should not cover. */
  large(scene, look) {
    const boxes = [];
    for (let slot = 0; slot < scene.count; slot++) {
      const node = scene.node[slot];
      if (node >= look.tree.size || scene.gap[slot] < 0.05) continue;
      const r = this.radius(scene, look, slot) + 1;
      const x = this.cx + look.radius * scene.x[slot], y = this.cy - look.radius * scene.y[slot];
      if (r > 3) boxes.push([x - r, y - r, x + r, y + r, slot]);
    }
    return boxes;
  }

  /** Write a label beside its dot if there is room, or always if it `must` be. */
  text(scene, look, slot, must) {
    const { context } = this, node = scene.node[slot], gap = scene.gap[slot];
    const label = shortened(look.label(node), must ? 2 * LONGEST : LONGEST);
    if (!label) return false;
    const [, size, weight] = FONTS.find(([least]) => gap >= least);
    const font = `${must ? 700 : weight} ${size}px ${FAMILY}`;
    const r = this.radius(scene, look, slot) + (must ? 8 : 4);
    const x = this.cx + look.radius * scene.x[slot], y = this.cy - look.radius * scene.y[slot];
    const width = this.width(font, label), from = scene.from[slot];
    const right = from < 0 ? scene.x[slot] >= 0 : scene.x[slot] >= scene.x[from];
    let left = right ? x + r : x - r - width;
    if (must) left = Math.max(4, Math.min(look.width - width - 4, left));
    const box = [left - 2, y - size * 0.62, left + width + 2, y + size * 0.62, slot];
    const outside = box[0] < 2 || box[2] > look.width - 2 || box[1] < 2 || box[3] > look.height - 2;
    if (!must && (outside || this.boxes.some((other) => other[4] !== slot && overlap(box, other)))) return false;
    this.boxes.push(box.with(4, -1));
    context.font = font;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.lineJoin = "round";
    context.globalAlpha = 1;
    context.lineWidth = 3.5;
    context.strokeStyle = look.theme.halo;
    context.strokeText(label, left, y);
    context.fillStyle = gap < 0.06 && !must ? look.theme.pale : look.theme.ink;
    context.fillText(label, left, y);
    return true;
  }

  width(font, label) {
    const key = `${font}|${label}`;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size > 5000) this.widths.clear();
      this.context.font = font;
      width = this.context.measureText(label).width;
      this.widths.set(key, width);
    }
    return width;
  }
}

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

/** At most `most` characters. */
export function shortened(text, most) {
  const letters = Array.from(text.slice(0, 4 * most));
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("").trimEnd()}…`;
}
