/** A table server on loopback, the providers of the simulator, and models that follow the one and ask the other. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import {
  createServer,
  type IncomingHttpHeaders,
  type RequestListener,
  type Server,
  type ServerResponse,
} from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import type { LanguageModelV4 } from "@ai-sdk/provider";
import { generateText, streamText } from "ai";

import { routed } from "../src/ai.js";
import { Routes, type Member, type RouteEntry, type RouteTable, type RoutesOptions } from "../src/index.js";

export const REGION = "us-east-2";
/** Only ends a wait for what never comes. */
export const PATIENCE_MS = 40_000;
export const PROVIDERS = process.env["ISOCHRONE_TEST_SIMULATOR"] ?? "";
export const PROMPT = "[0123456789ab] Hi";

/**
 * Streams the tables that were published, as a collector does; with `tls`, over HTTPS. It has no region `nowhere`. The
 * plan has the routes `planned`; without them there is no overview.
 */
export class TableServer {
  readonly published: { region: string; text: string; generation: number }[] = [];
  readonly requests: IncomingHttpHeaders[] = [];
  date: string | undefined;
  planned: readonly string[] | undefined;
  refusal: number | undefined;
  #port = 0;
  #server: Server | undefined;
  readonly #streams = new Map<ServerResponse, string>();

  constructor(readonly tls?: { readonly key: Buffer; readonly cert: Buffer }) {}

  get url(): string {
    return `${this.tls ? "https" : "http"}://127.0.0.1:${this.#port}`;
  }

  publishText(text: string, { region = REGION, generation = 0 } = {}): void {
    this.published.push({ region, text, generation });
    for (const [stream, followed] of this.#streams) if (followed === region) stream.write(eventOf(text, generation));
  }

  /** Listen, on the same port as before; send something to every stream a few times per second. */
  async start(): Promise<void> {
    const listener: RequestListener = (request, response) => {
      if (request.url === "/v1/routes") {
        const overview = { plan_version: 2, routes: this.planned };
        return void response.writeHead(this.planned ? 200 : 404).end(JSON.stringify(overview));
      }
      this.requests.push(request.headers);
      const region = /^\/v1\/routes\/([^/]+)\/watch$/.exec(request.url ?? "")?.[1] ?? assert.fail(request.url);
      if (this.refusal) return void response.writeHead(this.refusal).end();
      if (region === "nowhere") return void response.writeHead(404).end();
      if (this.date) response.setHeader("date", this.date);
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const one of this.published) if (one.region === region) response.write(eventOf(one.text, one.generation));
      this.#streams.set(response, region);
      response.on("close", () => this.#streams.delete(response));
    };
    const server = this.tls ? createTlsServer(this.tls, listener) : createServer(listener);
    await new Promise<void>((resolve) => server.listen(this.#port, "127.0.0.1", resolve));
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
    const heartbeat = setInterval(() => this.#streams.forEach((_, stream) => stream.write(": here\n\n")), 200);
    server.on("close", () => clearInterval(heartbeat));
  }

  /** End all streams and stop listening. */
  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }
}

type TableFields = Partial<RouteTable> & { seconds?: number };

/** What one test uses, and ends after it. */
export class World {
  readonly cacheFolder = mkdtempSync(join(tmpdir(), "isochrone-"));
  readonly opened: Routes[] = [];
  generation = 0;

  private constructor(readonly server: TableServer) {}

  /** A world without tables. */
  static async of(test: TestContext, server = new TableServer()): Promise<World> {
    assert.ok(PROVIDERS, "ISOCHRONE_TEST_SIMULATOR is the base URL of a simulator with --faults");
    const world = new World(server);
    await world.server.start();
    test.after(async () => {
      for (const routes of world.opened) routes.close();
      await world.server.stop();
      rmSync(world.cacheFolder, { recursive: true });
    });
    return world;
  }

  /** A member that is a model of the simulator, such as `none` for `fault-none`, named after it. */
  entry(model: string, more: Partial<RouteEntry> = {}): RouteEntry {
    return {
      rank: 1,
      weight: 0,
      target: `sim/${model}`,
      provider: "sim",
      model: `fault-${model}`,
      dialect: "openai-chat",
      base_url: PROVIDERS,
      credential_ref: null,
      ...more,
    };
  }

  /** Publish the next table of the route `chat`, which is stale after some seconds. */
  publish(entries: readonly RouteEntry[], { seconds = 600, ...more }: TableFields = {}): RouteTable {
    this.generation += 1;
    const now = Date.now();
    const staleAt = new Date(now + seconds * 1000).toISOString();
    const table = {
      schema: "isochrone.routes/1",
      generation: this.generation,
      etag: `g${this.generation}`,
      client_region: REGION,
      route: "chat",
      built_at: new Date(now).toISOString(),
      fresh_until_at: staleAt,
      stale_until_at: staleAt,
      state: "ok" as const,
      entries: entries.map((entry, place) => ({ ...entry, rank: place + 1 })),
      static_order: entries.map((entry) => entry.target),
      unassigned: 0,
      move_within_us: 0,
      ...more,
    };
    this.server.publishText(JSON.stringify(table), { region: table.client_region, generation: table.generation });
    return table;
  }

  /** Publish a table with all traffic at the first model, and the second as its fallback. */
  firstThen(
    first: string,
    second: string,
    { delay_us, ...fields }: TableFields & { delay_us?: number | null } = {},
  ): RouteTable {
    const hedge = delay_us === undefined ? null : { target: `sim/${second}`, delay_us };
    return this.publish([this.entry(first, { weight: 1, hedge }), this.entry(second)], fields);
  }

  /** Routes that follow the server. */
  routes(region = REGION, options: RoutesOptions = {}): Routes {
    // The members have no credentials.
    const defaults = { cacheFolder: this.cacheFolder, sendCallersKey: true };
    const routes = new Routes(this.server.url, region, { ...defaults, ...options });
    this.opened.push(routes);
    return routes;
  }
}

/** A model of the route, or of the name; its own provider is at an address at which nothing listens. */
export function modelOf(routes: Routes, { name = "chat", baseURL = deadUrl() } = {}): LanguageModelV4 {
  return routed(createOpenAICompatible({ name: "own", baseURL })(name), routes, memberModel);
}

/** The model of a member that speaks the dialect of OpenAI. */
export function memberModel({ dialect, provider, base_url, key, model }: Member): LanguageModelV4 | undefined {
  if (dialect !== "openai-chat") return undefined;
  return createOpenAICompatible({ name: provider, baseURL: base_url, ...(key && { apiKey: key }) })(model);
}

/** The model that answered. */
export async function ask(model: LanguageModelV4, more: object = {}): Promise<string> {
  const { text, response } = await generateText({ model, prompt: PROMPT, maxRetries: 0, maxOutputTokens: 3, ...more });
  assert.ok(text, "no text");
  return response.modelId;
}

/** The model that answered in a stream; all of it has content. Throws what the stream reports. */
export async function stream(model: LanguageModelV4, more: object = {}): Promise<string> {
  const options = { prompt: PROMPT, maxRetries: 0, maxOutputTokens: 3, onError: () => undefined };
  const result = streamText({ model, ...options, ...more });
  let text = "";
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") text += part.text;
  }
  assert.ok(text, "no text");
  return (await result.response).modelId;
}

/** Return as soon as it is so. */
export async function eventually(isSo: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (const deadline = Date.now() + PATIENCE_MS; !(await isSo()); await sleep(10))
    assert.ok(Date.now() < deadline, `still not: ${what}`);
}

/** How often the caller of a model left before the end of the answer, by the ground truth of the simulator. */
export async function timesLeft(model: string): Promise<number> {
  const truth = await fetch(`${PROVIDERS.replace(/\/v1$/, "")}/truth`);
  const records = (await truth.text()).split("\n");
  return records.filter((one) => one.includes(`"${model}"`) && one.includes('"client_left"')).length;
}

/** An address at which nothing listens: the port is reserved, so that no server of another test has it. */
export function deadUrl(): string {
  return "http://127.0.0.1:1/v1";
}

function eventOf(text: string, generation: number): string {
  return `id: ${generation}\nevent: table\ndata: ${text}\n\n`;
}
