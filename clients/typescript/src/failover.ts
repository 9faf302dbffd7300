/**
 * One request of a caller, sent to the members of its route until one returns content.
 *
 * An attempt that fails is followed by the next member, and the caller gets the last failure if there is none. A hedged
 * request has two attempts at once: the first content wins, and the other one is aborted, which closes its connection.
 */

import { planHedge, REFUSALS, type Failure } from "./attempts.js";
import type { RouteEntry, RouteTable } from "./documents.js";
import type { Routes } from "./routes.js";

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
  readonly hasTools: boolean;
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
  const attempts = await firstAttempts(request, first, order);
  const tried = new Set(attempts.map((attempt) => attempt.entry));
  let last = attempts.at(-1) as Attempt<T>;
  for (const entry of order.filter((one) => !tried.has(one))) {
    if (!(await last.ended).failure) break;
    last.abort();
    request.routes.count("failovers");
    last = attempt(request, entry);
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
): Promise<Attempt<T>[]> {
  const { routes, table, isStreamed, hasTools } = request;
  const plan = planHedge(table, order, { isStreamed, hasTools, allowTools: routes.hedgeToolCalls });
  const first = attempt(request, entry);
  if (typeof plan === "string") {
    routes.count(`not_hedged_${plan}`);
    return [first];
  }
  routes.budget.addRequest();
  if ((await endsWithin(first, plan.delay_us / 1000)) || !routes.budget.take()) return [first];
  routes.count("hedges");
  const second = attempt(request, plan.entry);
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

function attempt<T>(request: RoutedRequest<T>, entry: RouteEntry): Attempt<T> {
  const own = new AbortController();
  const signal = request.signal ? AbortSignal.any([request.signal, own.signal]) : own.signal;
  const ended = request
    .ask(entry, signal)
    .catch((error: unknown): Outcome<T> => ({ error }))
    // An attempt that was aborted says nothing about the member.
    .then((outcome) => (signal.aborted ? { ...outcome, failure: undefined } : noted(request, entry, outcome)));
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

async function endsWithin<T>({ ended }: Attempt<T>, delayMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => (timer = setTimeout(resolve, delayMs, false)));
  try {
    return await Promise.race([ended.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
