/** The members of a table in the order in which one request tries them, and second requests. Pure. */

import type { RouteEntry, RouteTable } from "./documents.js";

/** Targets, such as a set of them. */
export interface Targets {
  has(target: string): boolean;
}

/** A request's share of all, and the members that rest. */
export interface Draw {
  readonly draw: number;
  readonly unassigned: number;
  readonly throttled: Targets;
  readonly failing: Targets;
}

/**
 * The members to try: one drawn by weight, then the others by rank.
 *
 * `draw` is a random number from 0 to 1 (excluded). A draw in the `unassigned` share of the traffic gives no member.
 * Weights are relative, because a request may have a part of the members only. Members that are `throttled` are left
 * out, and `failing` ones come last.
 */
export function order(entries: readonly RouteEntry[], draw: Draw): RouteEntry[] {
  const first = drawn(entries, draw);
  if (!first) return [];
  const wanted = [first, ...entries.filter((entry) => entry !== first)];
  const isFailing = ({ target }: RouteEntry): number => Number(draw.failing.has(target));
  return wanted.filter(({ target }) => !draw.throttled.has(target)).sort((a, b) => isFailing(a) - isFailing(b));
}

/** The entry in whose share the draw falls; the last one with a weight for what rounding leaves. */
function drawn(entries: readonly RouteEntry[], { draw, unassigned }: Draw): RouteEntry | undefined {
  if (draw >= 1 - unassigned) return undefined;
  const positive = entries.filter((entry) => entry.weight > 0);
  const weighted = positive.length > 0 ? positive : entries.slice(0, 1);
  const whole = weighted.reduce((sum, entry) => sum + entry.weight, 0) || 1;
  let end = 0;
  return weighted.find((entry) => draw < (end += (entry.weight / whole) * (1 - unassigned))) ?? weighted.at(-1);
}

/** The statuses with which a member refuses what another one may answer, and their usual reasons. */
export const REFUSALS: Readonly<Record<number, string>> = {
  401: "its key is refused",
  402: "its account cannot pay",
  403: "it forbids the request, as from a blocked region",
  404: "it has no such model or path",
  408: "it timed out",
};

/** The kinds of failures of a member. */
export type Failure = "throttled" | "refused" | "failed";

/** The failure that a status states, or a web page in place of an answer; `undefined` for one that is the caller's. */
export function failureOf(status: number, { isPage = false } = {}): Failure | undefined {
  if (status === 429) return "throttled";
  if (REFUSALS[status]) return "refused";
  return status >= 500 || (isPage && status < 400) ? "failed" : undefined;
}

/** Parts of the names of fields by which models call tools, search or run code, and providers keep what is said. */
const EFFECTS = /tools|functions|mcp|plugin|search|store|conversation|previous|background|container/;
const TOOLS = ["tools", "functions", "mcp_servers"];
const UNSET: readonly unknown[] = [undefined, null, false, "", "none"];

/**
 * Whether a request does more than ask for an answer: twice, it would be done and billed twice. `document` is its JSON
 * in a dialect; names of fields may be in camel case.
 */
export function hasEffects(dialect: string, document: Readonly<Record<string, unknown>>): boolean {
  const { tool_choice: choice } = document as { tool_choice?: string | { type?: string } | null };
  const callsNone = choice === "none" || (typeof choice === "object" && choice?.type === "none");
  // The Responses API stores what does not ask otherwise.
  if (dialect === "openai-responses" && document["store"] !== false) return true;
  return Object.entries(document).some(
    ([name, value]) =>
      EFFECTS.test(name.toLowerCase()) &&
      !UNSET.includes(value) &&
      !(Array.isArray(value) && value.length === 0) &&
      !(callsNone && TOOLS.includes(name)),
  );
}

const MIN_FIRST_TOKEN_MS = 10_000;
const UNMEASURED_FIRST_TOKEN_MS = 60_000;
const BYTES_PER_MS = 4096 / 1000;

/**
 * The milliseconds after which a member without content is held to stall, by its tail in the table; `undefined`: not
 * known.
 *
 * They are far beyond the tail, because a long prompt takes longer than that of a probe: ten seconds, five times the
 * p95, and a second per 4 KiB. An answer without a stream also has five times the time of its most tokens.
 */
export function firstTokenLimitMs(
  { ttft_p95_us: tail, tokens_per_second_p50: speed }: RouteEntry,
  { isStreamed, bodyBytes, maxTokens }: { isStreamed: boolean; bodyBytes: number; maxTokens?: number | undefined },
): number | undefined {
  const limit = tail ? MIN_FIRST_TOKEN_MS + (5 * (tail.high || tail.value)) / 1000 : UNMEASURED_FIRST_TOKEN_MS;
  const streamed = limit + bodyBytes / BYTES_PER_MS;
  if (isStreamed) return streamed;
  return maxTokens && speed?.value ? streamed + (5000 * maxTokens) / speed.value : undefined;
}

/** The milliseconds of an attempt, of `left` for the whole request: while another member may answer, half at most. */
export function attemptLimitMs(firstToken: number | undefined, left: number, isLast: boolean): number {
  return isLast ? left : Math.min(left / 2, firstToken ?? Number.POSITIVE_INFINITY);
}

/** The reasons for not sending a second request. */
export type NoHedge = "not_streamed" | "effects" | "state" | "not_published" | "target_away";

/** Send a second request to `entry` if there is no content after `delay_us` microseconds. */
export interface HedgePlan {
  readonly delay_us: number;
  readonly entry: RouteEntry;
}

/**
 * Decide on a second request beside the one to the first member of the order.
 *
 * A table that is not `ok` doubles no traffic. A request that has effects needs leave.
 */
export function planHedge(
  table: RouteTable,
  [first, ...others]: readonly RouteEntry[],
  request: { isStreamed: boolean; hasEffects: boolean; allowEffects: boolean },
): HedgePlan | NoHedge {
  if (!request.isStreamed) return "not_streamed";
  if (request.hasEffects && !request.allowEffects) return "effects";
  if (table.state !== "ok") return "state";
  const { target, delay_us = null } = first?.hedge ?? {};
  if (delay_us === null) return "not_published";
  const entry = others.find((other) => other.target === target);
  return entry ? { delay_us, entry } : "target_away";
}

/** A token bucket: each request adds `ratio` tokens, up to `burst`, and a second request takes one. */
export class HedgeBudget {
  #tokens: number;

  constructor(
    readonly ratio = 0.06,
    readonly burst = 10,
  ) {
    this.#tokens = ratio > 0 ? 1 : 0;
  }

  /** Count a request that could be hedged. */
  addRequest(): void {
    this.#tokens = Math.min(this.burst, this.#tokens + this.ratio);
  }

  /** Take a token; return whether there was one. */
  take(): boolean {
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}
