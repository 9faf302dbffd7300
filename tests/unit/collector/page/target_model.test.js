/** One target over time, against the baseline and in single requests, from answers as the HTTP interface gives them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { metricOf } from "./static/views/matrix_model.js";
import { bandsOf, forestOf, partsOf, phasesOf, timeTicks } from "./static/views/target_model.js";

const FROM = Date.parse("2026-11-20T00:00:00Z"), MINUTE_MS = 60_000;
const WINDOW = { from_at: "2026-11-20T00:00:00Z", until_at: "2026-11-20T01:00:00Z" };
const TTFT = metricOf("ttft");

/**
 * @param {number} minute
 * @param {Record<string, unknown>} [more]
 */
function point(minute, more = {}) {
  return { at: (FROM + minute * MINUTE_MS) * 1000, n: 2, p10: 90_000, p50: 100_000, p90: 120_000, ok: 2, failed: 0, throttled: 0,
    skipped: 0, ...more };
}

/**
 * @param {object[]} points
 * @param {object[]} [incidents]
 * @param {object[]} [differentials]
 */
function bands(points, incidents = [], differentials = []) {
  const rows = [{ target: "a/one", region: "us", points }, { target: "a/one", region: "eu", points: [] }, { target: "a/other", region: "us", points }];
  return bandsOf({ series: { window: WINDOW, bucket_us: 60_000_000, rows }, incidents: { rows: incidents },
    diff: { rows: differentials }, target: "a/one", metric: TTFT });
}

test("each region of the target has a panel, in the unit of the metric", () => {
  const { panels, top, from } = bands([point(0), point(1, { failed: 1 })]);
  assert.deepEqual(panels.map((panel) => panel.region), ["eu", "us"]);
  const [first, second] = panels[1]?.points ?? [];
  assert.deepEqual([first?.at, first?.end, first?.low, first?.median, first?.high], [from, from + MINUTE_MS, 90, 100, 120]);
  assert.equal(second?.outcomes.failed, 1);
  assert.equal(Math.round(top), 140);
});

test("the axis begins with the first bucket of the target, and a few seconds have ticks of their own", () => {
  assert.deepEqual([bands([]).from, bands([point(40), point(41)]).from], [FROM, FROM + 40 * MINUTE_MS]);
  assert.equal(bands([point(-1), point(40)]).from, FROM);
  assert.deepEqual(timeTicks(FROM + 1_000, FROM + 40_000, 6).map((tick) => tick.text), ["00:00:10", "00:00:20", "00:00:30"]);
});

test("the top of the axis is above every median, and one extreme band does not press the others down", () => {
  const usual = Array.from({ length: 30 }, (_, minute) => point(minute));
  assert.equal(Math.round(bands([...usual, point(40, { p90: 9e6 })]).top), 140);
  assert.equal(Math.round(bands([...usual, point(40, { p50: 1e6, p90: null })]).top), 1100);
  assert.equal(bands([point(0, { p10: null, p50: null, p90: null })]).top, 1);
});

test("a line ends at an unknown median and where rounds are missing", () => {
  const { panels } = bands([point(0), point(2), point(4, { p50: null }), point(6), point(8), point(30)]);
  const { points = [], spacing = 0 } = panels[1] ?? {};
  assert.equal(spacing, 2 * MINUTE_MS);
  assert.deepEqual(partsOf(points, spacing).map((part) => part.length), [2, 2, 1]);
});

test("incidents and changes are marked in their region and within the window", () => {
  const incident = { subject: "a/one", regions: ["us"], first_failed_at: "2026-11-20T00:10:00Z", recovered_at: null, example: "503", kind: "failing" };
  const change = { target: "a/one", region: "us", baseline: "eu", since_at: "2026-11-20T00:20:00Z" };
  const { panels, until } = bands([point(0)], [incident, { ...incident, subject: "a/other" },
    { ...incident, first_failed_at: "2026-11-19T00:00:00Z", recovered_at: "2026-11-19T01:00:00Z" }], [change]);
  assert.deepEqual(panels.map((panel) => panel.marks.length), [0, 2]);
  assert.deepEqual(panels[1]?.marks.map((mark) => [mark.kind, mark.at, mark.end]),
    [["incident", FROM + 10 * MINUTE_MS, until], ["change", FROM + 20 * MINUTE_MS, null]]);
});

test("ticks are at round times, and a day begins with its date", () => {
  assert.deepEqual(timeTicks(FROM - 50 * MINUTE_MS, FROM + 10 * MINUTE_MS, 6).map((tick) => tick.text),
    ["23:10", "23:20", "23:30", "23:40", "23:50", "11-20"]);
  const day = 24 * 60 * MINUTE_MS;
  assert.deepEqual(timeTicks(FROM, FROM + 4 * day, 6).map((tick) => tick.text), ["11-20", "11-21", "11-22", "11-23"]);
});

test("a difference without an interval has no bounds, and the axis includes 0 and the margins", () => {
  const row = { target: "a/one", baseline: "us", decision: "slower", shift: 150_000, shift_low: 140_000, shift_high: 160_000, margin: 20_000, n: 60, n_eff: 50 };
  const { rows, from, until } = forestOf({ rows: [{ ...row, region: "sg" }, { ...row, region: "eu", shift_low: null }, { ...row, target: "b" }] }, "a/one", TTFT);
  assert.deepEqual(rows.map(({ region, shift, low }) => [region, shift, low]), [["eu", 150, null], ["sg", 150, 140]]);
  assert.ok(from < -20 && until > 160);
});

test("phases follow each other, and one that was not reached is left out", () => {
  const cold = { dns_us: 5, tcp_us: 10, tls_us: 20, ttfb_us: 100, ttft_us: 110, ttfat_us: 110, e2e_us: 200 };
  assert.deepEqual(phasesOf(cold), [{ name: "DNS", from: 0, until: 5 }, { name: "TCP", from: 5, until: 15 }, { name: "TLS", from: 15, until: 35 },
    { name: "request until first byte", from: 35, until: 135 }, { name: "until first token", from: 135, until: 145 },
    { name: "further tokens", from: 145, until: 235 }]);
  assert.deepEqual(phasesOf({ ttft_us: 10, ttfat_us: 30, e2e_us: 40 }).map((phase) => phase.name),
    ["until first token", "until first token of the answer", "further tokens"]);
  assert.deepEqual(phasesOf({ dns_us: 5, tcp_us: null }), [{ name: "DNS", from: 0, until: 5 }]);
});
