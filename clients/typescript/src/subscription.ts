/** The stream of a region's tables from a collector, without end. */

import * as http from "node:http";
import * as https from "node:https";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

import { CollectorClock } from "./clock.js";
import { readPlanned, readTable, TableError, type RouteTable } from "./documents.js";
import { eventsOf } from "./events.js";
import { TableCursor, type Relation } from "./tables.js";

/** The collector sends something every 15 seconds. */
const IDLE_MS = 25_000;
const MAX_DELAY_MS = 30_000;

/** Where a stream comes from, and who receives it: each newer table with its JSON, and the names of events to count. */
export interface Feed {
  readonly url: string;
  readonly region: string;
  readonly token: string | undefined;
  readonly agent: http.Agent | undefined;
  onTable(table: RouteTable, text: string): void;
  count(event: string): void;
}

/** The tables of a region. Its sockets and timers do not keep the process alive. */
export class Subscription {
  readonly clock = new CollectorClock();
  readonly #feed: Feed;
  readonly #address: URL;
  readonly #overview: URL;
  #cursor = new TableCursor();
  #failures = 0;

  /** Throws `TypeError` if the address is no URL. */
  constructor(feed: Feed) {
    this.#feed = feed;
    this.#overview = new URL("v1/routes", `${feed.url}/`.replace(/\/+$/, "/"));
    this.#address = new URL(`routes/${encodeURIComponent(feed.region)}/watch`, this.#overview);
  }

  /** Receive until the signal; reconnect after a random time that grows with each failure. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#receive(signal);
      } catch {
        if (!signal.aborted) this.#feed.count("disconnected");
      }
      this.#failures += 1;
      const delay = Math.min(MAX_DELAY_MS, 1000 * 2 ** Math.min(this.#failures - 1, 10)) * (0.5 + Math.random());
      await sleep(delay, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  /** The routes of the plan in force; `undefined` if the collector cannot be asked, or has no plan. */
  async plannedRoutes(signal: AbortSignal): Promise<ReadonlySet<string> | undefined> {
    try {
      const response = await this.#open(this.#overview, { accept: "application/json" }, signal);
      return response.statusCode === 200 ? readPlanned(await text(response)) : void response.destroy();
    } catch {
      return undefined;
    }
  }

  async #receive(signal: AbortSignal): Promise<void> {
    const headers: http.OutgoingHttpHeaders = { accept: "text/event-stream" };
    if (this.#cursor.generation > 0) headers["last-event-id"] = this.#cursor.generation;
    const response = await this.#open(this.#address, headers, signal);
    if (response.headers.date) this.clock.set(response.headers.date);
    if (response.statusCode !== 200) {
      response.destroy();
      this.#feed.count("refused");
      return;
    }
    for await (const data of eventsOf(this.#counted(response))) {
      if (this.#take(data) === "other database") {
        this.#cursor = new TableCursor();
        return;
      }
    }
  }

  /** The same data; any of it ends the row of failures. */
  async *#counted(response: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const data of response) {
      this.#failures = 0;
      yield data;
    }
  }

  #open(address: URL, accept: http.OutgoingHttpHeaders, signal: AbortSignal): Promise<http.IncomingMessage> {
    const { token, agent } = this.#feed;
    const headers = { ...accept, ...(token && { authorization: `Bearer ${token}` }) };
    const { get } = address.protocol === "https:" ? https : http;
    return new Promise((resolve, reject) => {
      const request = get(address, { headers, signal, timeout: IDLE_MS, ...(agent && { agent }) }, resolve);
      request.on("error", reject);
      request.on("timeout", () => request.destroy(new Error("the collector is silent")));
      request.on("socket", (socket) => socket.unref());
    });
  }

  #take(data: string): Relation {
    const table = readable(data);
    if (table?.client_region !== this.#feed.region) {
      this.#feed.count("tables_ignored");
      return "older";
    }
    const relation = this.#cursor.compare(table);
    if (relation === "newer") {
      this.#cursor.advance(table);
      this.#feed.onTable(table, data);
    }
    return relation;
  }
}

function readable(data: string): RouteTable | undefined {
  try {
    return readTable(data);
  } catch (error) {
    if (error instanceof TableError) return undefined;
    throw error;
  }
}
