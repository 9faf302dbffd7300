/** The matrix, from answers as the HTTP interface gives them. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { noteOf } from "./static/views/matrix.js";
import { matrixOf, metricOf, selectedRows, staleBeforeOf } from "./static/views/matrix_model.js";

const WINDOW = { from_at: "2026-11-20T00:00:00Z", until_at: "2026-11-21T00:00:00Z" };
const STALE_BEFORE = Date.parse("2026-11-20T22:48:00Z");
const WORKLOAD = { max_output_tokens: 200, concurrency: 1, connection: "cold", reasoning_effort: null };
const TARGETS = { rows: ["a/one", "b/two", "b/unmeasured"].map((name, place) => ({
  name, provider: name[0], model: name.slice(2), workload: WORKLOAD, price: place ? { usd_per_m_output: place / 4 } : null })) };
const REGIONS = { rows: [{ region: "us" }, { region: "eu" }, { region: "silent" }] };

/** @param {Record<string, unknown>} more */
function standing(more) {
  return { target: "a/one", provider: "a", model: "one", region: "us", n: 60, newest_at: "2026-11-20T23:59:00Z",
    usd_per_m_output: null, ttft_p50_us: { value: 486_000, low: 470_000, high: 500_000, n_eff: 40 }, ...more };
}

/** @param {Record<string, unknown>} more */
function differential(more) {
  return { target: "a/one", region: "eu", decision: "slower", shift: 191_000, shift_low: 180_000, shift_high: 200_000,
    shift_percent: 40, n: 55, n_eff: 30, margin: 25_000, reason: "", since_at: null, ...more };
}

/**
 * @param {object[]} standings
 * @param {object[] | null} [differentials]
 * @param {string} [metric]
 */
function matrix(standings, differentials = null, metric = "ttft") {
  return matrixOf({ metric: metricOf(metric), board: { window: WINDOW, rows: standings }, targets: TARGETS, regions: REGIONS,
    diff: differentials && { rows: differentials }, slo: null, staleBefore: STALE_BEFORE });
}

test("every target of the plan has a row and every region a column", () => {
  const { regions, rows } = matrix([standing({}), standing({ region: "retired", target: "b/two" })]);
  assert.deepEqual(regions, ["eu", "retired", "silent", "us"]);
  assert.deepEqual(rows.map((row) => [row.target, Object.keys(row.cells), row.tier]),
    [["a/one", ["us"], "unpriced"], ["b/two", ["retired"], "sweet spot"], ["b/unmeasured", [], "quality first"]]);
});

test("a value is in the unit of the metric, with its interval", () => {
  const cell = matrix([standing({})]).rows[0]?.cells["us"];
  assert.deepEqual([cell?.value, cell?.low, cell?.high, cell?.n, cell?.independent], [486, 470, 500, 60, 40]);
});

test("a value without an interval is early, unless its difference has one", () => {
  const early = { value: 486_000, low: null, high: null, n_eff: 3.7 }, standings = ["us", "eu"].map((region) => standing({ region, ttft_p50_us: early }));
  const [cell] = matrix(standings).rows.map((row) => row.cells["us"]);
  assert.deepEqual([cell?.value, cell?.low, cell?.isEarly, cell?.progress], [486, null, true, "3 of 6"]);
  const medians = { baseline: "us", baseline_median: 480_000, region_median: 670_000 };
  const cells = (/** @type {object} */ more) => Object.values(matrix(standings, [differential({ ...medians, ...more })]).rows[0]?.cells ?? {});
  assert.deepEqual(cells({}).map(({ value, isEarly }) => [value, isEarly]), [[480, false], [670, false]]);
  assert.deepEqual(cells({ shift_low: null }).map(({ value, isEarly }) => [value, isEarly]), [[486, true], [486, true]]);
  assert.equal(matrix([standing({ ttft_p50_us: null })]).rows[0]?.cells["us"]?.value, null);
});

test("a cell is stale if its newest round is older than a twentieth of the window", () => {
  const isStale = (/** @type {string | null} */ at) => matrix([standing({ newest_at: at })]).rows[0]?.cells["us"]?.isStale;
  assert.deepEqual([isStale("2026-11-20T22:49:00Z"), isStale("2026-11-20T22:47:00Z"), isStale(null)], [false, true, true]);
});

test("the age that is stale is a twentieth of the window, and at least 15 minutes", () => {
  const now = Date.parse("2026-11-22T00:00:00Z"), fixed = { until: WINDOW.until_at };
  assert.equal(staleBeforeOf(WINDOW, fixed, now), STALE_BEFORE);
  assert.equal(staleBeforeOf(WINDOW, { until: "" }, now), STALE_BEFORE + 24 * 3_600_000);
  assert.equal(staleBeforeOf({ ...WINDOW, from_at: "2026-11-20T23:00:00Z" }, fixed, now), Date.parse("2026-11-20T23:45:00Z"));
});

test("a differential belongs to the cell of its region", () => {
  const { rows } = matrix([standing({}), standing({ region: "eu" })], [differential({})]);
  assert.equal(rows[0]?.cells["us"]?.difference, null);
  assert.deepEqual([rows[0]?.cells["eu"]?.difference?.shift, rows[0]?.cells["eu"]?.difference?.decision], [191, "slower"]);
  const [row] = matrix([standing({ region: "eu" })], [differential({ shift_low: null, shift_high: null })]).rows;
  assert.deepEqual([row?.cells["eu"]?.difference?.shift, row?.cells["eu"]?.difference?.early], [null, 191]);
});

test("a difference is shown from the first pair on, with a question mark until it is decided", () => {
  const note = (/** @type {Record<string, unknown>} */ more) => {
    const cell = matrix([standing({ region: "eu" })], [differential(more)]).rows[0]?.cells["eu"];
    return noteOf(cell?.difference ?? null, { decimals: 0, now: STALE_BEFORE });
  };
  assert.deepEqual([note({}), note({ decision: "equivalent" }), note({ decision: "mixed" })], ["+191", "same", "mixed"]);
  assert.deepEqual([note({ decision: "undecided" }), note({ decision: "undecided", shift_low: null })], ["+191?", "+191?"]);
  assert.deepEqual([note({ decision: "undecided", shift: null }), noteOf(null, { decimals: 0, now: 0 })], ["undecided", ""]);
  assert.match(note({ since_at: "2026-11-20T22:00:00Z" }), /^\+191 since .*22:00/u);
});

for (const { law, standings, differences, values } of JSON.parse(readFileSync("matrix_values.json", "utf8"))) {
  test(`as in the command: ${law}`, () => {
    const board = Object.entries(standings).map(([region, [value, low, high]]) => standing({ region, ttft_p50_us: { value, low, high } }));
    const rows = differences.map((/** @type {any} */ { low, high, since_at: at, ...more }) => differential({ baseline: "us",
      shift_low: low, shift_high: high, since_at: at === null ? null : new Date(at / 1000).toISOString(), ...more }));
    const cells = Object.entries(matrix(board, rows).rows[0]?.cells ?? {});
    assert.deepEqual(Object.fromEntries(cells.map(([region, { value, isEarly }]) => [region, [value, isEarly]])), values);
  });
}

test("success is a share in per cent with its own number of requests", () => {
  const cell = matrix([standing({ success: { value: 0.98, low: 0.95, high: 0.99, n: 100, n_eff: 90 } })], null, "success")
    .rows[0]?.cells["us"];
  assert.deepEqual([cell?.value, cell?.n, cell?.independent], [98, 100, 90]);
});

test("goodput is of planned requests, with its verdict, and is not shown without an answer", () => {
  const board = { window: WINDOW, rows: [standing({}), standing({ region: "eu" })] };
  const slo = { rows: [{ target: "a/one", region: "us", n: 70, eligible: "yes", reason: "", goodput: { value: 0.99, low: 0.96, high: 1, n: 80, n_eff: 75 } }] };
  const [row] = matrixOf({ metric: metricOf("goodput"), board, targets: TARGETS, regions: REGIONS, diff: null, slo, staleBefore: 0 }).rows;
  assert.deepEqual([row?.cells["us"]?.value, row?.cells["us"]?.n, row?.cells["us"]?.verdict?.eligible], [99, 80, "yes"]);
  assert.deepEqual([row?.cells["eu"]?.value, row?.cells["eu"]?.verdict], [null, null]);
});

test("rows are selected and ordered by the options", () => {
  const { rows } = matrix([standing({}), standing({ target: "b/two", ttft_p50_us: { value: 1e5, low: 9e4, high: 2e5 } })]);
  const names = (/** @type {Record<string, string>} */ options) => selectedRows(rows, options).map((row) => row.target);
  assert.deepEqual(names({ provider: "b" }), ["b/two", "b/unmeasured"]);
  assert.deepEqual(names({ tier: "sweet spot" }), ["b/two"]);
  assert.deepEqual(names({ workload: "200 tokens", find: "TWO" }), ["b/two"]);
  assert.deepEqual(names({ sort: "-target" }), ["b/unmeasured", "b/two", "a/one"]);
  assert.deepEqual(names({ sort: "us" }), ["b/two", "a/one", "b/unmeasured"]);
  assert.deepEqual(names({ sort: "-us" }), ["a/one", "b/two", "b/unmeasured"]);
  assert.deepEqual(names({ sort: "-us difference" }), ["a/one", "b/two", "b/unmeasured"]);
  assert.deepEqual(names({ sort: "-price" }), ["b/unmeasured", "b/two", "a/one"]);
});
