/** Price tiers and orders of targets; colours of cells, as names of classes of the style sheet. Pure. */

import { isKnown } from "./formats.js";

// As in the collector's analysis of price tiers: US dollars per million output tokens.
const TIERS = /** @type {const} */ ([["nearly free", 0.15], ["sweet spot", 0.3], ["quality first", 0.8]]);

/** The names of all price tiers, cheapest first. */
export const TIER_NAMES = ["free", ...TIERS.map(([name]) => name), "premium", "unpriced"];

/**
 * The price tier of a price per million output tokens; a price at a boundary belongs to the more expensive tier.
 * @param {number | null | undefined} usd
 */
export function tierOf(usd) {
  if (usd === null || usd === undefined) return "unpriced";
  if (usd <= 0) return "free";
  return TIERS.find(([, below]) => usd < below)?.[0] ?? "premium";
}

// To compare with options without a collator takes ten times as long.
const NAMES = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/**
 * Compare names as people read them: numbers by value, case ignored.
 * @param {string} a
 * @param {string} b
 */
export function byName(a, b) {
  return NAMES.compare(a, b);
}

/**
 * Sort by a number, rows without one last, whatever the direction; equal rows keep their order.
 * @template Row
 * @param {readonly Row[]} rows
 * @param {(row: Row) => number | null | undefined} of
 * @param {{descending?: boolean}} [options]
 */
export function sortedBy(rows, of, { descending = false } = {}) {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [of(a) ?? null, of(b) ?? null];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return sign * (left - right);
  });
}

/** The number of steps of the scale of values: `step0` is the best, `step5` the worst. */
export const STEPS = 6;
const STRONGER = [20, 50];

/**
 * A scale from the smallest to the largest value: a function from a value to its step. It is logarithmic, for values that
 * differ by factors, or linear, for shares.
 * @param {Iterable<number | null>} values
 * @param {{moreIsBetter: boolean, isLinear?: boolean}} options
 * @returns {(value: number) => number}
 */
export function stepScale(values, { moreIsBetter, isLinear = false }) {
  const place = isLinear ? (/** @type {number} */ value) => value : Math.log;
  const known = [...values].filter(isKnown).map(place).filter(Number.isFinite);
  const low = Math.min(...known), high = Math.max(...known);
  return (value) => {
    if (!(high > low)) return 0;
    const share = (place(value) - low) / (high - low);
    return Math.min(STEPS - 1, Math.max(0, Math.floor((moreIsBetter ? 1 - share : share) * STEPS)));
  };
}

/**
 * The class of a differential: `worse1` to `worse3`, `better1` to `better3` by the relative difference in per cent, `same`
 * if the regions are equivalent, `unsure` if nothing is decided.
 * @param {string} decision
 * @param {number | null} percent
 */
export function differenceClass(decision, percent) {
  if (decision === "equivalent") return "same";
  if (decision !== "slower" && decision !== "faster") return "unsure";
  const strength = 1 + STRONGER.filter((limit) => Math.abs(percent ?? 0) >= limit).length;
  return `${decision === "slower" ? "worse" : "better"}${strength}`;
}
