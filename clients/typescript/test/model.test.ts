/** Requests of the real `ai` package: failover, keys and hedges. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError } from "@ai-sdk/provider";
import { jsonSchema, tool } from "ai";

import { routed } from "../src/ai.js";
import {
  ask,
  deadUrl,
  eventually,
  memberModel,
  modelOf,
  PROMPT,
  PROVIDERS,
  stream,
  timesLeft,
  World,
} from "./world.js";

const MESSAGES = [{ role: "user" as const, content: [{ type: "text" as const, text: PROMPT }] }];
const UNFINISHED = { type: "finish", finishReason: { unified: "other", raw: undefined } };
const TOOLS = { tools: { pay: tool({ inputSchema: jsonSchema({ type: "object", properties: {} }) }) } };

test("a request goes to the member with its model, in complete answers and in streams", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const model = modelOf(world.routes());
  assert.deepEqual([await ask(model), await stream(model)], ["fault-none", "fault-none"]);
});

test("traffic is split by the weights", async (t) => {
  const world = await World.of(t);
  world.publish([world.entry("none", { weight: 0.75 }), world.entry("crlf", { weight: 0.25 })]);
  const model = modelOf(world.routes());
  const served = await Promise.all(Array.from({ length: 60 }, () => ask(model)));
  const first = served.filter((name) => name === "fault-none").length;
  assert.ok(first >= 32 && first <= 57, `${first} of 60 at the first member`);
});

for (const fault of ["429", "500", "503"]) {
  test(`a first choice that answers ${fault} costs no request`, async (t) => {
    const world = await World.of(t);
    world.firstThen(fault, "none");
    const routes = world.routes();
    for (const asked of [ask, stream, ask, stream]) assert.equal(await asked(modelOf(routes)), "fault-none");
    assert.equal(routes.counters["failovers"], 1);
  });
}

for (const [asked, fault] of [
  [stream, "in-band-error-first"],
  [stream, "html"],
  [ask, "html"],
  [ask, "cut"],
  [ask, "reset"],
] as const) {
  test(`an answer that fails before its first content goes on at the next member: ${asked.name}, ${fault}`, async (t) => {
    const world = await World.of(t);
    world.firstThen(fault, "none");
    assert.equal(await asked(modelOf(world.routes())), "fault-none");
  });
}

test("an end without content is an answer", async (t) => {
  const world = await World.of(t);
  world.firstThen("role-only", "none");
  const routes = world.routes();
  await assert.rejects(stream(modelOf(routes)), /no text/);
  assert.equal(routes.counters["failovers"], undefined);
});

test("a stream that fails after content is the caller's", async (t) => {
  const world = await World.of(t);
  world.firstThen("in-band-error", "none");
  const routes = world.routes();
  await assert.rejects(stream(modelOf(routes), { maxOutputTokens: 4000 }));
  assert.equal(routes.counters["failovers"], undefined);
});

test("if every member fails, the caller gets the last failure", async (t) => {
  const world = await World.of(t);
  world.firstThen("500", "503");
  const isLast = (error: unknown): boolean => APICallError.isInstance(error) && error.statusCode === 503;
  for (const asked of [ask, stream]) await assert.rejects(asked(modelOf(world.routes())), isLast);
});

test("when every member is throttled, the request is refused with the time to wait", async (t) => {
  const world = await World.of(t);
  world.publish([world.entry("429", { weight: 1 })]);
  const model = modelOf(world.routes());
  await assert.rejects(ask(model), (error) => APICallError.isInstance(error) && error.url !== "");
  await assert.rejects(ask(model), (error) => {
    assert.ok(APICallError.isInstance(error) && error.isRetryable);
    assert.equal(error.message, "no member of the route has capacity");
    assert.ok(Number(error.responseHeaders?.["retry-after"]) >= 1);
    return true;
  });
});

test("without a member for the request, the error names the route and why each one is left out", async (t) => {
  const world = await World.of(t);
  const gemini = world.entry("none", { weight: 1, dialect: "gemini" });
  world.publish([gemini, world.entry("crlf", { credential_ref: "other" }), world.entry("cr")]);
  const lines: string[] = [];
  const routes = world.routes(undefined, { keys: {}, sendCallersKey: false, log: (line) => lines.push(line) });
  for (const asked of [ask, stream])
    await assert.rejects(asked(modelOf(routes)), (error) => {
      assert.ok(APICallError.isInstance(error) && error.statusCode === 400 && !error.isRetryable);
      assert.equal(
        error.message,
        "no member of the route chat can take this request: sim/none has no credential: name one in the plan, or let it " +
          "have the caller's key with `sendCallersKey`; sim/crlf has no key: set OTHER_API_KEY, or `keys`; sim/cr has " +
          "no credential: name one in the plan, or let it have the caller's key with `sendCallersKey`",
      );
      return true;
    });
  assert.equal(lines.length, 3);
  const { no_member, key_missing, key_withheld } = routes.counters;
  assert.deepEqual([no_member, key_missing, key_withheld], [2, 2, 4]);
});

test("a member of another dialect has no model", async (t) => {
  const world = await World.of(t);
  world.publish([world.entry("none", { weight: 1, dialect: "gemini" })]);
  const without = /route chat can take this request: sim\/none speaks gemini, for which there is no model/;
  await assert.rejects(ask(modelOf(world.routes())), without);
});

test("with hosts, a table cannot send requests and keys elsewhere", async (t) => {
  const world = await World.of(t);
  world.publish([world.entry("none", { weight: 1, base_url: "http://localhost:1/v1" }), world.entry("crlf")]);
  const routes = world.routes(undefined, { hosts: ["127.0.0.1"] });
  assert.equal(await ask(modelOf(routes)), "fault-crlf");
  assert.equal(routes.counters["host_refused"], 1);
});

test("keys come from the environment, by the name of the credential", async (t) => {
  const world = await World.of(t);
  world.publish([world.entry("none", { weight: 1, credential_ref: "my-sim" })]);
  const routes = world.routes();
  await routes.wait();
  assert.equal(routes.pick("chat")?.key, undefined);
  process.env["MY_SIM_API_KEY"] = "sk-1";
  t.after(() => delete process.env["MY_SIM_API_KEY"]);
  assert.equal(routes.pick("chat")?.key, "sk-1");
  assert.equal(await ask(modelOf(routes)), "fault-none");
});

for (const fault of ["silence", "headers-only"]) {
  test(`a stream that stalls is hedged, and the first content wins: ${fault}`, async (t) => {
    const world = await World.of(t);
    world.firstThen(fault, "none", { delay_us: 100_000 });
    const routes = world.routes();
    assert.equal(await stream(modelOf(routes)), "fault-none");
    assert.deepEqual([routes.counters["hedges"], routes.counters["hedges_won"]], [1, 1]);
  });
}

test("the request that loses is cancelled at once, and the one that wins when its caller stops reading", async (t) => {
  const world = await World.of(t);
  world.firstThen("silence", "flood", { delay_us: 50_000 });
  const [lost, won] = [await timesLeft("fault-silence"), await timesLeft("fault-flood")];
  const answer = await modelOf(world.routes()).doStream({ prompt: MESSAGES });
  await eventually(async () => (await timesLeft("fault-silence")) > lost, "the end of the first exchange");
  assert.equal(await timesLeft("fault-flood"), won);
  await answer.stream.cancel();
  await eventually(async () => (await timesLeft("fault-flood")) > won, "the end of the second exchange");
});

test("a stream that ends after its head goes on at the next member", async (t) => {
  const world = await World.of(t);
  const server = createServer((_, response) => response.writeHead(200, { "content-type": "text/event-stream" }).end());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const base_url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  world.publish([world.entry("crlf", { weight: 1, base_url }), world.entry("none")]);
  assert.equal(await stream(modelOf(world.routes())), "fault-none");
});

for (const parts of [[], [UNFINISHED]] as const) {
  test(`so does one of a provider that reports no error for it: ${parts.length} parts`, async (t) => {
    const world = await World.of(t);
    world.firstThen("crlf", "none");
    const own = createOpenAICompatible({ name: "own", baseURL: PROVIDERS })("chat");
    const doStream = async () => ({ stream: ReadableStream.from([...parts]) as ReadableStream<never> });
    const model = routed(own, world.routes(), (member) => {
      const inner = memberModel(member);
      return inner && member.model === "fault-crlf" ? { ...inner, specificationVersion: "v4", doStream } : inner;
    });
    assert.equal(await stream(model), "fault-none");
  });
}

test("hedges have a budget: one, then one per twenty requests", async (t) => {
  const world = await World.of(t);
  world.firstThen("slow-headers", "none", { delay_us: 50_000 });
  const routes = world.routes();
  const model = modelOf(routes);
  const served = [await stream(model), await stream(model), await stream(model)];
  assert.deepEqual(served, ["fault-none", "fault-slow-headers", "fault-slow-headers"]);
  assert.equal(routes.counters["hedges"], 1);
});

for (const [reason, table, request] of [
  ["not_published", { delay_us: null }, {}],
  ["effects", { delay_us: 50_000 }, TOOLS],
  ["state", { delay_us: 50_000, state: "degraded" }, {}],
] as const) {
  test(`what is not hedged: ${reason}`, async (t) => {
    const world = await World.of(t);
    world.firstThen("slow-headers", "none", table);
    const routes = world.routes();
    assert.equal(await stream(modelOf(routes), request), "fault-slow-headers");
    assert.deepEqual([routes.counters["hedges"], routes.counters[`not_hedged_${reason}`]], [undefined, 1]);
  });
}

test("requests with tools are hedged on request, and if no tool may be called", async (t) => {
  const world = await World.of(t);
  world.firstThen("silence", "none", { delay_us: 50_000 });
  assert.equal(await stream(modelOf(world.routes(undefined, { hedgeEffects: true })), TOOLS), "fault-none");
  assert.equal(await stream(modelOf(world.routes()), { ...TOOLS, toolChoice: "none" }), "fault-none");
});

test("if neither of two hedged requests is answered, the third member is asked", async (t) => {
  const world = await World.of(t);
  const hedge = { target: "sim/500", delay_us: 50_000 };
  const first = world.entry("slow-headers", { weight: 1, base_url: deadUrl(), hedge });
  world.publish([first, world.entry("500"), world.entry("none")]);
  assert.equal(await stream(modelOf(world.routes())), "fault-none");
});

test("a caller that aborts ends the request, and the member is not to blame", async (t) => {
  const world = await World.of(t);
  world.firstThen("headers-only", "none");
  const routes = world.routes();
  const model = modelOf(routes);
  for (const asked of ["doGenerate", "doStream"] as const) {
    const abortSignal = AbortSignal.timeout(1_000);
    await assert.rejects(async () => model[asked]({ prompt: MESSAGES, abortSignal }), { name: "TimeoutError" });
  }
  assert.equal(routes.counters["failovers"], undefined);
  assert.equal(routes.pick("chat")?.model, "fault-headers-only");
});

test("many requests at once are answered, each with its own content", async (t) => {
  const world = await World.of(t);
  world.publish([world.entry("crlf", { weight: 1, base_url: deadUrl() }), world.entry("none")]);
  const model = modelOf(world.routes());
  const served = await Promise.all(Array.from({ length: 40 }, () => stream(model)));
  assert.deepEqual(new Set(served), new Set(["fault-none"]));
});

test("an unknown model keeps its provider, its name and its own parts", async (t) => {
  const world = await World.of(t);
  const model = modelOf(world.routes(), { name: "gpt-x", baseURL: PROVIDERS });
  assert.deepEqual([model.provider, model.modelId], ["own.chat", "gpt-x"]);
});
