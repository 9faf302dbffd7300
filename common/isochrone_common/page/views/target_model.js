/** One target over time, against the baseline and in single requests, from the answers of the HTTP interface. Pure. */

import { isKnown } from "../formats.js";
import { byName } from "../ordering.js";

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
 * @typedef {object} Bands
 * @property {number} from
 * @property {number} until
 * @property {number} top
 * @property {{region: string, spacing: number, points: Point[], marks: Mark[]}[]} panels
 */

const US_PER_MS = 1000, MINUTE_MS = 60_000, HOUR_MS = 60 * MINUTE_MS, DAY_MS = 24 * HOUR_MS;
const GAP = 3;
const HEADROOM = 1.1, USUAL_SHARE = 0.95;
const TICK_STEPS_MS = [...[1, 2, 5, 10, 15, 30].map((size) => size * MINUTE_MS), ...[1, 2, 3, 6, 12].map((size) => size * HOUR_MS),
  ...[1, 2, 5, 7, 14, 30, 60].map((size) => size * DAY_MS)];

/**
 * The charts of a target from its series, the incidents of the same window and its differentials, which know changes.
 * @param {{series: any, incidents: any | null, diff: any | null, target: string, metric: Metric}} answers
 * @returns {Bands}
 */
export function bandsOf({ series, incidents, diff, target, metric }) {
  const [from, until] = [Date.parse(series.window.from_at), Date.parse(series.window.until_at)];
  const panels = series.rows.filter((/** @type {any} */ row) => row.target === target).map((/** @type {any} */ row) => {
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
    ticks.push({ at, text: at % DAY_MS ? text.slice(11, 16) : text.slice(5, 10) });
  }
  return ticks;
}

/**
 * A differential, in the unit of the metric. Without both ends of its interval there is no difference.
 * @typedef {object} ForestRow
 * @property {string} region
 * @property {string} baseline
 * @property {string} decision
 * @property {string} reason
 * @property {number | null} shift
 * @property {number | null} low
 * @property {number | null} high
 * @property {number | null} margin
 * @property {number} n
 * @property {number | null} independent
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
    const isShown = isKnown(row.shift_low) && isKnown(row.shift_high);
    const scaled = (/** @type {Maybe} */ value) => (isShown && isKnown(value) ? value * metric.scale : null);
    return { region: row.region, baseline: row.baseline, decision: row.decision, reason: row.reason ?? "",
      shift: scaled(row.shift), low: scaled(row.shift_low), high: scaled(row.shift_high), margin: scaled(row.margin),
      n: row.n, independent: row.n_eff };
  });
  rows.sort((/** @type {ForestRow} */ a, /** @type {ForestRow} */ b) => byName(a.region, b.region));
  const ends = rows.flatMap((/** @type {ForestRow} */ row) => [row.low ?? 0, row.high ?? 0, row.margin ?? 0, -(row.margin ?? 0)]);
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

/**
 * The sample that stands for a bucket: the one nearest to its median; without a value, the newest.
 * @param {readonly any[]} samples
 * @param {Metric} metric
 */
export function typicalSample(samples, metric) {
  const field = metric.differential === "tokens_per_second" ? "tokens_per_second" : `${metric.name}_us`;
  const known = samples.filter((sample) => isKnown(sample[field])).sort((a, b) => a[field] - b[field]);
  return known[Math.floor((known.length - 1) / 2)] ?? samples.at(-1) ?? null;
}
