/**
 * Lines of equal value in a grid, by marching squares. Pure.
 *
 * A line crosses an edge between two nodes where the value, linear along the edge, is that of the line. Nodes without a
 * value end the lines. The edges of a node `n`: `2 n` to the node on its right, `2 n + 1` to the node below.
 */

import { isKnown } from "../formats.js";

/** Values row by row, `null` where there is none. In a round grid the first column is on the right of the last one. */
/** @typedef {{columns: number, values: readonly (number | null)[], isRound?: boolean}} Grid */
/** A place in the grid, in columns and rows; in a round grid up to as many columns as it has. */
/** @typedef {readonly [column: number, row: number]} Place */

const NONE = /** @type {const} */ ([]);
const TOP = 0, RIGHT = 1, BOTTOM = 2, LEFT = 3;
// The edges that a line connects, by the corners at or above its value: top left 1, top right 2, bottom right 4, bottom left 8.
const SEGMENTS = /** @type {readonly (readonly (readonly [number, number])[])[]} */ ([
  [], [[LEFT, TOP]], [[TOP, RIGHT]], [[LEFT, RIGHT]], [[RIGHT, BOTTOM]], [[LEFT, TOP], [RIGHT, BOTTOM]], [[TOP, BOTTOM]], [[LEFT, BOTTOM]],
  [[BOTTOM, LEFT]], [[TOP, BOTTOM]], [[TOP, RIGHT], [BOTTOM, LEFT]], [[RIGHT, BOTTOM]], [[RIGHT, LEFT]], [[TOP, RIGHT]], [[LEFT, TOP]], []]);
// Two opposite corners are above the value and the middle of the cell, too: the lines separate the other two.
const JOINED = /** @type {Readonly<Record<number, readonly (readonly [number, number])[]>>} */ ({
  5: [[TOP, RIGHT], [BOTTOM, LEFT]], 10: [[LEFT, TOP], [RIGHT, BOTTOM]] });

/**
 * The lines of a value; the last place of a closed one is the first one again.
 * @param {Grid} grid
 * @param {number} level
 * @returns {Place[][]}
 */
export function contours(grid, level) {
  const { columns, values, isRound = false } = grid;
  /** @type {Map<number, number[]>} */
  const neighbours = new Map();
  const connect = (/** @type {number} */ from, /** @type {number} */ to) => neighbours.set(from, [...neighbours.get(from) ?? [], to]);
  for (let node = 0; node + columns < values.length; node += 1) {
    if (!isRound && node % columns === columns - 1) continue;
    const right = rightOf(node, columns);
    const segments = segmentsOf(values[node], values[right], values[right + columns], values[node + columns], level);
    if (!segments.length) continue;
    const edges = [2 * node, 2 * right + 1, 2 * (node + columns), 2 * node + 1];
    for (const [from, to] of segments) {
      connect(edges[from] ?? 0, edges[to] ?? 0);
      connect(edges[to] ?? 0, edges[from] ?? 0);
    }
  }
  return chains(neighbours).map((chain) => chain.map((edge) => crossing(edge, grid, level)));
}

/**
 * The node on the right: that of the last column is the first one of its row.
 * @param {number} node
 * @param {number} columns
 */
function rightOf(node, columns) {
  return node % columns === columns - 1 ? node - columns + 1 : node + 1;
}

/**
 * The parts of lines in a cell, from the values of its corners, clockwise from the top left.
 * @param {import("../formats.js").Maybe} a
 * @param {import("../formats.js").Maybe} b
 * @param {import("../formats.js").Maybe} c
 * @param {import("../formats.js").Maybe} d
 * @param {number} level
 */
function segmentsOf(a, b, c, d, level) {
  if (!isKnown(a) || !isKnown(b) || !isKnown(c) || !isKnown(d)) return NONE;
  const above = Number(a >= level) + 2 * Number(b >= level) + 4 * Number(c >= level) + 8 * Number(d >= level);
  return (a + b + c + d >= 4 * level && JOINED[above]) || SEGMENTS[above] || NONE;
}

/**
 * The edges in the order in which lines cross them: first the lines with ends, then closed ones.
 * @param {Map<number, number[]>} neighbours
 * @returns {number[][]}
 */
function chains(neighbours) {
  const left = new Map([...neighbours].sort(([, a], [, b]) => a.length - b.length));
  const found = [];
  for (const first of left.keys()) {
    const chain = [first];
    let edge = /** @type {number | undefined} */ (first);
    while (edge !== undefined) {
      const next = left.get(edge)?.find((one) => left.has(one));
      left.delete(edge);
      if (next !== undefined) chain.push(next);
      edge = next;
    }
    const last = chain.at(-1) ?? first;
    if (chain.length > 2 && neighbours.get(last)?.includes(first)) chain.push(first);
    found.push(chain);
  }
  return found;
}

/**
 * @param {number} edge
 * @param {Grid} grid
 * @param {number} level
 * @returns {Place}
 */
function crossing(edge, { columns, values }, level) {
  const node = edge >> 1, isDown = edge % 2 === 1;
  const [near, far] = [values[node] ?? 0, values[isDown ? node + columns : rightOf(node, columns)] ?? 0];
  const share = (level - near) / (far - near), column = node % columns, row = Math.floor(node / columns);
  return isDown ? [column, row + share] : [column + share, row];
}
