/** The status of all targets: the only view that the public may see, if the collector has a public page. */

import { html } from "../dom.js";
import { UNKNOWN, age, moment } from "../formats.js";
import { dataTable, heading, regionName, targetName } from "../tables.js";
import { TONE_OF, statusTableOf, summaryOf } from "./status_model.js";

/** @type {import("../views.js").View} */
export const STATUS = {
  name: "status",
  label: "Status",
  path: "/status",
  defaults: {},
  // Without a stream of notices, which needs a login.
  topics: [],
  everyMs: 15_000,
  isPublic: true,
  requests: () => ({ status: "/v1/status" }),
  render: ({ status }, { now }) => ({
    title: "Status",
    content: status ? [
      html("p", { class: "summary" }, summaryOf(status.rows)),
      ...incidentList(status["incidents"], now),
      ...(status.rows.length ? [statusTable(status.rows), legend()] : []),
    ] : [],
  }),
};

/**
 * @param {any[]} incidents
 * @param {number} now
 */
function incidentList(incidents, now) {
  if (!incidents.length) return [];
  return [html("section", { "data-key": "incidents" }, html("h2", {}, "Open incidents"),
    html("ul", { class: "incidents" }, ...incidents.map((one) => html("li", { "data-key": `${one.target} ${one.kind}` },
      html("b", {}, one.target), ` ${one.kind}${one.regions.length ? ` from ${one.regions.join(", ")}` : ""} `,
      html("span", { class: "note" }, `since ${moment(one.since_at, now)} UTC (${age(one.since_at, now)})`)))))];
}

/** @param {any[]} answered */
function statusTable(answered) {
  const { regions, rows } = statusTableOf(answered);
  return dataTable("Status of each target from each region", [heading("target", { kind: "name" }), ...regions.map((region) => html("th", { scope: "col" }, regionName(region)))],
    rows.map((row) => html("tr", { "data-key": row.target },
      html("th", { scope: "row" }, targetName(row.target, row.provider),
        row.target.startsWith(`${row.provider}/`) ? null : html("small", { class: "provider" }, row.provider)),
      ...regions.map((region) => statusCell(row.cells[region])))), "status");
}

/** @param {import("./status_model.js").Cell | undefined} cell */
function statusCell(cell) {
  if (!cell) return html("td", {}, UNKNOWN);
  return html("td", {}, html("span", { class: `badge ${TONE_OF[cell.state] ?? ""}` }, cell.state),
    cell.values ? html("small", {}, cell.values) : null, cell.recent ? html("small", {}, cell.recent) : null);
}

function legend() {
  return html("p", { class: "note" }, "Beside each state: the median time to the first token and the share of successful requests, of the last 24 hours. ",
    "Slow: the median of the last hour is more than half above that. Failing: an incident is open. Stale: no request was sent for a while.");
}
