// Columns that Python packed, search and sentences.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { branchColours, nameColours, oklch, palette } from "../../../src/ghrq/report/explorer/colours.js";
import { decode, Tree } from "../../../src/ghrq/report/explorer/data.js";
import { shortened } from "../../../src/ghrq/report/explorer/draw.js";
import { treeLayout } from "../../../src/ghrq/report/explorer/layout.js";
import { folded, Search } from "../../../src/ghrq/report/explorer/search.js";
import { commonest, mostly, relatives, sentence } from "../../../src/ghrq/report/explorer/words.js";

const folder = process.env.GHRQ_REFERENCE;
const known = JSON.parse(readFileSync(`${folder}/tree.json`, "utf8"));
const { header, columns } = await decode(readFileSync(`${folder}/data.txt`, "utf8"));
const tree = new Tree(header.trees[0], columns, 0);

test("every item has its codes", () => {
  assert.equal(columns.labels.length, known.items.length);
  const at = new Map(columns.labels.map((label, item) => [label, item]));
  for (const { label, codes } of known.items) {
    const leaf = tree.leafOf[at.get(label)];
    assert.deepEqual(tree.codes(leaf), codes);
    assert.equal(tree.find(codes), leaf);
  }
  assert.equal(tree.find([999]), -1);
});

test("prefixes have the items below them", () => {
  for (const { codes, labels, count } of known.prefixes) {
    const node = tree.find(codes), found = [];
    for (let place = tree.from[node]; place < tree.to[node]; place++) found.push(columns.labels[tree.order[place]]);
    assert.deepEqual(found.sort(), labels);
    assert.equal(tree.count[node], count);
  }
});

test("siblings come by the distance of their decoded points", () => {
  for (const { codes, siblings } of known.siblings) {
    const found = tree.siblings(tree.find(codes), siblings.length);
    assert.deepEqual(found.map(({ node }) => tree.code[node]), siblings.map(([code]) => code));
    found.forEach(({ away }, i) => assert.ok(Math.abs(away - siblings[i][1]) < 1e-5));
  }
});

test("keys walk through the tree", () => {
  const child = tree.largestChild(0);
  assert.equal(tree.parent[child], 0);
  assert.equal(tree.sibling(tree.sibling(child, 1), -1), child);
  assert.equal(tree.sibling(0, 1), 0);
  assert.equal(tree.largestChild(tree.size - 1), -1);
});

test("search ignores case, accents and what has no width, and puts the best first", () => {
  const search = new Search(["hot dog", "dogma", "Dög", "d\u200bog", "cat", "bulldog"], ["a", "b", "c", "d", "dog.n", "f"]);
  assert.equal(folded("Ｄö\u200bG"), "dog");
  assert.deepEqual(search.find("dog", 9), { items: [2, 3, 4, 1, 0, 5], count: 6 });
  assert.deepEqual(search.find("DOG", 2), { items: [2, 3], count: 6 });
  assert.deepEqual(search.find("  ", 9), { items: [], count: 0 });
  assert.deepEqual(new Search(["a(b", "a.b"], null).find("a(", 9).items, [0]);
});

test("sentences name what is there", () => {
  assert.match(sentence(tree, 0, 3), /^\d+ items\. The first code parts them into \d+ branches\.$/);
  const leaf = tree.size - 1;
  assert.match(sentence(tree, leaf, 3), /^All 3 codes/);
  const names = { list: ["left", "right"], of: columns.colour };
  const share = commonest(tree, leaf, names);
  assert.ok(share.share > 0 && share.share <= 1);
  assert.match(mostly(tree, leaf, names), /^(over )?\d+ % (left|right)$/);
  assert.equal(mostly(tree, leaf, null), "");
  for (const { node } of relatives(tree, leaf, 6)) assert.notEqual(node, leaf);
  assert.equal(shortened("👩‍🚀".repeat(40), 5).length <= 12, true);
});

test("colours are in range, for every node and joint", () => {
  const layout = treeLayout(tree), { branches, names } = palette({ dark: true, contrast: false });
  const byBranch = branchColours(layout), byName = nameColours(layout, columns.colour, 2);
  for (let node = 1; node < layout.count; node++) {
    assert.ok(byBranch[node] < branches.length);
    assert.ok(byName[node] < names.length || byName[node] === 255);
  }
  assert.deepEqual(oklch(1, 0, 0), [255, 255, 255]);
  assert.deepEqual(oklch(0, 0, 0), [0, 0, 0]);
});
