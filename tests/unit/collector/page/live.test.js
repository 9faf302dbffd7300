/** Whether the stream is alive, and how often the collector is asked. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { apiPath } from "./static/api.js";
import { livenessOf } from "./static/live.js";
import { pauseAfter } from "./static/refresher.js";

const KNOWN = { isOpen: true, wasOpen: true, heardAt: 1_000_000, staleSince: null, now: 1_010_000 };

test("a stream is live until nothing was heard for longer than two heartbeats", () => {
  assert.equal(livenessOf(KNOWN).state, "live");
  assert.deepEqual(livenessOf({ ...KNOWN, now: 1_026_000 }), { state: "stale", since: 1_000_000 });
});

test("a lost stream is reconnecting, and one that never was is connecting", () => {
  assert.equal(livenessOf({ ...KNOWN, isOpen: false }).state, "reconnecting");
  assert.equal(livenessOf({ ...KNOWN, isOpen: false, wasOpen: false }).state, "connecting");
});

test("a collector without its database is stale since it lost it", () => {
  assert.deepEqual(livenessOf({ ...KNOWN, staleSince: 900_000 }), { state: "stale", since: 900_000 });
});

test("the pause between requests is a second, what the collector asks for, and twenty times as long as they take", () => {
  assert.deepEqual([5, 100, 400].map((took) => pauseAfter(took, 0)), [1_000, 2_000, 8_000]);
  assert.deepEqual([pauseAfter(5, 3_000), pauseAfter(400, 3_000)], [3_000, 8_000]);
});

test("values in paths are escaped, lists repeated and empty values left out", () => {
  assert.equal(apiPath("/v1/diff", { baseline: "a&b", target: ["x/y", "z"], metric: "" }), "/v1/diff?baseline=a%26b&target=x%2Fy&target=z");
  assert.equal(apiPath("/v1/targets"), "/v1/targets");
});
