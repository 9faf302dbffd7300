/** The status of all targets in texts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { statusTableOf, wordsOf } from "./static/views/status_model.js";

const ROW = { target: "b", provider: "p", region: "us", state: "ok", success: 0.9999, ttft_p50_us: 412_400 };

test("rows are targets, columns are regions, both by name", () => {
  const { regions, rows } = statusTableOf([ROW, { ...ROW, target: "a", region: "sg" }]);
  assert.deepEqual([regions, rows.map((row) => row.target)], [["sg", "us"], ["a", "b"]]);
  assert.deepEqual(rows[1]?.cells, { us: { state: "ok", values: "412\u00a0ms, 99.9\u00a0%" } });
});

test("an unknown value is left out", () => {
  const { rows } = statusTableOf([ROW, { ...ROW, region: "sg", state: "stale", success: null, ttft_p50_us: null }]);
  assert.deepEqual(rows[0]?.cells["sg"], { state: "stale", values: "" });
});

test("a state is shown in words", () => {
  assert.equal(wordsOf("too_young"), "too young");
});
