/**
 * Language models of the Vercel AI SDK that send each request to the members of a route until one returns content.
 *
 * Until the first content of a stream another member may still answer, so it is read that far before the caller gets
 * it.
 */

import { APICallError, JSONParseError, TypeValidationError } from "@ai-sdk/provider";
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4GenerateResult,
  LanguageModelV4StreamPart,
  LanguageModelV4StreamResult,
} from "@ai-sdk/provider";

import { failureOf, hasEffects } from "./attempts.js";
import { retryAfterMs } from "./cooldowns.js";
import type { RouteEntry } from "./documents.js";
import { resumed, send, type Outcome } from "./failover.js";
import { FAILED_REASON, kindOf, unframedFailure, type Progress } from "./firstContent.js";
import type { Member, Routes } from "./routes.js";

/** The model of a provider for a member; `undefined` leaves the member out, for example because of its dialect. */
export type ModelOf = (member: Member) => LanguageModelV4 | undefined;

/** One way of asking a model. */
type Ask<T> = (model: LanguageModelV4, options: LanguageModelV4CallOptions) => Promise<Outcome<T>>;

/**
 * A model whose requests go to the members of the route with its name. If there is no such route, they go to `model`
 * itself. Members without a credential need `sendCallersKey`, because packages of providers then read a key of their
 * own from the environment.
 */
export function routed(model: LanguageModelV4, routes: Routes, modelOf: ModelOf): LanguageModelV4 {
  /** The answer of a member; `undefined` if there is no such route. */
  async function ofMembers<T>(options: LanguageModelV4CallOptions, ask: Ask<T>): Promise<T | undefined> {
    const table = await routes.firstTable(model.modelId);
    if (!table) return void routes.count("passed_through");
    const models = new Map<RouteEntry, LanguageModelV4>();
    return send<T>({
      routes,
      table,
      isStreamed: (ask as unknown) === stream,
      hasEffects: table.entries.some(({ dialect }) => hasEffects(dialect, optionFields(options))),
      bodyBytes: sizeOf(options.prompt),
      maxTokens: options.maxOutputTokens,
      signal: options.abortSignal,
      obstacle(entry) {
        const why = routes.obstacle(entry, { sendsCallersKey: true });
        const found = why ? undefined : modelOf(routes.member(table, entry));
        if (found) models.set(entry, found);
        return found ? "" : why || `speaks ${entry.dialect}, for which there is no model`;
      },
      ask: (entry, abortSignal) =>
        ask(models.get(entry) as LanguageModelV4, { ...options, abortSignal }).catch(ofError),
      refuse,
    });
  }
  return {
    specificationVersion: "v4",
    provider: model.provider,
    modelId: model.modelId,
    supportedUrls: model.supportedUrls,
    async doGenerate(options) {
      return (await ofMembers(options, generate)) ?? model.doGenerate(options);
    },
    async doStream(options) {
      return (await ofMembers(options, stream)) ?? model.doStream(options);
    },
  };
}

/** The fields of a request that decide whether it has effects, by the names that providers give them. */
export function optionFields({ tools, toolChoice, providerOptions = {} }: LanguageModelV4CallOptions): Record<string, unknown> {
  return Object.assign({}, ...Object.values(providerOptions), { tools, tool_choice: toolChoice });
}

/** About the bytes of a value as JSON. */
function sizeOf(value: unknown): number {
  if (typeof value === "string" || value instanceof Uint8Array) return value.length;
  if (typeof value !== "object" || value === null) return 0;
  return Object.values(value).reduce((sum: number, part) => sum + sizeOf(part), 0);
}

const generate: Ask<LanguageModelV4GenerateResult> = async (model, options) => ({
  value: await model.doGenerate(options),
});

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
  // Before the last part, only frames that the provider's package could not read are errors.
  const shown = isFailed ? held : held.filter((part) => part.type !== "error" || part === held.at(-1));
  return { failure: isFailed ? "failed" : undefined, value: { ...result, stream: resumed(shown, reader) } };
};

const OPENINGS = /^(stream-start|response-metadata|raw|(text|reasoning)-(start|end))$/;
/** The fields of an error, in a frame that is no chunk of an answer. */
const ERROR_FIELD = /error|exception|code|detail|message/i;

/** Whether a part is content, or a regular end, or nothing that a caller would show. */
function progressOf(part: LanguageModelV4StreamPart): Progress {
  if (part.type === "error") {
    const { error } = part;
    return isUnread(error) ? "waiting" : kindOf(TypeValidationError.isInstance(error) ? error.value : error);
  }
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

/** The caller's own errors end its request; a connection, a server or a body that fails is the member's. */
function ofError(error: unknown): Outcome<never> {
  if (!APICallError.isInstance(error)) return { error };
  const { statusCode: status, isRetryable, responseHeaders, responseBody = "" } = error;
  // An error of an answer is one of its body.
  const isPage = unframedFailure(responseBody) !== "content";
  const failure = status === undefined ? isRetryable && "failed" : failureOf(status, { isPage });
  return { error, failure: failure || undefined, status, retryAfterMs: retryAfterMs(responseHeaders) };
}

/** An error in place of an answer that no member gives. */
function refuse(statusCode: number, code: string, message: string, responseHeaders: Record<string, string> = {}): never {
  throw new APICallError({ message, statusCode, responseHeaders, url: "", requestBodyValues: {}, data: { code } });
}
