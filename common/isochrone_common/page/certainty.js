/**
 * How sure a quantile is, by the rule of the tables of the command (`pages/cells.py`): shown from the first sample on, as
 * `260?` without a 95 % interval, or as `max of 9: 667` if so few samples make a percentile their maximum. Pure.
 */

import { isKnown } from "./formats.js";

const MEDIAN = 0.5, ERROR = 0.05, ROUNDING = 1e-9;

/** @typedef {import("./formats.js").Maybe} Maybe */
/** @typedef {{value: number, low?: Maybe, high?: Maybe, n_eff?: Maybe}} Quantile */

/** @param {{low?: Maybe, high?: Maybe} | null | undefined} quantile */
export function hasInterval(quantile) {
  return isKnown(quantile?.low) && isKnown(quantile.high);
}

/**
 * The text of the value of a quantile, with its mark.
 * @param {string} value
 * @param {Quantile} quantile
 * @param {{share?: number, n?: number}} [of] which quantile of how many samples
 */
export function markedText(value, quantile, { share = MEDIAN, n = 0 } = {}) {
  if (hasInterval(quantile)) return value;
  return share > MEDIAN && n > 0 && n <= Math.ceil(share * n - ROUNDING) ? `max of ${n}: ${value}` : `${value}?`;
}

/**
 * `3 of 6` independent samples that an interval needs; empty if there are as many, or if their number is unknown.
 * @param {Quantile} quantile
 * @param {number} [share]
 */
export function progressOf(quantile, share = MEDIAN) {
  if (hasInterval(quantile) || !isKnown(quantile.n_eff)) return "";
  let needed = 1;
  while (share ** needed + (1 - share) ** needed > ERROR) needed++;
  const independent = Math.floor(quantile.n_eff);
  return independent < needed ? `${independent} of ${needed}` : "";
}
