/** The map: vantages coloured by a metric of one target, lines of equal latency, and bounds on where its edges are. */

import { apiPath } from "../api.js";
import { choice, segments, windowChoice } from "../controls.js";
import { html, svg } from "../dom.js";
import { UNKNOWN, age, capitalised, commonDecimals, interval, number, worth } from "../formats.js";
import { landRings } from "../map/land.js";
import { AREAS, WIDTH, Projection, areaOf, circle } from "../map/geometry.js";
import { stepScale } from "../ordering.js";
import { dataTable, heading, regionName } from "../tables.js";
import { otherView, windowQuery, withOptions } from "../url_state.js";
import { classOf, factsOf, legend, valueText } from "./matrix.js";
import { QUANTITIES, matrixOf, staleBeforeOf } from "./matrix_model.js";
import { FAINT_KM, METRICS, REACH_KM, edgeBoundKm, labelsOf, linesOf, metricOf, placed, rowOf, sitesOf } from "./map_model.js";

/** @typedef {import("../views.js").Context} Context */
/** @typedef {import("./map_model.js").Site} Site */
/** @typedef {import("./matrix.js").Drawing} Drawing */

// The shortest of so many medians bounds the distance of an edge.
const ROUND_TRIP_POINTS = "24";
// Circles that are larger than this say little, and cover the map.
const MOST_DRAWN_KM = 4_000;
const MARK_RADIUS = 7;

/** @type {import("../views.js").View} */
export const MAP = {
  name: "map",
  label: "Map",
  path: "/map",
  defaults: { metric: "ttft", target: "", area: "world" },
  topics: ["samples", "plan"],
  hasIntervals: true,
  requests: ({ options }) => {
    const window = windowQuery(options), target = options["target"];
    return {
      board: apiPath("/v1/leaderboard", { ...window, quantity: QUANTITIES }),
      targets: "/v1/targets",
      regions: "/v1/vantages",
      ...(target && { series: apiPath("/v1/series", { ...window, target, metric: "rtt", points: ROUND_TRIP_POINTS }) }),
    };
  },
  render: ({ board, targets, regions, series }, context) => {
    const { options } = context.state, metric = metricOf(options["metric"]);
    if (!board || !targets || !regions) return { title: "Map", content: [] };
    const { rows } = matrixOf({ metric, board, targets, regions, diff: null, slo: null, staleBefore: staleBeforeOf(board.window, options, context.now) });
    const row = rowOf(rows, options["target"]), target = row?.target ?? options["target"] ?? "";
    const sites = sitesOf({ row, regions: regions.rows, series: series?.rows ?? [] });
    const values = sites.map((site) => site.cell?.value ?? null);
    const drawing = { metric, context, baseline: "", decimals: commonDecimals(values),
      step: stepScale(values, { ...metric, isLinear: metric.unit === "%" }) };
    return {
      title: target ? `${metric.label} on the map: ${target}` : "Map",
      content: [
        controls(rows.map((one) => one.target), metric.name, context),
        ...(target ? body(target, sites, drawing) : [html("p", { class: "empty" },
          "There is no plan with targets yet. An operator applies one: isochrone-collector apply plan.yaml")]),
      ],
    };
  },
};

/**
 * @param {string[]} targets
 * @param {string} metric
 * @param {Context} context
 */
function controls(targets, metric, context) {
  const { options } = context.state;
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => context.set({ [name]: value });
  return html("form", { class: "controls", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    segments("Metric", METRICS.map(({ name, label }) => [name, label]), metric, set("metric")),
    windowChoice(context),
    choice("Target", [["", "automatic"], ...targets.map((name) => /** @type {[string, string]} */ ([name, name]))], options["target"], set("target")),
    choice("Part of the world", AREAS.map(({ name, label }) => [name, label]), areaOf(options["area"]).name, set("area")));
}

/**
 * @param {string} target
 * @param {Site[]} sites
 * @param {Drawing} drawing
 */
function body(target, sites, drawing) {
  const { metric, context } = drawing, values = sites.map((site) => site.cell?.value ?? null);
  const projection = new Projection(areaOf(context.state.options["area"]));
  const found = lines(sites, drawing, projection);
  const unplaced = sites.filter((site) => !site.point), outside = sites.filter((site) => site.point && !projection.shows(site.point));
  const circles = edges(sites);
  return [
    html("p", { class: "note" }, `${metric.name === "success" ? capitalised(metric.words) : `Median ${metric.words}`} per region, ${metric.unit}. `,
      html("a", { href: context.href(otherView(context.state, "target", { target })) }, `${target} over time`)),
    key(values, drawing, found.lines.length > 0, circles.length > 0),
    html("div", { class: "map" }, map(target, sites, drawing, projection, found.lines, circles)),
    html("p", { class: "note" }, found.reason || `Lines of equal latency are interpolated between the medians of the regions, by the inverse of the distance: `
      + `they are not measurements. They are faint from ${FAINT_KM} km from the nearest vantage on, and end at ${REACH_KM} km.`),
    edgeNote(target, sites, circles.length, context),
    unplaced.length ? html("p", { class: "note unplaced" }, `Not on the map, because the place is not known: ${unplaced.map((site) => site.region).join(", ")}. `
      + "An operator states it: isochrone-collector serve --region-location NAME=LATITUDE,LONGITUDE") : null,
    outside.length ? html("p", { class: "note" }, `Outside this part of the world: ${outside.map((site) => site.region).join(", ")}.`) : null,
    table(target, sites, drawing),
  ].filter((node) => node !== null);
}

/**
 * The key of the colours and lines.
 * @param {(number | null)[]} values
 * @param {Drawing} drawing
 * @param {boolean} hasLines
 * @param {boolean} hasEdges
 */
function key(values, drawing, hasLines, hasEdges) {
  const entry = (/** @type {string} */ name, /** @type {string} */ text) => html("li", {}, html("span", { class: `swatch ${name}` }), text);
  const found = legend(values, drawing);
  found.classList.add("of-map");
  if (hasLines) found.append(entry("isoline", "equal latency, interpolated"));
  if (hasEdges) found.append(entry("edge", "bound: the edge is inside"));
  return found;
}

/** The lines that were computed last, with what they are of: the page draws more often than values change. */
let kept = { of: "", found: /** @type {ReturnType<typeof linesOf>} */ ({ lines: [], reason: "" }) };

/**
 * @param {Site[]} sites
 * @param {Drawing} drawing
 * @param {Projection} projection
 */
function lines(sites, { metric }, projection) {
  const of = JSON.stringify([metric.name, projection.area.name, sites.map((site) => [site.point, site.cell?.value, site.cell?.isEarly])]);
  if (kept.of !== of) kept = { of, found: linesOf(sites, metric, projection) };
  return kept.found;
}

/**
 * The circles in which edges are, where that excludes enough of the world.
 * @param {Site[]} sites
 */
function edges(sites) {
  return sites.flatMap(({ region, point, rttMs }) => {
    const km = rttMs === null ? null : edgeBoundKm(rttMs);
    return point && km !== null && km <= MOST_DRAWN_KM ? [{ region, points: circle(point, km) }] : [];
  });
}

/**
 * @param {string} target
 * @param {Site[]} sites
 * @param {number} drawn
 * @param {Context} context
 */
function edgeNote(target, sites, drawn, { state, href }) {
  if (!state.options["target"]) {
    return html("p", { class: "note" }, "How far away the edge can be is shown for a chosen target: ",
      html("a", { href: href(withOptions(state, { target })) }, target), ".");
  }
  if (sites.every((site) => site.rttMs === null)) {
    return html("p", { class: "note" }, "No round trip to the edge of this target is known in this window, so nothing bounds where it is.");
  }
  const circles = drawn ? `, that is inside its dashed circle (drawn up to ${MOST_DRAWN_KM} km)` : "";
  return html("p", { class: "note" }, "The place of an edge is not known. Light in fibre goes at most 100 km away and back in a millisecond: the edge that answers a vantage is no "
    + `farther than its round trip allows${circles}. This is a bound, not a place.`);
}

/**
 * @param {string} target
 * @param {Site[]} sites
 * @param {Drawing} drawing
 * @param {Projection} projection
 * @param {import("./map_model.js").Line[]} isolines
 * @param {{region: string, points: import("../map/geometry.js").Point[]}[]} circles
 */
function map(target, sites, drawing, projection, isolines, circles) {
  const shown = sites.flatMap((site) => site.point && projection.shows(site.point) ? [{ site, spot: projection.spotOf(site.point) }] : [])
    .sort((a, b) => a.spot[0] - b.spot[0]);
  const marks = placed(shown.map(({ spot }) => spot)), { metric } = drawing;
  const paths = (/** @type {string} */ name, /** @type {import("../map/geometry.js").Point[][]} */ parts) =>
    parts.length ? svg("path", { class: name, d: parts.map((part) => projection.pathOf(part)).join("") }) : null;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${projection.height.toFixed(0)}`, role: "group", onkeydown: moveFocus,
    "aria-label": `${projection.area.label}: ${shown.length} regions that measure ${target}; the table below has the same numbers` },
  svg("defs", {}, hatch()),
  svg("path", { class: "land", d: landRings().map((ring) => `${projection.pathOf(ring)}Z`).join("") }),
  svg("g", { class: "edges", "aria-hidden": "true", "data-key": "edges" },
    ...circles.map(({ region, points }) => svg("path", { class: "edge", "data-key": region, d: projection.pathOf(points) }))),
  svg("g", { class: "isolines", "aria-hidden": "true", "data-key": "isolines" },
    ...isolines.map(({ level, near, far }) => svg("g", { "data-key": `line ${level}` }, paths("far", far), paths("near", near))),
    ...labelsOf(isolines, marks.map(({ spot }) => spot), projection).map(({ level, spot: [x, y] }) =>
      svg("text", { x: x.toFixed(1), y: y.toFixed(1), dy: "0.35em", "data-key": `text ${level}` }, `${number(level)} ${metric.unit}`))),
  ...shown.map(({ site }, place) => mark(site, /** @type {typeof marks[number]} */ (marks[place]), drawing, place === 0)));
}

/** The lines over a stale mark, as in the cells of the matrix. */
function hatch() {
  return svg("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("path", { class: "dark", d: "M0 1.5H5" }), svg("path", { class: "light", d: "M0 3.5H5" }));
}

/**
 * @param {Site} site
 * @param {ReturnType<typeof placed>[number]} where
 * @param {Drawing} drawing
 * @param {boolean} isFirst
 */
function mark(site, { spot: [x, y], hasRoom, hasRoomOnPhone }, drawing, isFirst) {
  const { region, cell } = site, text = valueText(cell, drawing);
  const kind = cell && cell.value !== null && cell.isEarly ? `early step${drawing.step(cell.value)}` : cell ? classOf(cell, region, drawing) : "unsure", at = { cx: x.toFixed(1), cy: y.toFixed(1), r: MARK_RADIUS };
  const facts = siteFacts(site, drawing);
  return svg("g", { class: `site ${kind}`, role: "img", tabindex: isFirst ? 0 : -1, "data-key": region,
    "aria-label": [region, ...facts.map(([name, value]) => `${name}: ${value}`)].join(", "), ...drawing.context.details(region, facts) },
  svg("circle", at),
  cell?.isStale ? svg("circle", { ...at, fill: "url(#hatch)" }) : null,
  hasRoom && text !== UNKNOWN ? svg("text", { class: hasRoomOnPhone ? null : "wide", x: at.cx, y: at.cy, dy: -MARK_RADIUS - 4 }, text) : null);
}

/**
 * What is known of a region, as names and texts.
 * @param {Site} site
 * @param {Drawing} drawing
 * @returns {[string, string][]}
 */
function siteFacts(site, drawing) {
  const { region, cell, rttMs } = site;
  /** @type {[string, string][]} */
  const facts = [["place", placeText(site)], ...(cell ? factsOf(region, cell, drawing) : /** @type {[string, string][]} */ ([["samples", "none"]]))];
  if (rttMs !== null) facts.push(["round trip to the edge", `${number(rttMs)} ms`], ["edge", boundText(rttMs)]);
  return facts;
}

/** @param {Site} site */
function placeText({ place, point }) {
  return place ?? (point ? `${number(point.latitude, { decimals: 2 })}, ${number(point.longitude, { decimals: 2 })}` : UNKNOWN);
}

/** @param {number} rttMs */
function boundText(rttMs) {
  const km = edgeBoundKm(rttMs);
  return km === null ? "anywhere" : `within ${number(km, { decimals: 0 })} km`;
}

/**
 * The numbers of the map.
 * @param {string} target
 * @param {Site[]} sites
 * @param {Drawing} drawing
 */
function table(target, sites, { metric, decimals, context }) {
  const hasEdges = sites.some((site) => site.rttMs !== null);
  const columns = [heading("region", { kind: "name" }), heading(metric.label, { unit: metric.unit }), heading("95 % interval", { unit: metric.unit }),
    heading(metric.counted, { unit: "≈ independent" }), heading("newest", { unit: "ago" }),
    ...(hasEdges ? [heading("round trip", { unit: "ms" }), heading("edge", { unit: "a bound" })] : []),
    heading("place", { kind: "name" }), heading("vantages", { kind: "name" })];
  return dataTable(`${metric.label} of ${target} by region and place`, columns, sites.map((site) => {
    const { cell, rttMs } = site;
    return html("tr", { "data-key": site.region },
      html("th", { scope: "row" }, regionName(site.region)),
      html("td", { class: cell?.isEarly ? "early" : null }, valueText(cell, { decimals })),
      html("td", {}, cell?.progress || interval(cell?.low, cell?.high)),
      html("td", {}, cell ? worth(cell.n, cell.independent) : "0"),
      html("td", { class: cell?.isStale ? "warn" : null }, age(cell?.newestAt, context.now)),
      ...(hasEdges ? [html("td", {}, number(rttMs)), html("td", {}, rttMs === null ? UNKNOWN : boundText(rttMs))] : []),
      html("td", { class: "name" }, placeText(site)),
      html("td", { class: "name" }, site.vantages.join(", ")));
  }), "places");
}

/**
 * Arrow keys move the focus among the marks, from west to east: all of them together are one stop of the tab key.
 * @param {KeyboardEvent} event
 */
function moveFocus(event) {
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (!step || !(event.currentTarget instanceof Element)) return;
  const marks = /** @type {SVGElement[]} */ ([...event.currentTarget.querySelectorAll(".site")]);
  const next = marks[marks.findIndex((one) => one === event.target) + step];
  if (!next) return;
  event.preventDefault();
  for (const one of marks) one.setAttribute("tabindex", one === next ? "0" : "-1");
  next.focus();
}
