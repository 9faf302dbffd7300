/** Route tables in texts, with the rules of the tables of the command, and their changes over time. Pure. */

import { age, commonDecimals, interval, isKnown, moment, number } from "../formats.js";
import { byName } from "../ordering.js";

const SETTLED = 0.005;
const STATE_PHRASES = /** @type {Readonly<Record<string, string>>} */ ({
  ok: "ok",
  degraded: "degraded: none meets the objective",
  insufficient_data: "insufficient data: use the static order",
  frozen: "frozen: too many vantages fail at once for this to be the providers' fault",
});
/** What a state of a table or an answer to the objective means, as a class of the style sheet. */
export const TONE_OF = /** @type {Readonly<Record<string, string>>} */ ({
  ok: "good", degraded: "bad", insufficient_data: "warn", frozen: "bad", yes: "good", no: "bad",
  fresh: "", aging: "warn", expired: "bad", hard: "bad", freeze: "bad", fast: "warn", soft: "warn",
});

/** @param {string} state */
export function phraseOf(state) {
  return STATE_PHRASES[state] ?? state;
}

/**
 * The freshness of a table: what a consumer may do with it, and for how long.
 * @param {{fresh_until_at: string, stale_until_at: string}} table
 * @param {number} now
 * @returns {{state: "fresh" | "aging" | "expired", text: string}}
 */
export function freshnessOf({ fresh_until_at, stale_until_at }, now) {
  const nowAt = new Date(now).toISOString();
  if (now >= Date.parse(stale_until_at)) return { state: "expired", text: `expired ${age(stale_until_at, now)} ago: use the static order` };
  return now < Date.parse(fresh_until_at)
    ? { state: "fresh", text: `fresh for ${age(nowAt, Date.parse(fresh_until_at))}` }
    : { state: "aging", text: `aging, usable for ${age(nowAt, Date.parse(stale_until_at))}` };
}

/**
 * The members with a weight, in per cent: `alpha/m 75 %, beta/m 25 %`; empty without any.
 * @param {Readonly<Record<string, number>>} weights
 */
export function weightsText(weights) {
  return Object.entries(weights).filter(([, weight]) => weight > 0)
    .map(([target, weight]) => `${target} ${percentOf(weight)} %`).join(", ");
}

/** @param {number} share */
function percentOf(share) {
  return number(100 * share, { decimals: 0 });
}

/**
 * The tables by region and route, in the order of their names.
 * @param {any} overview
 * @returns {{routes: string[], rows: {region: string, tables: Record<string, any>}[]}}
 */
export function overviewOf(overview) {
  /** @type {Map<string, Record<string, any>>} */
  const rows = new Map();
  for (const table of overview.tables) rows.set(table.client_region, { ...rows.get(table.client_region), [table.route]: table });
  const routes = [...new Set([...overview.routes, ...overview.tables.map((/** @type {any} */ table) => table.route)])];
  return { routes: routes.sort(byName),
    rows: [...rows].sort(([a], [b]) => byName(a, b)).map(([region, tables]) => ({ region, tables })) };
}

/**
 * Where the weight of an entry goes: to its part of the first rank, or to none. Empty once it is there, and for tables with
 * limits of shares.
 * @param {any} entry
 * @param {any[]} entries
 * @returns {"" | "rises" | "falls"}
 */
export function directionOf(entry, entries) {
  if (entries.some((one) => one.max_weight < 1)) return "";
  const sharing = entries.filter((one) => one.rank === 1).length;
  const change = (entry.rank === 1 ? 1 / sharing : 0) - entry.weight;
  return Math.abs(change) < SETTLED ? "" : change > 0 ? "rises" : "falls";
}

/**
 * Since when a member is the first choice or is not, and how often that changed.
 * @param {any} hold
 * @param {number} now
 * @returns {{text: string, switches: string}}
 */
export function holdOf(hold, now) {
  if (!hold) return { text: "–", switches: "" };
  const count = hold.switches_24h;
  return { text: `${hold.state} for ${age(hold.since_at, now)}`, switches: count ? `${count} ${count === 1 ? "switch" : "switches"} in 24 h` : "" };
}

/**
 * Why a member does not keep the objective for certain; empty if it does.
 * @param {any} entry
 * @param {any} slo
 */
export function objectiveReason(entry, slo) {
  return [entry.goodput ? goodputReason(entry.goodput, slo) : latencyReason(entry.ttft_p95_us, slo), successReason(entry.success, slo)]
    .filter(Boolean).join("; ");
}

/**
 * @param {any} goodput
 * @param {any} slo
 */
function goodputReason(goodput, slo) {
  if (goodput.low >= slo.min_goodput) return "";
  // Down, so that a bound just below what is needed does not look as if it were met.
  const low = number(Math.floor(1000 * goodput.low) / 10, { decimals: 1 });
  const [value, high, needed] = [goodput.value, goodput.high, slo.min_goodput].map(oneDecimal);
  const more = goodput.high >= slo.min_goodput ? ": more requests decide it" : "";
  return `${value} % of ${goodput.n} requests in time [${low} … ${high}], ${needed} % needed; ${limitsOf(slo)}${more}`;
}

/**
 * The limits of an objective.
 * @param {any} slo
 */
export function limitsOf(slo) {
  return [
    isKnown(slo.ttft_p95_us) && `the limit is ${ms(slo.ttft_p95_us)} ms`,
    isKnown(slo.answer_p95_us) && `${slo.answer_tokens} tokens in ${ms(slo.answer_p95_us)} ms`,
    isKnown(slo.min_tokens_per_second) && `at ${number(slo.min_tokens_per_second)} tokens/s or more`,
  ].filter(Boolean).join(", ");
}

/**
 * @param {any} p95
 * @param {any} slo
 */
function latencyReason(p95, slo) {
  if (!isKnown(slo.ttft_p95_us)) return "";
  const limit = `the limit is ${ms(slo.ttft_p95_us)} ms`;
  if (!isKnown(p95?.low)) return `p95 unknown, ${p95 ? "too few samples" : "no sample"}; ${limit}`;
  if (isKnown(p95.high) && p95.high <= slo.ttft_p95_us) return "";
  return `p95 ${p95.low > slo.ttft_p95_us || !isKnown(p95.high) ? `at least ${ms(p95.low)}` : interval(p95.low / 1000, p95.high / 1000)} ms, ${limit}`;
}

/**
 * @param {any} success
 * @param {any} slo
 */
function successReason(success, slo) {
  if (!slo.min_success) return "";
  const minimum = `min_success is ${oneDecimal(slo.min_success)} %`;
  if (!success) return `success unknown, no request; ${minimum}`;
  if (success.low >= slo.min_success) return "";
  return success.high < slo.min_success ? `success at most ${oneDecimal(success.high)} %, ${minimum}`
    : `success at least ${oneDecimal(success.low)} % after ${success.n} requests, ${minimum}: more requests decide it`;
}

/** @param {number} share */
function oneDecimal(share) {
  return number(100 * share, { decimals: 1 });
}

/** @param {number} us */
function ms(us) {
  return number(us / 1000);
}

/**
 * What else a consumer has to know of a table: hedge, race, throttling, members left out, and the static order.
 * @param {any} table
 * @returns {[name: string, text: string][]}
 */
export function remarksOf(table) {
  const first = table.entries[0];
  return /** @type {[string, string][]} */ ([
    ...table.entries.map((/** @type {any} */ entry) => [`objective, ${entry.target}`, objectiveReason(entry, table.slo)]),
    ["hedge", first?.hedge ? hedgeText(first.hedge) : ""],
    ["race", table.race ? raceText(table.race) : ""],
    ...table.entries.map((/** @type {any} */ { target, throttled }) =>
      ["throttled", throttled ? `${number(100 * throttled)} % of the recent requests to ${target}` : ""]),
    ["unassigned", table.unassigned
      ? `${number(100 * table.unassigned)} % of the traffic is beyond max_share of the members: wait with it or refuse it` : ""],
    ...table.excluded.map((/** @type {any} */ { target, reason }) => [`left out, ${target}`, reason]),
    ["when it has expired", table.static_order.join(", then ") || "no static order"],
  ]).filter(([, text]) => text);
}

/** @param {any} hedge */
function hedgeText({ target, delay_us, expected_p99_with_us: withIt, expected_p99_without_us: without, reason }) {
  if (!isKnown(delay_us)) return target ? `not with ${target}: ${reason}` : reason;
  const gain = isKnown(withIt) && isKnown(without) ? `; expected p99 ${ms(withIt)} instead of ${ms(without)} ms` : "";
  return `${target} after ${ms(delay_us)} ms without a token${gain}`;
}

/** @param {any} race */
function raceText({ targets, expected_p95_us, usd_factor, reason }) {
  if (targets.length < 2) return reason || `${targets.join(", ")} alone`;
  const p95 = isKnown(expected_p95_us) ? `: expected p95 ${ms(expected_p95_us)} ms` : "";
  return `${targets.join(" + ")} at once${p95}${isKnown(usd_factor) ? `, ${number(usd_factor)} times the cost` : ""}`;
}

/**
 * The decimals of all latencies of a table.
 * @param {any[]} entries
 */
export function latencyDecimals(entries) {
  return commonDecimals(entries.flatMap((entry) => [entry.ttft_p50_us?.value, entry.ttft_p95_us?.value]).filter(isKnown).map((us) => us / 1000));
}

/**
 * A change of a route: `at` is in milliseconds since the epoch, `weights` are those since then.
 * @typedef {{region: string, route: string, generation: number, at: number, change: string, sentence: string, weights: Record<string, number>}} Change
 */

/**
 * The changes of a window, oldest first.
 * @param {any[]} rows
 * @returns {Change[]}
 */
export function changesOf(rows) {
  return rows.map(({ client_region, at, ...row }) => ({ ...row, region: client_region, at: at / 1000 }))
    .sort((a, b) => a.generation - b.generation);
}

/**
 * The place of a slider over changes: 0 is now, -1 the newest change. A generation between two changes has the place of
 * the earlier, and one before all of them that of the oldest.
 * @param {readonly Change[]} changes
 * @param {string | undefined} generation empty for now
 */
export function placeOf(changes, generation) {
  if (!generation) return 0;
  const before = changes.filter((change) => change.generation <= Number(generation)).length;
  return Math.min(Math.max(before, 1) - changes.length - 1, 0);
}

/**
 * The generation at a place of the slider, empty for now.
 * @param {readonly Change[]} changes
 * @param {number} place
 */
export function generationAt(changes, place) {
  return String(changes.at(place < 0 ? place : changes.length)?.generation ?? "");
}

/**
 * A place of the slider for people.
 * @param {readonly Change[]} changes
 * @param {number} place
 * @param {number} now
 */
export function placeText(changes, place, now) {
  const change = place < 0 ? changes.at(place) : undefined;
  return change ? `generation ${change.generation}, ${moment(new Date(change.at).toISOString(), now)}: ${change.sentence}` : "now";
}

/**
 * The shares of the traffic over time, as bars from `from` until `until` (milliseconds since the epoch) that are stacked
 * from 0 to 1 in the order of `targets`. Before the first change nothing is known, unless there is none: then `current`
 * is valid for the whole time.
 * @param {readonly Change[]} changes
 * @param {{from: number, until: number, current: Readonly<Record<string, number>>}} options
 * @returns {{targets: string[], bars: {target: string, from: number, until: number, low: number, high: number}[]}}
 */
export function weightBars(changes, { from, until, current }) {
  const levels = changes.length ? changes : [{ at: from, weights: current }];
  const targets = [...new Set([...levels.map((level) => level.weights), current].flatMap((weights) => Object.keys(weights)))].sort(byName);
  const bars = levels.flatMap(({ at, weights }, place) => {
    let low = 0;
    return targets.filter((target) => (weights[target] ?? 0) > 0).map((target) => {
      const bar = { target, from: Math.max(at, from), until: levels[place + 1]?.at ?? until, low, high: low + (weights[target] ?? 0) };
      low = bar.high;
      return bar;
    });
  });
  return { targets, bars: bars.filter((bar) => bar.until > bar.from) };
}
