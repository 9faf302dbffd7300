/** The status of all targets: the only view that the public may see, if the collector has a public page. */

import { html } from "../dom.js";
import { UNKNOWN, age, moment } from "../formats.js";
import { dataTable, heading, regionName, targetName } from "../tables.js";
import { TONE_OF, VERDICT_TONES, statusTableOf, wordsOf } from "./status_model.js";

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
      verdictLine(status),
      ...findingList(status.rows, now),
      ...(status["states"].length ? [statusTable(status["states"]), legend()] : []),
    ] : [],
  }),
};

/**
 * The answer in one sentence, which links to `href` if that is given.
 * @param {import("../api.js").Answer} status
 * @param {string} [href]
 */
export function verdictLine(status, href = "") {
  const verdict = status["verdict"], summary = status["summary"];
  return html("p", { class: "summary" }, html("span", { class: `badge ${VERDICT_TONES[verdict] ?? ""}` }, wordsOf(verdict)), " ",
    href ? html("a", { href }, summary) : summary);
}

/**
 * @param {any[]} findings
 * @param {number} now
 */
function findingList(findings, now) {
  if (!findings.length) return [];
  return [html("section", { "data-key": "findings" }, html("h2", {}, "What is wrong now"),
    html("ul", { class: "findings" }, ...findings.map((one) => html("li", { "data-key": one.sentence.split(":", 1)[0] },
      html("span", { class: `badge ${VERDICT_TONES[one.severity] ?? ""}` }, one.severity), ` ${one.sentence} `,
      one.since_at ? html("span", { class: "note" }, `since ${moment(one.since_at, now)} UTC (${age(one.since_at, now)})`) : null))))];
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
  return html("td", {}, html("span", { class: `badge ${TONE_OF[cell.state] ?? ""}` }, wordsOf(cell.state)),
    cell.values ? html("small", {}, cell.values) : null);
}

function legend() {
  return html("p", { class: "note" }, "Beside each state: the median time to the first token and the share of successful requests, of the last 24 hours. ",
    "Slow: a lasting change for the worse. Failing: an incident is open. Stale: no request was sent for a while. ",
    "Too young: too few rounds to find a change.");
}
