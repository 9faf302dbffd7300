/**
 * One target, from the answers of the HTTP interface: its values over time, differences and their phases, distributions, and
 * goodput. Pure.
 */

import { isKnown } from "../formats.js";
import { byName } from "../ordering.js";
import { windowQuery } from "../url_state.js";

/** @typedef {import("./matrix_model.js").Metric} Metric */
/** @typedef {import("../formats.js").Maybe} Maybe */

/**
 * A bucket from `at` until `end`, in milliseconds since the epoch; quantiles are in the unit of the metric.
 * @typedef {object} Point
 * @property {number} at
 * @property {number} end
 * @property {number | null} low
 * @property {number | null} median
 * @property {number | null} high
 * @property {number} n
 * @property {Readonly<Record<Outcome, number>>} outcomes
 */
/** @typedef {"ok" | "failed" | "throttled" | "skipped"} Outcome */
/** The outcomes, in the order of the strip from below. */
export const OUTCOMES = /** @type {const} */ (["ok", "skipped", "throttled", "failed"]);
/** A mark: an incident, or a change of the level, which has no end. */
/** @typedef {{kind: "incident" | "change", at: number, end: number | null, text: string}} Mark */
/**
 * The charts of one target: a panel per region, all from `from` until `until` and from 0 to `top`. Points of a panel are
 * usually `spacing` milliseconds apart.
 * @typedef {{from: number, until: number, top: number, panels: {region: string, spacing: number, points: Point[], marks: Mark[]}[]}} Bands
 */

const US_PER_MS = 1000, SECOND_MS = 1_000, MINUTE_MS = 60_000, HOUR_MS = 60 * MINUTE_MS, DAY_MS = 24 * HOUR_MS;
const GAP = 3;
const HEADROOM = 1.1, USUAL_SHARE = 0.95;
const TICK_STEPS_MS = [...[SECOND_MS, MINUTE_MS].flatMap((unit) => [1, 2, 5, 10, 15, 30].map((size) => size * unit)), ...[1, 2, 3, 6, 12].map((size) => size * HOUR_MS),
  ...[1, 2, 5, 7, 14, 30, 60].map((size) => size * DAY_MS)];

/**
 * The charts of a target from its series, the incidents of the same window and its differentials, which know changes.
 * @param {{series: any, incidents: any | null, diff: any | null, target: string, metric: Metric}} answers
 * @returns {Bands}
 */
export function bandsOf({ series, incidents, diff, target, metric }) {
  const rows = series.rows.filter((/** @type {any} */ row) => row.target === target), { from, until } = spanOf(series.window, rows);
  const panels = rows.map((/** @type {any} */ row) => {
    const points = row.points.map((/** @type {any} */ point) => pointOf(point, series.bucket_us / US_PER_MS, metric));
    const marks = [...incidentMarks(incidents?.rows ?? [], target, row.region, until),
      ...changeMarks(diff?.rows ?? [], target, row.region)];
    return { region: row.region, spacing: spacingOf(points, series.bucket_us / US_PER_MS), points,
      marks: marks.filter((mark) => mark.at < until && (mark.end ?? mark.at) >= from) };
  });
  panels.sort((/** @type {{region: string}} */ a, /** @type {{region: string}} */ b) => byName(a.region, b.region));
  return { from, until, top: topOf(panels.flatMap((/** @type {{points: Point[]}} */ panel) => panel.points)), panels };
}

/**
 * The axis of series: their window, from the first bucket on, because a young collector has a small part of a usual one.
 * @param {{from_at: string, until_at: string}} window
 * @param {any[]} rows
 */
export function spanOf(window, rows) {
  const from = Date.parse(window.from_at), until = Date.parse(window.until_at);
  // The points of a series are in order.
  const first = Math.min(...rows.flatMap((row) => (row.points[0] ? row.points[0].at / US_PER_MS : [])));
  return { from: first < until ? Math.max(from, first) : from, until };
}

/**
 * @param {any} point
 * @param {number} bucketMs
 * @param {Metric} metric
 * @returns {Point}
 */
function pointOf(point, bucketMs, metric) {
  const scaled = (/** @type {Maybe} */ value) => (isKnown(value) ? value * metric.scale : null);
  const at = point.at / US_PER_MS;
  return { at, end: at + bucketMs, low: scaled(point.p10), median: scaled(point.p50), high: scaled(point.p90), n: point.n,
    outcomes: { ok: point.ok, failed: point.failed, throttled: point.throttled, skipped: point.skipped } };
}

/**
 * @param {any[]} rows
 * @param {string} target
 * @param {string} region
 * @param {number} until
 * @returns {Mark[]}
 */
function incidentMarks(rows, target, region, until) {
  return rows.filter((row) => row.subject === target && row.regions.includes(region)).map((row) => ({
    kind: "incident", at: Date.parse(row.first_failed_at), end: row.recovered_at ? Date.parse(row.recovered_at) : until,
    text: row.example || String(row.kind) }));
}

/**
 * @param {any[]} rows
 * @param {string} target
 * @param {string} region
 * @returns {Mark[]}
 */
function changeMarks(rows, target, region) {
  return rows.filter((row) => row.target === target && row.region === region && row.since_at).map((row) => ({
    kind: "change", at: Date.parse(row.since_at), end: null, text: `the difference from ${row.baseline} has changed` }));
}

/**
 * The usual distance of points in milliseconds, at least a bucket.
 * @param {readonly {at: number}[]} points
 * @param {number} bucketMs
 */
export function spacingOf(points, bucketMs) {
  const distances = points.slice(1).map((point, place) => point.at - /** @type {{at: number}} */ (points[place]).at).sort((a, b) => a - b);
  return Math.max(bucketMs, distances[Math.floor(distances.length / 2)] ?? bucketMs);
}

/**
 * The top of the axis, in two digits: every median is below it, and nearly every band.
 * @param {Point[]} points
 */
function topOf(points) {
  const highs = points.map((point) => point.high).filter(isKnown).sort((a, b) => a - b);
  const usual = highs[Math.floor(USUAL_SHARE * (highs.length - 1))] ?? 0;
  const top = HEADROOM * Math.max(usual, ...points.map((point) => point.median ?? 0));
  const step = top > 0 ? 10 ** (Math.floor(Math.log10(top)) - 1) : 1;
  return Math.ceil(Number((top / step).toPrecision(6))) * step || 1;
}

/**
 * The parts of a line: a part ends where a median is unknown or points are missing.
 * @template {{at: number, median: number | null}} Placed
 * @param {readonly Placed[]} points
 * @param {number} spacing
 */
export function partsOf(points, spacing) {
  /** @type {Placed[][]} */
  const parts = [];
  /** @type {Placed | null} */
  let last = null;
  for (const point of points) {
    if (point.median === null) last = null;
    else {
      if (!last || point.at - last.at > GAP * spacing) parts.push([]);
      parts.at(-1)?.push(point);
      last = point;
    }
  }
  return parts;
}

/**
 * Instants of an axis at round times (UTC), at most `most` of them.
 * @param {number} from
 * @param {number} until
 * @param {number} most
 * @returns {{at: number, text: string}[]}
 */
export function timeTicks(from, until, most) {
  const step = TICK_STEPS_MS.find((size) => (until - from) / size <= most) ?? (until - from) / most;
  /** @type {{at: number, text: string}[]} */
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < until; at += step) {
    const text = new Date(at).toISOString();
    ticks.push({ at, text: at % MINUTE_MS ? text.slice(11, 19) : at % DAY_MS ? text.slice(11, 16) : text.slice(5, 10) });
  }
  return ticks;
}

/**
 * A differential, in the unit of the metric. Without both ends of its interval it has neither.
 * @typedef {{region: string, baseline: string, decision: string, reason: string, shift: number | null, low: number | null,
 *   high: number | null, margin: number | null, n: number, independent: number | null}} ForestRow
 */

/**
 * The differentials of a target by region, and the ends of the common axis, which includes 0.
 * @param {any} diff
 * @param {string} target
 * @param {Metric} metric
 * @returns {{rows: ForestRow[], from: number, until: number}}
 */
export function forestOf(diff, target, metric) {
  const rows = diff.rows.filter((/** @type {any} */ row) => row.target === target).map((/** @type {any} */ row) => {
    const isFirm = isKnown(row.shift_low) && isKnown(row.shift_high);
    const scaled = (/** @type {Maybe} */ value) => (isKnown(value) ? value * metric.scale : null);
    return { region: row.region, baseline: row.baseline, decision: row.decision, reason: row.reason ?? "",
      shift: scaled(row.shift), low: isFirm ? scaled(row.shift_low) : null, high: isFirm ? scaled(row.shift_high) : null, margin: scaled(row.margin),
      n: row.n, independent: row.n_eff };
  });
  rows.sort((/** @type {ForestRow} */ a, /** @type {ForestRow} */ b) => byName(a.region, b.region));
  const ends = rows.flatMap((/** @type {ForestRow} */ row) => [row.shift ?? 0, row.low ?? 0, row.high ?? 0, row.margin ?? 0, -(row.margin ?? 0)]);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)], room = (high - low || 1) * (HEADROOM - 1);
  return { rows, from: low - room, until: high + room };
}

/** A part of a request from `from` until `until`, in microseconds since it began. */
/** @typedef {{name: string, from: number, until: number}} Phase */

/**
 * The phases of a request in their order. Those that did not take place or were not reached are left out.
 * @param {any} sample
 * @returns {Phase[]}
 */
export function phasesOf(sample) {
  /** @type {Phase[]} */
  const phases = [];
  let at = 0;
  const add = (/** @type {string} */ name, /** @type {Maybe} */ until) => {
    if (!isKnown(until) || until < at) return;
    phases.push({ name, from: at, until });
    at = until;
  };
  for (const [name, us] of [["DNS", sample.dns_us], ["TCP", sample.tcp_us], ["TLS", sample.tls_us]]) {
    add(name, isKnown(us) ? at + us : null);
  }
  const sent = at;
  const after = (/** @type {Maybe} */ us) => (isKnown(us) ? sent + us : null);
  add("request until first byte", after(sample.ttfb_us));
  add("until first token", after(sample.ttft_us));
  if (sample.ttfat_us !== sample.ttft_us) add("until first token of the answer", after(sample.ttfat_us));
  add("further tokens", after(sample.e2e_us));
  return phases;
}

/** The phases that add up, in the order of a request, and the two parts of the server's. */
const ADDENDS = /** @type {const} */ (["dns", "tcp", "tls", "rtt", "server"]), OF_SERVER = /** @type {const} */ (["edge", "provider"]);
const MARGIN = 0.05;

/** The phases in words. @type {Readonly<Record<string, string>>} */
export const PHASE_NAMES = { dns: "dns", tcp: "tcp", tls: "tls", rtt: "network", server: "server", edge: "behind the edge", provider: "provider" };

/**
 * A part of a difference with its interval, and the medians of both sides.
 * @typedef {{name: string, shift: number, low: number | null, high: number | null, baseline: number | null, region: number | null, n: number}} Part
 */
/** A part in the drawing, of the colour `place`. @typedef {{name: string, from: number, until: number, place: number}} Segment */
/**
 * The parts of one region by their names; `all` is the sum of those that add up.
 * @typedef {{region: string, baseline: string, parts: ReadonlyMap<string, Part>, all: number, n: number, segments: Segment[]}} PhaseRow
 */

/**
 * The rows of a target by region, the names of the phases that any of them has, and the ends of the common axis, which
 * includes 0.
 * @param {any} diff
 * @param {string} target
 * @returns {{rows: PhaseRow[], names: string[], from: number, until: number}}
 */
export function phaseRows(diff, target) {
  const rows = diff.rows.filter((/** @type {any} */ row) => row.target === target && row.parts?.length).map(rowOf);
  rows.sort((/** @type {PhaseRow} */ a, /** @type {PhaseRow} */ b) => byName(a.region, b.region));
  const ends = rows.flatMap((/** @type {PhaseRow} */ row) => row.segments.flatMap(({ from, until }) => [from, until]));
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)], room = MARGIN * (high - low || 1);
  const names = [...ADDENDS, ...OF_SERVER].filter((name) => rows.some((/** @type {PhaseRow} */ row) => row.parts.has(name)));
  return { rows, names, from: low - room, until: high + room };
}

/**
 * @param {any} row
 * @returns {PhaseRow}
 */
function rowOf(row) {
  const ms = (/** @type {import("../formats.js").Maybe} */ us) => (isKnown(us) ? us / US_PER_MS : null);
  /** @type {Map<string, Part>} */
  const parts = new Map(row.parts.map((/** @type {any} */ part) => [part.name, { name: part.name, shift: part.shift / US_PER_MS,
    low: ms(part.low), high: ms(part.high), baseline: ms(part.baseline_median), region: ms(part.region_median), n: part.n }]));
  const all = ADDENDS.reduce((sum, name) => sum + (parts.get(name)?.shift ?? 0), 0);
  const n = Math.max(...[...parts.values()].map((part) => part.n));
  return { region: row.region, baseline: row.baseline, parts, all, n, segments: segmentsOf(parts) };
}

/**
 * The parts side by side: those that take longer to the right of 0, the others to the left. The server's is drawn as its two
 * parts where the provider reports its own.
 * @param {ReadonlyMap<string, Part>} parts
 */
function segmentsOf(parts) {
  const isDivided = OF_SERVER.every((name) => parts.has(name));
  /** @type {readonly string[]} */
  const names = [...ADDENDS, ...OF_SERVER], drawn = isDivided ? names.filter((name) => name !== "server") : ADDENDS;
  /** @type {Segment[]} */
  const segments = [];
  let [left, right] = [0, 0];
  for (const name of drawn) {
    const shift = parts.get(name)?.shift ?? 0, place = names.indexOf(name);
    if (shift > 0) segments.push({ name, from: right, until: right += shift, place });
    if (shift < 0) segments.push({ name, from: left += shift, until: left - shift, place });
  }
  return segments;
}

/** Values x with low < x <= high; `below` of all are at most `high`. @typedef {{low: number, high: number, n: number, share: number, below: number}} Bin */
/**
 * One region: `n` values, of which `zeros` are 0, and `cut` that a timeout cut off, which are in no bin.
 * @typedef {{region: string, n: number, zeros: number, cut: number, bins: Bin[]}} Distribution
 */
/**
 * Distributions from `low` to `high`, in the unit of the metric; the tallest bin has the share `top`.
 * @typedef {{low: number, high: number, top: number, panels: Distribution[]}} Distributions
 */

// Digits of marks on an axis, ever finer.
const DIGITS = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7]];
const FEWEST_TICKS = 3;

/**
 * @param {any} series
 * @param {string} target
 * @param {Metric} metric
 * @returns {Distributions}
 */
export function distributionsOf(series, target, metric) {
  /** @type {Distribution[]} */
  const panels = series.rows.filter((/** @type {any} */ row) => row.target === target).map((/** @type {any} */ row) => distributionOf(row, metric));
  panels.sort((a, b) => byName(a.region, b.region));
  const bins = panels.flatMap((panel) => panel.bins);
  return { low: Math.min(...bins.map((bin) => bin.low)), high: Math.max(...bins.map((bin) => bin.high)),
    top: Math.max(...bins.map((bin) => bin.share)), panels };
}

/**
 * @param {any} row
 * @param {Metric} metric
 * @returns {Distribution}
 */
function distributionOf(row, metric) {
  const n = row.points.reduce((/** @type {number} */ sum, /** @type {any} */ point) => sum + point.n, 0);
  let below = 0, zeros = 0;
  /** @type {Bin[]} */
  const bins = [];
  for (const bin of row.bins ?? []) {
    below += bin.n;
    if (bin.high <= 0) zeros += bin.n;
    else bins.push({ low: bin.low * metric.scale, high: bin.high * metric.scale, n: bin.n, share: bin.n / n, below: below / n });
  }
  return { region: row.region, n, zeros, cut: n - below, bins };
}

/**
 * The place of a value on the axis, from 0 to 1.
 * @param {number} value
 * @param {Distributions} axis
 */
export function placeOf(value, { low, high }) {
  return Math.log(value / low) / Math.log(high / low);
}

/**
 * Round values on a logarithmic axis, at most `most` of them.
 * @param {number} low
 * @param {number} high
 * @param {number} most
 * @returns {number[]}
 */
export function logTicks(low, high, most) {
  if (!isKnown(low) || !isKnown(high) || !(low > 0 && high > low)) return [];
  const within = (/** @type {number} */ value) => value >= low && value <= high;
  const exponents = Array.from({ length: Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 1 }, (_, place) => Math.floor(Math.log10(low)) + place);
  const found = DIGITS.map((digits) => exponents.flatMap((exponent) => digits.map((digit) => Number(`${digit}e${exponent}`))).filter(within))
    .filter((ticks) => ticks.length <= most).at(-1) ?? exponents.filter((exponent) => exponent % 3 === 0).map((exponent) => 10 ** exponent).filter(within);
  return found.length < FEWEST_TICKS ? linearTicks(low, high, most) : found;
}

/**
 * @param {number} low
 * @param {number} high
 * @param {number} most
 */
function linearTicks(low, high, most) {
  const unit = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = [1, 2, 5, 10].map((digit) => digit * unit).find((size) => (high - low) / size <= most) ?? 10 * unit;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(6)));
}

/** A bucket from `at` until `end` in milliseconds since the epoch; `median` is its goodput in per cent. */
/** @typedef {{at: number, end: number, median: number | null, good: number, planned: number}} GoodputPoint */
/** One region: `good` of `planned` requests of the window were in time. @typedef {{region: string, spacing: number, points: GoodputPoint[], good: number, planned: number}} GoodputPanel */
/** Panels from `from` until `until` and from `bottom` to 100 per cent. @typedef {{from: number, until: number, bottom: number, panels: GoodputPanel[]}} Goodput */
/**
 * The goodput in an hour of the day, as a share from 0 to 1 with its 95 % interval.
 * @typedef {{value: number, low: number, high: number, n: number, independent: number | null}} HourCell
 */

export const HOURS = 24;
const MOST_DAYS = 7;
const BOTTOMS = [95, 90, 80, 50, 0];
const DAYS_IN = /** @type {Readonly<Record<string, number>>} */ ({ m: 1 / 1440, h: 1 / 24, d: 1, w: 7 });

/**
 * The goodput over time of each region with requests.
 * @param {any} series
 * @param {string} target
 * @returns {Goodput}
 */
export function goodputOf(series, target) {
  const rows = series.rows.filter((/** @type {any} */ row) => row.target === target), { from, until } = spanOf(series.window, rows);
  const bucketMs = series.bucket_us / US_PER_MS;
  /** @type {GoodputPanel[]} */
  const panels = rows.map((/** @type {any} */ row) => {
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
