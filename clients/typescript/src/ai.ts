/**
 * Language models of the Vercel AI SDK that send each request to the members of a route until one returns content.
 *
 * Until the first content of a stream another member may still answer, so it is read that far before the caller gets
 * it. An attempt that fails is followed by the next member, and the caller gets the last failure if there is none. A
 * hedged request has two attempts at once: the first content wins, and the other one is aborted, which closes its
 * connection.
 */

import { APICallError, JSONParseError, TypeValidationError } from "@ai-sdk/provider";
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4GenerateResult,
  LanguageModelV4StreamPart,
  LanguageModelV4StreamResult,
} from "@ai-sdk/provider";

import { planHedge } from "./attempts.js";
import { retryAfterMs } from "./cooldowns.js";
import type { RouteEntry, RouteTable } from "./documents.js";
import type { Member, Routes } from "./routes.js";

/** The model of a provider for a member; `undefined` leaves the member out, for example because of its dialect. */
export type ModelOf = (member: Member) => LanguageModelV4 | undefined;

/**
 * A model whose requests go to the members of the route with its name. If there is no such route, or none of its
 * members can be used, they go to `model` itself.
 */
export function routed(model: LanguageModelV4, routes: Routes, modelOf: ModelOf): LanguageModelV4 {
  const requestOf = async (options: LanguageModelV4CallOptions, isStreamed: boolean): Promise<Request | undefined> => {
    const table = await routes.firstTable(model.modelId);
    const models = table ? modelsOf(table, routes, modelOf) : new Map<RouteEntry, LanguageModelV4>();
    routes.count(!table ? "passed_through" : models.size === 0 ? "no_member" : "requests");
    return table && models.size > 0 ? { routes, table, models, options, isStreamed } : undefined;
  };
  return {
    specificationVersion: "v4",
    provider: model.provider,
    modelId: model.modelId,
    supportedUrls: model.supportedUrls,
    async doGenerate(options) {
      const request = await requestOf(options, false);
      return request ? send(request, generate) : model.doGenerate(options);
    },
    async doStream(options) {
      const request = await requestOf(options, true);
      return request ? send(request, stream) : model.doStream(options);
    },
  };
}

/** A request of the caller; `models` are those of the members that may take it. */
interface Request {
  readonly routes: Routes;
  readonly table: RouteTable;
  readonly models: ReadonlyMap<RouteEntry, LanguageModelV4>;
  readonly options: LanguageModelV4CallOptions;
  readonly isStreamed: boolean;
}

type Failure = "throttled" | "failed" | undefined;

/** What came of an attempt: a value or an error, and whether it is a failure of the member. */
type Outcome<T> = { readonly failure: Failure } & ({ readonly value: T } | { readonly error: unknown });

/** One way of asking a model. */
type Ask<T> = (model: LanguageModelV4, options: LanguageModelV4CallOptions) => Promise<Outcome<T>>;

/** An attempt at a member; `ended` never rejects. */
interface Attempt<T> {
  readonly entry: RouteEntry;
  readonly ended: Promise<Outcome<T>>;
  abort(): void;
}

function modelsOf(table: RouteTable, routes: Routes, modelOf: ModelOf): Map<RouteEntry, LanguageModelV4> {
  const usable = table.entries.filter((entry) => routes.mayUse(entry));
  const models = usable.map((entry) => [entry, modelOf(routes.member(table, entry))] as const);
  return new Map(models.flatMap(([entry, model]) => (model ? [[entry, model] as const] : [])));
}

/** The answer of the first member that does not fail, or the last failure. */
async function send<T>(request: Request, ask: Ask<T>): Promise<T> {
  const { routes, table, models } = request;
  const members = [...models.keys()];
  const order = routes.order(table, members);
  const [first] = order;
  if (!first) throw noCapacity(routes.shortestRestMs(members));
  const attempts = await firstAttempts(request, ask, first, order);
  const tried = new Set(attempts.map((attempt) => attempt.entry));
  let last = attempts.at(-1) as Attempt<T>;
  for (const entry of order.filter((one) => !tried.has(one))) {
    if (!(await last.ended).failure) break;
    last.abort();
    routes.count("failovers");
    last = attempt(request, ask, entry);
  }
  const outcome = await last.ended;
  if ("error" in outcome) throw outcome.error;
  return outcome.value;
}

/** Try the first member and, after the hedge delay, the second one; the last attempt counts. */
async function firstAttempts<T>(
  request: Request,
  ask: Ask<T>,
  entry: RouteEntry,
  order: readonly RouteEntry[],
): Promise<Attempt<T>[]> {
  const { routes, options } = request;
  const plan = planHedge(request.table, order, {
    isStreamed: request.isStreamed,
    hasTools: (options.tools?.length ?? 0) > 0 && options.toolChoice?.type !== "none",
    allowTools: routes.hedgeToolCalls,
  });
  const first = attempt(request, ask, entry);
  if (typeof plan === "string") {
    routes.count(`not_hedged_${plan}`);
    return [first];
  }
  routes.budget.addRequest();
  if ((await endsWithin(first, plan.delay_us / 1000)) || !routes.budget.take()) return [first];
  routes.count("hedges");
  const second = attempt(request, ask, plan.entry);
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

function attempt<T>({ routes, models, options }: Request, ask: Ask<T>, entry: RouteEntry): Attempt<T> {
  const own = new AbortController();
  const abortSignal = options.abortSignal ? AbortSignal.any([options.abortSignal, own.signal]) : own.signal;
  const model = models.get(entry) as LanguageModelV4;
  const noted = (outcome: Outcome<T>): Outcome<T> => {
    if (abortSignal.aborted) return { ...outcome, failure: undefined }; // says nothing about the member
    if (outcome.failure === "throttled") routes.throttled(entry.target, retryAfterOf(outcome));
    else if (outcome.failure) routes.failed(entry.target);
    else routes.succeeded(entry.target);
    return outcome;
  };
  const ended = ask(model, { ...options, abortSignal })
    .catch((error: unknown) => ({ failure: failureOf(error), error }))
    .then(noted);
  return { entry, ended, abort: () => own.abort() };
}

const generate: Ask<LanguageModelV4GenerateResult> = async (model, options) => {
  return { failure: undefined, value: await model.doGenerate(options) };
};

/** Read a stream up to its first content; a failure or its end before that is a failed attempt. */
const stream: Ask<LanguageModelV4StreamResult> = async (model, options) => {
  const result = await model.doStream(options);
  const reader = result.stream.getReader();
  const held: LanguageModelV4StreamPart[] = [];
  let progress: Progress = "waiting";
  try {
    while (progress === "waiting") {
      const { done, value } = await reader.read();
      if (!done) held.push(value);
      progress = done ? "failed" : progressOf(value);
    }
  } catch (error) {
    return { failure: "failed", error };
  }
  const isFailed = progress === "failed";
  // Before content, only frames that the provider's package could not read are errors.
  const shown = isFailed ? held : held.filter((part) => part.type !== "error");
  return { failure: isFailed ? "failed" : undefined, value: { ...result, stream: resumed(shown, reader) } };
};

type Progress = "waiting" | "content" | "failed";

const OPENINGS = /^(stream-start|response-metadata|raw|(text|reasoning)-(start|end))$/;
/** Finish reasons that are failures of the provider, without separators; the agent has the same ones. */
const FAILED_REASON = new RegExp(
  "abort|error|fail|cancel|timeout|exception|overload|insufficient|malformed|unexpected|other$|unspecified|preempt" +
    "|interrupt|disconnect|kill|evict|crash|lost|unhealthy|unavailable|missing|toomany|noimage",
);
/** The fields of an error, in a frame that is no chunk of an answer. */
const ERROR_FIELD = /error|exception|code|detail|message/i;

/** Whether a part is content, or a regular end, or nothing that a caller would show. */
function progressOf(part: LanguageModelV4StreamPart): Progress {
  if (part.type === "error") return isUnread(part.error) ? "waiting" : "failed";
  if (part.type === "finish") return isFailure(part.finishReason) ? "failed" : "content";
  const isEmpty = "delta" in part && part.delta === "";
  return isEmpty || OPENINGS.test(part.type) ? "waiting" : "content";
}

function isFailure({ unified, raw }: { unified: string; raw: string | undefined }): boolean {
  // Without a reason, the stream was cut.
  const word = raw?.toLowerCase().replace(/[\s._-]+/g, "");
  return unified === "error" || (unified === "other" && (word === undefined || FAILED_REASON.test(word)));
}

/** Whether a frame says nothing to the provider's package, such as a keep-alive: no JSON, or of another shape. */
function isUnread(error: unknown): boolean {
  if (JSONParseError.isInstance(error)) return true;
  if (!TypeValidationError.isInstance(error)) return false;
  const { value } = error;
  if (typeof value !== "object" || value === null) return true;
  const { type, object } = value as Record<string, unknown>;
  return !Object.keys(value).some((name) => ERROR_FIELD.test(name)) && !/error|exception/i.test(`${type} ${object}`);
}

/** The stream from its beginning: the parts that were held, then the rest. */
function resumed(
  held: LanguageModelV4StreamPart[],
  reader: ReadableStreamDefaultReader<LanguageModelV4StreamPart>,
): ReadableStream<LanguageModelV4StreamPart> {
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = held.length > 0 ? { done: false, value: held.shift() } : await reader.read();
      if (done) controller.close();
      else controller.enqueue(value as LanguageModelV4StreamPart);
    },
    cancel: (reason) => reader.cancel(reason),
  });
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

/** The caller's own errors end its request; a connection, a server or a body that fails is the member's. */
function failureOf(error: unknown): Failure {
  if (!APICallError.isInstance(error)) return undefined;
  const { statusCode, isRetryable } = error;
  if (statusCode === 429) return "throttled";
  const isFailed = statusCode === undefined ? isRetryable : statusCode < 400 || statusCode >= 500;
  return isFailed ? "failed" : undefined;
}

function retryAfterOf(outcome: Outcome<unknown>): number | undefined {
  const isAnswer = "error" in outcome && APICallError.isInstance(outcome.error);
  return isAnswer ? retryAfterMs(outcome.error.responseHeaders) : undefined;
}

/** A 429 in place of a request that no member may take; callers wait and try again. */
function noCapacity(restMs: number): APICallError {
  return new APICallError({
    message: "no member of the route has capacity",
    url: "",
    requestBodyValues: {},
    statusCode: 429,
    responseHeaders: { "retry-after": String(Math.max(1, Math.ceil(restMs / 1000))) },
  });
}
