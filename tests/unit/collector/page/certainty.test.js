/** How sure quantiles are, by the cases of the tables of the command. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { markedText, progressOf } from "./static/certainty.js";

const CASES = JSON.parse(readFileSync("certainty.json", "utf8"));

for (const { share, n, quantile, text, progress } of CASES) {
  test(`p${100 * share} of ${n} samples, independent ${quantile.n_eff}: ${text}`, () => {
    assert.equal(markedText(String(quantile.value), quantile, { share, n }), text);
    assert.equal(progressOf(quantile, share), progress);
  });
}
