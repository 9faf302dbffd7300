/** The geometry of the map: the outlines of the land, the projection, distances, interpolation, and lines of equal value. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { contours } from "./static/map/contours.js";
import { landRings } from "./static/map/land.js";
import { AREAS, WIDTH, Projection, areaOf, circle, distanceKm, interpolated, vectorOf } from "./static/map/geometry.js";

const PARIS = { latitude: 48.86, longitude: 2.35 }, NEW_YORK = { latitude: 40.71, longitude: -74.01 };
const FIJI = { latitude: -18, longitude: 179 };

/**
 * @param {import("./static/map/geometry.js").Point} a
 * @param {import("./static/map/geometry.js").Point} b
 */
function apart(a, b) {
  return distanceKm(vectorOf(a), vectorOf(b));
}

test("distances are those of great circles", () => {
  assert.ok(Math.abs(apart(PARIS, NEW_YORK) - 5837) < 10);
  assert.ok(Math.abs(apart(FIJI, { latitude: -18, longitude: -179 }) - 211) < 2);
  assert.ok(apart(PARIS, PARIS) < 0.001);
});

test("each point of a circle is at its radius, and its longitude from -180 to 180", () => {
  for (const centre of [PARIS, FIJI, { latitude: 89, longitude: 0 }]) {
    for (const point of circle(centre, 500)) {
      assert.ok(Math.abs(apart(centre, point) - 500) < 0.01);
      assert.ok(Math.abs(point.longitude) <= 180);
    }
  }
});

test("an interpolated value is that of a place at the place, and the mean in the middle", () => {
  const places = [{ at: vectorOf(PARIS), value: 100 }, { at: vectorOf(NEW_YORK), value: 200 }];
  const here = interpolated(vectorOf(PARIS), places);
  assert.ok(here.value === 100 && here.nearestKm < 0.001);
  const middle = interpolated(vectorOf({ latitude: 52.2, longitude: -40.5 }), places);
  assert.ok(Math.abs(middle.value - 150) < 5 && middle.nearestKm > 2500);
  for (const longitude of [-170, -100, 0, 90]) {
    const { value } = interpolated(vectorOf({ latitude: 10, longitude }), places);
    assert.ok(value > 100 && value < 200);
  }
});

test("each part of the world fills the map, and each spot is one point", () => {
  for (const area of AREAS) {
    const projection = new Projection(area), { west, east, south, north } = area;
    assert.deepEqual(projection.spotOf({ latitude: north, longitude: west }), [0, 0]);
    const [x, y] = projection.spotOf({ latitude: south, longitude: east });
    assert.ok(Math.abs(x - WIDTH) < 1e-9 && Math.abs(y - projection.height) < 1e-9);
    assert.ok(projection.height < 0.7 * WIDTH, area.name);
    const back = projection.pointOf(projection.spotOf(PARIS));
    assert.ok(Math.abs(back.latitude - PARIS.latitude) + Math.abs(back.longitude - PARIS.longitude) < 1e-9);
  }
  assert.equal(areaOf("atlantis").name, "world");
  assert.equal(new Projection(areaOf("europe")).shows(PARIS), true);
  assert.equal(new Projection(areaOf("europe")).shows(NEW_YORK), false);
});

test("a line that leaves the world on one side continues on the other, at the same height", () => {
  const world = new Projection(areaOf("world")), path = world.pathOf([FIJI, { latitude: -21, longitude: -179 }]);
  const [, leaves, enters] = [...path.matchAll(/[ML]([-.\d]+) ([-.\d]+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
  assert.deepEqual([leaves?.[0], enters?.[0]], [WIDTH, 0]);
  const [, y] = world.spotOf({ latitude: -19.5, longitude: 180 });
  for (const height of [leaves?.[1], enters?.[1]]) assert.ok(Math.abs((height ?? 0) - y) < 0.1);
  assert.match(path, /^M\S+ \S+L\S+ \S+M\S+ \S+L\S+ \S+$/);
  assert.equal(world.pathOf([{ latitude: 0, longitude: 179 }, { latitude: 0, longitude: 180 }, { latitude: 0, longitude: 179 }]).match(/M/g)?.length, 1);
});

test("the land is drawn from rings on the map, none of which crosses it", () => {
  const rings = landRings();
  assert.ok(rings.length > 100);
  for (const ring of rings) {
    for (const [place, point] of ring.entries()) {
      assert.ok(Math.abs(point.longitude) <= 180 && point.latitude > -60 && point.latitude < 84);
      const before = ring.at(place - 1);
      assert.ok(before && Math.abs(before.longitude - point.longitude) < 30, `${before?.longitude} ${point.longitude}`);
    }
  }
  const inside = (/** @type {import("./static/map/geometry.js").Point} */ at) => rings.filter((ring) => isInside(at, ring)).length % 2 === 1;
  assert.deepEqual([PARIS, { latitude: -25, longitude: 134 }, { latitude: 66, longitude: -172 }, { latitude: 40, longitude: -40 }].map(inside),
    [true, true, true, false]);
});

/**
 * @param {import("./static/map/geometry.js").Point} at
 * @param {import("./static/map/geometry.js").Point[]} ring
 */
function isInside({ latitude, longitude }, ring) {
  let found = false;
  for (const [place, a] of ring.entries()) {
    const b = ring.at(place - 1);
    if (!b || (a.latitude > latitude) === (b.latitude > latitude)) continue;
    if (longitude < (b.longitude - a.longitude) * (latitude - a.latitude) / (b.latitude - a.latitude) + a.longitude) found = !found;
  }
  return found;
}

test("a line crosses edges where the linear value is its own", () => {
  assert.deepEqual(contours({ columns: 3, values: [0, 4, 8, 0, 4, 8, 0, 4, 8] }, 3), [[[0.75, 0], [0.75, 1], [0.75, 2]]]);
  assert.deepEqual(contours({ columns: 2, values: [0, 0, 10, 10] }, 5), [[[1, 0.5], [0, 0.5]]]);
});

test("a line around a peak is closed", () => {
  const [line, ...others] = contours({ columns: 3, values: [0, 0, 0, 0, 8, 0, 0, 0, 0] }, 4);
  assert.deepEqual(others, []);
  assert.equal(line?.length, 5);
  assert.deepEqual(line?.[0], line?.at(-1));
  assert.deepEqual(new Set(line?.map(String)), new Set(["1,0.5", "1.5,1", "1,1.5", "0.5,1"]));
});

test("in a round grid a line around a peak beside the edge is closed", () => {
  const values = [0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
  const [line, ...others] = contours({ columns: 4, values, isRound: true }, 4);
  assert.deepEqual(others, []);
  assert.deepEqual(line?.[0], line?.at(-1));
  assert.deepEqual(new Set(line?.map(String)), new Set(["0,0.5", "0.5,1", "0,1.5", "3.5,1"]));
  assert.notDeepEqual(contours({ columns: 4, values }, 4)[0]?.[0], contours({ columns: 4, values }, 4)[0]?.at(-1));
});

test("a line ends where there are no values, and equal values have none", () => {
  assert.deepEqual(contours({ columns: 3, values: [0, 4, null, 0, 4, null] }, 2), [[[0.5, 0], [0.5, 1]]]);
  assert.deepEqual(contours({ columns: 2, values: [5, 5, 5, 5] }, 5), []);
  assert.deepEqual(contours({ columns: 2, values: [null, 9, 0, 0] }, 5), []);
});

test("in a saddle the mean of the corners decides which of them are joined", () => {
  const joins = (/** @type {number[]} */ values) => contours({ columns: 2, values }, 5).map((line) => line.map(String).sort());
  // The corners of 9 are joined if the middle is above the line: the lines are around the other two.
  assert.deepEqual(joins([9, 4, 4, 9]).map((line) => line.join(" ")).sort(), ["0,0.8 0.2,1", "0.8,0 1,0.2"]);
  assert.deepEqual(joins([6, 0, 0, 6]).map((line) => line.join(" ")).sort(),
    [[`0,${1 / 6}`, `${1 / 6},0`], [`${5 / 6},1`, `1,${5 / 6}`]].map((line) => line.sort().join(" ")).sort());
});

test("every line of a field is on one side of smaller values", () => {
  const columns = 40, values = Array.from({ length: columns * 30 }, (_, node) => Math.hypot(node % columns - 20.3, Math.floor(node / columns) - 14.6));
  for (const level of [3, 7.5, 12]) {
    const [line, ...others] = contours({ columns, values }, level);
    assert.deepEqual(others, []);
    for (const [column, row] of line ?? []) assert.ok(Math.abs(Math.hypot(column - 20.3, row - 14.6) - level) < 0.1);
  }
});
