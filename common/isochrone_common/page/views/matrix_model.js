/**
 * The matrix of targets and regions, from the answers of the HTTP interface. Pure.
 *
 * A value without a 95 % interval is marked as early, unless that of its difference is known. A cell is stale if its newest
 * round is older than 15 minutes and than a twentieth of the window.
 */

import { hasInterval, progressOf } from "../certainty.js";
import { isKnown } from "../formats.js";
import { byName, sortedBy, tierOf } from "../ordering.js";

/** A use whose latency limit goodput is of: the limit on its metric, in seconds. @typedef {{name: string, metric: "ttft" | "e2e", seconds: number}} Use */
/** @type {readonly Use[]} */
const LIMITS = [
  // As in the collector's analysis of latency targets.
  ...Object.entries({ edge: 0.1, translation: 0.2, voice: 0.3, code: 0.5, chat: 1, web: 3 }).map(([name, seconds]) =>
    ({ name, metric: /** @type {const} */ ("ttft"), seconds })),
  ...Object.entries({ inline: 0.5, step: 5, agent: 30 }).map(([name, seconds]) => ({ name, metric: /** @type {const} */ ("e2e"), seconds })),
];
/** The uses with their limits in words. */
export const USES = LIMITS.map(({ name, metric, seconds }) => /** @type {[name: string, limit: string]} */ ([name,
  `${metric === "ttft" ? "first token" : "all"} in ${seconds < 1 ? `${1000 * seconds} ms` : `${seconds} s`}`]));

/**
 * What goodput is for a use, in words.
 * @param {string | undefined} name
 */
export function goodputText(name) {
  const use = useOf(name).name, limit = USES.find(([known]) => known === use)?.[1];
  return `share of the planned requests with the ${limit}`.replace("the all in", "the whole answer in");
}

/**
 * The use of this name; that of chat if there is none.
 * @param {string | undefined} name
 */
export function useOf(name) {
  return LIMITS.find((use) => use.name === name) ?? /** @type {Use} */ (LIMITS.find((use) => use.name === "chat"));
}

/**
 * A metric: `value` picks a quantity with its interval from a row, `scale` converts it to `unit`. A metric with
 * `differential` can be compared with a baseline, by that name.
 * @typedef {object} Metric
 * @property {string} name
 * @property {string} label
 * @property {string} unit
 * @property {number} scale
 * @property {boolean} moreIsBetter
 * @property {string} [differential]
 * @property {(row: any) => Estimate | null} [value] not of goodput, which has an answer of its own
 * @property {string} counted what the number of samples is of
 * @property {string} words what the value is, in a sentence
 */
/** @typedef {{value: number, low?: number | null, high?: number | null, n?: number, n_eff?: number | null}} Estimate */

/** The quantities of a leaderboard that the metrics show: all of them, so that they share one answer. */
export const QUANTITIES = ["ttft_p50_us", "e2e_p50_us", "tokens_per_second_p50", "success"];

/** @type {readonly Metric[]} */
export const METRICS = [
  latency("ttft", "First token", "ttft_p50_us", "time to the first token"),
  { name: "speed", label: "Speed", unit: "tokens/s", scale: 1, moreIsBetter: true,
    differential: "tokens_per_second", counted: "samples", words: "speed of the output",
    value: (row) => row.tokens_per_second_p50 },
  latency("e2e", "Total time", "e2e_p50_us", "time to the end of the answer"),
  { name: "goodput", label: "Goodput", unit: "%", scale: 100, moreIsBetter: true, counted: "planned requests",
    words: "share of the planned requests" },
  { name: "success", label: "Success", unit: "%", scale: 100, moreIsBetter: true,
    counted: "requests sent", words: "share of the requests sent that succeeded", value: (row) => row.success },
];

/**
 * @param {string} name
 * @param {string} label
 * @param {string} field
 * @param {string} words
 * @returns {Metric}
 */
function latency(name, label, field, words) {
  return { name, label, unit: "ms", scale: 1e-3, moreIsBetter: false, differential: name, counted: "samples", words,
    value: (row) => row[field] };
}

/**
 * The metric of an option; the first one if there is none of that name.
 * @param {string | undefined} name
 */
export function metricOf(name) {
  return METRICS.find((metric) => metric.name === name) ?? /** @type {Metric} */ (METRICS[0]);
}

/**
 * A cell, in the unit of the metric. `difference` is that from the baseline, `verdict` whether a goodput is high enough;
 * `isEarly` without any interval, `progress` what it has of the independent samples that one needs.
 * @typedef {object} Cell
 * @property {number | null} value
 * @property {number | null} low
 * @property {number | null} high
 * @property {number} n
 * @property {number | null} independent
 * @property {boolean} isEarly
 * @property {string} progress
 * @property {string | null} newestAt
 * @property {boolean} isStale
 * @property {Difference | null} difference
 * @property {{eligible: string, reason: string} | null} verdict
 */
/**
 * @typedef {object} Difference
 * @property {string} decision
 * @property {number | null} shift
 * @property {number | null} early the shift without an interval
 * @property {number | null} low
 * @property {number | null} high
 * @property {number | null} percent
 * @property {number} n
 * @property {number | null} independent
 * @property {string} reason
 * @property {string | null} sinceAt
 */
/**
 * @typedef {{target: string, provider: string, model: string, tier: string, workload: string, usd: number | null,
 *   cells: Readonly<Record<string, Cell>>}} Row
 */

/** What follows a region in the key of an order by the difference from the baseline there. */
export const DIFFERENCE = " difference";

const MINUTE_MS = 60_000;
const STALE_MS = 15 * MINUTE_MS;
const STALE_SHARE = 20;

/**
 * The rows of the matrix and its regions, by name. Targets of the plan without samples have a row without cells.
 * @param {{metric: Metric, board: any, targets: any, diff: any | null, slo: any | null, regions: any, staleBefore: number}} answers
 * @returns {{regions: string[], rows: Row[]}}
 */
export function matrixOf({ metric, board, targets, diff, slo, regions, staleBefore }) {
  const planned = new Map(targets.rows.map((/** @type {any} */ row) => [row.name, row]));
  /** @typedef {Omit<Row, "cells"> & {cells: Record<string, Cell>}} Draft */
  /** @type {Map<string, Draft>} */
  const rows = new Map();
  const names = new Set(regions.rows.map((/** @type {any} */ row) => row.region));
  const rowOf = (/** @type {any} */ found) => {
    const target = planned.get(found.target);
    const usd = target?.price?.usd_per_m_output ?? found.usd_per_m_output ?? null;
    /** @type {Draft} */
    const row = rows.get(found.target) ?? { target: found.target, provider: found.provider, model: found.model, usd,
      tier: tierOf(usd), workload: target ? workloadOf(target.workload) : "", cells: {} };
    rows.set(found.target, row);
    return row;
  };
  for (const name of planned.keys()) rowOf({ ...planned.get(name), target: name });
  for (const found of board.rows) {
    names.add(found.region);
    rowOf(found).cells[found.region] = cellOf(found, metric, staleBefore);
  }
  for (const found of slo?.rows ?? []) {
    const { cells } = rowOf(found), cell = cells[found.region];
    if (cell) cells[found.region] = { ...cell, ...estimated(found.goodput, metric, found.n), verdict: found };
  }
  for (const found of diff?.rows ?? []) {
    names.add(found.region);
    const { cells } = rowOf(found), base = cells[found.baseline];
    const cell = cells[found.region] ??= cellOf({ n: found.region_n, newest_at: found.newest_at }, metric, staleBefore);
    cell.difference = differenceOf(found, metric);
    const isEarly = cell.difference.shift === null;
    // After a step, the median of the whole window is of neither level. Rounds that are too few for an interval may suffice in pairs.
    if (found.since_at && isKnown(found.region_median)) replaceByNewer(cell, scaled(found.region_median, metric), isEarly);
    else if (!isEarly) replaceEarly(cell, scaled(found.region_median, metric));
    if (base && !isEarly) replaceEarly(base, scaled(found.baseline_median, metric));
  }
  for (const { target, cells } of rows.values()) {
    const own = (diff?.rows ?? []).filter((/** @type {any} */ found) => found.target === target && isKnown(found.baseline_median));
    const [most] = own.toSorted((/** @type {any} */ a, /** @type {any} */ b) => b.n - a.n), base = cells[most?.baseline];
    if (base && own.every((/** @type {any} */ found) => found.since_at)) {
      replaceByNewer(base, scaled(most.baseline_median, metric), !own.some((/** @type {any} */ found) => isKnown(found.shift_low) && isKnown(found.shift_high)));
    }
  }
  return { regions: [...names].sort(byName), rows: [...rows.values()].sort((a, b) => byName(a.target, b.target)) };
}

/**
 * The instant before which a newest round is stale, in milliseconds since the epoch. An unchanged answer keeps the ends of
 * its window, so a window up to now ends at `now`.
 * @param {{from_at: string, until_at: string} | undefined} window
 * @param {Readonly<Record<string, string>>} options
 * @param {number} now
 */
export function staleBeforeOf(window, options, now) {
  if (!window) return 0;
  const [from, until] = [Date.parse(window.from_at), Date.parse(window.until_at)];
  const end = options["until"] ? Math.min(until, now) : now;
  return end - Math.max(STALE_MS, (until - from) / STALE_SHARE);
}

/**
 * A request of a target in words: its size, and what differs from the usual one.
 * @param {any} workload
 */
export function workloadOf(workload) {
  const parts = [`${workload.max_output_tokens} tokens`];
  if (workload.concurrency > 1) parts.push(`${workload.concurrency} at once`);
  if (workload.connection && workload.connection !== "cold") parts.push(`${workload.connection} connection`);
  if (workload.reasoning_effort) parts.push(`${workload.reasoning_effort} effort`);
  return parts.join(", ");
}

/**
 * The rows that the options select, in their order.
 * @param {readonly Row[]} rows
 * @param {Readonly<Record<string, string>>} options `provider`, `tier` and `workload` select equal ones, `find` is a part
 *   of a name; `sort` is `target`, `price`, a region, or one with `DIFFERENCE`, with a leading `-` for the largest first.
 */
export function selectedRows(rows, options) {
  const wanted = (options["find"] ?? "").trim().toLowerCase();
  const kept = rows.filter((row) =>
    (["provider", "tier", "workload"]).every((name) => !options[name] || options[name] === row[/** @type {"tier"} */ (name)])
    && (!wanted || row.target.toLowerCase().includes(wanted)));
  const { key, descending } = sortOf(options["sort"] ?? "");
  if (key === "target") return descending ? kept.reverse() : kept;
  if (key === "price") return sortedBy(kept, (row) => row.usd, { descending });
  const [region = "", of] = key.split(DIFFERENCE);
  return sortedBy(kept, ({ cells: { [region]: cell } }) => of === undefined ? cell?.value : cell?.difference?.shift, { descending });
}

/**
 * @param {string} text
 * @returns {{key: string, descending: boolean}}
 */
export function sortOf(text) {
  const descending = text.startsWith("-");
  return { key: text.slice(Number(descending)) || "target", descending };
}

/**
 * @param {any} found
 * @param {Metric} metric
 * @param {number} staleBefore
 * @returns {Cell}
 */
function cellOf(found, metric, staleBefore) {
  return {
    ...estimated(metric.value?.(found), metric, found.n),
    newestAt: found.newest_at,
    isStale: !found.newest_at || Date.parse(found.newest_at) < staleBefore,
    difference: null,
    verdict: null,
  };
}

/**
 * @param {Estimate | null | undefined} estimate
 * @param {Metric} metric
 * @param {number} n
 */
function estimated(estimate, metric, n) {
  const isFirm = hasInterval(estimate);
  return {
    value: scaled(estimate?.value, metric),
    low: isFirm ? scaled(estimate?.low, metric) : null,
    high: isFirm ? scaled(estimate?.high, metric) : null,
    n: estimate?.n ?? n,
    independent: estimate?.n_eff ?? null,
    isEarly: Boolean(estimate) && !isFirm,
    progress: estimate ? progressOf(estimate) : "",
  };
}

/**
 * Replace the value of a whole window by that of the rounds since a change, which the difference is of.
 * @param {Cell} cell
 * @param {number | null} value
 * @param {boolean} isEarly
 */
function replaceByNewer(cell, value, isEarly) {
  Object.assign(cell, { value, low: null, high: null, isEarly, progress: "" });
}

/**
 * Replace a value without an interval by that of rounds whose difference has one.
 * @param {Cell} cell
 * @param {number | null} value
 */
function replaceEarly(cell, value) {
  if (value !== null && (cell.isEarly || cell.value === null)) Object.assign(cell, { value, isEarly: false });
}

/**
 * @param {any} found
 * @param {Metric} metric
 * @returns {Difference}
 */
function differenceOf(found, metric) {
  const isFirm = isKnown(found.shift_low) && isKnown(found.shift_high), shift = scaled(found.shift, metric);
  return {
    decision: found.decision,
    shift: isFirm ? shift : null,
    early: isFirm ? null : shift,
    low: scaled(found.shift_low, metric),
    high: scaled(found.shift_high, metric),
    percent: found.shift_percent,
    n: found.n,
    independent: found.n_eff,
    reason: found.reason,
    sinceAt: found.since_at,
  };
}

/**
 * @param {number | null | undefined} value
 * @param {Metric} metric
 */
function scaled(value, metric) {
  return isKnown(value) ? value * metric.scale : null;
}
