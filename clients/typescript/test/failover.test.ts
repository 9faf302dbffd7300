/** The client passes the cases of `clients/cases.json` in which members answer requests, with the real `ai` package. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { APICallError } from "@ai-sdk/provider";
import { generateText, jsonSchema, streamText, tool, type LanguageModel } from "ai";

import type { RouteEntry, Routes } from "../src/index.js";
import { eventually, modelOf, PROMPT, World } from "./world.js";

/** The cases are data; a field that is missing has the default of its use. */
type Case = any;

const PATH = new URL("../../../cases.json", import.meta.url);
const CASES: Record<string, Case[]> = JSON.parse(readFileSync(PATH, "utf8"));

const TOOLS = { tools: { pay: tool({ inputSchema: jsonSchema({ type: "object", properties: {} }) }) } };

/** The scripts of the members by the first part of their path, `/CASE-NAME`. */
const scripts = new Map<string, Case>();

/** Providers that answer by their scripts, otherwise with their name as text. */
const providers = createServer(async (request, response) => {
  const [path = "", name] = /^\/\d+-(\w+)/.exec(request.url ?? "") ?? [];
  const script = scripts.get(path) ?? assert.fail(request.url);
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
    "content-length": text.length + end.length + (then === "cut" || then === "silence" ? 1 : 0),
    ...(retry_after && { "retry-after": retry_after }),
  });
  response.flushHeaders();
  response.write(text);
  if (pause) await sleep(pause * 1000);
  if (then !== "silence") setImmediate(() => (then === "cut" ? request.socket.destroy() : response.end(end)));
});

before(() => new Promise<void>((resolve) => providers.listen(0, "127.0.0.1", resolve)));
after(() => {
  providers.closeAllConnections();
  providers.close();
});

/** The member that answered, the status of a refusal, `broken` for an answer that fails later, or `timeout`. */
async function answerOf(model: LanguageModel, isStreamed: boolean, more: object): Promise<string | number> {
  const options = { model, prompt: PROMPT, maxRetries: 0, onError: () => undefined, ...more };
  try {
    if (!isStreamed) return (await generateText(options)).text;
    let text = "";
    for await (const part of streamText(options).fullStream) {
      if (part.type === "error") throw text ? new Error("it fails later", { cause: part.error }) : part.error;
      if (part.type === "text-delta") text += part.text;
    }
    return text;
  } catch (error) {
    if (error instanceof DOMException && error.name === "TimeoutError") return "timeout";
    const status = APICallError.isInstance(error) ? (error.statusCode ?? 0) : 0;
    return status >= 400 ? status : "broken";
  }
}

/** How the first member rests, by a route that it shares with a member that no request is sent to. */
function restOf(routes: Routes): string | null {
  if (!routes.pick("witness", { without: ["sim/witness"] })) return "throttled";
  return routes.pick("witness")?.target === "sim/first" ? null : "failing";
}

let count = 0;

function cases(subject: string): void {
  for (const one of CASES[subject] ?? assert.fail(`no cases of ${subject}`))
    test(`${subject}: ${one.law}`, async (t) => {
      for (const isStreamed of one.stream ?? [false, true]) {
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
        assert.equal(await answerOf(modelOf(routes), isStreamed, one.tools ? TOOLS : {}), one.answer);
        assert.equal(restOf(routes), one.rest);
        assert.deepEqual(lines.slice(0, 1), one.logged ? [`isochrone: ${one.logged}`] : []);
      }
    });
}

/** Seconds, one number or one for each route, in milliseconds. */
function inMs(seconds: Case): Case {
  if (typeof seconds !== "object") return seconds && seconds * 1000;
  return Object.fromEntries(Object.entries<number>(seconds).map(([route, value]) => [route, value * 1000]));
}

cases("failover");
cases("deadlines");
