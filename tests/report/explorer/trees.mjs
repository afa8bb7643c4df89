// Trees for tests, in the columns of a page.
import { Tree } from "../../../src/ghrq/report/explorer/data.js";

/** A generator of numbers from 0 to 1, the same in every run. */
export function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** A tree with up to `most` children of each node, and one to three items of each leaf. */
export function randomTree(seed, stages, most) {
  const random = chance(seed), children = [], code = [0];
  let level = 1;
  for (let depth = 0; depth < stages; depth++) {
    let next = 0;
    for (let i = 0; i < level; i++) {
      const count = 1 + Math.floor(random() ** 2 * most);
      children.push(count);
      for (let j = 0; j < count; j++) code.push((7 * j) % most);
      next += count;
    }
    level = next;
  }
  for (let i = 0; i < level; i++) children.push(0);
  const leafItems = Array.from({ length: level }, () => 1 + Math.floor(3 * random()));
  const items = leafItems.reduce((sum, count) => sum + count, 0);
  const size = children.length, columns = {
    children, code, count: new Array(size).fill(1), distance: Array.from({ length: size }, () => 0.5 + random()),
    like: new Array(size).fill(0), order: Array.from({ length: items }, (_, i) => i), leaf_items: leafItems,
    used: [], near: [], away: [],
  };
  const named = Object.fromEntries(Object.entries(columns).map(([name, column]) => [`0.${name}`, Float64Array.from(column)]));
  const tree = new Tree({ stages, near: [] }, named, 0);
  for (let node = 0; node < size; node++) tree.count[node] = tree.to[node] - tree.from[node];
  return tree;
}
