/** The sections of a target below its chart: phases of the differences, distributions, and goodput over time and by hour. */

import { choice } from "../controls.js";
import { html, svg } from "../dom.js";
import { UNKNOWN, commonDecimals, interval, moment, number, percent, worthInWords } from "../formats.js";
import { STEPS, stepScale } from "../ordering.js";
import { dataTable, heading, moveCell, regionName, scrolling } from "../tables.js";
import { USES, goodputText, useOf } from "./matrix_model.js";
import { acrossOf, axis, factsMark, legendOf, moveFocus, panelOf, percentOf, requestsOf, sameAsTable, timeAxis, timeLines, widthOf } from "./target_charts.js";
import { HOURS, PHASE_NAMES, distributionsOf, goodputOf, hoursOf, logTicks, partsOf, phaseRows, placeOf } from "./target_model.js";

/** @typedef {import("./matrix_model.js").Metric} Metric */
/** @typedef {import("./target_model.js").Distribution} Distribution */
/** @typedef {import("./target_model.js").Distributions} Distributions */
/** @typedef {import("../views.js").Context} Context */
/** @typedef {import("./target_model.js").Goodput} Goodput */
/** @typedef {import("./target_model.js").GoodputPanel} GoodputPanel */
/** @typedef {import("./target_model.js").HourCell} HourCell */

const PLACES = Object.keys(PHASE_NAMES);

/**
 * The contribution of each phase per region, as a drawing and as numbers; nothing if no phase is known.
 * @param {any} diff
 * @param {string} target
 * @param {import("../views.js").Context} context
 */
export function phasesSection(diff, target, context) {
  const { rows, names, from, until } = phaseRows(diff, target);
  if (!rows.length) return [];
  const title = `Difference from ${rows[0]?.baseline} by phase, ms`;
  const decimals = commonDecimals(rows.flatMap((row) => [row.all, ...[...row.parts.values()].map((part) => part.shift)]));
  const signed = (/** @type {number | undefined} */ value) => number(value, { decimals, signed: true });
  const drawn = PLACES.filter((name) => rows.some((row) => row.segments.some((segment) => segment.name === name)));
  const columns = names.flatMap((name) => (name === "server" ? [name, "all"] : [name]));
  return [html("section", { class: "phases", "data-key": "phases" }, html("h2", {}, title),
    html("p", { class: "note" }, noteOf(names)),
    legendOf(drawn.map((name) => [`part${PLACES.indexOf(name)}`, PHASE_NAMES[name] ?? name])),
    dataTable(title, [heading("region", { kind: "name" }), html("td"), ...columns.map((name) => heading(PHASE_NAMES[name] ?? name)), heading("rounds")],
      rows.map((row) => html("tr", { "data-key": row.region }, html("th", { scope: "row" }, regionName(row.region)),
        html("td", { class: "drawing" }, drawingOf(row, from, until)),
        ...columns.map((name) => html("td", { class: name === "all" ? "sum" : null }, signed(name === "all" ? row.all : row.parts.get(name)?.shift))),
        html("td", {}, row.n))), "contributions"),
    sameAsTable("parts", "parts of the differences in ms, with 95 % intervals, and the medians of both sides",
      ["region", "phase", "difference", "95 % interval", "median", "median of the baseline", "rounds"],
      () => rows.flatMap((row) => [...row.parts.values()].map((part) => ({ key: `${row.region} ${part.name}`, cells: [row.region,
        PHASE_NAMES[part.name] ?? part.name, number(part.shift, { signed: true }), interval(part.low, part.high, { signed: true }),
        number(part.region), number(part.baseline), part.n] }))), context))];
}

/** @param {readonly string[]} names */
function noteOf(names) {
  const whole = names.some((name) => ["dns", "tcp", "tls"].includes(name)) ? "first token over a fresh connection" : "first token";
  const own = names.includes("provider") ? ": the time that the provider itself reports, and the time behind the edge" : "";
  return `What each phase of a request adds to the difference in the time to the ${whole}. Network is one round trip, and server the rest${own}. `
    + "All is the sum of the phases up to the server.";
}

/**
 * @param {import("./target_model.js").PhaseRow} row
 * @param {number} from
 * @param {number} until
 */
function drawingOf({ segments }, from, until) {
  const x = (/** @type {number} */ value) => percentOf((value - from) / (until - from));
  return svg("svg", { class: "parts", "aria-hidden": "true" },
    ...segments.map((segment) => svg("rect", { class: `part${segment.place}`, x: x(segment.from), y: 2, height: 14,
      width: percentOf((segment.until - segment.from) / (until - from)) }, svg("title", {}, PHASE_NAMES[segment.name] ?? segment.name))),
    svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: "100%" }));
}

const HEIGHT = 56, MOST_TICKS = 6;

/**
 * A histogram per region, all with the same axes; nothing without values.
 * @param {any} series
 * @param {string} target
 * @param {Metric} metric
 * @param {Context} context
 */
export function distributionSection(series, target, metric, context) {
  const found = distributionsOf(series, target, metric), { low, high, panels } = found;
  const first = panels.find((panel) => panel.bins.length)?.region;
  if (first === undefined) return [];
  const name = `Distribution of ${metric.label.toLowerCase()}, ${metric.unit}`;
  return [html("section", { class: "distribution low", "data-key": "distribution", onkeydown: moveFocus }, html("h2", {}, name),
    html("p", { class: "note" }, "The height of a bar is the share of the values in its bin; the axis is logarithmic."),
    ...panels.map((panel) => histogram(panel, found, { metric, context, isFirst: panel.region === first })),
    axis(metric.unit, logTicks(low, high, MOST_TICKS).map((value) => ({ x: percentOf(placeOf(value, found)), text: String(value) }))),
    sameAsTable("bins", name, ["more than", "region", "at most", "values", "share, %"], () => panels.flatMap(({ region, bins }) =>
      bins.map((bin) => ({ key: `${region} ${bin.low}`, cells: [number(bin.low), region, number(bin.high), bin.n, percent(bin.share)] }))), context))];
}

/**
 * @param {Distribution} panel
 * @param {Distributions} found
 * @param {{metric: Metric, context: Context, isFirst: boolean}} drawing
 */
function histogram(panel, found, { metric, context, isFirst }) {
  const { region, n, zeros, cut, bins } = panel;
  const note = [`${n} values`, zeros ? `${zeros} are 0` : "", cut ? `${cut} timed out` : ""].filter(Boolean).join(", ");
  const x = (/** @type {number} */ value) => percentOf(placeOf(value, found));
  const width = (/** @type {{low: number, high: number}} */ bin) => percentOf(placeOf(bin.high, found) - placeOf(bin.low, found));
  return panelOf({ region, note, label: `${metric.label} from ${region}, ${bins.length} bins`, top: `${percent(found.top)} %`, low: "0", bottom: HEIGHT },
    svg("g", { class: "ticks" }, ...logTicks(found.low, found.high, MOST_TICKS).map((value) =>
      svg("line", { x1: x(value), x2: x(value), y1: 0, y2: HEIGHT }))),
    ...bins.map((bin) => {
      const height = bin.share / found.top * (HEIGHT - 4);
      return svg("rect", { class: "bar", x: x(bin.low), width: width(bin), y: (HEIGHT - height).toFixed(2), height: height.toFixed(2) });
    }),
    ...bins.map((bin, place) => factsMark({ key: `${region} ${bin.low}`, title: `${region}, ${interval(bin.low, bin.high)} ${metric.unit}`,
      facts: [["values", `${bin.n} of ${n}, ${percent(bin.share)} %`], [`up to ${number(bin.high)} ${metric.unit}`, `${percent(bin.below)} %`]],
      isStop: isFirst && place === 0, context, box: { x: x(bin.low), width: width(bin), height: HEIGHT } })));
}

const TOP = 4, WIDTH = 1000, GOAL = 95;

/**
 * The choice of the limit.
 * @param {Context} context
 */
export function limitChoice({ state, set }) {
  return choice("Goodput", USES.map(([name, limit]) => [name, `${name}: ${limit}`]), useOf(state.options["use"]).name, (value) => set({ use: value }));
}

/** @param {Context} context */
function limitText({ state }) {
  return `The ${goodputText(state.options["use"])}`;
}

/**
 * The goodput over time per region, all with the same axes; nothing without requests.
 * @param {any} series
 * @param {string} target
 * @param {Context} context
 */
export function goodputSection(series, target, context) {
  const found = goodputOf(series, target);
  if (!found.panels.length) return [];
  const name = "Goodput over time, %";
  return [html("section", { class: "goodput low", "data-key": "goodput", onkeydown: moveFocus }, html("h2", {}, name),
    html("p", { class: "note" }, `${limitText(context)}.`),
    legendOf([["median", "goodput"], ["goal", `${GOAL} %`]]),
    ...found.panels.map((panel, place) => panelOfRegion(panel, found, context, place === 0)),
    timeAxis(found),
    sameAsTable("shares", name, ["begins (UTC)", "region", "goodput, %", "in time", "planned"], () => found.panels.flatMap(({ region, points }) =>
      points.toReversed().map((point) => ({ key: `${region} ${point.at}`, cells: [moment(new Date(point.at).toISOString(), 0), region,
        percent(point.good / point.planned), point.good, point.planned] }))), context))];
}

/**
 * @param {GoodputPanel} panel
 * @param {Goodput} found
 * @param {Context} context
 * @param {boolean} isFirst
 */
function panelOfRegion(panel, found, context, isFirst) {
  const { region, points, good, planned } = panel;
  const y = TOP + (HEIGHT - TOP) * (1 - (GOAL - found.bottom) / (100 - found.bottom));
  return panelOf({ region, note: `${percent(good / planned)} % of ${planned} requests`, label: `Goodput from ${region}, ${points.length} buckets`,
    top: "100", low: String(found.bottom), bottom: HEIGHT },
  timeLines(found, HEIGHT),
  found.bottom < GOAL ? svg("line", { class: "goal", x1: 0, x2: "100%", y1: y, y2: y }) : null,
  line(panel, found),
  ...points.map((point, place) => {
    const at = new Date(point.at).toISOString();
    return factsMark({ key: `${region} ${at}`, title: `${region}, ${moment(at, context.now)} UTC`,
      facts: [["goodput", `${percent(point.good / point.planned)} %`], ["in time", `${point.good} of ${point.planned} requests`]],
      isStop: isFirst && place === 0, context,
      box: { x: acrossOf(found)(point.at), width: widthOf(point.at, point.at + panel.spacing, found), height: HEIGHT },
      open: requestsOf(region, point, context) });
  }));
}

/**
 * @param {GoodputPanel} panel
 * @param {Goodput} found
 */
function line({ points, spacing }, { from, until, bottom }) {
  const x = (/** @type {number} */ at) => (Math.max(0, Math.min(1, (at - from) / (until - from))) * WIDTH).toFixed(2);
  const y = (/** @type {number | null} */ share) => ((1 - ((share ?? 0) - bottom) / (100 - bottom)) * (HEIGHT - TOP)).toFixed(2);
  // A bucket is as wide as its time: its goodput is that of all its requests.
  return svg("svg", { class: "lines", y: TOP, width: "100%", height: HEIGHT - TOP, viewBox: `0 0 ${WIDTH} ${HEIGHT - TOP}`, preserveAspectRatio: "none" },
    ...partsOf(points, spacing).map((part) => svg("polyline", { class: "median",
      points: part.flatMap((point) => [`${x(point.at)},${y(point.median)}`, `${x(point.end)},${y(point.median)}`]).join(" ") })));
}

/**
 * The goodput by region and hour of the day, as a table with colours; nothing without requests.
 * @param {any} slo
 * @param {string} target
 * @param {Context} context
 */
export function hoursSection(slo, target, context) {
  const rows = hoursOf(slo, target);
  if (!rows.length) return [];
  const name = "Goodput by hour of the day (UTC), %", { from_at: from, until_at: until } = slo.window;
  const values = rows.flatMap((row) => row.cells.map((cell) => cell?.value ?? null));
  const step = stepScale(values, { moreIsBetter: true, isLinear: true });
  const first = rows[0]?.cells.findIndex((cell) => cell !== null);
  return [html("section", { class: "hours", "data-key": "hours" }, html("h2", {}, name),
    html("p", { class: "note" }, `${limitText(context)}, measured between ${moment(from, 0)} and ${moment(until, 0)}.`),
    keyOf(values),
    scrolling(name, html("table", { class: "matrix", onkeydown: moveCell }, html("caption", { class: "unseen" }, name),
      html("thead", {}, html("tr", {}, html("th", { scope: "col", class: "name" }, "region"),
        ...Array.from({ length: HOURS }, (_, hour) => html("th", { scope: "col" }, String(hour).padStart(2, "0"))))),
      html("tbody", {}, ...rows.map(({ region, cells }, line) => html("tr", { "data-key": region }, html("th", { scope: "row" }, regionName(region)),
        ...cells.map((cell, hour) => cell ? hourCell(cell, region, hour, { step, context, isStop: line === 0 && hour === first })
          : html("td", { class: "none", title: "no requests" }, UNKNOWN)))))))) ];
}

/**
 * @param {HourCell} cell
 * @param {string} region
 * @param {number} hour
 * @param {{step: (value: number) => number, context: Context, isStop: boolean}} drawing
 */
function hourCell(cell, region, hour, { step, context, isStop }) {
  const title = `${region}, ${String(hour).padStart(2, "0")}:00 to ${String(hour).padStart(2, "0")}:59 UTC`;
  /** @type {[string, string][]} */
  const facts = [["goodput", `${percent(cell.value)} %`], ["95 % interval", `${interval(100 * cell.low, 100 * cell.high)} %`],
    ["planned requests", worthInWords(cell.n, cell.independent)]];
  // Rounded down, so that 100 means all.
  const shown = percent(cell.value).replace(/\..*/, "");
  return html("td", { class: `step${step(cell.value)}` }, html("button", { type: "button", tabindex: isStop ? 0 : -1, "data-key": `${region} ${hour}`,
    "aria-label": [title, ...facts.map(([name, text]) => `${name}: ${text}`)].join(", "), ...context.details(title, facts) }, shown));
}

/** @param {(number | null)[]} values */
function keyOf(values) {
  const known = values.filter((value) => value !== null), [best, worst] = [percent(Math.max(...known)), percent(Math.min(...known))];
  if (best === worst) return null;
  return html("ul", { class: "legend", "aria-label": "colours" }, html("li", { class: "scale" }, best,
    ...Array.from({ length: STEPS }, (_, place) => html("span", { class: `swatch step${place}` })), worst, " %"));
}
