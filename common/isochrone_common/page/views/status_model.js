/** The status of all targets in texts. Pure. */

import { isKnown, number, percent } from "../formats.js";
import { byName } from "../ordering.js";

/** What a state means to a reader, as a class of the style sheet. */
export const TONE_OF = /** @type {Readonly<Record<string, string>>} */ ({ ok: "good", slow: "warn", failing: "bad" });
/** The same of a verdict, and of the severity of a finding. */
export const VERDICT_TONES = /** @type {Readonly<Record<string, string>>} */ ({ well: "good", warning: "warn", critical: "bad" });

/** @typedef {{state: string, values: string}} Cell */
/** @typedef {{target: string, provider: string, cells: Readonly<Record<string, Cell>>}} Row */

/**
 * The rows of the table and its regions, by name.
 * @param {readonly any[]} rows
 * @returns {{regions: string[], rows: Row[]}}
 */
export function statusTableOf(rows) {
  /** @typedef {{target: string, provider: string, cells: Record<string, Cell>}} Draft */
  /** @type {Map<string, Draft>} */
  const found = new Map();
  const regions = new Set();
  for (const row of rows) {
    /** @type {Draft} */
    const own = found.get(row.target) ?? { target: row.target, provider: row.provider, cells: {} };
    own.cells[row.region] = cellOf(row);
    found.set(row.target, own);
    regions.add(row.region);
  }
  return { regions: [...regions].sort(byName), rows: [...found.values()].sort((a, b) => byName(a.target, b.target)) };
}

/** A state or verdict in words. @param {string} name */
export function wordsOf(name) {
  return name.replaceAll("_", " ");
}

/**
 * @param {any} row
 * @returns {Cell}
 */
function cellOf(row) {
  const values = [
    isKnown(row.ttft_p50_us) ? `${milliseconds(row.ttft_p50_us)}${row.is_early ? "?" : ""}\u00a0ms` : "",
    isKnown(row.success) ? `${percent(row.success)}\u00a0%` : "",
  ];
  return {
    state: row.state,
    values: values.filter(Boolean).join(", "),
  };
}

/** @param {number} us */
function milliseconds(us) {
  return number(us / 1000, { decimals: 0 });
}
