/** Colours of cells, as names of classes whose colours are in the style sheet. Pure. */

import { isKnown } from "./formats.js";

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
