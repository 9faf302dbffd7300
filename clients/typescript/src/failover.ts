/**
 * One request of a caller, sent to the members of its route until one returns content.
 *
 * An attempt that fails is followed by the next member, and the caller gets the last failure if there is none. A hedged
 * request has two attempts at once: the first content wins, and the other one is aborted, which closes its connection.
 */

import { attemptLimitMs, firstTokenLimitMs, planHedge, REFUSALS, type Failure } from "./attempts.js";
import type { RouteEntry, RouteTable } from "./documents.js";
import type { Routes } from "./routes.js";

const MAX_TIMER_MS = 2 ** 31 - 1;

/** What came of an attempt: a value or an error, and the failure of the member that it is. */
export type Outcome<T> = {
  readonly failure?: Failure | undefined;
  readonly status?: number | undefined;
  readonly retryAfterMs?: number | undefined;
} & ({ readonly value: T } | { readonly error: unknown });

/** A request for a route; `T` is the form of its answers. */
export interface RoutedRequest<T> {
  readonly routes: Routes;
  readonly table: RouteTable;
  readonly isStreamed: boolean;
  readonly hasEffects: boolean;
  readonly bodyBytes: number;
  readonly maxTokens?: number | undefined;
  readonly signal: AbortSignal | undefined;
  /** Why the member cannot take the request; empty if it can. */
  obstacle(entry: RouteEntry): string;
  /** Ask a member; what it throws is an error of the caller's own. */
  ask(entry: RouteEntry, signal: AbortSignal): Promise<Outcome<T>>;
  /** The answer, or the error thrown, in place of one that no member gives. */
  refuse(status: number, code: string, message: string, headers?: Record<string, string>): T;
}

/** An attempt at a member; `ended` never rejects. */
interface Attempt<T> {
  readonly entry: RouteEntry;
  readonly ended: Promise<Outcome<T>>;
  abort(): void;
}

/** The answer of the first member that does not fail, or the last failure. */
export async function send<T>(request: RoutedRequest<T>): Promise<T> {
  const { routes, table } = request;
  const obstacles = table.entries.map((entry) => request.obstacle(entry));
  const members = table.entries.filter((_, place) => !obstacles[place]);
  if (members.length === 0) {
    routes.count("no_member");
    const whys = table.entries.map(({ target }, place) => `${target} ${obstacles[place]}`).join("; ");
    return request.refuse(400, "no_member", `no member of the route ${table.route} can take this request: ${whys}`);
  }
  routes.noteUsable(table, members);
  routes.count("requests");
  const order = routes.order(table, members);
  const [first] = order;
  if (first) return tryInOrder(request, first, order);
  routes.count("no_capacity");
  const wait = { "retry-after": String(Math.max(1, Math.ceil(routes.shortestRestMs(members) / 1000))) };
  return request.refuse(429, "no_capacity", "no member of the route has capacity", wait);
}

async function tryInOrder<T>(
  request: RoutedRequest<T>,
  first: RouteEntry,
  order: readonly RouteEntry[],
): Promise<T> {
  const until = performance.now() + request.routes.deadlineMs;
  const attempts = await firstAttempts(request, first, order, until);
  const tried = new Set(attempts.map((attempt) => attempt.entry));
  const rest = order.filter((one) => !tried.has(one));
  let last = attempts.at(-1) as Attempt<T>;
  for (const entry of rest) {
    if (!(await last.ended).failure || performance.now() >= until) break;
    last.abort();
    request.routes.count("failovers");
    last = attempt(request, entry, until, entry === rest.at(-1));
  }
  const outcome = await last.ended;
  if ("error" in outcome) throw outcome.error;
  return outcome.value;
}

/** Try the first member and, after the hedge delay, the second one; the last attempt counts. */
async function firstAttempts<T>(
  request: RoutedRequest<T>,
  entry: RouteEntry,
  order: readonly RouteEntry[],
  until: number,
): Promise<Attempt<T>[]> {
  const { routes, table, isStreamed, hasEffects } = request;
  const plan = planHedge(table, order, { isStreamed, hasEffects, allowEffects: routes.hedgeEffects });
  const first = attempt(request, entry, until, order.length === 1);
  if (typeof plan === "string") {
    routes.count(`not_hedged_${plan}`);
    return [first];
  }
  routes.budget.addRequest();
  const isSoon = await within(first.ended.then(() => true), plan.delay_us / 1000, () => false);
  if (isSoon || !routes.budget.take()) return [first];
  routes.count("hedges");
  const second = attempt(request, plan.entry, until, order.length === 2);
  const attempts = await untilSuccess(first, second);
  if (attempts.at(-1) === second && !(await second.ended).failure) routes.count("hedges_won");
  return attempts;
}

/** The attempts up to the first success, that one last; both if neither succeeds. What lost is aborted. */
async function untilSuccess<T>(first: Attempt<T>, second: Attempt<T>): Promise<Attempt<T>[]> {
  const isFirstSooner = await Promise.race([first.ended.then(() => true), second.ended.then(() => false)]);
  const [sooner, later] = isFirstSooner ? [first, second] : [second, first];
  const { failure } = await sooner.ended;
  (failure ? sooner : later).abort();
  return failure ? [sooner, later] : [sooner];
}

/** Ask a member; without content in its time it has failed. */
function attempt<T>(request: RoutedRequest<T>, entry: RouteEntry, until: number, isLast: boolean): Attempt<T> {
  const own = new AbortController();
  const signal = request.signal ? AbortSignal.any([request.signal, own.signal]) : own.signal;
  const { routes, table } = request;
  const firstToken = routes.firstTokenMs(table.route) ?? firstTokenLimitMs(entry, request);
  const limit = attemptLimitMs(firstToken, Math.max(0, until - performance.now()), isLast);
  const asked = request.ask(entry, signal).catch((error: unknown): Outcome<T> => ({ error }));
  let isLate = false;
  const ended = within(asked, limit, (): Outcome<T> => {
    isLate = true;
    own.abort();
    routes.count("late");
    const text = `the request timed out: ${entry.target} returned no content within ${limit.toFixed()} ms`;
    return { failure: "failed", error: new DOMException(text, "TimeoutError") };
  }).then((outcome) => {
    // An attempt that the caller or its rival aborted says nothing about the member.
    if (signal.aborted && !isLate) return { ...outcome, failure: undefined };
    return noted(request, entry, outcome);
  });
  return { entry, ended, abort: () => own.abort() };
}

/** Note what an attempt says about its member. */
function noted<T>({ routes, table }: RoutedRequest<T>, entry: RouteEntry, outcome: Outcome<T>): Outcome<T> {
  const { failure, status = 0 } = outcome;
  const { target, model } = entry;
  if (failure === "refused") {
    if (!routes.failoverOnRefusals) return { ...outcome, failure: undefined };
    const why = `${target} (model ${model}) returned ${status}: ${REFUSALS[status]}`;
    routes.warn(`route ${table.route}: ${why}; requests go to the next member first`);
  }
  if (failure === "throttled") routes.throttled(target, outcome.retryAfterMs);
  else if (failure) routes.failed(target);
  else routes.succeeded(target);
  return outcome;
}

/** A stream from its beginning: the parts that were held, then the rest. */
export function resumed<T>(held: T[], reader: ReadableStreamDefaultReader<T>): ReadableStream<T> {
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = held.length > 0 ? { done: false, value: held.shift() } : await reader.read();
      if (done) controller.close();
      else controller.enqueue(value as T);
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** The value if it comes within a time, otherwise another one. */
async function within<T>(value: Promise<T>, limitMs: number, otherwise: () => T): Promise<T> {
  if (limitMs > MAX_TIMER_MS) return value;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<T>((resolve) => (timer = setTimeout(() => resolve(otherwise()), limitMs)));
  try {
    return await Promise.race([value, late]);
  } finally {
    clearTimeout(timer);
  }
}
