/**
 * One target: its values, outcomes and goodput over time per region, its differences from the baseline and the phases that
 * they come from, distributions, the goodput by hour of the day, and single requests.
 */

import { apiPath } from "../api.js";
import { choice, segments, windowChoice } from "../controls.js";
import { html, svg } from "../dom.js";
import { UNKNOWN, commonDecimals, interval, isKnown, moment, number, worth } from "../formats.js";
import { regionName, scrolling } from "../tables.js";
import { windowQuery } from "../url_state.js";
import { METRICS, metricOf, useOf } from "./matrix_model.js";
import { STRETCHED, acrossOf, factsMark, legendOf, moveFocus, panelOf, partsIn, requestsOf, sameAsTable, timeAxis, timeLines, widthOf } from "./target_charts.js";
import { OUTCOMES, bandsOf, forestOf, hoursQuery } from "./target_model.js";
import { distributionSection, goodputSection, hoursSection, limitChoice, phasesSection } from "./target_sections.js";

/** @typedef {import("../views.js").Context} Context */
/** @typedef {import("./matrix_model.js").Metric} Metric */
/** @typedef {import("./target_model.js").Bands} Bands */
/** @typedef {import("./target_model.js").Point} Point */
/** @typedef {Bands["panels"][number]} Panel */

const POINTS = 120, GOODPUT_POINTS = 60, BINS = 80;
const STRIP = { top: 96, height: 12 };
const LEGEND = /** @type {[string, string][]} */ ([["median", "median"], ["band", "from p10 to p90"], ...OUTCOMES.map((name) => [name, name]),
  ["incident", "incident"], ["change", "difference changed"]]);
const OVER_TIME = METRICS.filter((metric) => metric.differential);

/** @type {import("../views.js").View} */
export const TARGET = {
  name: "target",
  label: "Target",
  path: "/target/:target",
  defaults: { metric: "ttft", baseline: "", use: "chat", tables: "" },
  topics: ["samples", "plan", "alerts"],
  hasIntervals: true,
  requests: ({ target, options }) => {
    const selected = { ...windowQuery(options), target, metric: shownMetric(options).differential ?? "" }, use = useOf(options["use"]);
    return {
      series: apiPath("/v1/series", { ...selected, points: String(POINTS), bins: String(BINS) }),
      goodput: apiPath("/v1/series", { ...selected, metric: use.metric, limit: String(use.seconds), points: String(GOODPUT_POINTS) }),
      hours: apiPath("/v1/slo", { ...hoursQuery(options), target, use: use.name, by: "hour" }),
      incidents: apiPath("/v1/incidents", { ...windowQuery(options), past: "true" }),
      diff: apiPath("/v1/diff", { ...selected, baseline: options["baseline"] ?? "", explain: "true" }),
    };
  },
  render: ({ series, goodput, hours, incidents, diff }, context) => {
    const { target } = context.state, metric = shownMetric(context.state.options);
    // The other sections would be moved by the first one, which is the largest.
    if (!series) return { title: target, content: [controls([], metric, context)] };
    const bands = bandsOf({ series, incidents: incidents ?? null, diff: diff ?? null, target, metric });
    return {
      title: target,
      content: [
        controls(bands.panels.map((panel) => panel.region), metric, context),
        ...charts(bands, metric, context),
        ...(diff ? [forest(forestOf(diff, target, metric), metric), ...phasesSection(diff, target, context)] : []),
        ...distributionSection(series, target, metric, context),
        ...(goodput ? goodputSection(goodput, target, context) : []),
        ...(hours ? hoursSection(hours, target, context) : []),
      ],
    };
  },
};

/** @param {import("../url_state.js").Options} options */
function shownMetric(options) {
  const metric = metricOf(options["metric"]);
  return metric.differential ? metric : metricOf("");
}

/**
 * @param {string[]} regions
 * @param {Metric} metric
 * @param {Context} context
 */
function controls(regions, metric, context) {
  const { baseline } = context.state.options;
  return html("form", { class: "controls", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    segments("Metric", OVER_TIME.map(({ name, label }) => [name, label]), metric.name, (value) => context.set({ metric: value })),
    windowChoice(context),
    choice("Compare with", [["", "the baseline"], ...regions.map((region) => /** @type {[string, string]} */ ([region, region]))],
      baseline, (value) => context.set({ baseline: value })),
    limitChoice(context));
}

/**
 * @param {Bands} bands
 * @param {Metric} metric
 * @param {Context} context
 */
function charts(bands, metric, context) {
  if (!bands.panels.length) return [html("p", { class: "empty" }, "This target has no samples in this window.")];
  const decimals = commonDecimals([bands.top]);
  return [
    html("section", { class: "bands", "data-key": "bands", onkeydown: moveFocus },
      html("h2", {}, `${metric.label} over time, ${metric.unit}`),
      legendOf(LEGEND),
      ...bands.panels.map((panel, place) => bandsPanel(panel, bands, { metric, context, decimals, isFirst: place === 0 })),
      timeAxis(bands)),
    valueTable(bands, metric, context),
  ];
}

/**
 * @param {Panel} panel
 * @param {Bands} bands
 * @param {{metric: Metric, context: Context, decimals: number, isFirst: boolean}} drawing
 */
function bandsPanel(panel, bands, { metric, context, decimals, isFirst }) {
  const { region, points } = panel, x = acrossOf(bands);
  const newest = points.findLast((point) => point.median !== null);
  return panelOf({ region, note: newest ? `newest median ${number(newest.median)} ${metric.unit}` : "no values",
    label: `${metric.label} from ${region}, ${points.length} buckets`, top: number(bands.top, { decimals }), low: "0", bottom: STRIP.top - 6 },
  timeLines(bands, STRIP.top + STRIP.height),
  ...panel.marks.map((mark) => mark.kind === "incident" ? svg("rect", { class: "incident", x: x(mark.at), y: 0,
    width: widthOf(mark.at, mark.end ?? mark.at, bands), height: STRIP.top - 6 }, svg("title", {}, mark.text)) : null),
  lines(panel, bands),
  ...panel.marks.map((mark) => mark.kind === "change"
    ? svg("line", { class: "change", x1: x(mark.at), x2: x(mark.at), y1: 0, y2: STRIP.top - 6 }, svg("title", {}, mark.text)) : null),
  ...points.flatMap((point) => outcomes(point, panel.spacing, bands)),
  ...points.map((point, place) => bucketMark(point, panel, bands, { metric, context, isStop: isFirst && place === 0 })));
}

/**
 * The band and the median, in a box that stretches with the window.
 * @param {Panel} panel
 * @param {Bands} bands
 */
function lines(panel, bands) {
  const parts = partsIn(panel, bands);
  return svg("svg", { class: "lines", y: 4, width: "100%", height: STRIP.top - 10, ...STRETCHED },
    ...parts.map((places) => svg("polygon", { class: "band", points: [...places("high"), ...places("low").reverse()].join(" ") })),
    ...parts.map((places) => svg("polyline", { class: "median", points: places("median").join(" ") })));
}

/**
 * The shares of the outcomes in a bucket, failures on top.
 * @param {Point} point
 * @param {number} spacing
 * @param {Bands} bands
 */
function outcomes(point, spacing, bands) {
  const total = OUTCOMES.reduce((sum, name) => sum + point.outcomes[name], 0);
  let bottom = STRIP.top + STRIP.height;
  return OUTCOMES.filter((name) => point.outcomes[name]).map((name) => {
    const height = STRIP.height * point.outcomes[name] / total;
    bottom -= height;
    return svg("rect", { class: name, x: acrossOf(bands)(point.at), width: widthOf(point.at, point.at + spacing, bands), y: bottom.toFixed(2), height: height.toFixed(2) });
  });
}

/**
 * The place of a bucket that shows its values, and opens its requests.
 * @param {Point} point
 * @param {Panel} panel
 * @param {Bands} bands
 * @param {{metric: Metric, context: Context, isStop: boolean}} drawing
 */
function bucketMark(point, { region, spacing, marks }, bands, { metric, context, isStop }) {
  const at = new Date(point.at).toISOString();
  /** @type {[string, string][]} */
  const facts = [["median", point.median === null ? UNKNOWN : `${number(point.median)} ${metric.unit}`],
    ["p10 … p90", interval(point.low, point.high)], ["values", String(point.n)],
    ...OUTCOMES.filter((name) => point.outcomes[name]).map((name) => /** @type {[string, string]} */ ([name, String(point.outcomes[name])])),
    ...marks.filter((mark) => mark.at < point.at + spacing && (mark.end ?? mark.at) >= point.at).map((mark) =>
      /** @type {[string, string]} */ ([mark.kind, mark.text]))];
  return factsMark({ key: `${region} ${at}`, title: `${region}, ${moment(at, context.now)} UTC`, facts, isStop, context,
    box: { x: acrossOf(bands)(point.at), width: widthOf(point.at, point.at + spacing, bands), height: STRIP.top + STRIP.height },
    open: requestsOf(region, point, context) });
}

/**
 * @param {Bands} bands
 * @param {Metric} metric
 * @param {Context} context
 */
function valueTable({ panels }, metric, context) {
  return sameAsTable("values", `${metric.label} in ${metric.unit}, and outcomes`,
    ["begins (UTC)", "region", "p10", "median", "p90", "values", ...OUTCOMES], () => panels.flatMap(({ region, points }) =>
      points.toReversed().map((point) => ({ key: `${region} ${point.at}`, cells: [moment(new Date(point.at).toISOString(), 0), region,
        ...[point.low, point.median, point.high].map((value) => number(value)), point.n, ...OUTCOMES.map((name) => point.outcomes[name])] }))), context);
}

/**
 * The differentials as a table with a plot.
 * @param {ReturnType<typeof forestOf>} found
 * @param {Metric} metric
 */
function forest({ rows, from, until }, metric) {
  const x = (/** @type {number} */ value) => `${((value - from) / (until - from) * 100).toFixed(3)}%`;
  const decimals = commonDecimals(rows.flatMap((row) => [row.shift, row.low, row.high]));
  const name = rows[0] ? `Difference from ${rows[0].baseline}, ${metric.unit}` : "Differences";
  if (!rows.length) return html("section", { "data-key": "forest" }, html("h2", {}, name),
    html("p", { class: "empty" }, "No other region has rounds to compare in this window."));
  const plot = (/** @type {typeof rows[number]} */ row) => svg("svg", { class: `forest ${row.decision}`, "aria-hidden": "true" },
    isKnown(row.margin) ? svg("rect", { class: "margin", x: x(-row.margin), width: `${(2 * row.margin / (until - from) * 100).toFixed(3)}%`, y: 0, height: "100%" }) : null,
    svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: "100%" }),
    isKnown(row.low) && isKnown(row.high) ? svg("line", { class: "interval", x1: x(row.low), x2: x(row.high), y1: "50%", y2: "50%" }) : null,
    isKnown(row.shift) ? svg("circle", { cx: x(row.shift), cy: "50%", r: 4 }) : null);
  return html("section", { "data-key": "forest" }, html("h2", {}, name),
    scrolling(name, html("table", { class: "differences" },
      html("caption", {}, "Line: the 95 % interval. Shaded: too small to matter."),
      html("thead", {}, html("tr", {}, ...["region", "", "difference", "95 % interval", "decision", "rounds"].map((text) =>
        text ? html("th", { scope: "col", class: text === "region" ? "name" : null }, text) : html("td")))),
      html("tbody", {}, ...rows.map((row) => html("tr", { "data-key": row.region }, html("th", { scope: "row" }, regionName(row.region)),
        html("td", { class: "drawing" }, plot(row)), html("td", { class: row.low === null ? "early" : null }, `${number(row.shift, { decimals, signed: true })}${isKnown(row.shift) && row.low === null ? "?" : ""}`),
        html("td", {}, interval(row.low, row.high, { decimals, signed: true })),
        html("td", { class: "name" }, row.decision, row.reason ? html("small", {}, row.reason) : null),
        html("td", {}, worth(row.n, row.independent))))))));
}
