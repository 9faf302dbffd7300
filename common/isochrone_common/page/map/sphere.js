/** Distances, circles and interpolation on the earth as a sphere. Pure. */

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
