/** Parts of the charts of a target: panels with a common axis, and marks with facts that the keyboard reaches. */

import { html, svg } from "../dom.js";
import { scrolling } from "../tables.js";
import { otherView } from "../url_state.js";
import { partsOf, timeTicks } from "./target_model.js";

/** @typedef {import("../views.js").Context} Context */
/** @typedef {import("../dom.js").Child} Child */
/** @typedef {import("./target_model.js").Bands} Bands */
/** @typedef {import("./target_model.js").Point} Point */
/** A span of time in milliseconds since the epoch. @typedef {{from: number, until: number}} Span */

const TICKS = 6, UNIT_SHARE = 0.04;
const WIDTH = 1000, HEIGHT = 100;
/** A box for lines that stretches with the window. */
export const STRETCHED = Object.freeze({ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" });

/**
 * A share as a length in per cent.
 * @param {number} share
 */
export function percentOf(share) {
  return `${(share * 100).toFixed(3)}%`;
}

/**
 * A function from an instant to its place on the axis, in per cent.
 * @param {Span} span
 */
export function acrossOf({ from, until }) {
  return (/** @type {number} */ at) => percentOf(Math.max(0, at - from) / (until - from));
}

/**
 * @param {number} at
 * @param {number} end
 * @param {Span} span
 */
export function widthOf(at, end, { from, until }) {
  return percentOf(Math.max(0, Math.min(end, until) - Math.max(at, from)) / (until - from));
}

/**
 * The parts of a line in the box, each a function from a quantile to the places of its points.
 * @param {Pick<Bands["panels"][number], "points" | "spacing">} panel
 * @param {Span & {top: number}} axes
 */
export function partsIn({ points, spacing }, { from, until, top }) {
  const x = (/** @type {number} */ at) => ((at - from) / (until - from) * WIDTH).toFixed(2);
  const y = (/** @type {number | null} */ value) => ((1 - Math.min(value ?? top, 2 * top) / top) * HEIGHT).toFixed(2);
  // A single point is as wide as its bucket.
  const ends = (/** @type {Point[]} */ part) => part.length > 1 || !part[0] ? part.map((point) => ({ ...point, at: (point.at + point.end) / 2 }))
    : [part[0], { ...part[0], at: part[0].end }];
  return partsOf(points, spacing).map(ends).map((part) => (/** @type {"low" | "median" | "high"} */ name) =>
    part.map((point) => `${x(point.at)},${y(point[name])}`));
}

/**
 * The medians of all regions in one small drawing, from 0 on; that of the baseline in front.
 * @param {Bands["panels"]} panels
 * @param {Span} span
 * @param {string} baseline
 */
export function sparkline(panels, span, baseline) {
  const top = Math.max(...panels.flatMap(({ points }) => points.map((point) => point.median ?? 0))) || 1;
  const ordered = panels.toSorted((a, b) => Number(a.region === baseline) - Number(b.region === baseline));
  return svg("svg", { ...STRETCHED, "aria-hidden": "true" }, ...ordered.flatMap((panel) => partsIn(panel, { ...span, top }).map((places) =>
    svg("polyline", { class: !baseline || panel.region === baseline ? "median" : "other", points: places("median").join(" ") }))));
}

/**
 * Vertical lines at round times.
 * @param {Span} span
 * @param {number} height
 */
export function timeLines(span, height) {
  const x = acrossOf(span);
  return svg("g", { class: "ticks" }, ...timeTicks(span.from, span.until, TICKS).map(({ at }) =>
    svg("line", { x1: x(at), x2: x(at), y1: 0, y2: height })));
}

/** @param {Span} span */
export function timeAxis(span) {
  const x = acrossOf(span), { from, until } = span;
  // At the left end is the unit.
  return axis("UTC", timeTicks(from, until, TICKS).filter(({ at }) => at - from > UNIT_SHARE * (until - from)).map(({ at, text }) => ({ x: x(at), text })));
}

/**
 * The axis below panels.
 * @param {string} unit
 * @param {readonly {x: string, text: string}[]} ticks
 */
export function axis(unit, ticks) {
  return html("div", { class: "panel axis", "data-key": "axis", "aria-hidden": "true" },
    svg("svg", { class: "scale-y" }, svg("text", { x: "100%", y: 12 }, unit)),
    svg("svg", { class: "plot" }, ...ticks.map(({ x, text }) => svg("text", { x, y: 12 }, text))));
}

/**
 * The panel of a region: its name with a note, the ends of the vertical scale, and a drawing whose height on screen is
 * `bottom` and what is below it.
 * @param {{region: string, note: string, label: string, top: string, low: string, bottom: number}} panel
 * @param {...(Child | Child[])} drawing
 */
export function panelOf({ region, note, label, top, low, bottom }, ...drawing) {
  return html("div", { class: "panel", "data-key": region },
    html("h3", {}, region, " ", html("span", { class: "note" }, note)),
    svg("svg", { class: "scale-y", "aria-hidden": "true" },
      svg("text", { x: "100%", y: 10 }, top), svg("text", { x: "100%", y: bottom }, low)),
    svg("svg", { class: "plot", role: "group", "aria-label": label }, ...drawing));
}

/**
 * A mark that shows its facts. With `open` it is a button.
 * @param {{key: string, title: string, facts: [string, string][], isStop: boolean,
 *   box: {x: string, width: string, height: number}, context: Context, open?: () => void}} mark
 */
export function factsMark({ key, title, facts, isStop, box, context, open }) {
  return svg("rect", { class: "bucket", role: open ? "button" : "img", tabindex: isStop ? 0 : -1, "data-key": key,
    "aria-label": [title, ...facts.map(([name, text]) => `${name}: ${text}`)].join(", "), ...box, y: 0,
    ...context.details(title, facts),
    ...(open && { onclick: open, onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      open();
    } }) });
}

/**
 * A handler that shows the requests of a target in a bucket.
 * @param {string} region
 * @param {{at: number, end: number}} bucket
 * @param {Context} context
 */
export function requestsOf(region, { at, end }, { state, go }) {
  return () => go(otherView(state, "requests", { options: { from: new Date(at).toISOString(), until: new Date(end).toISOString(),
    filter: `target:"${state.target}" region:"${region}"` } }));
}

/** @param {readonly [name: string, text: string][]} entries */
export function legendOf(entries) {
  return html("ul", { class: "legend", "aria-label": "marks" }, ...entries.map(([name, text]) =>
    html("li", {}, html("span", { class: `swatch ${name}` }), text)));
}

/**
 * The values of a chart as a table. It is unfolded if the option `tables` has its key, and is made only then: the tables of a
 * target with many regions have more cells than all the rest of the page.
 * @param {string} key
 * @param {string} caption
 * @param {readonly string[]} headings the first two are of texts
 * @param {() => {key: string, cells: readonly (string | number)[]}[]} rowsOf
 * @param {Context} context
 */
export function sameAsTable(key, caption, headings, rowsOf, { state, set }) {
  const unfolded = (state.options["tables"] ?? "").split(",").filter(Boolean), isOpen = unfolded.includes(key);
  const toggle = (/** @type {Event} */ event) => {
    event.preventDefault();
    set({ tables: (isOpen ? unfolded.filter((name) => name !== key) : [...unfolded, key]).join(",") }, { replace: true });
  };
  return html("details", { class: key, "data-key": key, open: isOpen }, html("summary", { onclick: toggle }, "The same as a table"),
    isOpen ? scrolling(caption, html("table", {}, html("caption", {}, caption),
      html("thead", {}, html("tr", {}, ...headings.map((text, place) => html("th", { scope: "col", class: place < 2 ? "name" : null }, text)))),
      html("tbody", {}, ...rowsOf().map((row) => html("tr", { "data-key": row.key }, ...row.cells.map((cell, place) =>
        place ? html("td", { class: place < 2 ? "name" : null }, cell) : html("th", { scope: "row" }, cell))))))) : null);
}

/**
 * Arrow keys move the focus among the marks of a section: all of them together are one stop of the tab key.
 * @param {KeyboardEvent} event
 */
export function moveFocus(event) {
  const from = event.target instanceof Element && event.target.matches(".bucket") ? event.target : null;
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!from || !step) return;
  const section = /** @type {Element} */ (event.currentTarget);
  const panels = [...section.querySelectorAll(".plot")].map((plot) => /** @type {SVGElement[]} */ ([...plot.querySelectorAll(".bucket")])).filter((buckets) => buckets.length);
  const line = panels.findIndex((buckets) => buckets.some((bucket) => bucket === from));
  const place = panels[line]?.findIndex((bucket) => bucket === from) ?? 0;
  const buckets = panels[line + (step[0] ?? 0)];
  const next = buckets?.[Math.min(place + (step[1] ?? 0), buckets.length - 1)];
  if (!next) return;
  event.preventDefault();
  for (const other of section.querySelectorAll(".bucket[tabindex='0']")) other.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}
