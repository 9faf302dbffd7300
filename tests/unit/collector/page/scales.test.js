/** Colours of cells, price tiers and orders. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { byName, differenceClass, sortedBy, stepScale, tierOf } from "./static/ordering.js";

test("the best value has the first step and the worst the last", () => {
  const latency = stepScale([100, 3200, null], { moreIsBetter: false });
  assert.deepEqual([100, 190, 400, 3200].map(latency), [0, 1, 2, 5]);
  const speed = stepScale([10, 160], { moreIsBetter: true });
  assert.deepEqual([160, 10, 40].map(speed), [0, 5, 3]);
});

test("shares have a linear scale", () => {
  assert.deepEqual([0, 57, 100].map(stepScale([0, 57, 100], { moreIsBetter: true, isLinear: true })), [5, 2, 0]);
});

test("equal values have one step, and none is outside", () => {
  assert.equal(stepScale([5, 5], { moreIsBetter: false })(5), 0);
  assert.equal(stepScale([], { moreIsBetter: false })(5), 0);
  assert.equal(stepScale([1, 10], { moreIsBetter: false })(1000), 5);
  assert.equal(stepScale([0, 10, 90], { moreIsBetter: true })(0), 5);
});

test("a differential is coloured by its decision first, then by its size", () => {
  for (const [decision, percent, name] of /** @type {[string, number | null, string][]} */ ([
    ["slower", 19, "worse1"], ["slower", 20, "worse2"], ["slower", 120, "worse3"], ["faster", -51, "better3"],
    ["faster", null, "better1"], ["equivalent", 3, "same"], ["undecided", 300, "unsure"], ["mixed", 10, "unsure"],
  ])) assert.equal(differenceClass(decision, percent), name);
});

test("a price at a boundary belongs to the more expensive tier", () => {
  assert.deepEqual([null, 0, 0.1, 0.15, 0.3, 0.8].map(tierOf),
    ["unpriced", "free", "nearly free", "sweet spot", "quality first", "premium"]);
});

test("rows without a number come last in both directions", () => {
  const rows = [{ v: 2 }, { v: null }, { v: 1 }];
  assert.deepEqual(sortedBy(rows, (row) => row.v).map((row) => row.v), [1, 2, null]);
  assert.deepEqual(sortedBy(rows, (row) => row.v, { descending: true }).map((row) => row.v), [2, 1, null]);
});

test("names are ordered as people read them", () => {
  assert.deepEqual(["b10", "B9", "a"].sort(byName), ["a", "B9", "b10"]);
});
