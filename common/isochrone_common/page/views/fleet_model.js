/** The state of the fleet in texts, with the rules of the tables of the command. Pure. */

import { UNKNOWN, age, isKnown, number } from "../formats.js";
import { byName } from "../ordering.js";

/** The share of probes that are not compared from which on it is noted, as in `pages/cells.py`. */
const FEW_LEFT_OUT = 0.1;

/** What a state of a vantage means to an operator, as a class of the style sheet. */
export const TONE_OF = /** @type {Readonly<Record<string, string>>} */ ({ online: "good", late: "bad", silent: "warn" });
const PHRASES = /** @type {Readonly<Record<string, string>>} */ ({ silent: "no samples", empty: "nothing to probe" });

/** @param {string} liveness */
export function phraseOf(liveness) {
  return PHRASES[liveness] ?? liveness;
}

/**
 * Whether every sample that an agent finished is stored, spooled or dropped: `all accounted for`, `3 lost`,
 * `3 duplicate`, or unknown. The heartbeat of a push is older than its commit, so as many as were in the spool may be
 * stored already.
 * @param {any} vantage
 */
export function accountOf(vantage) {
  if (vantage.duplicate_at) return "two agents";
  if (!vantage.finished) return UNKNOWN;
  const dropped = /** @type {number[]} */ (Object.values(vantage.dropped ?? {})).reduce((sum, count) => sum + count, 0);
  const missing = vantage.finished - vantage.ledgered - vantage.spool_depth - vantage.quarantined - dropped;
  if (missing > 0) return `${missing} lost`;
  return -missing > vantage.spool_depth ? `${-missing - vantage.spool_depth} duplicate` : "all accounted for";
}

/**
 * The offset of the clock of a vantage and its uncertainty, in milliseconds.
 * @param {any} vantage
 */
export function clockOf(vantage) {
  if (!isKnown(vantage.clock_offset_us)) return UNKNOWN;
  const offset = number(vantage.clock_offset_us / 1000, { decimals: 1, signed: true });
  return isKnown(vantage.clock_uncertainty_us) ? `${offset} ± ${number(vantage.clock_uncertainty_us / 1000, { decimals: 1 })}` : offset;
}

/**
 * The version of the plan that a vantage runs, and whether it is behind.
 * @param {any} vantage
 * @param {number} inForce
 */
export function planOf(vantage, inForce) {
  const running = String(vantage.plan_version || UNKNOWN);
  if (vantage.plan_version === inForce) return running;
  return vantage.refused_plan_version === inForce ? `${running} refuses ${inForce}` : `${running} behind`;
}

/**
 * What an operator has to know of a vantage, as sentences.
 * @param {any} vantage
 * @returns {string[]}
 */
export function remarksOf(vantage) {
  const dropped = Object.entries(vantage.dropped ?? {}).filter(([, count]) => count).map(([name, count]) => `${name} ${count}`);
  return [
    vantage.liveness !== "online" && vantage.reason,
    isKnown(vantage.refused_plan_version) && `refused plan ${vantage.refused_plan_version}: ${vantage.refused_plan_reason || "no reason given"}`,
    vantage.duplicate_at && "a second agent uses this credential and is refused",
    vantage.missing_keys && `skips targets without a key: ${vantage.missing_keys}`,
    vantage.refused_targets && `skips targets refused by the agent's policy: ${vantage.refused_targets}`,
    vantage.left_out > FEW_LEFT_OUT && `${vantage.name} was busy: ${Math.floor(100 * vantage.left_out)} % of its probes are not compared`,
    dropped.length > 0 && `dropped ${dropped.join(", ")}`,
    vantage.quarantined > 0 && `${vantage.quarantined} samples in quarantine`,
    vantage.rounds_missed > 0 && `${vantage.rounds_missed} rounds missed`,
  ].filter((text) => typeof text === "string");
}

/**
 * When the heartbeat of a vantage is due.
 * @param {string | null} at
 * @param {number} now
 */
export function dueOf(at, now) {
  if (!at) return UNKNOWN;
  const until = Date.parse(at);
  return until >= now ? `in ${age(new Date(now).toISOString(), until)}` : `${age(at, now)} ago`;
}

/**
 * The largest share of a budget that is spent, or forecast for the whole day; `null` without a limit that is known.
 * @param {any} line
 * @param {{forecast?: boolean}} [options]
 */
export function budgetShare(line, { forecast = false } = {}) {
  const head = forecast ? "forecast_" : "";
  const shares = ["usd", "tokens", "requests"].map((name) => {
    const limit = line.budget?.[`${name}_per_day`], part = line[`${head}${name}`];
    return limit && isKnown(part) ? part / limit : null;
  }).filter(isKnown);
  return shares.length ? Math.max(...shares) : null;
}

/**
 * The limits of a budget in words.
 * @param {any} budget
 */
export function budgetOf(budget) {
  const parts = [["usd_per_day", "$"], ["tokens_per_day", "tokens"], ["requests_per_day", "requests"]]
    .filter(([name]) => isKnown(budget?.[name ?? ""])).map(([name, unit]) => `${budget[name ?? ""]} ${unit}`);
  return parts.join(", ") || UNKNOWN;
}

/**
 * The coverage of targets by vantages: shares of the planned rounds with a sample, from 0 to 1.
 * @param {any[]} rows
 * @returns {{vantages: string[], targets: {target: string, shares: Record<string, number | null>}[]}}
 */
export function coverageOf(rows) {
  const vantages = [...new Set(rows.map((row) => row.vantage))].sort(byName);
  /** @type {Map<string, Record<string, number | null>>} */
  const targets = new Map();
  for (const { vantage, target, planned, recorded } of rows) {
    const shares = targets.get(target) ?? {};
    shares[vantage] = planned > 0 ? Math.min(1, recorded / planned) : null;
    targets.set(target, shares);
  }
  return { vantages, targets: [...targets].sort(([a], [b]) => byName(a, b)).map(([target, shares]) => ({ target, shares })) };
}

/**
 * The spend of today by provider and vantage, with sums that are `null` if no part is known.
 * @param {any[]} rows
 * @returns {{vantages: string[], providers: {provider: string, lines: Record<string, any>, usd: number | null, forecast: number | null}[]}}
 */
export function spendOf(rows) {
  const vantages = [...new Set(rows.map((row) => row.vantage))].sort(byName);
  /** @type {Map<string, Record<string, any>>} */
  const providers = new Map();
  for (const row of rows) providers.set(row.provider, { ...providers.get(row.provider), [row.vantage]: row });
  return { vantages, providers: [...providers].sort(([a], [b]) => byName(a, b)).map(([provider, lines]) => ({
    provider, lines, usd: sum(Object.values(lines).map(spentUsd)), forecast: sum(Object.values(lines).map((line) => line.forecast_usd)) })) };
}

/**
 * The dollars that a line has spent; `null` without a known price.
 * @param {any} line
 * @returns {number | null}
 */
export function spentUsd(line) {
  return line.usd || line.forecast_usd !== null ? line.usd : null;
}

/** @param {(number | null)[]} values */
function sum(values) {
  const known = values.filter(isKnown);
  return known.length ? known.reduce((total, value) => total + value, 0) : null;
}
