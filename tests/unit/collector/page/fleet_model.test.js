/** The state of the fleet in texts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { accountOf, budgetOf, budgetShare, clockOf, coverageOf, dueOf, planOf, remarksOf, spendOf } from "./static/views/fleet_model.js";

const NOW = Date.parse("2026-11-23T08:00:00Z");
const VANTAGE = { liveness: "online", finished: 100, ledgered: 90, spool_depth: 8, quarantined: 1, dropped: { full: 1 }, duplicate_at: null };

test("every finished sample is stored, spooled or dropped", () => {
  assert.equal(accountOf(VANTAGE), "all accounted for");
  assert.equal(accountOf({ ...VANTAGE, ledgered: 87 }), "3 lost");
  assert.equal(accountOf({ ...VANTAGE, ledgered: 98 }), "all accounted for");
  assert.equal(accountOf({ ...VANTAGE, ledgered: 101 }), "3 duplicate");
  assert.equal(accountOf({ ...VANTAGE, duplicate_at: "2026-11-23T07:00:00Z" }), "two agents");
  assert.equal(accountOf({ ...VANTAGE, finished: 0 }), "–");
});

test("a clock has its uncertainty", () => {
  assert.equal(clockOf({ clock_offset_us: 1234, clock_uncertainty_us: 500 }), "+1.2 ± 0.5");
  assert.equal(clockOf({ clock_offset_us: null, clock_uncertainty_us: null }), "–");
});

test("a plan other than the one in force is marked", () => {
  assert.equal(planOf({ plan_version: 4 }, 4), "4");
  assert.equal(planOf({ plan_version: 3 }, 4), "3 behind");
  assert.equal(planOf({ plan_version: 3, refused_plan_version: 4 }, 4), "3 refuses 4");
});

test("remarks are only of what is unusual", () => {
  assert.deepEqual(remarksOf({ ...VANTAGE, dropped: {}, quarantined: 0, rounds_missed: 0, refused_plan_version: null }), []);
  assert.deepEqual(remarksOf({ ...VANTAGE, liveness: "late", reason: "no heartbeat", rounds_missed: 2 }),
    ["no heartbeat", "dropped full 1", "1 samples in quarantine", "2 rounds missed"]);
  assert.deepEqual(remarksOf({ ...VANTAGE, name: "us-1", dropped: {}, quarantined: 0, left_out: 0.389 }),
    ["us-1 was busy: 38 % of its probes are not compared"]);
});

test("a heartbeat is due or overdue", () => {
  assert.equal(dueOf("2026-11-23T08:00:20Z", NOW), "in 20 s");
  assert.equal(dueOf("2026-11-23T07:58:00Z", NOW), "2 min ago");
});

test("the tightest limit of a budget counts", () => {
  const line = { usd: 1, tokens: 500, requests: 1, forecast_usd: 3, forecast_tokens: 900, forecast_requests: 2,
    budget: { usd_per_day: 4, tokens_per_day: 1000, requests_per_day: null } };
  assert.deepEqual([budgetShare(line), budgetShare(line, { forecast: true }), budgetShare({ ...line, budget: null })], [0.5, 0.9, null]);
  assert.equal(budgetOf(line.budget), "4 $, 1000 tokens");
  assert.equal(budgetOf(null), "–");
});

test("coverage is a share per target and vantage, unknown without planned rounds", () => {
  const rows = [{ vantage: "v2", target: "b", planned: 10, recorded: 4 }, { vantage: "v1", target: "b", planned: 0, recorded: 0 },
    { vantage: "v1", target: "a", planned: 10, recorded: 11 }];
  assert.deepEqual(coverageOf(rows), { vantages: ["v1", "v2"],
    targets: [{ target: "a", shares: { v1: 1 } }, { target: "b", shares: { v2: 0.4, v1: null } }] });
});

test("spend is summed per provider, and unknown without a price", () => {
  const line = (/** @type {string} */ vantage, /** @type {string} */ provider, /** @type {number} */ usd, /** @type {number | null} */ forecast_usd) =>
    ({ vantage, provider, usd, forecast_usd });
  const { vantages, providers } = spendOf([line("v2", "b", 1, 4), line("v1", "b", 2, 5), line("v1", "a", 0, null)]);
  assert.deepEqual(vantages, ["v1", "v2"]);
  assert.deepEqual(providers.map(({ provider, usd, forecast }) => [provider, usd, forecast]), [["a", null, null], ["b", 3, 9]]);
  assert.equal(providers[1]?.lines["v2"].usd, 1);
});
