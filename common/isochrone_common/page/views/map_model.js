/** The map: regions at their places, lines of equal latency between them, and how far away an edge can be. Pure. */

import { isKnown } from "../formats.js";
import { contours } from "../map/contours.js";
import { EARTH_RADIUS_KM, WIDTH, distanceKm, interpolated, vectorOf } from "../map/geometry.js";
import { byName } from "../ordering.js";
import { METRICS as MATRIX_METRICS } from "./matrix_model.js";

/** @typedef {import("../map/geometry.js").Point} Point */
/** @typedef {import("../map/geometry.js").Spot} Spot */
/** @typedef {import("../map/geometry.js").Projection} Projection */
/** @typedef {import("./matrix_model.js").Cell} Cell */
/** @typedef {import("./matrix_model.js").Metric} Metric */
/** @typedef {import("./matrix_model.js").Row} Row */

/** The metrics of the matrix whose values are in the leaderboard. */
export const METRICS = MATRIX_METRICS.filter((metric) => metric.value);

/** Lines are drawn no further than this from a vantage, and faint from the other distance on. */
export const REACH_KM = 3000, FAINT_KM = 1500;
/** The number of regions from which on there are lines. */
export const LEAST_REGIONS = 3;
// Light takes a millisecond for about 200 km of fibre (two thirds of its speed in vacuum), there and back for half as much.
const KM_PER_ROUND_TRIP_MS = 100;
const HALF_THE_EARTH_KM = Math.PI * EARTH_RADIUS_KM;
const MOST_LEVELS = 20;
// Smaller differences do not matter, as in the margins of differentials.
const LEAST_STEP = 0.05;
const GRID_CELLS = 150, GRID_SPACING = WIDTH / GRID_CELLS;
// Shorter lines are hidden by marks, or are what the limit of the distance leaves of longer ones.
const LEAST_CROSSINGS = 10;
// In units of the map: marks with nearer centres are moved apart, and texts need that much room, also on a phone.
const MARK_SIZE = 15, TEXT = { width: 64, height: 24 }, PHONE_TEXT = { width: 110, height: 60 };

/**
 * The metric of an option; the first one if there is none of that name.
 * @param {string | undefined} name
 */
export function metricOf(name) {
  return METRICS.find((metric) => metric.name === name) ?? /** @type {Metric} */ (METRICS[0]);
}

/**
 * A region: `point` and `place` are where it is, if that is known, `cell` is what the matrix has of the chosen target,
 * and `rttMs` the shortest median round trip to its edge.
 * @typedef {object} Site
 * @property {string} region
 * @property {readonly string[]} vantages
 * @property {Point | null} point
 * @property {string | null} place
 * @property {Cell | null} cell
 * @property {number | null} rttMs
 */

/**
 * The row of a target. Without a name: of the target with a value from most of the regions, the first one by name.
 * @param {readonly Row[]} rows by name
 * @param {string | undefined} name
 * @returns {Row | null}
 */
export function rowOf(rows, name) {
  if (name) return rows.find((row) => row.target === name) ?? null;
  const measured = (/** @type {Row} */ row) => Object.values(row.cells).filter((cell) => cell.value !== null).length;
  const most = Math.max(...rows.map(measured));
  return rows.find((row) => measured(row) === most) ?? null;
}

/**
 * The regions of the fleet and of a target, by name.
 * @param {{row: Row | null, regions: any[], series: any[]}} answers the row of the target, the rows of the regions, and
 *   those of the round trips of the target
 * @returns {Site[]}
 */
export function sitesOf({ row, regions, series }) {
  const names = new Set([...regions.map((vantage) => vantage.region), ...Object.keys(row?.cells ?? {})]);
  return [...names].sort(byName).map((region) => {
    const vantages = regions.filter((vantage) => vantage.region === region), [first] = vantages;
    const medians = series.filter((one) => one.region === region)
      .flatMap((one) => one.points.map((/** @type {any} */ point) => point.p50)).filter(isKnown);
    return {
      region,
      vantages: vantages.map((vantage) => vantage.name),
      point: isKnown(first?.latitude) && isKnown(first?.longitude) ? { latitude: first.latitude, longitude: first.longitude } : null,
      place: first?.place ?? null,
      cell: row?.cells[region] ?? null,
      rttMs: medians.length ? Math.min(...medians) / 1000 : null,
    };
  });
}

/**
 * The distance in kilometres beyond which an edge cannot be that answers within a round trip; `null` if it can be anywhere.
 * @param {number} rttMs
 */
export function edgeBoundKm(rttMs) {
  const km = KM_PER_ROUND_TRIP_MS * rttMs;
  return km < HALF_THE_EARTH_KM ? km : null;
}

/** The lines of equal latency at a level: `chains`, and the parts of them `near` a vantage and `far` from all. */
/** @typedef {{level: number, chains: Point[][], near: Point[][], far: Point[][]}} Line */

/**
 * The lines of equal latency between the sites, or the reason why there are none.
 * @param {readonly Site[]} sites
 * @param {Metric} metric
 * @param {Projection} projection
 * @returns {{lines: Line[], reason: string}}
 */
export function linesOf(sites, metric, projection) {
  if (metric.unit !== "ms") return { lines: [], reason: "Lines are drawn for latencies only." };
  const places = sites.flatMap(({ point, cell }) =>
    point && isKnown(cell?.value) && !cell.isEarly ? [{ at: vectorOf(point), value: cell.value }] : []);
  if (places.length < LEAST_REGIONS) {
    return { lines: [], reason: `Lines of equal latency need ${LEAST_REGIONS} regions with an interval and a known place; `
      + `there ${places.length === 1 ? "is" : "are"} ${places.length || "none"}.` };
  }
  const levels = levelsOf(places.map((place) => place.value));
  if (!levels.length) return { lines: [], reason: "The regions differ too little for a line of equal latency between them." };
  const grid = gridOf(places, projection);
  const lines = levels.flatMap((level) => {
    const chains = contours(grid, level).filter((chain) => chain.length >= LEAST_CROSSINGS)
      .map((chain) => chain.map(([column, row]) => projection.pointOf([column * GRID_SPACING, row * GRID_SPACING])));
    return chains.length ? [{ level, chains, ...parted(chains, places) }] : [];
  });
  return { lines, reason: "" };
}

/**
 * Round values between the smallest and the largest one, at most twenty, that differ by at least 5 % of the smallest.
 * @param {readonly number[]} values
 * @returns {number[]}
 */
export function levelsOf(values) {
  const low = Math.min(...values), high = Math.max(...values);
  if (high - low < LEAST_STEP * low) return [];
  const least = Math.max((high - low) / MOST_LEVELS, LEAST_STEP * low);
  const size = 10 ** Math.floor(Math.log10(least)), step = size * (/** @type {number[]} */ ([1, 2, 5, 10]).find((part) => part * size >= least) ?? 10);
  const first = Math.floor(low / step) + 1, count = Math.max(0, Math.ceil(high / step) - first);
  return Array.from({ length: count }, (_, place) => (first + place) * step);
}

/**
 * Values between the places on a grid over the map; none farther than `REACH_KM` from each of them. The grid of the whole
 * world is round: its right edge is its left one.
 * @param {readonly {at: import("../map/geometry.js").Vector, value: number}[]} places
 * @param {Projection} projection
 */
function gridOf(places, projection) {
  const { isRound } = projection, columns = GRID_CELLS + (isRound ? 0 : 1), rows = Math.floor(projection.height / GRID_SPACING) + 1;
  const values = Array.from({ length: rows * columns }, (_, node) => {
    const spot = /** @type {Spot} */ ([(node % columns) * GRID_SPACING, Math.floor(node / columns) * GRID_SPACING]);
    const { value, nearestKm } = interpolated(vectorOf(projection.pointOf(spot)), places);
    return nearestKm <= REACH_KM ? value : null;
  });
  return { columns, values, isRound };
}

/**
 * Lines cut where they leave the surroundings of the places; each part begins where the one before ends.
 * @param {readonly Point[][]} chains
 * @param {readonly {at: import("../map/geometry.js").Vector}[]} places
 */
function parted(chains, places) {
  const found = { near: /** @type {Point[][]} */ ([]), far: /** @type {Point[][]} */ ([]) };
  for (const chain of chains) {
    let kind = "";
    for (const [place, point] of chain.entries()) {
      const here = vectorOf(point), next = places.some(({ at }) => distanceKm(here, at) <= FAINT_KM) ? "near" : "far";
      const parts = found[next], before = chain[place - 1];
      if (next === kind) parts.at(-1)?.push(point);
      else parts.push(before ? [before, point] : [point]);
      kind = next;
    }
  }
  return found;
}

/**
 * Where the texts of lines are drawn: on the line, where there is neither a mark nor another text. A line without such a
 * place has none.
 * @param {readonly Line[]} lines
 * @param {readonly Spot[]} marks
 * @param {Projection} projection
 * @returns {{level: number, spot: Spot}[]}
 */
export function labelsOf(lines, marks, projection) {
  /** @type {{level: number, spot: Spot}[]} */
  const found = [];
  for (const { level, chains } of lines) {
    const taken = [...marks, ...found.map((label) => label.spot)];
    const spot = chains.flat().map((point) => projection.spotOf(point)).find((one) => isWithin(one, projection) && isFree(one, taken, TEXT));
    if (spot) found.push({ level, spot });
  }
  return found;
}

/**
 * Whether a text is not cut off at an edge of the map.
 * @param {Spot} spot
 * @param {Projection} projection
 */
function isWithin([x, y], { height }) {
  return x > TEXT.width / 2 && x < WIDTH - TEXT.width / 2 && y > TEXT.height / 2 && y < height - TEXT.height / 2;
}

/**
 * @param {Spot} spot
 * @param {readonly Spot[]} taken
 * @param {{width: number, height: number}} size
 */
function isFree(spot, taken, { width, height }) {
  return taken.every((other) => Math.abs(other[0] - spot[0]) > width || Math.abs(other[1] - spot[1]) > height);
}

/**
 * Where marks are drawn: marks of the same place side by side. There is room for a text beside some of them, for some on a
 * phone, too.
 * @param {readonly Spot[]} spots
 * @returns {{spot: Spot, hasRoom: boolean, hasRoomOnPhone: boolean}[]}
 */
export function placed(spots) {
  /** @type {Spot[]} */
  const moved = [];
  for (const [x, y] of spots) {
    let spot = /** @type {Spot} */ ([x, y]);
    while (moved.some((other) => Math.hypot(other[0] - spot[0], other[1] - spot[1]) < MARK_SIZE / 2)) spot = [spot[0] + MARK_SIZE, y];
    moved.push(spot);
  }
  return moved.map((spot) => {
    const others = moved.filter((other) => other !== spot);
    return { spot, hasRoom: isFree(spot, others, TEXT), hasRoomOnPhone: isFree(spot, others, PHONE_TEXT) };
  });
}
