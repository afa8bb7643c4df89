// The disk's mathematics against numbers that ghrq.geometry.ball wrote in float64.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as disk from "../../../src/ghrq/report/explorer/disk.js";

const known = JSON.parse(readFileSync(`${process.env.GHRQ_REFERENCE}/disk.json`, "utf8"));
const close = (found, wanted, scale = 1) =>
  assert.ok(Math.abs(found - wanted) <= 1e-12 * scale, `${found} is not ${wanted}`);
const same = ([x, y], [u, v]) => {
  close(x, u);
  close(y, v);
};

test("the gap keeps its digits up to the rim", () => {
  for (const { x, gap } of known.gaps) close(disk.gap(...x), gap, gap);
});

test("a translation is Möbius addition", () => {
  for (const { x, y, sum } of known.sums) {
    same(disk.apply(disk.translation(...x), ...y), sum);
    same(disk.origin(disk.compose(disk.translation(...x), disk.translation(...y))), sum);
  }
});

test("distances", () => {
  for (const { x, y, distance } of known.distances) {
    const between = disk.compose(disk.inverse(disk.translation(...x)), disk.translation(...y));
    close(disk.distance(between), distance, distance);
  }
});

test("a drag from a to b is the translation by b ⊟ a", () => {
  for (const { a, b, w, moved } of known.drags) {
    const carried = disk.carrying(...a, ...b);
    same(disk.apply(carried, ...a), b);
    same(disk.apply(carried, ...w), moved);
  }
});

test("a product of steps is the nested sum, and keeps the gap, however far it leads", () => {
  for (const { steps, sum, gap } of known.chains) {
    let frame = [1, 0, 0, 0];
    for (const [angle, distance] of steps) {
      frame = disk.compose(frame, disk.step(Math.cos(angle), Math.sin(angle), distance));
    }
    same(disk.origin(frame), sum);
    const found = 1 / (frame[0] ** 2 + frame[1] ** 2);
    close(found, gap, gap);
    close(disk.distance(frame), 2 * Math.asinh(Math.sqrt((1 - gap) / gap)), disk.distance(frame));
  }
});

test("all points of a geodesic are on its circle, which meets the rim at right angles", () => {
  for (const { a, b, points } of known.geodesics) {
    const [x, y, r] = disk.circle(...a, ...b);
    close(x * x + y * y, 1 + r * r, 1 + r * r);
    for (const [u, v] of points) close(Math.hypot(u - x, v - y), r, Math.max(1, r));
  }
  assert.equal(disk.circle(0.1, 0.2, 0.3, 0.6), null);
});

test("a flight follows the geodesic and ends at the centre, from any distance", () => {
  for (const { y, half } of known.flights) {
    const along = disk.flight(disk.translation(...y));
    same(disk.origin(along(0)), y);
    same(disk.origin(along(0.5)), half);
    assert.equal(disk.distance(along(1)), 0);
  }
  let far = [1, 0, 0, 0];
  for (let i = 0; i < 40; i++) far = disk.compose(far, disk.step(Math.cos(i), Math.sin(i), 2));
  assert.equal(disk.distance(disk.flight(far)(1)), 0);
});
