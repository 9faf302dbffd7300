/** What every consumer of route tables does, by the names of the cases, with the real `ai` package. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ask, deadUrl, eventually, modelOf, PROVIDERS, stream, World } from "./world.js";

test("regions differ", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf", { client_region: "us-east-2" });
  world.firstThen("crlf", "none", { client_region: "eu-central-1" });
  assert.equal(await ask(modelOf(world.routes("us-east-2"))), "fault-none");
  assert.equal(await ask(modelOf(world.routes("eu-central-1"))), "fault-crlf");
});

test("change moves traffic within 2 s", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const model = modelOf(world.routes());
  assert.equal(await ask(model), "fault-none");
  world.firstThen("crlf", "none");
  const published = performance.now();
  await eventually(async () => (await ask(model)) === "fault-crlf", "the other member");
  t.diagnostic(`moved_s ${((performance.now() - published) / 1000).toFixed(3)}`);
});

test("first choice dead", async (t) => {
  const world = await World.of(t);
  world.publish([world.entry("crlf", { weight: 1, base_url: deadUrl() }), world.entry("none")]);
  for (const asked of [ask, stream]) {
    const routes = world.routes();
    const model = modelOf(routes);
    for (let count = 0; count < 10; count += 1) assert.equal(await asked(model), "fault-none");
    // After a failure the member rests, so that not every request waits for it.
    const { failovers = 0 } = routes.counters;
    assert.ok(failovers >= 1 && failovers <= 9, `${failovers} failovers`);
  }
});

test("collector gone", async (t) => {
  const world = await World.of(t);
  const table = world.firstThen("none", "crlf", { seconds: 3, static_order: ["sim/crlf", "sim/none"] });
  const model = modelOf(world.routes());
  assert.equal(await ask(model), "fault-none");
  await world.server.stop();
  if (Date.now() < Date.parse(table.stale_until_at) - 1_000) assert.equal(await ask(model), "fault-none");
  await eventually(async () => (await ask(model)) === "fault-crlf", "the static order");
  assert.ok(Date.now() >= Date.parse(table.stale_until_at));
});

test("unknown model", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const routes = world.routes();
  const model = modelOf(routes, { name: "fault-comments", baseURL: PROVIDERS });
  assert.equal(await ask(model), "fault-comments");
  assert.equal(await stream(model), "fault-comments");
  assert.equal(routes.counters["passed_through"], 2);
});

test("garbage table", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const routes = world.routes();
  const model = modelOf(routes);
  assert.equal(await ask(model), "fault-none");
  world.server.publishText("garbage");
  world.server.publishText("[".repeat(100_000));
  world.server.publishText(JSON.stringify(world.firstThen("crlf", "none", { client_region: "eu-central-1" })));
  await eventually(() => routes.counters["tables_ignored"] === 3, "three ignored");
  assert.equal(await ask(model), "fault-none");
  world.firstThen("crlf", "none");
  await eventually(async () => (await ask(model)) === "fault-crlf", "the next table");
});
