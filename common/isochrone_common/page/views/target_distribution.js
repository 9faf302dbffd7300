/** The section of a target that shows the distribution of its values per region on a logarithmic axis. */

import { html, svg } from "../dom.js";
import { interval, number, percent } from "../formats.js";
import { distributionsOf, logTicks, placeOf } from "./distribution_model.js";
import { axis, factsMark, moveFocus, panelOf, percentOf, sameAsTable } from "./target_charts.js";

/** @typedef {import("./matrix_model.js").Metric} Metric */
/** @typedef {import("./distribution_model.js").Distribution} Distribution */
/** @typedef {import("./distribution_model.js").Distributions} Distributions */
/** @typedef {import("../views.js").Context} Context */

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
