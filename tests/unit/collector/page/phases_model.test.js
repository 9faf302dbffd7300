/** The parts of differences by phase, from answers as the HTTP interface gives them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { phaseRows } from "./static/views/target_model.js";

/**
 * @param {Record<string, number>} shifts in milliseconds
 * @param {Record<string, unknown>} [more]
 */
function row(shifts, more = {}) {
  const parts = Object.entries(shifts).map(([name, ms]) =>
    ({ name, shift: 1000 * ms, low: 1000 * (ms - 1), high: null, baseline_median: 5000, region_median: 7000, n: 40 }));
  return { target: "a/one", region: "sg", baseline: "us", parts, ...more };
}

test("the sum of the phases leaves out the two parts of the server's", () => {
  const { rows, names } = phaseRows({ rows: [row({ dns: 1, tcp: 40, rtt: 40, server: 60, edge: 50, provider: 10 })] }, "a/one");
  assert.deepEqual(names, ["dns", "tcp", "rtt", "server", "edge", "provider"]);
  assert.equal(rows[0]?.all, 141);
  const tcp = rows[0]?.parts.get("tcp");
  assert.deepEqual([tcp?.shift, tcp?.low, tcp?.high, tcp?.region, tcp?.baseline, tcp?.n], [40, 39, null, 7, 5, 40]);
});

test("the server is drawn as its parts only if the provider reports its own", () => {
  const drawn = (/** @type {Record<string, number>} */ shifts) => phaseRows({ rows: [row(shifts)] }, "a/one").rows[0]?.segments.map((segment) => segment.name);
  assert.deepEqual(drawn({ rtt: 40, server: 60, edge: 50, provider: 10 }), ["rtt", "edge", "provider"]);
  assert.deepEqual(drawn({ rtt: 40, server: 60, provider: 10 }), ["rtt", "server"]);
});

test("parts lie side by side, and those that take less are left of 0", () => {
  const { rows, from, until } = phaseRows({ rows: [row({ tcp: 40, rtt: -10, server: 20 })] }, "a/one");
  assert.deepEqual(rows[0]?.segments.map(({ name, from: left, until: right }) => [name, left, right]),
    [["tcp", 0, 40], ["rtt", -10, 0], ["server", 40, 60]]);
  assert.ok(from < -10 && until > 60);
});

test("a row without parts and other targets are left out, and an empty answer has an axis", () => {
  const { rows, from, until } = phaseRows({ rows: [row({}), row({ rtt: 1 }, { target: "b" })] }, "a/one");
  assert.equal(rows.length, 0);
  assert.ok(from < 0 && until > 0);
});
