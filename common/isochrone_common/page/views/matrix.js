/** The matrix: all targets and regions in one metric, each value with its difference from a baseline region, in colours. */

import { REPORT, apiPath } from "../api.js";
import { choice, search, segments, windowChoice } from "../controls.js";
import { html } from "../dom.js";
import { UNKNOWN, age, capitalised, commonDecimals, dollars, duration, interval, moment, number, worthInWords } from "../formats.js";
import { STEPS, TIER_NAMES, byName, differenceClass, stepScale } from "../ordering.js";
import { moveCell, regionName, scrolling, targetName } from "../tables.js";
import { otherView, windowQuery } from "../url_state.js";
import { verdictLine } from "./status.js";
import { METRICS, QUANTITIES, DIFFERENCE, USES, goodputText, matrixOf, metricOf, selectedRows, sortOf, staleBeforeOf } from "./matrix_model.js";
import { sparkline } from "./target_charts.js";
import { bandsOf, spanOf } from "./target_model.js";

/** @typedef {import("../views.js").View} View */
/** @typedef {import("../views.js").Context} Context */
/** @typedef {import("./matrix_model.js").Cell} Cell */
/** @typedef {import("./matrix_model.js").Row} Row */
/** @typedef {import("./matrix_model.js").Metric} Metric */

const NO_BASELINE = "none";
const TREND_POINTS = "24";
// As in the style sheet, so that a small window does not ask for what it does not show.
const HAS_TRENDS = "(min-width: 60rem)";

/** @type {View} */
export const MATRIX = {
  name: "matrix",
  label: "Matrix",
  path: "/",
  defaults: { metric: "ttft", use: "chat", baseline: "", provider: "", tier: "", workload: "", find: "", sort: "target" },
  topics: ["samples", "plan"],
  hasIntervals: true,
  planned: ["targets", "regions"],
  // Without a baseline in the plan there is no difference; and the values are shown first.
  optional: ["diff", "trends", "status"],
  requests: ({ options }) => {
    const metric = metricOf(options["metric"]), window = windowQuery(options);
    return {
      // In no order, so that all metrics share one answer, which the document preloads.
      board: apiPath("/v1/leaderboard", { ...window, quantity: QUANTITIES }),
      targets: "/v1/targets",
      regions: "/v1/vantages",
      // A report is about its own window.
      ...(!REPORT && { status: "/v1/status" }),
      ...(metric.name === "goodput" && { slo: apiPath("/v1/slo", { ...window, use: options["use"] ?? "" }) }),
      ...(metric.differential && options["baseline"] !== NO_BASELINE
        && { diff: apiPath("/v1/diff", { ...window, baseline: options["baseline"] ?? "", metric: metric.differential }) }),
      ...(metric.differential && matchMedia(HAS_TRENDS).matches
        && { trends: apiPath("/v1/series", { ...window, metric: metric.differential, points: TREND_POINTS }) }),
    };
  },
  render: (answers, context) => {
    const metric = metricOf(context.state.options["metric"]);
    const { board, targets, regions, diff, slo, trends, status } = answers;
    if (!board || !targets || !regions) return { title: "Matrix", content: [] };
    const staleBefore = staleBeforeOf(board.window, context.state.options, context.now);
    const matrix = matrixOf({ metric, board, targets, regions, diff: diff ?? null, slo: slo ?? null, staleBefore });
    const rows = selectedRows(matrix.rows, context.state.options), chosen = context.state.options["baseline"];
    const baseline = metric.differential && chosen !== NO_BASELINE ? chosen || targets["baseline"] : "";
    return {
      title: `${metric.label} by target and region`,
      content: [
        ...(status ? [verdictLine(status, context.href(otherView(context.state, "status")))] : []),
        controls(matrix, metric, context),
        ...(rows.length ? table(rows, matrix.regions.toSorted((a, b) => Number(b === baseline) - Number(a === baseline)),
          { metric, baseline, context, trends }) : [nothing(matrix.rows.length)]),
      ],
    };
  },
};

/** @param {number} total */
function nothing(total) {
  return html("p", { class: "empty" }, total
    ? `None of ${total} targets is selected.`
    : "There is no plan with targets yet. An operator applies one: isochrone-collector apply plan.yaml");
}

/**
 * @param {{regions: string[], rows: Row[]}} matrix
 * @param {Metric} metric
 * @param {Context} context
 */
function controls({ regions, rows }, metric, context) {
  const { options } = context.state;
  const of = (/** @type {"provider" | "tier" | "workload"} */ name) => [...new Set(rows.map((row) => row[name]))].sort(byName);
  const tiers = of("tier");
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => context.set({ [name]: value });
  return html("form", { class: "controls", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    segments("Metric", METRICS.map(({ name, label }) => [name, label]), metric.name, set("metric")),
    windowChoice(context),
    metric.name === "goodput"
      ? choice("Limit", USES.map(([name, limit]) => pair(name, `${name}: ${limit}`)), options["use"], set("use"))
      : null,
    metric.differential
      ? choice("Compare with", [["", "the baseline"], [NO_BASELINE, "no region"], ...regions.map((value) => pair(value))], options["baseline"], set("baseline"))
      : null,
    choice("Provider", [["", "all"], ...of("provider").map((value) => pair(value))], options["provider"], set("provider")),
    choice("Price", [["", "all"], ...TIER_NAMES.filter((name) => tiers.includes(name)).map((value) => pair(value))], options["tier"],
      set("tier")),
    of("workload").length > 1
      ? choice("Request", [["", "all"], ...of("workload").map((value) => pair(value))], options["workload"], set("workload"))
      : null,
    choice("Order", [["target", "name"], ["price", "lowest price"], ["-price", "highest price"],
      ...regions.map((region) => pair(region, `lowest in ${region}`)),
      ...regions.map((region) => pair(`-${region}`, `highest in ${region}`)),
      ...regions.map((region) => pair(`-${region}${DIFFERENCE}`, `largest difference in ${region}`))], options["sort"], set("sort")),
    search("Find", options["find"] ?? "", (value) => context.set({ find: value }, { replace: true })),
  );
}

/**
 * An entry of a choice.
 * @param {string} value
 * @param {string} [label]
 * @returns {[string, string]}
 */
function pair(value, label = value) {
  return [value, label];
}

/**
 * @param {Row[]} rows
 * @param {string[]} regions
 * @param {{metric: Metric, baseline: string, context: Context, trends: import("../api.js").Answer | undefined}} shown
 */
function table(rows, regions, { metric, baseline, context, trends }) {
  const cells = rows.flatMap((row) => Object.values(row.cells));
  const values = cells.map((cell) => cell.value);
  const drawing = {
    metric, context, baseline,
    decimals: commonDecimals(values),
    step: stepScale(values, { ...metric, isLinear: metric.unit === "%" }),
  };
  const { trendHeading, trend } = trendColumn(trends, metric, baseline);
  const caption = `${meaningOf(metric, context)}${baseline ? `, and the difference from ${baseline}` : ""}, ${metric.unit}`;
  return [
    html("p", { class: "note", "aria-hidden": "true" }, caption),
    legend(values, drawing),
    scrolling(caption,
      html("table", { class: "matrix", onkeydown: moveCell },
        html("caption", { class: "unseen" }, caption),
        html("thead", {}, html("tr", {},
          heading("target", "target", "asc", context),
          ...regions.map((region) => heading(region, regionName(region), metric.moreIsBetter ? "desc" : "asc", context,
            region === baseline ? "baseline" : "")),
          heading("price", "output price", "asc", context, "$/M tokens"), trendHeading)),
        html("tbody", {}, ...rows.map((row, place) => html("tr", { "data-key": row.target },
          html("th", { scope: "row" },
            html("a", { href: context.href(otherView(context.state, "target", { target: row.target })) }, targetName(row.target, row.provider))),
          ...regions.map((region, column) => cell(row, region, drawing, place + column === 0)),
          html("td", { class: "price" }, dollars(row.usd)), trend(row.target)))))),
  ];
}

/**
 * The heading of the medians over time, and a function from a target to their cell; none without them.
 * @param {import("../api.js").Answer | undefined} trends
 * @param {Metric} metric
 * @param {string} baseline
 */
function trendColumn(trends, metric, baseline) {
  if (!trends?.window) return { trendHeading: null, trend: () => null };
  const span = spanOf(trends.window, trends.rows);
  return {
    trendHeading: html("th", { scope: "col", class: "trend" }, "over time", html("small", {}, `${duration(span.until - span.from)}, all regions`)),
    trend: (/** @type {string} */ target) => html("td", { class: "trend" },
      sparkline(bandsOf({ series: trends, incidents: null, diff: null, target, metric }).panels, span, baseline)),
  };
}

/**
 * @param {Metric} metric
 * @param {Context} context
 */
function meaningOf({ name, words, unit }, { state: { options } }) {
  if (name === "goodput") return capitalised(goodputText(options["use"]));
  return unit === "%" ? capitalised(words) : `Median ${words}`;
}

/**
 * A heading that sorts by its column; a second click turns the order round.
 * @param {string} key
 * @param {string | import("../dom.js").Child[]} label
 * @param {"asc" | "desc"} first
 * @param {Context} context
 * @param {string} [small]
 */
function heading(key, label, first, context, small = "") {
  const { state } = context, sort = sortOf(state.options["sort"] ?? ""), isSorted = sort.key === key;
  const descending = isSorted ? !sort.descending : first === "desc";
  const direction = sort.descending ? "descending" : "ascending";
  return html("th", { scope: "col", class: key === "target" ? "name" : null, "aria-sort": isSorted ? direction : null },
    html("button", { type: "button", "data-key": `sort ${key}`, title: `sort by ${key}`,
      onclick: () => context.set({ sort: `${descending ? "-" : ""}${key}` }) },
    label, isSorted ? html("span", { class: "arrow", "aria-hidden": "true" }, sort.descending ? "▼" : "▲") : null),
    small ? html("small", {}, small) : null);
}

/** @typedef {{metric: Metric, context: Context, baseline: string, decimals: number, step: (value: number) => number}} Drawing */

/**
 * @param {Row} row
 * @param {string} region
 * @param {Drawing} drawing
 * @param {boolean} isFirst
 */
function cell(row, region, drawing, isFirst) {
  const found = row.cells[region];
  if (!found) return html("td", { class: "none", title: "no samples" }, UNKNOWN);
  const facts = factsOf(region, found, drawing), shown = valueText(found, drawing);
  const note = noteOf(found.difference, { decimals: drawing.decimals, now: drawing.context.now });
  return html("td", { class: classOf(found, region, drawing) },
    html("button", {
      type: "button", tabindex: isFirst ? 0 : -1, "data-key": `${row.target} ${region}`,
      "aria-label": [`${shown} ${note}`.trim(), ...facts.map(([name, text]) => `${name}: ${text}`)].join(", "),
      ...drawing.context.details(`${row.target} from ${region}`, facts),
    }, ...(note ? [shown, " ", html("small", {}, note)] : [shown])));
}

/**
 * The value, with a question mark before it has an interval.
 * @param {Cell | null | undefined} found
 * @param {{decimals: number}} style
 */
export function valueText(found, { decimals }) {
  return `${number(found?.value, { decimals })}${found?.isEarly ? "?" : ""}`;
}

/**
 * The difference from the baseline, with a question mark until it is decided.
 * @param {Cell["difference"]} difference
 * @param {{decimals: number, now: number}} style
 */
export function noteOf(difference, { decimals, now }) {
  if (!difference) return "";
  const { decision, sinceAt } = difference, size = difference.shift ?? difference.early;
  if (decision === "equivalent") return "same";
  if (decision === "mixed" || size === null) return decision;
  return `${number(size, { decimals, signed: true })}${decision === "undecided" ? "?" : ""}${sinceAt ? ` since ${moment(sinceAt, now)}` : ""}`;
}

/**
 * The classes of a cell: its colour, and whether it is stale.
 * @param {Cell} found
 * @param {string} region
 * @param {Drawing} drawing
 */
export function classOf(found, region, { baseline, step }) {
  const { difference } = found, names = ["cell"];
  if (difference && region !== baseline) names.push(differenceClass(difference.decision, difference.percent));
  else if (found.value === null || found.isEarly || found.verdict?.eligible === "unknown") names.push("unsure");
  else if (!baseline) names.push(`step${step(found.value)}`);
  if (found.isEarly) names.push("early");
  if (found.isStale) names.push("stale");
  return names.join(" ");
}

/**
 * What is known of a cell, as names and texts.
 * @param {string} region
 * @param {Cell} found
 * @param {Drawing} drawing
 * @returns {[string, string][]}
 */
export function factsOf(region, found, { metric, baseline, context }) {
  const { difference } = found, now = context.now;
  const text = (/** @type {number | null} */ value) => `${number(value)} ${metric.unit}`;
  /** @type {[string, string][]} */
  const facts = [
    [metric.unit === "%" ? metric.label.toLowerCase() : "median", found.value === null ? "no sample" : text(found.value)],
    ["95 % interval", found.low === null ? unknownInterval(found.progress) : `${interval(found.low, found.high)} ${metric.unit}`],
    [metric.counted, worthInWords(found.n, found.independent)],
  ];
  if (found.verdict) facts.push(["95 % or more", `${found.verdict.eligible}${found.verdict.reason ? `: ${found.verdict.reason}` : ""}`]);
  if (baseline && region !== baseline && difference) {
    facts.push(
      [`difference from ${baseline}`, `${number(difference.shift ?? difference.early, { signed: true })}${difference.early === null ? "" : "?"} ${metric.unit}`],
      ["its 95 % interval", interval(difference.low, difference.high, { signed: true })],
      ["rounds", worthInWords(difference.n, difference.independent)],
      ["decision", difference.sinceAt ? `${difference.decision} since ${moment(difference.sinceAt, now)}` : difference.decision],
    );
    if (difference.reason) facts.push(["reason", difference.reason]);
  }
  facts.push(["newest round", `${age(found.newestAt, now)} ago${found.isStale ? ", stale" : ""}`]);
  return facts;
}

/** @param {string} progress */
function unknownInterval(progress) {
  return progress ? `unknown: ${progress} independent samples` : "unknown";
}

/**
 * The key of the colours.
 * @param {(number | null)[]} values
 * @param {Drawing} drawing
 */
export function legend(values, { metric, baseline, decimals }) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)].map((value) => number(value, { decimals }));
  const entry = (/** @type {string} */ name, /** @type {string} */ text) =>
    html("li", {}, html("span", { class: `swatch ${name}` }), text);
  const scale = html("li", { class: "scale" }, metric.moreIsBetter ? high : low,
    ...Array.from({ length: STEPS }, (_, place) => html("span", { class: `swatch step${place}` })),
    metric.moreIsBetter ? low : high, ` ${metric.unit}`);
  const steps = (/** @type {string} */ text, /** @type {string} */ name) => html("li", {}, text,
    ...["less than 20 %", "20 to 50 %", "more"].flatMap((share, place) => [html("span", { class: `swatch ${name}${place + 1}` }), share]));
  return html("ul", { class: "legend", "aria-label": "colours" },
    ...(baseline
      ? [steps("faster by", "better"), entry("same", "same"), steps("slower by", "worse"), entry("unsure", "undecided: +12?")]
      : [...(known.length ? [scale] : []), entry("unsure", "no 95 % interval yet: 260?")]),
    entry("stale", "stale: no recent round"));
}
