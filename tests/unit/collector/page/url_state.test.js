/** The state of the page in its address. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { otherView, readState, windowQuery, withOptions, writeState } from "./static/url_state.js";

const VIEWS = [
  { name: "matrix", path: "/", defaults: { metric: "ttft", baseline: "" } },
  { name: "target", path: "/target/:target", defaults: { region: "" } },
];

/** @param {string} path */
function read(path) {
  const state = readState(new URL(path, "http://collector"), VIEWS);
  assert.ok(state, path);
  return state;
}

test("an address and its state are the same, except for defaults and unknown options", () => {
  for (const [path, canonical] of [
    ["/", "/"],
    ["/?metric=ttft&window=24h", "/"],
    ["/?baseline=us-east&metric=speed&color=red", "/?metric=speed&baseline=us-east"],
    ["/target/qwen/qwen3-8b?region=eu", "/target/qwen/qwen3-8b?region=eu"],
    ["/target/a%3Fb/%25c?window=7d", "/target/a%3Fb/%25c?window=7d"],
    ["/?from=2026-11-01T00:00Z&until=2026-11-02T00:00Z", "/?from=2026-11-01T00%3A00Z&until=2026-11-02T00%3A00Z"],
  ]) {
    assert.equal(writeState(read(path ?? ""), VIEWS), canonical);
    assert.deepEqual(read(canonical ?? ""), read(path ?? ""));
  }
});

test("a hostile target is one path", () => {
  const target = `"><script>/?#&`;
  const path = writeState({ view: "target", target, options: {} }, VIEWS);
  assert.match(path, /^\/target\/[A-Za-z0-9%./_-]+$/);
  assert.equal(read(path).target, target);
});

test("an unknown path has no state", () => {
  for (const path of ["/nothing", "/target/", "/target/%E0%A4%A"]) {
    assert.equal(readState(new URL(path, "http://collector"), VIEWS), null, path);
  }
});

test("another view keeps the window and the colours, and drops the rest", () => {
  const state = read("/?metric=e2e&window=7d&theme=dark");
  const other = otherView(state, "target", { target: "a/b", options: { region: "eu" } });
  assert.equal(writeState(other, VIEWS), "/target/a/b?window=7d&theme=dark&region=eu");
  assert.equal(writeState(withOptions(state, { metric: "ttft" }), VIEWS), "/?window=7d&theme=dark");
});

test("fixed ends replace the window", () => {
  assert.deepEqual(windowQuery({ window: "7d", from: "", until: "" }), { window: "7d" });
  assert.deepEqual(windowQuery({ window: "7d", from: "a", until: "" }), { from: "a" });
  assert.deepEqual(windowQuery({ window: "7d", from: "a", until: "b" }), { from: "a", until: "b" });
});
