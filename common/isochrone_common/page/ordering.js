/** Price tiers, filters and orders of targets. Pure. */

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
