/** Quantities for people. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { age, commonDecimals, dollars, interval, moment, number, percent, worth, worthInWords } from "./static/formats.js";

const NOW = Date.parse("2026-11-23T08:20:05Z");

test("a number has suitable decimals", () => {
  for (const [value, text] of /** @type {[number | null, string][]} */ ([
    [0, "0"], [0.123, "0.12"], [0.996, "1.0"], [1.25, "1.3"], [9.96, "10"], [486.4, "486"], [-0.001, "0.00"], [-12.6, "-13"],
    [null, "–"], [NaN, "–"], [Infinity, "–"],
  ])) assert.equal(number(value), text);
});

test("a signed number has a plus unless it is zero", () => {
  assert.deepEqual([12.3, 0, -12.3, 0.2].map((value) => number(value, { signed: true, decimals: 0 })), ["+12", "0", "-12", "0"]);
});

test("numbers of one scale have the decimals of the largest", () => {
  assert.equal(commonDecimals([0.5, 1.2, null]), 1);
  assert.equal(commonDecimals([0.5, 120]), 0);
  assert.equal(interval(0.5, 120), "1 … 120");
  assert.equal(interval(null, null), "–");
  assert.equal(interval(-3, null, { signed: true }), "-3.0 … –");
});

test("a number of samples has its worth", () => {
  assert.deepEqual([worth(60, 12.4), worth(60, null), worth(60, 60.2)], ["60 ≈ 12", "60", "60"]);
  assert.deepEqual([worthInWords(60, 12.4), worthInWords(60, 60.2)], ["60, as good as 12 independent ones", "60"]);
});

test("an age has one unit and is rounded down", () => {
  for (const [at, text] of /** @type {[string | null, string][]} */ ([
    ["2026-11-23T08:20:01Z", "4 s"], ["2026-11-23T08:15:06Z", "4 min"], ["2026-11-22T08:20:05Z", "24 h"],
    ["2026-11-18T08:20:05Z", "5 d"], ["2026-11-23T09:00:00Z", "0 s"], [null, "–"],
  ])) assert.equal(age(at, NOW), text);
});

test("a moment is short on the same day", () => {
  assert.equal(moment("2026-11-23T08:20:01.123456Z", NOW), "08:20:01");
  assert.equal(moment("2026-11-22T08:20:01Z", NOW), "2026-11-22 08:20");
});

test("shares are rounded down and money has cents", () => {
  assert.deepEqual([percent(1), percent(0.99999), percent(0.29), percent(null)], ["100.0", "99.9", "29.0", "–"]);
  assert.deepEqual([dollars(3), dollars(0.004567), dollars(0), dollars(null)], ["3.00", "0.0046", "0.00", "–"]);
});
