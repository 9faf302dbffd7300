/**
 * The earth as a sphere, with distances, circles and interpolation; and the projection of the map, in units of which the map
 * is `WIDTH` wide: equidistant cylindrical, with the true shape at the middle of the shown part. Pure.
 */

/** A point in degrees, positive to the north and to the east. */
/** @typedef {{latitude: number, longitude: number}} Point */
/** A point of the unit sphere. */
/** @typedef {readonly [x: number, y: number, z: number]} Vector */

export const EARTH_RADIUS_KM = 6371;
const DEGREE = Math.PI / 180;
// Closer than this, a point has the value of the place itself.
const SAME_PLACE_KM = 1;

/**
 * @param {Point} point
 * @returns {Vector}
 */
export function vectorOf({ latitude, longitude }) {
  const [north, east] = [latitude * DEGREE, longitude * DEGREE];
  return [Math.cos(north) * Math.cos(east), Math.cos(north) * Math.sin(east), Math.sin(north)];
}

/**
 * The great-circle distance of two points of the sphere, in kilometres.
 * @param {Vector} a
 * @param {Vector} b
 */
export function distanceKm(a, b) {
  return EARTH_RADIUS_KM * Math.acos(Math.min(1, Math.max(-1, a[0] * b[0] + a[1] * b[1] + a[2] * b[2])));
}

/**
 * The points at a distance of a centre, in equal angles around it; the last one is the first one again.
 * @param {Point} centre
 * @param {number} radiusKm
 * @param {number} [corners]
 * @returns {Point[]}
 */
export function circle({ latitude, longitude }, radiusKm, corners = 120) {
  const angle = radiusKm / EARTH_RADIUS_KM, north = latitude * DEGREE;
  return Array.from({ length: corners + 1 }, (_, place) => {
    const bearing = 2 * Math.PI * place / corners;
    const height = Math.sin(north) * Math.cos(angle) + Math.cos(north) * Math.sin(angle) * Math.cos(bearing);
    const east = Math.atan2(Math.sin(bearing) * Math.sin(angle) * Math.cos(north), Math.cos(angle) - Math.sin(north) * height);
    return { latitude: Math.asin(Math.min(1, Math.max(-1, height))) / DEGREE, longitude: wrapped(longitude + east / DEGREE) };
  });
}

/**
 * The value at a point from those at places, weighted by the inverse of the distance, and the distance to the nearest
 * place in kilometres. It is an interpolation: nothing was measured between the places.
 * @param {Vector} at
 * @param {readonly {at: Vector, value: number}[]} places at least one
 */
export function interpolated(at, places) {
  let sum = 0, weights = 0, nearestKm = Infinity, nearest = 0;
  for (const place of places) {
    const km = distanceKm(at, place.at), weight = 1 / Math.max(km, SAME_PLACE_KM);
    sum += weight * place.value;
    weights += weight;
    if (km < nearestKm) [nearestKm, nearest] = [km, place.value];
  }
  return { value: nearestKm < SAME_PLACE_KM ? nearest : sum / weights, nearestKm };
}

/**
 * The same longitude from -180 to 180 degrees.
 * @param {number} longitude
 */
function wrapped(longitude) {
  return longitude - 360 * Math.round(longitude / 360);
}

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
