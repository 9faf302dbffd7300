/** What every consumer of route tables does, by the names of the cases, with the real packages `ai` and `openai`. */

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import OpenAI from "openai";

import { routedFetch, type Routes } from "../src/index.js";
import { ask, deadUrl, eventually, modelOf, PROMPT, PROVIDERS, stream, World } from "./world.js";

/** A client of a model, by default of the route, that returns the model that answered. */
type ClientOf = (
  routes: Routes,
  own?: { name?: string; baseURL?: string },
) => { ask(): Promise<string>; stream(): Promise<string> };

const ofAi: ClientOf = (routes, own) => {
  const model = modelOf(routes, own);
  return { ask: () => ask(model), stream: () => stream(model) };
};

const ofOpenai: ClientOf = (routes, { name: model = "chat", baseURL = deadUrl() } = {}) => {
  const { completions } = new OpenAI({ apiKey: "-", baseURL, maxRetries: 0, fetch: routedFetch(routes) }).chat;
  const options = { model, messages: [{ role: "user" as const, content: PROMPT }], max_tokens: 3 };
  return {
    ask: async () => (await completions.create(options)).model,
    async stream() {
      let answered = "";
      for await (const chunk of await completions.create({ ...options, stream: true })) answered = chunk.model;
      return answered;
    },
  };
};

function contract(name: string, check: (t: TestContext, clientOf: ClientOf) => Promise<void>): void {
  for (const [consumer, clientOf] of Object.entries({ ai: ofAi, "openai-node": ofOpenai }))
    test(`${consumer}: ${name}`, (t) => check(t, clientOf));
}

contract("regions differ", async (t, clientOf) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf", { client_region: "us-east-2" });
  world.firstThen("crlf", "none", { client_region: "eu-central-1" });
  assert.equal(await clientOf(world.routes("us-east-2")).ask(), "fault-none");
  assert.equal(await clientOf(world.routes("eu-central-1")).ask(), "fault-crlf");
});

contract("change moves traffic within 2 s", async (t, clientOf) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const client = clientOf(world.routes());
  assert.equal(await client.ask(), "fault-none");
  world.firstThen("crlf", "none");
  const published = performance.now();
  await eventually(async () => (await client.ask()) === "fault-crlf", "the other member");
  t.diagnostic(`moved_s ${((performance.now() - published) / 1000).toFixed(3)}`);
});

contract("first choice dead", async (t, clientOf) => {
  const world = await World.of(t);
  world.publish([world.entry("crlf", { weight: 1, base_url: deadUrl() }), world.entry("none")]);
  for (const asked of ["ask", "stream"] as const) {
    const routes = world.routes();
    const client = clientOf(routes);
    for (let count = 0; count < 10; count += 1) assert.equal(await client[asked](), "fault-none");
    // After a failure the member rests, so that not every request waits for it.
    const { failovers = 0 } = routes.counters;
    assert.ok(failovers >= 1 && failovers <= 9, `${failovers} failovers`);
  }
});

contract("collector gone", async (t, clientOf) => {
  const world = await World.of(t);
  const table = world.firstThen("none", "crlf", { seconds: 3, static_order: ["sim/crlf", "sim/none"] });
  const client = clientOf(world.routes());
  assert.equal(await client.ask(), "fault-none");
  await world.server.stop();
  if (Date.now() < Date.parse(table.stale_until_at) - 1_000) assert.equal(await client.ask(), "fault-none");
  await eventually(async () => (await client.ask()) === "fault-crlf", "the static order");
  assert.ok(Date.now() >= Date.parse(table.stale_until_at));
});

contract("unknown model", async (t, clientOf) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const routes = world.routes();
  const client = clientOf(routes, { name: "fault-comments", baseURL: PROVIDERS });
  assert.equal(await client.ask(), "fault-comments");
  assert.equal(await client.stream(), "fault-comments");
  assert.equal(routes.counters["passed_through"], 2);
});

contract("garbage table", async (t, clientOf) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const routes = world.routes();
  const client = clientOf(routes);
  assert.equal(await client.ask(), "fault-none");
  world.server.publishText("garbage");
  world.server.publishText("[".repeat(100_000));
  world.server.publishText(JSON.stringify(world.firstThen("crlf", "none", { client_region: "eu-central-1" })));
  await eventually(() => routes.counters["tables_ignored"] === 3, "three ignored");
  assert.equal(await client.ask(), "fault-none");
  world.firstThen("crlf", "none");
  await eventually(async () => (await client.ask()) === "fault-crlf", "the next table");
});
