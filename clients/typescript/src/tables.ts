/**
 * The tables of a region that a client uses at an instant, by the rules for consumers of docs/routing.md. Pure.
 *
 * A table with other weights is used after this client's share of the time over which all clients change; a table that
 * may not be used gives way to the static order. Instants are milliseconds since the epoch.
 */

import type { RouteEntry, RouteTable } from "./documents.js";

const CLEARLY_LATER_MS = 10_000;

export type Relation = "newer" | "older" | "other database";

/**
 * The highest generation seen; 0: none. Generations count per database, so a lower one is older, unless its table was
 * built clearly later than every table seen: then it is of another database, and the stream starts over with it.
 */
export class TableCursor {
  generation = 0;
  #latestBuiltAt = Number.NEGATIVE_INFINITY;

  compare(table: RouteTable): Relation {
    if (table.generation > this.generation) return "newer";
    return Date.parse(table.built_at) > this.#latestBuiltAt + CLEARLY_LATER_MS ? "other database" : "older";
  }

  advance(table: RouteTable): void {
    this.generation = table.generation;
    this.#latestBuiltAt = Math.max(this.#latestBuiltAt, Date.parse(table.built_at));
  }
}

interface FollowedRoute {
  newest: RouteTable;
  inUse: RouteTable;
  /** When the newest table takes the place of the one in use. */
  applyAt?: number | undefined;
}

/** The routes of a region. `share` (0 to 1) is this client's place among all; `endpoints` are all members by target. */
export class FollowedTables {
  readonly endpoints = new Map<string, RouteEntry>();
  readonly #share: number;
  readonly #routes = new Map<string, FollowedRoute>();

  constructor(share: number) {
    this.#share = share;
  }

  /** The newest table of each route. */
  get newest(): RouteTable[] {
    return [...this.#routes.values()].map((route) => route.newest);
  }

  /** Note a table, as the newest of its route. One that arrives while another waits does not prolong the wait. */
  receive(table: RouteTable): void {
    for (const entry of table.entries) this.endpoints.set(entry.target, entry);
    const known = this.#routes.get(table.route);
    if (!known) {
      this.#routes.set(table.route, { newest: table, inUse: table });
      return;
    }
    known.newest = table;
    if (weights(table) === weights(known.inUse)) {
      known.inUse = table;
      known.applyAt = undefined;
    } else {
      known.applyAt ??= Date.parse(table.built_at) + Math.round((this.#share * table.move_within_us) / 1000);
    }
  }

  /** Whether the newest table of a route may not be used any more. */
  isExpired(route: string, now: number): boolean {
    const known = this.#routes.get(route);
    return known !== undefined && now >= Date.parse(known.newest.stale_until_at);
  }

  /** Forget the routes that the plan no longer has, once their tables expire; return their names. */
  forgetRemoved(planned: ReadonlySet<string>, now: number): string[] {
    const removed = [...this.#routes.keys()].filter((route) => !planned.has(route) && this.isExpired(route, now));
    for (const route of removed) this.#routes.delete(route);
    return removed;
  }

  /** The table of a route, or its static order in the form of a table; `undefined` if there is no member. */
  at(route: string, now: number): RouteTable | undefined {
    const known = this.#routes.get(route);
    if (!known) return undefined;
    if (known.applyAt !== undefined && now >= known.applyAt) {
      known.inUse = known.newest;
      known.applyAt = undefined;
    }
    const table = isUsable(known.inUse, now) ? known.inUse : asStaticOrder(known.inUse, this.endpoints);
    return table.entries.length > 0 ? table : undefined;
  }
}

function weights(table: RouteTable): string {
  return JSON.stringify(table.entries.map((entry) => [entry.target, entry.weight]).sort());
}

function isUsable(table: RouteTable, now: number): boolean {
  return table.entries.length > 0 && table.state !== "insufficient_data" && now < Date.parse(table.stale_until_at);
}

/** All traffic to the first member of the static order, the others as its fallbacks; the instants stay. */
function asStaticOrder(table: RouteTable, endpoints: ReadonlyMap<string, RouteEntry>): RouteTable {
  const entries = table.static_order
    .flatMap((target) => endpoints.get(target) ?? [])
    .map((entry, place) => ({ ...entry, rank: place + 1, weight: place === 0 ? 1 : 0, hedge: null }));
  return { ...table, state: "insufficient_data", entries, unassigned: 0 };
}
