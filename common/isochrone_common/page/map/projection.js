/**
 * The projection of the map, in units of which the map is `WIDTH` wide: equidistant cylindrical, with the true shape at
 * the middle of the shown part. Pure.
 */

/** @typedef {import("./sphere.js").Point} Point */
/** @typedef {{name: string, label: string, west: number, east: number, south: number, north: number, trueAt?: number}} Area */
/** A point of the map. */
/** @typedef {readonly [x: number, y: number]} Spot */

export const WIDTH = 1000;

/** The parts of the world that can be shown, each wider than high; edges in degrees. */
export const AREAS = /** @type {readonly Area[]} */ ([
  { name: "world", label: "World", west: -180, east: 180, south: -56, north: 80, trueAt: 40 },
  { name: "europe", label: "Europe", west: -32, east: 52, south: 34, north: 66 },
  { name: "north-america", label: "North America", west: -140, east: -48, south: 14, north: 58 },
  { name: "south-america", label: "South America", west: -140, east: -10, south: -56, north: 16 },
  { name: "asia-pacific", label: "Asia and Pacific", west: 30, east: 180, south: -48, north: 52 },
  { name: "africa-middle-east", label: "Africa and Middle East", west: -50, east: 90, south: -36, north: 42 },
]);

/**
 * The part of an option; the world if there is none of that name.
 * @param {string | undefined} name
 */
export function areaOf(name) {
  return AREAS.find((area) => area.name === name) ?? /** @type {Area} */ (AREAS[0]);
}

/** The map of one part of the world. */
export class Projection {
  /** @param {Area} area */
  constructor(area) {
    const middle = area.trueAt ?? (area.south + area.north) / 2;
    this.area = area;
    // The map of the whole world ends where it begins.
    this.isRound = area.east - area.west === 360;
    this.perLongitude = WIDTH / (area.east - area.west);
    this.perLatitude = this.perLongitude / Math.cos(middle * Math.PI / 180);
    this.height = (area.north - area.south) * this.perLatitude;
  }

  /**
   * @param {Point} point
   * @returns {Spot}
   */
  spotOf({ latitude, longitude }) {
    return [(longitude - this.area.west) * this.perLongitude, (this.area.north - latitude) * this.perLatitude];
  }

  /**
   * @param {Spot} spot
   * @returns {Point}
   */
  pointOf([x, y]) {
    return { longitude: this.area.west + x / this.perLongitude, latitude: this.area.north - y / this.perLatitude };
  }

  /**
   * Whether the map shows a point.
   * @param {Point} point
   */
  shows({ latitude, longitude }) {
    const { west, east, south, north } = this.area;
    return latitude >= south && latitude <= north && longitude >= west && longitude <= east;
  }

  /**
   * The path of a line in the format of SVG. Where it leaves the world on one side it continues from the other side.
   * @param {readonly Point[]} points
   */
  pathOf(points) {
    const at = (/** @type {Point} */ point) => this.spotOf(point).map((length) => length.toFixed(1)).join(" ");
    return points.map((point, place) => {
      const before = points[place - 1];
      if (!before) return `M${at(point)}`;
      if (Math.abs(point.longitude - before.longitude) <= 180) return `L${at(point)}`;
      const [leaves, enters] = crossingOf(before, point);
      return `L${at(leaves)}M${at(enters)}L${at(point)}`;
    }).join("");
  }
}

/**
 * The point on the edge of the world between two points near it, on the side of the first one and on the other side.
 * @param {Point} from
 * @param {Point} to
 * @returns {[Point, Point]}
 */
function crossingOf(from, to) {
  const edge = 180 * Math.sign(from.longitude), before = 180 - Math.abs(from.longitude), after = 180 - Math.abs(to.longitude);
  const share = before + after ? before / (before + after) : 0, latitude = from.latitude + share * (to.latitude - from.latitude);
  return [{ latitude, longitude: edge }, { latitude, longitude: -edge }];
}
