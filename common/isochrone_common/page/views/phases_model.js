/** The contribution of each phase to the differences in the time to the first token, in milliseconds. Pure. */

import { isKnown } from "../formats.js";
import { byName } from "../ordering.js";

/** The phases that add up, in the order of a request, and the two parts of the server's. */
const ADDENDS = /** @type {const} */ (["dns", "tcp", "tls", "rtt", "server"]), OF_SERVER = /** @type {const} */ (["edge", "provider"]);
const US_PER_MS = 1000, MARGIN = 0.05;

/** The phases in words. @type {Readonly<Record<string, string>>} */
export const PHASE_NAMES = { dns: "dns", tcp: "tcp", tls: "tls", rtt: "network", server: "server", edge: "behind the edge", provider: "provider" };

/**
 * A part of a difference with its interval, and the medians of both sides.
 * @typedef {{name: string, shift: number, low: number | null, high: number | null, baseline: number | null, region: number | null, n: number}} Part
 */
/** A part in the drawing, of the colour `place`. @typedef {{name: string, from: number, until: number, place: number}} Segment */
/**
 * The parts of one region by their names; `all` is the sum of those that add up.
 * @typedef {{region: string, baseline: string, parts: ReadonlyMap<string, Part>, all: number, n: number, segments: Segment[]}} PhaseRow
 */

/**
 * The rows of a target by region, the names of the phases that any of them has, and the ends of the common axis, which
 * includes 0.
 * @param {any} diff
 * @param {string} target
 * @returns {{rows: PhaseRow[], names: string[], from: number, until: number}}
 */
export function phaseRows(diff, target) {
  const rows = diff.rows.filter((/** @type {any} */ row) => row.target === target && row.parts?.length).map(rowOf);
  rows.sort((/** @type {PhaseRow} */ a, /** @type {PhaseRow} */ b) => byName(a.region, b.region));
  const ends = rows.flatMap((/** @type {PhaseRow} */ row) => row.segments.flatMap(({ from, until }) => [from, until]));
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)], room = MARGIN * (high - low || 1);
  const names = [...ADDENDS, ...OF_SERVER].filter((name) => rows.some((/** @type {PhaseRow} */ row) => row.parts.has(name)));
  return { rows, names, from: low - room, until: high + room };
}

/**
 * @param {any} row
 * @returns {PhaseRow}
 */
function rowOf(row) {
  const ms = (/** @type {import("../formats.js").Maybe} */ us) => (isKnown(us) ? us / US_PER_MS : null);
  /** @type {Map<string, Part>} */
  const parts = new Map(row.parts.map((/** @type {any} */ part) => [part.name, { name: part.name, shift: part.shift / US_PER_MS,
    low: ms(part.low), high: ms(part.high), baseline: ms(part.baseline_median), region: ms(part.region_median), n: part.n }]));
  const all = ADDENDS.reduce((sum, name) => sum + (parts.get(name)?.shift ?? 0), 0);
  const n = Math.max(...[...parts.values()].map((part) => part.n));
  return { region: row.region, baseline: row.baseline, parts, all, n, segments: segmentsOf(parts) };
}

/**
 * The parts side by side: those that take longer to the right of 0, the others to the left. The server's is drawn as its two
 * parts where the provider reports its own.
 * @param {ReadonlyMap<string, Part>} parts
 */
function segmentsOf(parts) {
  const isDivided = OF_SERVER.every((name) => parts.has(name));
  /** @type {readonly string[]} */
  const names = [...ADDENDS, ...OF_SERVER], drawn = isDivided ? names.filter((name) => name !== "server") : ADDENDS;
  /** @type {Segment[]} */
  const segments = [];
  let [left, right] = [0, 0];
  for (const name of drawn) {
    const shift = parts.get(name)?.shift ?? 0, place = names.indexOf(name);
    if (shift > 0) segments.push({ name, from: right, until: right += shift, place });
    if (shift < 0) segments.push({ name, from: left += shift, until: left - shift, place });
  }
  return segments;
}
