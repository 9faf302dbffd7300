/**
 * Quantities for people, with the rules of the command `isochrone`: two decimals below 1, one below 10, none above, and
 * the same decimals for all numbers of one scale. An unknown quantity is an en dash, never 0. Pure.
 */

export const UNKNOWN = "–";
const MINUTE_MS = 60_000, HOUR_MS = 60 * MINUTE_MS, DAY_MS = 24 * HOUR_MS;

/** @typedef {number | null | undefined} Maybe */

/**
 * The decimals for a number of this size.
 * @param {number} value
 */
export function fittingDecimals(value) {
  const size = Math.abs(value);
  if (size && Number(size.toFixed(2)) < 1) return 2;
  return size && Number(size.toFixed(1)) < 10 ? 1 : 0;
}

/**
 * The decimals for all numbers of one scale: those of the largest.
 * @param {Iterable<Maybe>} values
 */
export function commonDecimals(values) {
  let largest = 0;
  for (const value of values) if (isKnown(value)) largest = Math.max(largest, Math.abs(value));
  return fittingDecimals(largest);
}

/**
 * @param {Maybe} value
 * @param {{decimals?: number, signed?: boolean}} [style]
 */
export function number(value, { decimals, signed = false } = {}) {
  if (!isKnown(value)) return UNKNOWN;
  const text = value.toFixed(decimals ?? fittingDecimals(value));
  if (Number(text) === 0) return text.replace("-", "");
  return signed && value > 0 ? `+${text}` : text;
}

/**
 * `low … high` with the same decimals; unknown if both are.
 * @param {Maybe} low
 * @param {Maybe} high
 * @param {{decimals?: number, signed?: boolean}} [style]
 */
export function interval(low, high, style = {}) {
  if (!isKnown(low) && !isKnown(high)) return UNKNOWN;
  const decimals = style.decimals ?? commonDecimals([low, high]);
  return `${number(low, { ...style, decimals })} … ${number(high, { ...style, decimals })}`;
}

/**
 * A number of samples or rounds and of as many independent ones: `60 ≈ 12`.
 * @param {number} n
 * @param {Maybe} independent
 */
export function worth(n, independent) {
  const text = isKnown(independent) ? number(independent, { decimals: 0 }) : String(n);
  return text === String(n) ? text : `${n} ≈ ${text}`;
}

/**
 * The same in words: `60, as good as 12 independent ones`.
 * @param {number} n
 * @param {Maybe} independent
 */
export function worthInWords(n, independent) {
  const [text, fewer] = worth(n, independent).split(" ≈ ");
  return fewer ? `${text}, as good as ${fewer} independent ones` : `${text}`;
}

/**
 * The age of an instant (RFC 3339) at `now`, in milliseconds since the epoch: `12 s`, `4 min`, `3 h`, `5 d`.
 * @param {string | null | undefined} at
 * @param {number} now
 */
export function age(at, now) {
  if (!at) return UNKNOWN;
  return duration(Math.max(0, now - Date.parse(at)));
}

/**
 * A duration in milliseconds, in one unit, rounded down.
 * @param {number} ms
 */
export function duration(ms) {
  if (ms < MINUTE_MS) return `${Math.floor(ms / 1000)} s`;
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms < 2 * DAY_MS) return `${Math.floor(ms / HOUR_MS)} h`;
  return `${Math.floor(ms / DAY_MS)} d`;
}

/**
 * An instant in UTC, to the second on the day of `now`, else to the minute: `08:20:05`, `2026-11-01 08:20`.
 * @param {string | null | undefined} at
 * @param {number} now
 */
export function moment(at, now) {
  if (!at) return UNKNOWN;
  const text = new Date(at).toISOString();
  return text.slice(0, 10) === new Date(now).toISOString().slice(0, 10)
    ? text.slice(11, 19)
    : text.slice(0, 16).replace("T", " ");
}

/**
 * US dollars, with cents from a cent on.
 * @param {Maybe} usd
 */
export function dollars(usd) {
  if (!isKnown(usd)) return UNKNOWN;
  return usd && Math.abs(usd) < 0.01 ? String(Number(usd.toPrecision(2))) : usd.toFixed(2);
}

/**
 * A share from 0 to 1 in per cent, rounded down, so that 100.0 means all.
 * @param {Maybe} share
 */
export function percent(share) {
  return isKnown(share) ? (Math.floor(1000 * share + 1e-9) / 10).toFixed(1) : UNKNOWN;
}

/**
 * A text with a capital at its beginning.
 * @param {string} text
 */
export function capitalised(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * @param {Maybe} value
 * @returns {value is number}
 */
export function isKnown(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}
