// Colours of nodes: by the branch of the root, round the circle of hues, or by the label that most items have.

const HUES = 36;
const NAMED = [250, 30, 145, 75, 310, 195, 350, 110, 270, 50, 165, 225];
const MIXED = 0.4; // no label has this share: grey

/** Red, green and blue from 0 to 255 of a colour of OKLCH, which looks equally light in all hues. */
export function oklch(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180, a = chroma * Math.cos(angle), b = chroma * Math.sin(angle);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((part) => {
    const p = Math.min(1, Math.max(0, part));
    return Math.round(255 * (p <= 0.0031308 ? 12.92 * p : 1.055 * p ** (1 / 2.4) - 0.055));
  });
}

const css = (lightness, chroma, hue) => `rgb(${oklch(lightness, chroma, hue).join(" ")})`;

/** The colours of a theme: { branches, names, mixed }. */
export function palette({ dark, contrast }) {
  const lightness = dark ? (contrast ? 0.86 : 0.76) : contrast ? 0.42 : 0.58, chroma = contrast ? 0.18 : 0.135;
  // Twelve hues are too many to tell apart: the second six are darker.
  const named = (hue, i) => css(lightness + (i < NAMED.length / 2 ? 0.03 : -0.1), chroma, hue);
  return {
    branches: Array.from({ length: HUES }, (_, i) => css(lightness, chroma, (360 * i) / HUES)),
    names: NAMED.map(named),
    mixed: css(dark ? 0.66 : 0.6, 0.012, 260),
  };
}

/** Most names that have a colour of their own. */
export const MOST_NAMES = NAMED.length;

/** For each node of a layout, the hue of its branch as a number of `branches`; 255 for the root. */
export function branchColours(layout) {
  const { tree, parent, angle, count } = layout, colours = new Uint8Array(count).fill(255);
  const hue = (node) => Math.floor((HUES * (angle[node] + Math.PI)) / (2 * Math.PI) + HUES) % HUES;
  const colour = (node) => {
    if (colours[node] !== 255 || node === 0) return colours[node];
    // Joints of the root and the first codes have hues of their own, what comes after them takes theirs.
    let above = parent[node];
    while (above >= tree.size) above = parent[above];
    colours[node] = above === 0 ? hue(node) : colour(parent[node]);
    return colours[node];
  };
  for (let node = 1; node < count; node++) colour(node);
  return colours;
}

/** For each node of a layout, the label that most of its items have; 255 if none has many of them. */
export function nameColours(layout, nameOf, names) {
  const { tree, count } = layout, colours = new Uint8Array(count).fill(255);
  const total = new Uint32Array(names + 1);
  const most = (from, to) => {
    total.fill(0);
    let best = names;
    for (let place = from; place < to; place++) {
      const name = nameOf[tree.order[place]];
      total[name]++;
      if (name < names && (best === names || total[name] > total[best])) best = name;
    }
    return best < names && total[best] >= MIXED * (to - from) ? best : 255;
  };
  for (let node = 0; node < count; node++) {
    const [first, last] = ends(layout, node);
    colours[node] = most(tree.from[first], tree.to[last]);
  }
  return colours;
}

/** The first and the last node of the tree that a node of the layout stands for. */
function ends(layout, node) {
  let first = node, last = node;
  while (first >= layout.tree.size) first = layout.first[first];
  while (last >= layout.tree.size) last = layout.first[last] + layout.children[last] - 1;
  return [first, last];
}
