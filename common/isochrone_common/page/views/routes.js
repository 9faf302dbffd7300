/** The routes: where each region sends its requests now, why, and how that changed. */

import { apiPath } from "../api.js";
import { hasInterval, markedText, progressOf } from "../certainty.js";
import { windowChoice } from "../controls.js";
import { html, svg } from "../dom.js";
import { UNKNOWN, age, dollars, interval, isKnown, moment, number, worth } from "../formats.js";
import { dataTable, heading, regionName, section, targetName } from "../tables.js";
import { withOptions, windowQuery } from "../url_state.js";
import { TONE_OF, changesOf, directionOf, freshnessOf, generationAt, holdOf, latencyDecimals, overviewOf, phraseOf, placeOf,
  placeText, remarksOf, weightBars, weightsText } from "./routes_model.js";

/** @typedef {import("../views.js").Context} Context */
/** @typedef {import("../api.js").Answer} Answer */
/** @typedef {import("../dom.js").Child} Child */
/** @typedef {import("./routes_model.js").Change} Change */

const OVERVIEW = "Where each region sends the requests of each route now, in per cent. A link shows why.";
const COLOURS = 8;
const SLIDE_PAUSE_MS = 200;
const ARROWS = Object.freeze({ rises: "↑ ", falls: "↓ ", "": "" });
/** @type {ReturnType<typeof setTimeout> | undefined} */
let slide;

/** @type {import("../views.js").View} */
export const ROUTES = {
  name: "routes",
  label: "Routes",
  path: "/routes",
  defaults: { region: "", route: "", generation: "" },
  topics: ["tables", "plan"],
  everyMs: 10_000,
  hasIntervals: true,
  requests: ({ options }) => {
    const { region = "", route = "", generation = "" } = options, isOne = Boolean(region && route);
    return {
      overview: "/v1/routes",
      events: apiPath("/v1/route-events", { ...windowQuery(options), ...(isOne && { region, route }) }),
      ...(isOne && { explanation: apiPath(`/v1/explain/${[region, route].map(encodeURIComponent).join("/")}`, { generation }) }),
    };
  },
  render: ({ overview, events, explanation }, context) => {
    const { region, route, generation } = context.state.options;
    const table = explanation?.["table"], changes = changesOf(events?.rows ?? []);
    return {
      title: region && route ? `Route ${route} from ${region}` : "Routes",
      content: [
        html("form", { class: "controls", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, windowChoice(context)),
        ...(overview ? [html("p", { class: "note" }, OVERVIEW), overviewTable(overview, context)] : []),
        ...(table ? [section("Route table", ...tableOf(table, Boolean(generation), changes, context))] : []),
        ...(table && events?.window ? [section("Weights over time", ...chart(table, changes, events.window, context))] : []),
        ...(events ? [section("Changes", changeTable(changes, context))] : []),
        ...(explanation ? [section(`Why the table of generation ${table.generation} is so`, ...stepsOf(explanation))] : []),
      ],
    };
  },
};

/**
 * The tables of all regions and routes, each a link to its members and its history.
 * @param {Answer} overview
 * @param {Context} context
 */
function overviewTable(overview, context) {
  const { routes, rows } = overviewOf(overview);
  if (!rows.length) {
    return html("p", { class: "empty" }, routes.length
      ? "There is no route table yet: the first needs 6 samples of a member."
      : "The plan has no routes. An operator adds `routes` to it: isochrone-collector apply plan.yaml");
  }
  return dataTable(OVERVIEW,
    [heading("region", { kind: "name" }), ...routes.map((route) => heading(route, { kind: "name" }))],
    rows.map(({ region, tables }) => html("tr", { "data-key": region }, html("th", { scope: "row" }, regionName(region)),
      ...routes.map((route) => overviewCell(tables[route], context)))), "routes");
}

/**
 * @param {any} table
 * @param {Context} context
 */
function overviewCell(table, { state, now, href }) {
  if (!table) return html("td", { class: "name" }, UNKNOWN);
  const { client_region: region, route } = table, fresh = freshnessOf(table, now);
  const isShown = state.options["region"] === region && state.options["route"] === route;
  return html("td", { class: isShown ? "name shown" : "name" },
    html("a", { href: href(withOptions(state, { region, route, generation: "" })), "aria-current": isShown ? "true" : null },
      fresh.state === "expired" ? "static order" : weightsText(table.weights) || "static order"),
    html("small", {}, html("span", { class: TONE_OF[table.state] ?? null }, table.state.replace("_", " ")), ", ",
      html("span", { class: TONE_OF[fresh.state] || null }, fresh.text)));
}

/**
 * @param {any} table
 * @param {boolean} isPast
 * @param {Change[]} changes
 * @param {Context} context
 * @returns {Child[]}
 */
function tableOf(table, isPast, changes, context) {
  // A table of the past is shown as it was when it was built.
  const now = isPast ? Date.parse(table.built_at) : context.now, fresh = freshnessOf(table, now);
  return [
    slider(changes, table, context),
    html("p", { class: isPast ? "past" : null },
      html("span", { class: `badge ${TONE_OF[table.state] ?? ""}` }, phraseOf(table.state)), " ",
      `generation ${table.generation}, built ${moment(table.built_at, context.now)} UTC (${age(table.built_at, context.now)} ago), `,
      isPast ? "a past one" : html("span", { class: TONE_OF[fresh.state] || null }, fresh.text)),
    table.sentence ? html("p", {}, `Decision: ${table.sentence} (${table.change})`) : null,
    table.entries.length ? entryTable(table, now) : html("p", { class: "empty" }, "No member is ranked: the static order applies."),
    html("dl", { class: "facts" }, ...remarksOf(table).flatMap(([name, text]) => [html("dt", {}, name), html("dd", {}, text)])),
  ];
}

/**
 * @param {Change[]} changes
 * @param {any} table
 * @param {Context} context
 */
function slider(changes, table, context) {
  const { generation } = context.state.options, place = placeOf(changes, generation);
  const isBetween = generation && generationAt(changes, place) !== generation;
  const text = isBetween ? `generation ${generation}, ${moment(table.built_at, context.now)}: ${table.sentence}` : placeText(changes, place, context.now);
  const set = (/** @type {string} */ wanted) => context.set({ generation: wanted }, { replace: true });
  return html("div", { class: "slider", "data-key": "slider" },
    html("label", {}, html("span", {}, "Past tables"),
      html("input", { type: "range", name: "generation", min: -changes.length, max: 0, step: 1, value: place, "aria-valuetext": text,
        disabled: !changes.length,
        oninput: (/** @type {Event} */ event) => {
          const wanted = generationAt(changes, Number(/** @type {HTMLInputElement} */ (event.target).value));
          clearTimeout(slide);
          slide = setTimeout(set, SLIDE_PAUSE_MS, wanted);
        } })),
    html("output", {}, text),
    generation ? html("button", { type: "button", class: "quiet", onclick: () => set("") }, "show now") : null);
}

/**
 * @param {any} table
 * @param {number} now
 */
function entryTable(table, now) {
  const style = { decimals: latencyDecimals(table.entries) };
  const headings = [heading("target", { kind: "name" }), heading("rank"), heading("weight", { unit: "%" }), heading("objective", { unit: "kept", kind: "name" }),
    heading("median", { unit: "ms, 95 % interval" }), heading("p95", { unit: "ms, at most" }), heading("in time", { unit: "%" }),
    heading("success", { unit: "%" }), heading("samples", { unit: "≈ independent" }), heading("output", { unit: "$/M" }),
    heading("hold", { kind: "name" }), heading("newest", { unit: "ago" })];
  return dataTable("Members in rank order", headings,
    table.entries.map((/** @type {any} */ entry) => entryRow(entry, table.entries, now, style)), "routes");
}

/**
 * @param {any} entry
 * @param {any[]} entries
 * @param {number} now
 * @param {{decimals: number}} style
 */
function entryRow(entry, entries, now, style) {
  const direction = directionOf(entry, entries), hold = holdOf(entry.hold, now);
  const { ttft_p50_us: p50, ttft_p95_us: p95 } = entry;
  return html("tr", { "data-key": entry.target, class: entry.weight > 0 ? null : "unused" },
    html("th", { scope: "row" }, targetName(entry.target)),
    html("td", {}, String(entry.rank)),
    html("td", { class: "sum", title: direction ? `the weight ${direction} by at most a quarter per epoch` : null },
      direction ? html("span", { class: "unseen" }, `${direction}: `) : null,
      html("span", { "aria-hidden": "true" }, ARROWS[direction]), number(100 * entry.weight, { decimals: 0 })),
    html("td", { class: `name ${TONE_OF[entry.slo_eligible] ?? ""}` }, entry.slo_eligible),
    quantileCell(p50, hasInterval(p50) ? interval(p50.low / 1000, p50.high / 1000, style) : UNKNOWN, 0.5, entry.n, style),
    quantileCell(p95, inMs(p95?.high, style), 0.95, entry.n, style),
    html("td", {}, perCent(entry.goodput)),
    html("td", {}, perCent(entry.success)),
    html("td", {}, worth(entry.n, entry.n_eff)),
    html("td", {}, dollars(entry.usd_per_m_output)),
    html("td", { class: "name" }, hold.text, hold.switches ? html("small", {}, hold.switches) : null),
    html("td", {}, age(entry.newest_at, now)));
}

/**
 * A latency above its interval, or above what it has of the independent samples that an interval needs.
 * @param {import("../certainty.js").Quantile | null | undefined} quantile
 * @param {string} bounds
 * @param {number} share
 * @param {number} n
 * @param {{decimals: number}} style
 */
function quantileCell(quantile, bounds, share, n, style) {
  if (!quantile) return html("td", {}, UNKNOWN);
  return html("td", { class: hasInterval(quantile) ? null : "early" },
    markedText(inMs(quantile.value, style), quantile, { share, n }), html("small", {}, progressOf(quantile, share) || bounds));
}

/**
 * @param {number | null | undefined} us
 * @param {{decimals: number}} style
 */
function inMs(us, style) {
  return isKnown(us) ? number(us / 1000, style) : UNKNOWN;
}

/** @param {{value: number} | null | undefined} share */
function perCent(share) {
  return share ? number(100 * share.value, { decimals: 1 }) : UNKNOWN;
}

/**
 * The shares of the traffic over time. A click shows the table of that instant.
 * @param {any} table
 * @param {Change[]} changes
 * @param {{from_at: string, until_at: string}} window
 * @param {Context} context
 * @returns {Child[]}
 */
function chart(table, changes, window, context) {
  const from = Math.max(Date.parse(window.from_at), changes[0]?.at ?? 0), until = Date.parse(window.until_at);
  const current = Object.fromEntries(table.entries.map((/** @type {any} */ entry) => [entry.target, entry.weight]));
  const { targets, bars } = weightBars(changes, { from, until, current });
  const x = (/** @type {number} */ at) => 1000 * (at - from) / (until - from);
  const builtAt = Date.parse(table.built_at), isPast = context.state.options["generation"] && builtAt > from;
  const label = `Weights from ${moment(iso(from), 0)} to ${moment(window.until_at, 0)} UTC, ${changes.length} changes; now ${weightsText(changes.at(-1)?.weights ?? current) || "none"}`;
  return [
    html("ul", { class: "legend" }, ...targets.map((target, place) =>
      html("li", { "data-key": target }, html("span", { class: `swatch part${place % COLOURS}` }), target))),
    svg("svg", { class: "weights", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": label,
      onclick: (/** @type {MouseEvent} */ event) => {
        const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
        const at = from + (until - from) * (event.clientX - box.left) / box.width;
        const change = changes.findLast((one) => one.at <= at);
        if (change) context.set({ generation: String(change.generation) });
      } },
      ...bars.map((bar) => svg("rect", { class: `part${targets.indexOf(bar.target) % COLOURS}`, x: x(bar.from), width: x(bar.until) - x(bar.from),
        y: 100 * (1 - bar.high), height: 100 * (bar.high - bar.low) },
        svg("title", {}, `${bar.target} ${number(100 * (bar.high - bar.low), { decimals: 0 })} % from ${moment(iso(bar.from), context.now)} to ${moment(iso(bar.until), context.now)}`))),
      isPast ? svg("line", { class: "marker", x1: x(builtAt), x2: x(builtAt), y1: 0, y2: 100 }) : null),
    html("p", { class: "axis note", "aria-hidden": "true" }, html("span", {}, moment(iso(from), 0)), html("span", {}, moment(window.until_at, 0))),
  ];
}

/** @param {number} at */
function iso(at) {
  return new Date(at).toISOString();
}

/**
 * @param {Change[]} changes
 * @param {Context} context
 */
function changeTable(changes, context) {
  if (!changes.length) return html("p", { class: "empty" }, "No table changed in this window.");
  const { region, route, generation } = context.state.options, isOne = Boolean(region && route);
  const headings = [heading("at", { unit: "UTC", kind: "name" }), ...(isOne ? [] : [heading("route", { kind: "name" })]),
    heading("what changed", { kind: "name" }), heading("change", { kind: "name minor" }), heading("weights", { kind: "name minor" })];
  return dataTable("Changes, newest first", headings, changes.toReversed().map((change) => html("tr",
    { "data-key": String(change.generation), class: String(change.generation) === generation ? "shown" : null },
    html("th", { scope: "row" }, html("a", { href: context.href(withOptions(context.state, { region: change.region, route: change.route, generation: String(change.generation) })),
      title: `generation ${change.generation}` }, moment(iso(change.at), context.now))),
    isOne ? null : html("td", { class: "name" }, `${change.route} from ${change.region}`),
    html("td", { class: "name remarks" }, change.sentence),
    html("td", { class: `name minor ${TONE_OF[change.change] ?? ""}` }, change.change),
    html("td", { class: "name minor" }, weightsText(change.weights) || UNKNOWN))), "routes");
}

/**
 * The decision, one sentence per step, and whether repeating it gives the same table.
 * @param {any} explanation
 * @returns {Child[]}
 */
function stepsOf({ steps, replays }) {
  return [
    html("ol", { class: "steps" }, ...steps.map((/** @type {string} */ step) => html("li", {}, step))),
    html("p", { class: replays ? "note" : "failure" },
      `Repeating the decision from the stored inputs ${replays ? "gives the same table, byte for byte" : "does NOT give this table"}.`),
  ];
}
