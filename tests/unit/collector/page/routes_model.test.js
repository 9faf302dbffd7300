/** Route tables in texts, and their changes over time. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { changesOf, directionOf, freshnessOf, generationAt, holdOf, objectiveReason, overviewOf, placeOf, placeText, remarksOf, weightBars,
  weightsText } from "./static/views/routes_model.js";

const NOW = Date.parse("2026-11-23T08:00:00Z"), MINUTE = 60_000;
const CHANGES = changesOf([
  { generation: 9, client_region: "us", route: "chat", at: 1000 * (NOW - MINUTE), change: "hard", sentence: "a fails", weights: { b: 1, a: 0 } },
  { generation: 4, client_region: "us", route: "chat", at: 1000 * (NOW - 5 * MINUTE), change: "first", sentence: "a is first", weights: { a: 0.75, b: 0.25 } },
]);

test("a table is fresh, then aging, then expired", () => {
  const table = { fresh_until_at: "2026-11-23T08:00:38Z", stale_until_at: "2026-11-23T08:02:00Z" };
  assert.deepEqual(freshnessOf(table, NOW), { state: "fresh", text: "fresh for 38 s" });
  assert.deepEqual(freshnessOf(table, NOW + MINUTE), { state: "aging", text: "aging, usable for 1 min" });
  assert.deepEqual(freshnessOf(table, NOW + 5 * MINUTE), { state: "expired", text: "expired 3 min ago: use the static order" });
});

test("weights are those of members with traffic", () => {
  assert.equal(weightsText({ a: 0.75, b: 0.25, c: 0 }), "a 75 %, b 25 %");
  assert.equal(weightsText({}), "");
});

test("the overview has a row per region, and planned routes without a table", () => {
  const table = (/** @type {string} */ client_region) => ({ client_region, route: "chat" });
  assert.deepEqual(overviewOf({ routes: ["voice", "chat"], tables: [table("us"), table("ap")] }), { routes: ["chat", "voice"],
    rows: [{ region: "ap", tables: { chat: table("ap") } }, { region: "us", tables: { chat: table("us") } }] });
});

test("a weight moves to that of its rank, unless shares are limited", () => {
  const first = { rank: 1, weight: 0.25, max_weight: 1 }, second = { rank: 2, weight: 0.75, max_weight: 1 };
  assert.deepEqual([first, second].map((entry) => directionOf(entry, [first, second])), ["rises", "falls"]);
  assert.equal(directionOf({ ...first, weight: 1 }, [first, second]), "");
  assert.equal(directionOf(first, [first, { ...second, max_weight: 0.5 }]), "");
});

test("a hold has its duration and its switches", () => {
  const hold = { state: "active", since_at: "2026-11-23T06:00:00Z", switches_24h: 1 };
  assert.deepEqual(holdOf(hold, NOW), { text: "active for 2 h", switches: "1 switch in 24 h" });
  assert.deepEqual(holdOf(null, NOW), { text: "–", switches: "" });
});

test("the reason of an objective that is not kept for certain is that of the command", () => {
  const slo = { ttft_p95_us: 1_000_000, min_goodput: 0.95, min_success: 0.95 };
  const good = { value: 1, low: 0.98, high: 1, n: 300 };
  assert.equal(objectiveReason({ goodput: good, success: good }, slo), "");
  const few = { value: 1, low: 0.9367, high: 1, n: 46 };
  assert.equal(objectiveReason({ goodput: few, success: { ...few, low: 0.923 } }, slo),
    "100.0 % of 46 requests in time [93.6 … 100.0], 95.0 % needed; the limit is 1000 ms: more requests decide it; " +
    "success at least 92.3 % after 46 requests, min_success is 95.0 %: more requests decide it");
  assert.equal(objectiveReason({ goodput: null, ttft_p95_us: null, success: null }, slo),
    "p95 unknown, no sample; the limit is 1000 ms; success unknown, no request; min_success is 95.0 %");
});

test("hedge, race and exclusions are sentences, and the static order is the fallback", () => {
  const slo = { ttft_p95_us: null, min_success: 0, min_goodput: 0 };
  const entry = { target: "a", goodput: null, throttled: 0.5, hedge: { target: "b", delay_us: 241_000, expected_p99_with_us: 5e5, expected_p99_without_us: 11e5 } };
  const race = { targets: ["a", "b"], expected_p95_us: 221_000, usd_factor: 2.1 };
  assert.deepEqual(remarksOf({ slo, entries: [entry], race, unassigned: 0, excluded: [{ target: "c", reason: "2 of 6 samples needed" }], static_order: ["b", "a"] }), [
    ["hedge", "b after 241 ms without a token; expected p99 500 instead of 1100 ms"],
    ["race", "a + b at once: expected p95 221 ms, 2.1 times the cost"],
    ["throttled", "50 % of the recent requests to a"],
    ["left out, c", "2 of 6 samples needed"],
    ["when it has expired", "b, then a"],
  ]);
  const none = { slo, entries: [], race: null, unassigned: 0, excluded: [], static_order: [] };
  assert.deepEqual(remarksOf(none), [["when it has expired", "no static order"]]);
});

test("a slider has now at its end, and a place for each change", () => {
  assert.deepEqual(CHANGES.map((change) => change.generation), [4, 9]);
  assert.deepEqual(["", "9", "4", "7", "2"].map((generation) => placeOf(CHANGES, generation)), [0, -1, -2, -2, -2]);
  assert.deepEqual([0, -1, -2].map((place) => generationAt(CHANGES, place)), ["", "9", "4"]);
  assert.equal(placeOf([], "7"), 0);
  assert.equal(generationAt([], 0), "");
  assert.deepEqual([0, -1].map((place) => placeText(CHANGES, place, NOW)), ["now", "generation 9, 07:59:00: a fails"]);
});

test("weights are stacked bars from one change to the next, and unknown before the first", () => {
  const { targets, bars } = weightBars(CHANGES, { from: NOW - 10 * MINUTE, until: NOW, current: { c: 1 } });
  assert.deepEqual(targets, ["a", "b", "c"]);
  assert.deepEqual(bars, [
    { target: "a", from: NOW - 5 * MINUTE, until: NOW - MINUTE, low: 0, high: 0.75 },
    { target: "b", from: NOW - 5 * MINUTE, until: NOW - MINUTE, low: 0.75, high: 1 },
    { target: "b", from: NOW - MINUTE, until: NOW, low: 0, high: 1 },
  ]);
  assert.deepEqual(weightBars([], { from: 0, until: 9, current: { a: 1 } }).bars, [{ target: "a", from: 0, until: 9, low: 0, high: 1 }]);
});
