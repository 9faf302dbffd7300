/** The status of all targets in texts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { statusTableOf, summaryOf } from "./static/views/status_model.js";

const ROW = { target: "b", provider: "p", region: "us", state: "ok", success: 0.9999, ttft_p50_us: 412_400, recent_ttft_p50_us: 700_000 };

test("rows are targets, columns are regions, both by name", () => {
  const { regions, rows } = statusTableOf([ROW, { ...ROW, target: "a", region: "sg" }]);
  assert.deepEqual([regions, rows.map((row) => row.target)], [["sg", "us"], ["a", "b"]]);
  assert.deepEqual(rows[1]?.cells, { us: { state: "ok", values: "412\u00a0ms, 99.9\u00a0%", recent: "" } });
});

test("an unknown value is left out, and only a slow target has the median of the last hour", () => {
  const { rows } = statusTableOf([{ ...ROW, state: "slow" }, { ...ROW, region: "sg", state: "stale", success: null, ttft_p50_us: null }]);
  assert.deepEqual(rows[0]?.cells, { us: { state: "slow", values: "412\u00a0ms, 99.9\u00a0%", recent: "now 700\u00a0ms" },
    sg: { state: "stale", values: "", recent: "" } });
});

test("a sentence sums up the states, the worst first", () => {
  assert.match(summaryOf([ROW, ROW]), /^All targets answer/);
  assert.equal(summaryOf([ROW, { ...ROW, state: "stale" }, { ...ROW, state: "failing" }]),
    "1 failing, 1 stale, 1 ok of 3 pairs of a target and a region.");
  assert.match(summaryOf([]), /^Nothing was measured/);
});
