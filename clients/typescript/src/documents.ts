/**
 * Route tables as the JSON of a collector. A document that is wrong in any field on which a client acts is an error.
 *
 * Fields have the names of the JSON; those that only people read (other quantiles, evidence, prices) are not described here.
 */

const SCHEMA = "isochrone.routes/1";
const MAX_HEDGE_US = 60_000_000;
const MAX_MOVE_US = 3_600_000_000;
const WEIGHT_TOLERANCE = 1e-6;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
const HTTP_URL = /^https?:\/\/[^/?#\\@]+([/?#]|$)/i;

/** The operator of the collector has to act: it sent something else than a route table. The client ignores it. */
export class TableError extends Error {
  override readonly name = "TableError";
}

/** A second request goes to `target` after `delay_us` microseconds without content; `null`: never. */
export interface Hedge {
  readonly target: string;
  readonly delay_us: number | null;
}

/** A quantile with the upper end of its 95 % interval; `null`: too few values. */
export interface Quantile {
  readonly value: number;
  readonly high?: number | null;
}

/** A member of a route: where it is, and its share of the traffic from 0 to 1. */
export interface RouteEntry {
  readonly rank: number;
  readonly weight: number;
  readonly target: string;
  readonly provider: string;
  readonly model: string;
  readonly dialect: string;
  readonly base_url: string;
  readonly credential_ref: string | null;
  readonly hedge?: Hedge | null;
  readonly ttft_p95_us?: Quantile | null;
  readonly tokens_per_second_p50?: Quantile | null;
}

/** The ranked members of a route for one client region. Instants are in RFC 3339. */
export interface RouteTable {
  readonly generation: number;
  readonly etag: string;
  readonly client_region: string;
  readonly route: string;
  readonly built_at: string;
  readonly fresh_until_at: string;
  readonly stale_until_at: string;
  readonly state: "ok" | "degraded" | "insufficient_data" | "frozen";
  readonly entries: readonly RouteEntry[];
  readonly static_order: readonly string[];
  readonly unassigned: number;
  readonly move_within_us: number;
}

/** Whether a value is as expected. Throws `TableError` for a field inside of it. */
type Check = (value: unknown) => boolean;

const isText: Check = (value) => typeof value === "string" && /^(?:[^\p{C}\p{Z}]| )+$/u.test(value);
const isMeasure: Check = (value) => typeof value === "number" && value >= 0;
const isShare: Check = (value) => typeof value === "number" && value >= 0 && value <= 1;
const isInstant: Check = (value) => isText(value) && INSTANT.test(String(value)) && Date.parse(String(value)) > 0;
const isHttpUrl: Check = (value) => isText(value) && HTTP_URL.test(String(value)) && hasPort(String(value));

const isHedge = object({ target: isText, delay_us: orNull(isWhole(0, MAX_HEDGE_US)) });
const isQuantile = object({ value: isMeasure, high: orMissing(isMeasure) });
const isEntry = object({
  rank: isWhole(1),
  weight: isShare,
  target: isText,
  provider: isText,
  model: isText,
  dialect: isText,
  base_url: isHttpUrl,
  credential_ref: orNull(isText),
  hedge: orMissing(isHedge),
  ttft_p95_us: orMissing(isQuantile),
  tokens_per_second_p50: orMissing(isQuantile),
});
const isTable = object({
  schema: (value) => value === SCHEMA,
  generation: isWhole(1),
  etag: isText,
  client_region: isText,
  route: isText,
  built_at: isInstant,
  fresh_until_at: isInstant,
  stale_until_at: isInstant,
  state: (value) => ["ok", "degraded", "insufficient_data", "frozen"].includes(String(value)),
  entries: isList(isEntry),
  static_order: isList(isText),
  unassigned: isShare,
  move_within_us: isWhole(0, MAX_MOVE_US),
});
const isOverview = object({ plan_version: isWhole(1), routes: isList(isText) });

/** Read one table. Throws `TableError`, which names the field. */
export function readTable(text: string): RouteTable {
  const table = parsed(text);
  if (!isTable(table)) throw new TableError("the table is no object");
  requireConsistent(table as RouteTable);
  return table as RouteTable;
}

/** Read the routes of the plan from the overview of a collector. Throws `TableError`, also if it has no plan. */
export function readPlanned(text: string): ReadonlySet<string> {
  const overview = parsed(text);
  if (!isOverview(overview)) throw new TableError("the overview is no object");
  return new Set((overview as { readonly routes: readonly string[] }).routes);
}

/** Read a member, such as one that was kept. Throws `TableError`. */
export function readEntry(document: unknown): RouteEntry {
  if (!isEntry(document)) throw new TableError("an entry is no object");
  return document as RouteEntry;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new TableError("not JSON", { cause: error });
  }
}

function requireConsistent(table: RouteTable): void {
  const { entries } = table;
  if (new Set(entries.map((entry) => entry.target)).size !== entries.length)
    throw new TableError("entries: a target has several entries");
  const whole = entries.reduce((sum, entry) => sum + entry.weight, table.unassigned);
  if (entries.length > 0 && Math.abs(whole - 1) > WEIGHT_TOLERANCE)
    throw new TableError(`weights and unassigned add up to ${whole}, not to 1`);
}

function object(fields: Readonly<Record<string, Check>>): Check {
  return (value) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
    const given: Readonly<Record<string, unknown>> = { ...value };
    for (const [name, check] of Object.entries(fields)) {
      const field = given[name];
      if (!check(field)) throw new TableError(`${name} is ${JSON.stringify(field)?.slice(0, 80) ?? "missing"}`);
    }
    return true;
  };
}

function isWhole(from: number, to = Number.MAX_SAFE_INTEGER): Check {
  return (value) => typeof value === "number" && Number.isInteger(value) && value >= from && value <= to;
}

function isList(check: Check): Check {
  return (value) => Array.isArray(value) && value.every(check);
}

function orNull(check: Check): Check {
  return (value) => value === null || check(value);
}

function orMissing(check: Check): Check {
  return (value) => value === undefined || value === null || check(value);
}

function hasPort(url: string): boolean {
  return URL.canParse(url) && new URL(url).port !== "0";
}
