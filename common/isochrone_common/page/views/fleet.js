/** The fleet: open incidents, vantages, coverage, and spend against budgets. */

import { apiPath } from "../api.js";
import { windowChoice } from "../controls.js";
import { html } from "../dom.js";
import { UNKNOWN, age, dollars, moment, percent } from "../formats.js";
import { dataTable, heading, section, targetName } from "../tables.js";
import { windowQuery } from "../url_state.js";
import { TONE_OF, accountOf, budgetOf, budgetShare, clockOf, coverageOf, dueOf, phraseOf, planOf, remarksOf, spendOf, spentUsd } from "./fleet_model.js";

/** @typedef {import("../dom.js").Child} Child */
/** @typedef {import("../api.js").Answer} Answer */

const GOOD_COVERAGE = 0.9, POOR_COVERAGE = 0.5;

/** @type {import("../views.js").View} */
export const FLEET = {
  name: "fleet",
  label: "Fleet",
  path: "/fleet",
  defaults: {},
  topics: ["samples", "plan", "alerts"],
  everyMs: 10_000,
  requests: ({ options }) => ({
    incidents: apiPath("/v1/incidents", { ...windowQuery(options), past: "true" }),
    regions: "/v1/vantages",
    coverage: apiPath("/v1/coverage", windowQuery(options)),
    spend: "/v1/spend",
  }),
  render: ({ incidents, regions, coverage, spend }, context) => ({
    title: "Fleet",
    content: [
      html("form", { class: "controls", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, windowChoice(context)),
      ...(incidents ? [section("Incidents", incidentList(incidents, context.now))] : []),
      ...(regions ? [section("Vantages", note("Each vantage measures from one region. Heartbeat: when it reports next. Clock: how far it is ahead of the collector's. "
        + "Spool: samples that wait to be sent."), ...vantageTable(regions, context.now))] : []),
      ...(coverage ? [section("Coverage", note("The share of the planned rounds that have a sample."), coverageTable(coverage))] : []),
      ...(spend ? [section("Spend today (UTC)", note("In US dollars; the small number is the forecast for the whole day."), spendTable(spend))] : []),
    ],
  }),
};

/** @param {string} text */
function note(text) {
  return html("p", { class: "note" }, text);
}

/** @param {string} text */
function nothing(text) {
  return html("p", { class: "empty" }, text);
}

/**
 * @param {string} label
 * @param {readonly (readonly [heading: string, unit?: string, kind?: string])[]} columns
 * @param {HTMLTableRowElement[]} rows
 */
function table(label, columns, rows) {
  return dataTable(label, columns.map(([text, unit = "", kind = ""]) => heading(text, { unit, kind })), rows);
}

/**
 * @param {Answer} answer
 * @param {number} now
 */
function incidentList(answer, now) {
  const open = answer.rows.filter((row) => !row.recovered_at), past = answer.rows.length - open.length;
  const rest = past ? ` ${past} in this window ${past === 1 ? "is" : "are"} over.` : "";
  if (!open.length) return nothing(`No incident is open.${rest}`);
  return html("div", {}, html("ul", { class: "incidents" }, ...open.map((row) => html("li", { "data-key": row.id },
    html("b", {}, row.subject), ` ${row.kind.replace("target_", "")} from ${row.failing.join(", ") || row.regions.join(", ")} `,
    html("span", { class: "note" }, `since ${moment(row.first_failed_at, now)} (${age(row.first_failed_at, now)})`,
      row.silences.length ? ", silenced or acknowledged" : ""),
    row.example ? html("p", { class: "note" }, row.example) : null))), rest ? nothing(rest.trim()) : null);
}

/**
 * @param {Answer} answer
 * @param {number} now
 * @returns {Child[]}
 */
function vantageTable(answer, now) {
  if (!answer.rows.length) return [nothing("No vantage is known yet. Add one: isochrone-collector vantage add NAME --region REGION")];
  const columns = /** @type {const} */ ([["vantage", "", "name"], ["region", "", "name"], ["state", "", "name"], ["newest", "ago"],
    ["heartbeat", "due"], ["clock", "ms"], ["spool", "samples"], ["agent", "", "name"], ["plan"], ["samples", "", "name"], ["remarks", "", "name"]]);
  const rows = answer.rows.map((row) => {
    const account = accountOf(row);
    return html("tr", { "data-key": row.name },
      html("th", { scope: "row" }, row.name),
      html("td", { class: "name" }, row.region),
      html("td", { class: "name" }, html("span", { class: `badge ${TONE_OF[row.liveness] ?? ""}` }, phraseOf(row.liveness))),
      html("td", {}, age(row.newest_sample_at, now)),
      html("td", {}, dueOf(row.next_heartbeat_at, now)),
      html("td", {}, clockOf(row)),
      html("td", {}, String(row.spool_depth)),
      html("td", { class: "name" }, row.agent_version || UNKNOWN),
      html("td", { class: row.plan_version === answer["plan_version"] ? null : "warn" }, planOf(row, answer["plan_version"])),
      html("td", { class: /lost|duplicate|two/.test(account) ? "name bad" : "name" }, account),
      html("td", { class: "name remarks" }, remarksOf(row).join("; ")));
  });
  return [
    answer["paused"] ? html("p", { class: "failure" }, `Jobs that delete, summarise, publish or alert are paused: ${answer["paused"]}`) : null,
    table("Vantages", columns, rows),
  ];
}

/** @param {Answer} answer */
function coverageTable(answer) {
  const { vantages, targets } = coverageOf(answer.rows);
  if (!targets.length) return nothing("No round was planned in this window.");
  const columns = /** @type {[string, string, string][]} */ ([["target", "", "name"], ...vantages.map((name) => [name, "%", ""])]);
  return table("Coverage: share of the planned rounds with a sample", columns, targets.map(({ target, shares }) =>
    html("tr", { "data-key": target }, html("th", { scope: "row" }, targetName(target)),
      ...vantages.map((name) => html("td", { class: toneOf(shares[name]) }, percent(shares[name]))))));
}

/** @param {number | null | undefined} share */
function toneOf(share) {
  if (share === null || share === undefined || share >= GOOD_COVERAGE) return null;
  return share < POOR_COVERAGE ? "bad" : "warn";
}

/** @param {Answer} answer */
function spendTable(answer) {
  if (!answer.rows.length) return nothing("There is no spend: no vantage, or no plan with targets.");
  const { vantages, providers } = spendOf(answer.rows);
  const columns = /** @type {[string, string, string][]} */ ([["provider", "", "name"], ...vantages.map((name) => [name, "$", ""]),
    ["all", "$", ""]]);
  return table("Spend of today and its forecast until midnight, per provider and vantage", columns, providers.map((row) =>
    html("tr", { "data-key": row.provider },
      html("th", { scope: "row" }, row.provider),
      ...vantages.map((name) => spendCell(row.lines[name])),
      html("td", { class: "sum" }, dollars(row.usd), html("small", {}, dollars(row.forecast))))));
}

/** @param {any} line */
function spendCell(line) {
  if (!line) return html("td", {}, UNKNOWN);
  const share = budgetShare(line), forecast = budgetShare(line, { forecast: true });
  return html("td", { class: (forecast ?? 0) > 1 ? "bad" : null, title: `${line.requests} requests, ${line.tokens} tokens` },
    dollars(spentUsd(line)), html("small", {}, dollars(line.forecast_usd)),
    share === null ? null : html("small", {}, html("meter", { min: 0, max: 1, high: 0.9, value: Math.min(1, share), "aria-hidden": "true" }),
      ` ${Math.round(100 * share)} % of ${budgetOf(line.budget)}${(forecast ?? 0) > 1 ? ", forecast above it" : ""}`));
}
