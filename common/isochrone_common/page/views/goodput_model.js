/** The goodput of a target over time and by the hour of the day, from the answers of the HTTP interface. Pure. */

import { byName } from "../ordering.js";
import { windowQuery } from "../url_state.js";
import { spacingOf } from "./target_model.js";

/** A bucket from `at` until `end` in milliseconds since the epoch; `median` is its goodput in per cent. */
/** @typedef {{at: number, end: number, median: number | null, good: number, planned: number}} GoodputPoint */
/** One region: `good` of `planned` requests of the window were in time. @typedef {{region: string, spacing: number, points: GoodputPoint[], good: number, planned: number}} GoodputPanel */
/** Panels from `from` until `until` and from `bottom` to 100 per cent. @typedef {{from: number, until: number, bottom: number, panels: GoodputPanel[]}} Goodput */
/**
 * The goodput in an hour of the day, as a share from 0 to 1 with its 95 % interval.
 * @typedef {{value: number, low: number, high: number, n: number, independent: number | null}} HourCell
 */

export const HOURS = 24;
const US_PER_MS = 1000, DAY_MS = 86_400_000, MOST_DAYS = 7;
const BOTTOMS = [95, 90, 80, 50, 0];
const DAYS_IN = /** @type {Readonly<Record<string, number>>} */ ({ m: 1 / 1440, h: 1 / 24, d: 1, w: 7 });

/**
 * The goodput over time of each region with requests.
 * @param {any} series
 * @param {string} target
 * @returns {Goodput}
 */
export function goodputOf(series, target) {
  const [from, until] = [Date.parse(series.window.from_at), Date.parse(series.window.until_at)], bucketMs = series.bucket_us / US_PER_MS;
  /** @type {GoodputPanel[]} */
  const panels = series.rows.filter((/** @type {any} */ row) => row.target === target).map((/** @type {any} */ row) => {
    /** @type {GoodputPoint[]} */
    const points = row.points.filter((/** @type {any} */ point) => point.planned).map((/** @type {any} */ { at, good, planned }) =>
      ({ at: at / US_PER_MS, end: at / US_PER_MS + bucketMs, median: 100 * good / planned, good, planned }));
    return { region: row.region, spacing: spacingOf(points, bucketMs), points,
      good: points.reduce((sum, point) => sum + point.good, 0), planned: points.reduce((sum, point) => sum + point.planned, 0) };
  });
  panels.sort((a, b) => byName(a.region, b.region));
  const lowest = Math.min(100, ...panels.flatMap((panel) => panel.points.map((point) => point.median ?? 100)));
  return { from, until, bottom: BOTTOMS.find((bottom) => bottom <= lowest) ?? 0, panels: panels.filter((panel) => panel.planned) };
}

/**
 * The goodput by region and hour of the day (UTC); `null` in an hour without requests.
 * @param {any} slo
 * @param {string} target
 * @returns {{region: string, cells: (HourCell | null)[]}[]}
 */
export function hoursOf(slo, target) {
  /** @type {Map<string, (HourCell | null)[]>} */
  const found = new Map();
  for (const row of slo.rows) {
    if (row.target !== target || !row.goodput || row.hour === null) continue;
    const cells = found.get(row.region) ?? Array(HOURS).fill(null);
    cells[row.hour] = { value: row.goodput.value, low: row.goodput.low, high: row.goodput.high, n: row.n, independent: row.n_eff };
    found.set(row.region, cells);
  }
  return [...found].map(([region, cells]) => ({ region, cells })).sort((a, b) => byName(a.region, b.region));
}

/**
 * The query of the window of the hours of the day, which need the samples: that of the state, or its last seven days.
 * @param {import("../url_state.js").Options} options
 * @returns {Record<string, string>}
 */
export function hoursQuery(options) {
  const query = windowQuery(options), { window = "", from = "", until = "" } = query;
  const [, count = "0", unit = ""] = /^(\d+)([mhdw])$/.exec(window) ?? [];
  if (Number(count) * (DAYS_IN[unit] ?? 0) > MOST_DAYS) return { window: `${MOST_DAYS}d` };
  const begin = Date.parse(until) - MOST_DAYS * DAY_MS;
  return from && Date.parse(from) < begin ? { from: new Date(begin).toISOString(), until } : query;
}
