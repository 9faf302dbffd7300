/** Distributions on a logarithmic axis, from answers as the HTTP interface gives them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { distributionsOf, logTicks, placeOf } from "./static/views/target_model.js";
import { metricOf } from "./static/views/matrix_model.js";

const TTFT = metricOf("ttft");

/** @param {object[]} bins */
function series(bins) {
  return { rows: [{ target: "a/one", region: "us", points: [{ n: 6 }, { n: 4 }], bins }, { target: "a/one", region: "eu", points: [{ n: 0 }], bins: [] },
    { target: "b", region: "us", points: [], bins: [{ low: 1, high: 2, n: 9 }] }] };
}

test("bins are shares of all values, also of those that a timeout cut off", () => {
  const found = distributionsOf(series([{ low: 100_000, high: 200_000, n: 4 }, { low: 400_000, high: 800_000, n: 5 }]), "a/one", TTFT);
  assert.deepEqual(found.panels.map((panel) => [panel.region, panel.n, panel.cut]), [["eu", 0, 0], ["us", 10, 1]]);
  assert.deepEqual(found.panels[1]?.bins, [{ low: 100, high: 200, n: 4, share: 0.4, below: 0.4 }, { low: 400, high: 800, n: 5, share: 0.5, below: 0.9 }]);
  assert.deepEqual([found.low, found.high, found.top], [100, 800, 0.5]);
});

test("values of 0 have no place on the axis", () => {
  const { low, panels } = distributionsOf(series([{ low: 0, high: 0, n: 3 }, { low: 1000, high: 2000, n: 7 }]), "a/one", TTFT);
  assert.deepEqual([low, panels[1]?.zeros, panels[1]?.cut, panels[1]?.bins.length], [1, 3, 0, 1]);
  assert.equal(panels[1]?.bins[0]?.below, 1);
});

test("equal factors are equal distances", () => {
  const axis = { low: 10, high: 1000, top: 1, panels: [] };
  assert.deepEqual([10, 100, 1000].map((value) => placeOf(value, axis)), [0, 0.5, 1]);
});

test("marks are round and few, whatever the range", () => {
  assert.deepEqual(logTicks(90, 12_000, 8), [100, 200, 500, 1000, 2000, 5000, 10_000]);
  assert.deepEqual(logTicks(180, 420, 8), [200, 300, 400]);
  assert.deepEqual(logTicks(196, 214, 8), [200, 205, 210]);
  assert.deepEqual(logTicks(0.05, 3e6, 8), [0.1, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000]);
  for (const [low, high] of [[1e-3, 1e9], [7, 7.001], [0.2, 0.3]]) {
    const ticks = logTicks(Number(low), Number(high), 8);
    assert.ok(ticks.length >= 2 && ticks.length <= 9, `${low} to ${high}: ${ticks}`);
    assert.ok(ticks.every((value) => value >= Number(low) && value <= Number(high)));
  }
  assert.deepEqual(logTicks(Infinity, -Infinity, 8), []);
});
