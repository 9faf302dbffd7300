/** The `fetch` of a route: what changes on the way to a member, and what does not. */

import assert from "node:assert/strict";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import OpenAI from "openai";

import { routedFetch } from "../src/index.js";
import { eventually, PROMPT, PROVIDERS, timesLeft, World } from "./world.js";

const MESSAGES = [{ role: "user" as const, content: PROMPT }];
const EVENTS = 'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';

test("only the model, the address and the key of a request change, and no cookie is sent", async (t) => {
  const seen: { url: string | undefined; headers: IncomingHttpHeaders; body: string }[] = [];
  const server = createServer(async (request, response) => {
    seen.push({ url: request.url, headers: request.headers, body: (await request.toArray()).join("") });
    response.writeHead(200, { "content-type": "text/event-stream", "content-encoding": "gzip" }).end(gzipSync(EVENTS));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const world = await World.of(t);
  const base_url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v9/?api-version=1`;
  world.publish([world.entry("none", { weight: 1, base_url, dialect: "anthropic", credential_ref: "mine" })]);
  const headers = {
    authorization: "Bearer caller",
    "x-api-key": "caller",
    "openai-organization": "caller",
    cookie: "a=caller",
    "x-trace": "1",
  };
  const answer = await routedFetch(world.routes(undefined, { keys: { mine: "sk-1" } }))(
    new Request("http://127.0.0.1:9/v1/messages?beta=true", { method: "POST", headers, body: '{"model":"chat","ü":"ü"}' }),
  );
  assert.equal(await answer.text(), EVENTS);
  const [{ url, headers: sent, body }] = seen as [(typeof seen)[0]];
  assert.equal(url, "/v9/messages?api-version=1&beta=true");
  assert.equal(body, '{"model":"fault-none","ü":"ü"}');
  assert.deepEqual([sent["x-api-key"], sent["x-trace"]], ["sk-1", "1"]);
  assert.ok(!JSON.stringify(sent).includes("caller"), JSON.stringify(sent));
});

test("what names no route goes to its own address as it is", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const routes = world.routes();
  const client = new OpenAI({ apiKey: "-", baseURL: PROVIDERS, maxRetries: 0, fetch: routedFetch(routes) });
  const answer = await client.chat.completions.create({ model: "fault-cr", messages: MESSAGES });
  assert.equal(answer.model, "fault-cr");
  assert.ok((await client.models.list()).data.length > 0);
  assert.equal(routes.counters["passed_through"], 2);
});

test("a caller that leaves ends the request at the member", async (t) => {
  const world = await World.of(t);
  world.firstThen("flood", "none");
  const left = await timesLeft("fault-flood");
  const client = new OpenAI({ apiKey: "-", baseURL: PROVIDERS, maxRetries: 0, fetch: routedFetch(world.routes()) });
  const stream = await client.chat.completions.create({ model: "chat", messages: MESSAGES, stream: true });
  for await (const _ of stream) break;
  await eventually(async () => (await timesLeft("fault-flood")) > left, "the end of the exchange");
});

test("the time limit of the SDK is that of all members", async (t) => {
  const world = await World.of(t);
  world.firstThen("silence", "headers-only");
  const options = { apiKey: "-", baseURL: PROVIDERS, maxRetries: 0, timeout: 300 };
  const client = new OpenAI({ ...options, fetch: routedFetch(world.routes()) });
  const asked = client.chat.completions.create({ model: "chat", messages: MESSAGES, stream: true });
  await assert.rejects(asked, OpenAI.APIConnectionTimeoutError);
});
