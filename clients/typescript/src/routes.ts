/** The routes of one region, followed in the background. */

import type { Agent } from "node:http";
import { homedir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { HedgeBudget, order } from "./attempts.js";
import { Cooldowns } from "./cooldowns.js";
import type { RouteEntry, RouteTable } from "./documents.js";
import { Effectiveness, followed } from "./effectiveness.js";
import { Subscription } from "./subscription.js";
import { load, pathOf, save } from "./tableFile.js";
import { FollowedTables } from "./tables.js";

const FIRST_TABLES_MS = 2_000;
/** The tables of a region arrive together. */
const OTHER_TABLES_MS = 100;
const POLL_MS = 10;
const LOOK_AGAIN_MS = 20_000;
const LONG_MS = 2 ** 30;

/** Where a request goes. `is_static`: by the plan's static order, because no table may be used. */
export interface Member extends Omit<RouteEntry, "rank" | "weight" | "hedge"> {
  readonly route: string;
  readonly generation: number;
  readonly is_static: boolean;
  /** The key of the credential; `undefined` if the member needs none. */
  readonly key: string | undefined;
}

export interface RoutesOptions {
  /** The credential of a reader. */
  readonly token?: string | undefined;
  /** The providers' keys by the name of their credential; by default, `DEEPSEEK_API_KEY` is the key of `deepseek`. */
  readonly keys?: Readonly<Record<string, string>> | undefined;
  /** The only hosts to which requests and keys are sent; by default, the collector is trusted with that. */
  readonly hosts?: Iterable<string> | undefined;
  /** Where the last tables are kept for the next start; `null`: nowhere. */
  readonly cacheFolder?: string | null | undefined;
  /** The largest share of second requests, 0 for none. */
  readonly hedgeRatio?: number | undefined;
  /** Whether requests that have effects, as of tools or by what the provider keeps, may be sent twice. */
  readonly hedgeEffects?: boolean | undefined;
  /** Whether the next member is tried after a 401, 402, 403, 404 or 408; by default, it is. */
  readonly failoverOnRefusals?: boolean | undefined;
  /** Whether members without a credential may receive the caller's key at another address than the caller's. */
  readonly sendCallersKey?: boolean | undefined;
  /** Receives the warnings, such as why a member is left out; by default, `console.warn`. */
  readonly log?: ((line: string) => void) | undefined;
  /**
   * The milliseconds, for each route or for all, after which a member without content is given up while another one
   * may answer; by default, they follow from its tail in the table.
   */
  readonly firstTokenMs?: number | Readonly<Record<string, number>> | undefined;
  /** The milliseconds of all members together until the answer begins; by default, only the caller ends a request. */
  readonly deadlineMs?: number | undefined;
  /** For the connection to the collector, such as an `https.Agent` with its certificate. */
  readonly agent?: Agent | undefined;
}

/**
 * The route tables of a region at the collector at `url`, such as `https://isochrone.example:4680`.
 *
 * They are followed from the first use on. While the collector is away the last tables stay in use until
 * `stale_until_at`, and then the plan's static order. A route that the plan no longer has is forgotten when its table
 * expires.
 */
export class Routes {
  /** What happened since the start: counts of events by name. */
  readonly counters: Record<string, number> = {};
  readonly budget: HedgeBudget;
  readonly hedgeEffects: boolean;
  readonly failoverOnRefusals: boolean;
  readonly deadlineMs: number;
  readonly #firstTokenMs: number | Readonly<Record<string, number>> | undefined;
  readonly #keys: Readonly<Record<string, string>> | undefined;
  readonly #hosts: ReadonlySet<string> | undefined;
  readonly #cache: string | undefined;
  readonly #tables = new FollowedTables(Math.random());
  readonly #texts = new Map<string, string>();
  readonly #sendCallersKey: boolean;
  readonly #log: (line: string) => void;
  readonly #warnedUntil = new Map<string, number>();
  readonly #effectiveness = new Map<string, Effectiveness>();
  readonly #cooldowns = new Cooldowns();
  readonly #watchers = new Set<(table?: RouteTable) => void>();
  readonly #subscription: Subscription;
  readonly #closed = new AbortController();
  #isFollowing = false;
  #hasNews = false;
  #isSaving = false;
  #allTablesAt = 0;
  #nextLookAt = 0;

  constructor(url: string, region: string, options: RoutesOptions = {}) {
    const { token, keys, hosts, agent, hedgeRatio } = options;
    const { cacheFolder = join(homedir(), ".cache", "isochrone") } = options;
    this.budget = new HedgeBudget(hedgeRatio);
    this.hedgeEffects = options.hedgeEffects ?? false;
    this.failoverOnRefusals = options.failoverOnRefusals ?? true;
    this.deadlineMs = options.deadlineMs ?? Number.POSITIVE_INFINITY;
    this.#firstTokenMs = options.firstTokenMs;
    this.#sendCallersKey = options.sendCallersKey ?? false;
    this.#log = options.log ?? console.warn;
    this.#keys = keys;
    this.#hosts = hosts && new Set(hosts);
    this.#cache = cacheFolder === null ? undefined : pathOf(cacheFolder, url, region);
    this.#subscription = new Subscription({
      url,
      region,
      token,
      agent,
      count: (event) => this.count(event),
      onTable: (table, text) => this.#receive(table, text),
    });
  }

  /** Stop following; the last tables can still be used. */
  close(): void {
    this.#closed.abort();
    for (const wake of this.#watchers) wake();
  }

  /**
   * An endpoint for a request, drawn by weight; `without` are targets that have failed for it.
   *
   * `undefined` if the route is unknown, if no member is left, or for the share of the traffic that no member may take.
   */
  pick(route: string, { without = [] }: { without?: readonly string[] } = {}): Member | undefined {
    const table = this.table(route);
    const entries = table?.entries.filter((entry) => !without.includes(entry.target)) ?? [];
    const [first] = table ? this.order(table, entries) : [];
    return table && first && this.member(table, first);
  }

  /** Wait for the first table; return whether there is one. */
  async wait(timeoutMs = 5_000): Promise<boolean> {
    this.#start();
    const deadline = performance.now() + timeoutMs;
    while (this.#texts.size === 0 && performance.now() < deadline) await sleep(POLL_MS);
    return this.#texts.size > 0;
  }

  /** Yield the newest table of each route, then every newer one as it arrives, until `close`. */
  async *watch(): AsyncGenerator<RouteTable, void, undefined> {
    this.#start();
    const arrived = this.#tables.newest;
    let wake = (): void => undefined;
    const watcher = (table?: RouteTable): void => {
      if (table) arrived.push(table);
      wake();
    };
    this.#watchers.add(watcher);
    const alive = setInterval(() => undefined, LONG_MS);
    try {
      while (!this.#closed.signal.aborted) {
        yield* arrived.splice(0);
        if (arrived.length > 0 || this.#closed.signal.aborted) continue;
        await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      clearInterval(alive);
      this.#watchers.delete(watcher);
    }
  }

  /** The table to use now, or the static order in its form (state `insufficient_data`); `undefined`: no such route. */
  table(route: string): RouteTable | undefined {
    this.#start();
    const now = this.#subscription.clock.now();
    if (this.#tables.isExpired(route, now)) void this.#forgetRemoved();
    return this.#tables.at(route, now);
  }

  /** As `table`; shortly after the start, wait for the tables that are on their way. */
  async firstTable(route: string): Promise<RouteTable | undefined> {
    this.#start();
    while (!this.table(route) && performance.now() < this.#allTablesAt) await sleep(POLL_MS);
    return this.table(route);
  }

  /** The members in the order in which a request tries them; those that rest after a 429 are left out. */
  order(table: RouteTable, entries: readonly RouteEntry[]): RouteEntry[] {
    const now = performance.now();
    const [throttled, failing] = [this.#cooldowns.throttled(now), this.#cooldowns.failing(now)];
    return order(entries, { draw: Math.random(), unassigned: table.unassigned, throttled, failing });
  }

  /** A member of a table, with its key. */
  member(table: RouteTable, entry: RouteEntry): Member {
    const { target, provider, model, dialect, base_url, credential_ref } = entry;
    const { route, generation, state } = table;
    const endpoint = { target, provider, model, dialect, base_url, credential_ref };
    return { ...endpoint, route, generation, is_static: state === "insufficient_data", key: this.#key(entry) };
  }

  /**
   * Why no request may be sent to the member, logged; empty if one may be. `sendsCallersKey`: a member without a key of
   * its own would receive one that the caller has for another origin.
   */
  obstacle(entry: RouteEntry, { sendsCallersKey }: { readonly sendsCallersKey: boolean }): string {
    const { target, credential_ref: credential } = entry;
    const host = new URL(entry.base_url).hostname.replace(/^\[|\]$/g, "");
    let [event, why] = ["", ""];
    if (this.#hosts && !this.#hosts.has(host)) {
      [event, why] = ["host_refused", `is at ${host}, which is not one of \`hosts\``];
    } else if (credential !== null && this.#key(entry) === undefined) {
      [event, why] = ["key_missing", `has no key: set ${keyVariable(credential)}, or \`keys\``];
    } else if (credential === null && sendsCallersKey && !this.#sendCallersKey) {
      event = "key_withheld";
      why = "has no credential: name one in the plan, or let it have the caller's key with `sendCallersKey`";
    }
    if (event) this.count(event);
    if (why) this.warn(`${target} ${why}`);
    return why;
  }

  /** The share of the latest requests that followed the weights of the table, by route. */
  get effective(): Record<string, number> {
    return Object.fromEntries([...this.#effectiveness].flatMap(([route, { share }]) => (share === undefined ? [] : [[route, share]])));
  }

  /** Note a request that goes by weight to the `usable` ones of the members that speak as they do. */
  noteUsable({ route, entries }: RouteTable, usable: readonly RouteEntry[]): void {
    const dialects = new Set(usable.map(({ dialect }) => dialect));
    const members = entries.filter(({ dialect }) => dialects.has(dialect));
    const now = performance.now();
    const resting = new Set([...this.#cooldowns.throttled(now).keys(), ...this.#cooldowns.failing(now)]);
    const share = followed(members, new Set(usable.map(({ target }) => target)), resting);
    const noted = this.#effectiveness.get(route) ?? new Effectiveness();
    this.#effectiveness.set(route, noted);
    if (share === undefined || !noted.add(share)) return;
    const percent = (100 * (noted.share ?? 0)).toFixed();
    this.#log(
      `isochrone: routing of ${route} is not effective: of the latest requests only ${percent} % went where the weights ` +
        "of the table send them; a member's key or host is missing, see `counters`",
    );
  }

  /** Log a warning, each text once a minute. */
  warn(text: string): void {
    const now = performance.now();
    if (now < (this.#warnedUntil.get(text) ?? 0)) return;
    this.#warnedUntil.set(text, now + 60_000);
    this.#log(`isochrone: ${text}`);
  }

  /** The first-token limit that was stated for a route, in milliseconds. */
  firstTokenMs(route: string): number | undefined {
    return typeof this.#firstTokenMs === "object" ? this.#firstTokenMs[route] : this.#firstTokenMs;
  }

  /** Count an event. */
  count(event: string): void {
    this.counters[event] = (this.counters[event] ?? 0) + 1;
  }

  /** Note a 429 of a member, with its `retry-after`. */
  throttled(target: string, retryAfterMs?: number): void {
    this.#cooldowns.throttle(target, retryAfterMs, performance.now(), Math.random());
  }

  /** Note a failure of a member. */
  failed(target: string): void {
    this.#cooldowns.fail(target, performance.now(), Math.random());
  }

  /** Note a response of a member. */
  succeeded(target: string): void {
    this.#cooldowns.succeed(target);
  }

  /** The milliseconds until the first of these members may be asked again after a 429. */
  shortestRestMs(entries: readonly RouteEntry[]): number {
    const rests = this.#cooldowns.throttled(performance.now());
    const left = entries.flatMap((entry) => rests.get(entry.target) ?? []);
    return left.length > 0 ? Math.min(...left) : 0;
  }

  #key(entry: RouteEntry): string | undefined {
    const { credential_ref: credential } = entry;
    if (credential === null) return undefined;
    if (this.#keys) return Object.hasOwn(this.#keys, credential) ? this.#keys[credential] : undefined;
    return process.env[keyVariable(credential)] || undefined;
  }

  #start(): void {
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    this.#load();
    this.#allTablesAt = performance.now() + FIRST_TABLES_MS;
    void this.#subscription.run(this.#closed.signal);
  }

  /** Forget expired routes that the plan no longer has: the stream does not name them. */
  async #forgetRemoved(): Promise<void> {
    if (performance.now() < this.#nextLookAt) return;
    this.#nextLookAt = performance.now() + LOOK_AGAIN_MS;
    const planned = await this.#subscription.plannedRoutes(this.#closed.signal);
    if (!planned) return;
    const removed = this.#tables.forgetRemoved(planned, this.#subscription.clock.now());
    for (const route of removed) this.#texts.delete(route);
    if (removed.length > 0) void this.#save();
  }

  #load(): void {
    if (this.#cache === undefined) return;
    const { tables, entries } = load(this.#cache);
    for (const entry of entries) this.#tables.endpoints.set(entry.target, entry);
    for (const [text, table] of tables) {
      this.#texts.set(table.route, text);
      this.#tables.receive(table);
    }
  }

  #receive(table: RouteTable, text: string): void {
    if (!this.counters["tables"]) this.#allTablesAt = Math.min(this.#allTablesAt, performance.now() + OTHER_TABLES_MS);
    this.count("tables");
    this.#tables.receive(table);
    this.#texts.set(table.route, text);
    void this.#save();
    for (const watcher of this.#watchers) watcher(table);
  }

  /** Keep the tables; those that arrive meanwhile are kept together afterwards. */
  async #save(): Promise<void> {
    this.#hasNews = true;
    if (this.#cache === undefined || this.#isSaving) return;
    this.#isSaving = true;
    while (this.#hasNews) {
      this.#hasNews = false;
      const saved = save(this.#cache, this.#texts.values(), this.#tables.endpoints.values());
      await saved.catch(() => this.count("cache_failed"));
    }
    this.#isSaving = false;
  }
}

/** The environment variable of a key: `DEEPSEEK_API_KEY` for `deepseek`. */
function keyVariable(credential: string): string {
  return `${credential
    .replace(/[^A-Za-z0-9]+/g, "_")
    .replace(/^_+|_+$/g, "")
    .toUpperCase()}_API_KEY`;
}
