// The layout and what is visible of it, against plain versions that look at every node.
import assert from "node:assert/strict";
import { test } from "node:test";
import { compose, distance, inverse, origin, step } from "../../../src/ghrq/report/explorer/disk.js";
import { treeLayout, trueLayout } from "../../../src/ghrq/report/explorer/layout.js";
import { Scene, View } from "../../../src/ghrq/report/explorer/view.js";
import { chance, randomTree } from "./trees.mjs";

const trees = [randomTree(1, 3, 30), randomTree(2, 5, 6), randomTree(3, 2, 120), randomTree(4, 1, 1)];

/** The frames of all nodes, from the root on. */
function allFrames(layout, root = [1, 0, 0, 0]) {
  const frames = [root], waiting = [0];
  while (waiting.length) {
    const node = waiting.pop();
    for (let child = layout.first[node]; child < layout.first[node] + layout.children[node]; child++) {
      frames[child] = compose(frames[node], layout.step(child));
      waiting.push(child);
    }
  }
  return frames;
}

test("every node of the tree has its place, through joints with few children", () => {
  for (const tree of trees) {
    const layout = treeLayout(tree), frames = allFrames(layout);
    assert.equal(Object.keys(frames).length, layout.count);
    assert.ok(layout.count <= layout.capacity);
    for (let node = 1; node < tree.size; node++) {
      let above = layout.parent[node];
      while (above >= tree.size) above = layout.parent[above];
      assert.equal(above, tree.parent[node]);
    }
    for (let node = 0; node < layout.count; node++) assert.ok(layout.children[node] <= 9);
  }
});

test("what comes after a node is in the half-plane in front of it", () => {
  for (const tree of trees) {
    const layout = treeLayout(tree);
    for (const node of [1, 5, tree.size + 1].filter((each) => each < layout.count && layout.children[each])) {
      // In the frame of the node, x is the way ahead.
      const frames = allFrames(layout), ahead = [layout.ux[node], layout.uy[node]], back = inverse(frames[node]);
      const waiting = [node];
      while (waiting.length) {
        const each = waiting.pop(), [x, y] = origin(compose(back, frames[each]));
        assert.ok(each === node || x * ahead[0] + y * ahead[1] > 0);
        for (let i = 0; i < layout.children[each]; i++) waiting.push(layout.first[each] + i);
      }
    }
  }
});

test("siblings keep apart", () => {
  for (const tree of trees) {
    const layout = treeLayout(tree);
    for (let node = 0; node < layout.count; node++) {
      for (let i = 1; i < layout.children[node]; i++) {
        const one = layout.first[node] + i - 1;
        assert.ok(distance(compose(inverse(layout.step(one)), layout.step(one + 1))) > 0.12);
      }
    }
  }
});

test("the true layout puts nodes at the distance of their decoded points", () => {
  for (const tree of trees) {
    const frames = allFrames(trueLayout(treeLayout(tree)));
    for (let node = 1; node < tree.size; node++) {
      assert.ok(Math.abs(distance(frames[node]) - tree.distance[node]) < 1e-12);
      assert.ok(Math.abs(frames[node][1]) < 1e-12); // and no frame is turned
    }
  }
});

test("all nodes that are large enough are visible, wherever the view is, and none twice", () => {
  const random = chance(9), radius = 400;
  for (const tree of trees) {
    const layout = treeLayout(tree), view = new View(layout), scene = new Scene(40000);
    for (let round = 0; round < 12; round++) {
      const target = Math.floor(random() * tree.size), angle = 6 * random();
      view.state = view.flightTo(target)(1);
      view.move(step(Math.cos(angle), Math.sin(angle), 2 * random()));
      const all = allFrames(layout, view.frameOf(0));
      assert.ok(view.collect(scene, radius));
      const slots = new Map();
      for (let slot = 0; slot < scene.count; slot++) slots.set(scene.node[slot], slot);
      assert.equal(slots.size, scene.count);
      for (let node = 0; node < layout.count; node++) {
        // The gap of a node that is 3 pixels inside the rim.
        const gap = 1 / (all[node][0] ** 2 + all[node][1] ** 2);
        if (gap > 6 / radius) assert.ok(slots.has(node), `node ${node} is missing`);
        if (!slots.has(node)) continue;
        const slot = slots.get(node), [x, y] = origin(all[node]);
        assert.ok(Math.hypot(scene.x[slot] - x, scene.y[slot] - y) < 1e-9);
        assert.equal(scene.from[slot] < 0 ? -1 : scene.node[scene.from[slot]], layout.parent[node]);
      }
    }
  }
});

test("a scene without room says so, and stays in its bounds", () => {
  const view = new View(treeLayout(trees[0])), scene = new Scene(50);
  assert.equal(view.collect(scene, 400), false);
  assert.equal(scene.count, 50);
});

test("a node far down comes to the centre without an error, and the way back is the same", () => {
  const deep = randomTree(5, 40, 2), layout = treeLayout(deep), view = new View(layout), scene = new Scene(5000);
  const leaf = deep.size - 1;
  assert.ok(distance(view.frameOf(leaf)) > 15);
  const start = view.state, fly = view.flightTo(leaf);
  view.state = fly(1);
  assert.ok(distance(view.frameOf(leaf)) < 1e-12);
  view.collect(scene, 400);
  assert.equal(view.anchor, leaf);
  view.state = view.flightTo(0)(1);
  assert.ok(distance(view.frameOf(0)) < 1e-12);
  assert.deepEqual(fly(0).anchor, start.anchor);
});
