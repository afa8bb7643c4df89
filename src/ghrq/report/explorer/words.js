// Sentences about nodes and items.

export const number = (value) => value.toLocaleString("en-US");

export const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

/** The label that most items of a node have, as { name, share }, or null. */
export function commonest(tree, node, names) {
  if (!names) return null;
  const total = new Map();
  for (let place = tree.from[node]; place < tree.to[node]; place++) {
    const name = names.of[tree.order[place]];
    total.set(name, (total.get(name) || 0) + 1);
  }
  let best = null;
  for (const [name, count] of total) {
    if (name < names.list.length && (!best || count > best.count)) best = { name: names.list[name], count };
  }
  return best && { name: best.name, share: best.count / (tree.to[node] - tree.from[node]) };
}

/** "91 % animal", or nothing where no label has a third of the items. */
export function mostly(tree, node, names) {
  const found = commonest(tree, node, names);
  return found && found.share >= 1 / 3 ? `${percent(found.share)} ${found.name}` : "";
}

const percent = (share) => (share >= 0.995 && share < 1 ? "over 99 %" : `${Math.round(100 * share)} %`);

const branches = (tree, node) => `${number(tree.children[node])} ${tree.children[node] === 1 ? "branch" : "branches"}`;

/** What a node is, in one or two sentences. */
export function sentence(tree, node, stages) {
  const items = counted(tree.count[node], "item"), depth = tree.depth[node];
  if (!depth) return `${items}. The first code parts them into ${branches(tree, 0)}.`;
  if (depth === stages) {
    return tree.count[node] === 1
      ? `All ${stages} codes: this item has them for itself.`
      : `All ${stages} codes: ${items} share them.`;
  }
  const common = depth === 1 ? "this first code" : `these ${depth} of ${stages} codes`;
  return `${items} with ${common}. The next code parts them into ${branches(tree, node)}.`;
}

/** How far the decoded point is from the origin. */
export function radius(tree, node) {
  const away = tree.distance[node];
  if (tree.about.flat) return `Its decoded vector has ${away.toFixed(2)} times the length that the page calls 1.`;
  return `Its decoded point has radius ${Math.tanh(away / 2).toFixed(3)} on the ball, ${away.toFixed(2)} from the origin.`;
}

/** The other nodes that are most alike: siblings first, then siblings of the parent. */
export function relatives(tree, node, most) {
  const found = tree.siblings(node, most).map((each) => ({ ...each, of: "sibling" }));
  const parent = tree.parent[node];
  if (found.length < most && parent > 0) {
    const cousins = tree.siblings(parent, most - found.length);
    found.push(...cousins.map((each) => ({ ...each, of: "sibling of its parent" })));
  }
  return found;
}
