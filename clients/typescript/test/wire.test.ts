/** Streams of real providers, through the real `ai` package: an answer is passed on, after a failure the next answers. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { modelOf, PROMPT, World } from "./world.js";

/** A file of the corpus, as far as a client has to know it. */
interface Stream {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly frames: readonly (readonly [number, string | { readonly base64: string }])[];
  readonly expected: { readonly client: "content" | "failed" };
}

const FOLDER = join(process.env["ISOCHRONE_TEST_WIRE"] ?? "", "openai-chat");
const STREAMS = new Map(
  readdirSync(FOLDER).map((name) => [name, JSON.parse(readFileSync(join(FOLDER, name), "utf8")) as Stream] as const),
);
/** Answers that the provider's package drops: an error of no failure, an end without a reason, no blank lines. */
const DROPPED = [
  "crazyrouter-empty-error.json",
  "crazyrouter-null-error.json",
  "openai-done-only.json",
  "openai-one-line-end-per-event.json",
  "xunfei-error-of-success.json",
];
const SECOND = "from the second";
const ANSWER = [
  { choices: [{ index: 0, delta: { content: SECOND } }] },
  { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
];

/** The provider of each stream is at its name; at any other name there is one that answers. */
const providers = createServer((request, response) => {
  request.resume();
  const stream = STREAMS.get(decodeURIComponent(request.url?.split("/")[1] ?? ""));
  response.writeHead(stream?.status ?? 200, { ...(stream?.headers ?? { "content-type": "text/event-stream" }) });
  const frames = stream ? stream.frames.map(([, data]) => data) : ANSWER.map((one) => `data: ${JSON.stringify(one)}\n\n`);
  for (const data of frames) response.write(typeof data === "string" ? data : Buffer.from(data.base64, "base64"));
  response.end();
});

before(() => new Promise<void>((resolve) => providers.listen(0, "127.0.0.1", resolve)));
after(() => {
  providers.closeAllConnections();
  providers.close();
});

for (const [name, { status, expected }] of STREAMS) {
  if (status !== 200) continue;
  const client = DROPPED.includes(name) ? "failed" : expected.client;
  test(`${name}: ${client}`, async (t) => {
    const world = await World.of(t);
    const url = `http://127.0.0.1:${(providers.address() as AddressInfo).port}`;
    const first = world.entry("first", { weight: 1, base_url: `${url}/${encodeURIComponent(name)}` });
    world.publish([first, world.entry("second", { base_url: `${url}/second` })]);
    const routes = world.routes();
    const { stream } = await modelOf(routes).doStream({
      prompt: [{ role: "user", content: [{ type: "text", text: PROMPT }] }],
    });
    let text = "";
    for await (const part of stream) if (part.type === "text-delta") text += part.delta;
    assert.equal(routes.counters["failovers"] ?? 0, client === "failed" ? 1 : 0);
    assert.equal(text === SECOND, client === "failed");
  });
}
