/** The client passes the cases of `clients/cases.json` in which members answer requests, with the real packages `ai` and
 * `openai`. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

import { routedFetch, type RouteEntry, type Routes } from "../src/index.js";
import { deadUrl, eventually, modelOf, PROMPT, World } from "./world.js";

/** The cases are data; a field that is missing has the default of its use. */
type Case = any;

const PATH = new URL("../../../cases.json", import.meta.url);
const CASES: Record<string, Case[]> = JSON.parse(readFileSync(PATH, "utf8"));

/** The scripts of the members by the first part of their path, `/CASE-NAME`. */
const scripts = new Map<string, Case>();
/** The query of the last request. */
let query = "";

/** Providers that answer by their scripts, otherwise with their name as text. */
const providers = createServer(async (request, response) => {
  const [path = "", name] = /^\/\d+-(\w+)/.exec(request.url ?? "") ?? [];
  const script = scripts.get(path) ?? assert.fail(request.url);
  query = new URL(request.url ?? "", "http://x").search.slice(1);
  const { stream } = JSON.parse((await request.toArray()).join(""));
  const { status = 200, body, then, retry_after, delay, pause, silent } = script;
  if (silent) return;
  if (delay) await sleep(delay * 1000);
  if (then === "reset") return void request.socket.resetAndDestroy();
  const answer = { choices: [{ index: 0, message: { role: "assistant", content: name }, finish_reason: "stop" }] };
  const delta = { choices: [{ index: 0, delta: { content: name }, finish_reason: "stop" }] };
  const isEvents = stream && status === 200 && body === undefined;
  const events = (script.data ?? [delta]).map((one: unknown) => `data: ${JSON.stringify(one)}\n\n`).join("");
  const text = isEvents ? events : (body ?? JSON.stringify(status === 200 ? answer : { error: { message: "no" } }));
  const end = pause ? ":\n\n" : "";
  response.writeHead(status, {
    "content-type": isEvents ? "text/event-stream" : (script.type ?? "application/json"),
    "content-length": text.length + end.length + ({ cut: 1, silence: 1, drops: 1 << 20 }[then as string] ?? 0),
    ...(retry_after && { "retry-after": retry_after }),
  });
  response.flushHeaders();
  response.write(text);
  if (pause) await sleep(pause * 1000);
  for (; then === "drops" && !request.socket.destroyed; await sleep(20)) response.write(" ");
  if (then !== "silence") setImmediate(() => (then === "cut" ? request.socket.destroy() : response.end(end)));
});

before(() => new Promise<void>((resolve) => providers.listen(0, "127.0.0.1", resolve)));
after(() => {
  providers.closeAllConnections();
  providers.close();
});

/** A client of a route: it returns the text of an answer, and throws the errors of its SDK. */
type Ask = (routes: Routes, isStreamed: boolean, hasTools: boolean) => Promise<string>;

const askByAi: Ask = async (routes, isStreamed, hasTools) => {
  const pay = tool({ inputSchema: jsonSchema({ type: "object", properties: {} }) });
  const more: object = hasTools ? { tools: { pay } } : {};
  const options = { model: modelOf(routes), prompt: PROMPT, maxRetries: 0, onError: () => undefined, ...more };
  if (!isStreamed) return (await generateText(options)).text;
  let text = "";
  for await (const part of streamText(options).fullStream) {
    if (part.type === "error") throw text ? new Error("it fails later", { cause: part.error }) : part.error;
    if (part.type === "text-delta") text += part.text;
  }
  return text;
};

const askByOpenai: Ask = async (routes, isStreamed, hasTools) => {
  const client = new OpenAI({ apiKey: "caller", baseURL: deadUrl(), maxRetries: 0, fetch: routedFetch(routes) });
  const tools = [{ type: "function" as const, function: { name: "pay" } }];
  const messages = [{ role: "user" as const, content: PROMPT }];
  const options = { model: "chat", messages, ...(hasTools && { tools }) };
  if (!isStreamed) return (await client.chat.completions.create(options)).choices[0]?.message.content ?? "";
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...options, stream: true }))
    text += chunk.choices[0]?.delta.content ?? "";
  return text;
};

const CLIENTS = { ai: askByAi, openai: askByOpenai };

/** The member that answered, the status of a refusal, `broken` for an answer that fails later, or `timeout`. */
function answerOf(answer: Promise<string>): Promise<string | number> {
  return answer.catch((error: Case) => {
    const isTimeout = error.name === "TimeoutError" || error instanceof OpenAI.APIConnectionTimeoutError;
    const status = error.statusCode ?? error.status;
    return isTimeout ? "timeout" : status >= 400 ? status : "broken";
  });
}

/** How the first member rests, by a route that it shares with a member that no request is sent to. */
function restOf(routes: Routes): string | null {
  if (!routes.pick("witness", { without: ["sim/witness"] })) return "throttled";
  return routes.pick("witness")?.target === "sim/first" ? null : "failing";
}

let count = 0;

async function check(t: TestContext, one: Case, ask: Ask, isStreamed: boolean): Promise<void> {
  count += 1;
  const world = await World.of(t);
  const [first, second] = ["first", "second"].map((name) => {
    const path = `/${count}-${name}`;
    scripts.set(path, one[name] ?? {});
    const base_url = `http://127.0.0.1:${(providers.address() as AddressInfo).port}${path}/v1`;
    return world.entry(name, { base_url, weight: name === "first" ? 1 : 0 });
  }) as [RouteEntry, RouteEntry];
  world.publish([first, world.entry("witness")], { route: "witness" });
  world.publish([first, second]);
  const lines: string[] = [];
  const routes = world.routes(undefined, {
    cacheFolder: null,
    failoverOnRefusals: one.refusals,
    firstTokenMs: inMs(one.first_token),
    deadlineMs: inMs(one.deadline),
    log: (line) => lines.push(line),
  });
  await eventually(() => routes.table("chat") !== undefined, "the tables");
  if (one.failed_before) routes.failed("sim/first");
  assert.equal(await answerOf(ask(routes, isStreamed, one.tools ?? false)), one.answer);
  assert.equal(restOf(routes), one.rest);
  assert.deepEqual(lines.slice(0, 1), one.logged ? [`isochrone: ${one.logged}`] : []);
}

function cases(subject: string): void {
  for (const one of CASES[subject] ?? assert.fail(`no cases of ${subject}`))
    test(`${subject}: ${one.law}`, async (t) => {
      for (const [name, ask] of Object.entries(CLIENTS))
        for (const isStreamed of one.stream ?? [false, true])
          await t.test(`${name}, ${isStreamed ? "stream" : "answer"}`, (step) => check(step, one, ask, isStreamed));
    });
}

/** Seconds, one number or one for each route, in milliseconds. */
function inMs(seconds: Case): Case {
  if (typeof seconds !== "object") return seconds && seconds * 1000;
  return Object.fromEntries(Object.entries<number>(seconds).map(([route, value]) => [route, value * 1000]));
}

for (const one of CASES["members"] ?? assert.fail("no cases of members"))
  test(`members: ${one.law}`, async (t) => {
    const world = await World.of(t);
    const origin = `http://127.0.0.1:${(providers.address() as AddressInfo).port}`;
    scripts.set("/0-first", {});
    world.publish([world.entry("first", { base_url: `${origin}/0-first/v1`, weight: 1, ...one.entry })]);
    const { hosts, send_callers_key: sendCallersKey = false, callers_key: key = "caller" } = one;
    const options = { cacheFolder: null, keys: { mine: "sk-1" }, hosts, sendCallersKey, log: () => undefined };
    const answer = await routedFetch(world.routes(undefined, options))(
      `${one.is_own ? origin : "http://127.0.0.1:9"}/v1/chat/completions${one.query ? `?${one.query}` : ""}`,
      {
        method: "POST",
        headers: key ? { authorization: `Bearer ${key}` } : {},
        body: JSON.stringify({ model: "chat", messages: [] }),
      },
    );
    const text = await answer.text();
    if (!one.why) {
      assert.equal(answer.status, 200);
      return assert.equal(query, one.member_query ?? "");
    }
    assert.equal(answer.status, 400);
    assert.ok(text.includes(`the route chat can take this request: sim/first ${one.why}`), text);
  });
cases("failover");
cases("deadlines");
