/** The map, from answers as the HTTP interface gives them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Projection, areaOf, distanceKm, vectorOf } from "./static/map/geometry.js";
import { FAINT_KM, METRICS, REACH_KM, edgeBoundKm, levelsOf, linesOf, metricOf, labelsOf, placed, rowOf, sitesOf } from "./static/views/map_model.js";

const WORLD = new Projection(areaOf("world"));
const REGIONS = [
  { name: "us-1", region: "us", latitude: 39.96, longitude: -83, place: "Columbus, Ohio" },
  { name: "us-2", region: "us", latitude: 39.96, longitude: -83, place: "Columbus, Ohio" },
  { name: "eu-1", region: "eu", latitude: 50.11, longitude: 8.68, place: "Frankfurt" },
  { name: "sg-1", region: "sg", latitude: 1.35, longitude: 103.82, place: "Singapore" },
  { name: "lab-1", region: "lab", latitude: null, longitude: null, place: null },
];

/**
 * @param {number | null} value
 * @returns {import("./static/views/matrix_model.js").Cell}
 */
function cell(value) {
  return { value, low: value, high: value, n: 60, independent: 40, isEarly: false, progress: "", newestAt: null, isStale: false, difference: null, verdict: null };
}

/**
 * @param {string} target
 * @param {Record<string, number | null>} values
 */
function row(target, values) {
  const cells = Object.fromEntries(Object.entries(values).map(([region, value]) => [region, cell(value)]));
  return { target, provider: "", model: "", tier: "", workload: "", usd: null, cells };
}

/** @param {Record<string, number | null>} values */
function sites(values, series = /** @type {any[]} */ ([])) {
  return sitesOf({ row: row("a/one", values), regions: REGIONS, series });
}

test("every region of the fleet and of the target is a site, also without a place", () => {
  const found = sites({ us: 200, retired: 300 });
  assert.deepEqual(found.map(({ region, place, vantages, cell: of }) => [region, place, vantages, of?.value ?? null]), [
    ["eu", "Frankfurt", ["eu-1"], null], ["lab", null, ["lab-1"], null], ["retired", null, [], 300],
    ["sg", "Singapore", ["sg-1"], null], ["us", "Columbus, Ohio", ["us-1", "us-2"], 200]]);
  assert.deepEqual(found.map((site) => site.point !== null), [true, false, false, true, true]);
});

test("a place on the equator or on the meridian of Greenwich is known", () => {
  const [site] = sitesOf({ row: null, regions: [{ name: "v", region: "r", latitude: 0, longitude: 0, place: null }], series: [] });
  assert.deepEqual(site?.point, { latitude: 0, longitude: 0 });
});

test("the round trip is the shortest median of the window", () => {
  const points = [{ p50: 12_000 }, { p50: null }, { p50: 9_500 }];
  const found = sites({ us: 200 }, [{ region: "us", points }, { region: "eu", points: [{ p50: null }] }]);
  assert.deepEqual(found.map((site) => site.rttMs), [null, null, null, 9.5]);
});

test("light bounds the distance of an edge, until it can be anywhere", () => {
  assert.equal(edgeBoundKm(9.5), 950);
  assert.equal(edgeBoundKm(0), 0);
  assert.equal(edgeBoundKm(250), null);
});

test("values without an interval have no lines", () => {
  const firm = sites({ us: 200, eu: 300, sg: 450 }), early = firm.map((site) => ({ ...site, cell: site.cell && { ...site.cell, isEarly: true } }));
  assert.equal(linesOf(firm, metricOf("ttft"), WORLD).reason, "");
  assert.match(linesOf(early, metricOf("ttft"), WORLD).reason, /need 3 regions with an interval and a known place; there are none/);
});

test("without a choice, the target with a value from most of the regions is shown, the first one by name", () => {
  const rows = [row("a", { us: null, eu: 1 }), row("b", { us: 1, eu: 1 }), row("c", { us: 1, eu: 1 })];
  assert.equal(rowOf(rows, "")?.target, "b");
  assert.equal(rowOf(rows, "c")?.target, "c");
  assert.equal(rowOf(rows, "gone"), null);
  assert.equal(rowOf([], ""), null);
});

test("metrics are those of the leaderboard", () => {
  assert.deepEqual(METRICS.map((metric) => metric.name), ["ttft", "speed", "e2e", "success"]);
  assert.equal(metricOf("goodput").name, "ttft");
});

test("levels are round, between the values, at most twenty, and apart by what matters", () => {
  for (const [values, wanted] of /** @type {[number[], number[]][]} */ ([
    [[200, 350], [210, 220, 230, 240, 250, 260, 270, 280, 290, 300, 310, 320, 330, 340]], [[100, 110], [105]], [[101, 119], [110]], [[208, 212], []], [[5, 5], []],
    [[0.5, 0.8], [0.55, 0.6, 0.65, 0.7, 0.75]], [[100, 3000], [200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400, 2600, 2800]],
  ])) assert.deepEqual(levelsOf(values).map((level) => Number(level.toFixed(6))), wanted);
});

test("lines are near vantages, faint farther away, and end beyond their reach", () => {
  const found = sites({ us: 200, eu: 300, sg: 600 }), { lines, reason } = linesOf(found, metricOf("ttft"), WORLD);
  assert.equal(reason, "");
  assert.ok(lines.length >= 3);
  assert.ok(lines.every(({ level }) => level > 200 && level < 600));
  const nearest = (/** @type {import("./static/map/geometry.js").Point} */ point) =>
    Math.min(...found.flatMap((site) => site.point ? [distanceKm(vectorOf(site.point), vectorOf(point))] : []));
  // A crossing lies between two nodes, one of which may be beyond a limit by a spacing.
  const spacingKm = 400;
  for (const { near, far } of lines) {
    for (const point of near.flat()) assert.ok(nearest(point) <= FAINT_KM + spacingKm);
    for (const point of far.flat()) assert.ok(nearest(point) >= FAINT_KM - spacingKm && nearest(point) <= REACH_KM);
  }
});

test("a line beside 180 degrees is one line on both sides of the world, and does not end there", () => {
  const place = (/** @type {string} */ region, /** @type {number} */ latitude, /** @type {number} */ longitude) => ({ name: region, region, latitude, longitude, place: region });
  const regions = [place("fiji", -18, 179.5), place("japan", 35, 140), place("us", 40, -120)];
  const found = sitesOf({ row: row("a/one", { fiji: 300, japan: 200, us: 210 }), regions, series: [] });
  const chains = linesOf(found, metricOf("ttft"), WORLD).lines.flatMap((line) => line.chains);
  const around = chains.filter((chain) => chain.some((point) => point.longitude > 170) && chain.some((point) => point.longitude < -170));
  assert.ok(around.length > 0);
  for (const chain of chains) for (const end of [chain[0], chain.at(-1)]) assert.ok(Math.abs(end?.longitude ?? 180) < 178 || JSON.stringify(chain[0]) === JSON.stringify(chain.at(-1)));
});

test("texts of lines are apart from each other and from marks, and within the map", () => {
  const found = sites({ us: 200, eu: 300, sg: 600 }), { lines } = linesOf(found, metricOf("ttft"), WORLD);
  const marks = found.flatMap((site) => site.point ? [WORLD.spotOf(site.point)] : []), labels = labelsOf(lines, marks, WORLD);
  assert.ok(labels.length >= 3 && labels.length <= lines.length);
  const spots = [...marks, ...labels.map((label) => label.spot)];
  for (const [place, [x, y]] of spots.entries()) {
    assert.ok(x > 20 && x < 980 && y > 10 && y < WORLD.height - 10);
    for (const [otherX, otherY] of spots.slice(place + 1)) assert.ok(Math.abs(x - otherX) > 60 || Math.abs(y - otherY) > 20);
  }
});

test("fewer than three located values, equal ones and other metrics give a reason in place of lines", () => {
  for (const [values, metric, reason] of /** @type {[Record<string, number | null>, string, RegExp][]} */ ([
    [{ us: 200, eu: 300 }, "ttft", /need 3 regions .* there are 2/], [{ us: 200 }, "ttft", /there is 1\./], [{}, "ttft", /there are none/],
    [{ us: 200, eu: 300, lab: 400 }, "ttft", /there are 2/], [{ us: 200, eu: 300, sg: null }, "ttft", /there are 2/],
    [{ us: 200, eu: 201, sg: 202 }, "ttft", /too little/], [{ us: 20, eu: 30, sg: 60 }, "speed", /latencies only/],
  ])) {
    const found = linesOf(sites(values), metricOf(metric), WORLD);
    assert.deepEqual(found.lines, []);
    assert.match(found.reason, reason);
  }
});

test("marks of one place are side by side, and crowded ones have no text", () => {
  const found = placed([[100, 100], [100, 100], [500, 100]]);
  assert.deepEqual(found.map(({ hasRoom, hasRoomOnPhone }) => [hasRoom, hasRoomOnPhone]), [[false, false], [false, false], [true, true]]);
  assert.deepEqual(placed([[100, 100], [180, 100]]).map(({ hasRoom, hasRoomOnPhone }) => [hasRoom, hasRoomOnPhone]), [[true, false], [true, false]]);
  assert.deepEqual(found[0]?.spot, [100, 100]);
  assert.ok((found[1]?.spot[0] ?? 0) > 110);
});
