/** The distributions of a metric per region on a logarithmic axis, from the answer of the HTTP interface. Pure. */

import { isKnown } from "../formats.js";
import { byName } from "../ordering.js";

/** @typedef {import("./matrix_model.js").Metric} Metric */
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
