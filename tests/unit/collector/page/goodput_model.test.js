/** Goodput over time and by the hour of the day, from answers as the HTTP interface gives them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { goodputOf, hoursOf, hoursQuery } from "./static/views/target_model.js";
import { USES, goodputText,  useOf } from "./static/views/matrix_model.js";

const FROM = Date.parse("2026-11-20T00:00:00Z"), HOUR_MS = 3_600_000;
const WINDOW = { from_at: "2026-11-20T00:00:00Z", until_at: "2026-11-21T00:00:00Z" };

/**
 * @param {number} hour
 * @param {number} good
 * @param {number} planned
 */
function point(hour, good, planned) {
  return { at: (FROM + hour * HOUR_MS) * 1000, good, planned };
}

/** @param {object[]} points */
function goodput(points) {
  return goodputOf({ window: WINDOW, bucket_us: HOUR_MS * 1000, rows: [{ target: "a/one", region: "us", points },
    { target: "a/one", region: "eu", points: [point(0, 0, 0)] }, { target: "b", region: "us", points }] }, "a/one");
}

test("a bucket is the share of its planned requests, and one without requests is left out", () => {
  const { panels, from } = goodput([point(0, 9, 10), point(1, 0, 0), point(2, 10, 10)]);
  assert.deepEqual(panels.map(({ region, good, planned }) => [region, good, planned]), [["us", 19, 20]]);
  assert.deepEqual(panels[0]?.points.map(({ at, end, median }) => [at, end, median]),
    [[from, from + HOUR_MS, 90], [from + 2 * HOUR_MS, from + 3 * HOUR_MS, 100]]);
});

test("the axis begins at a round share below the lowest", () => {
  assert.deepEqual([10, 9, 8, 3].map((good) => goodput([point(0, good, 10)]).bottom), [95, 90, 80, 0]);
});

test("each region has 24 hours, and those without requests are empty", () => {
  const row = { target: "a/one", region: "us", hour: 7, n: 60, n_eff: 12, goodput: { value: 0.9, low: 0.8, high: 0.95 } };
  const rows = hoursOf({ rows: [row, { ...row, hour: 8, goodput: null }, { ...row, region: "eu", hour: 0 }, { ...row, target: "b" }] }, "a/one");
  assert.deepEqual(rows.map(({ region, cells }) => [region, cells.length, cells.filter((cell) => cell !== null).length]), [["eu", 24, 1], ["us", 24, 1]]);
  assert.deepEqual(rows[1]?.cells[7], { value: 0.9, low: 0.8, high: 0.95, n: 60, independent: 12 });
});

test("hours of the day are those of the window, or of its last seven days", () => {
  const from = "2026-11-01T00:00:00.000Z", until = "2026-11-21T00:00:00.000Z";
  for (const window of ["15m", "24h", "168h", "7d", "1w", "today"]) assert.deepEqual(hoursQuery({ window }), { window });
  for (const window of ["8d", "30d", "2w", "169h"]) assert.deepEqual(hoursQuery({ window }), { window: "7d" });
  assert.deepEqual(hoursQuery({ from, until }), { from: "2026-11-14T00:00:00.000Z", until });
  assert.deepEqual(hoursQuery({ from, until: "2026-11-03T00:00:00Z" }), { from, until: "2026-11-03T00:00:00Z" });
  assert.deepEqual(hoursQuery({ from }), { from });
});

test("the limit of a use is the one that its text states", () => {
  assert.equal(goodputText("agent"), "share of the planned requests with the whole answer in 30 s");
  assert.deepEqual(USES.map(([name, text]) => `${name}: ${text}`), ["edge: first token in 100 ms", "translation: first token in 200 ms",
    "voice: first token in 300 ms", "code: first token in 500 ms", "chat: first token in 1 s", "web: first token in 3 s", "inline: all in 500 ms",
    "step: all in 5 s", "agent: all in 30 s"]);
  assert.deepEqual(useOf("step"), { name: "step", metric: "e2e", seconds: 5 });
  assert.equal(useOf("nothing").name, "chat");
});
