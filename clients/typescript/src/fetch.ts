/**
 * A `fetch` for SDKs that take one, such as `openai`: a request whose model is the name of a route goes to the members of
 * that route, until one returns content.
 *
 * Only the model, the address and the key change. Until the first content of a stream another member may still answer,
 * so it is read that far before the caller gets it; an answer without a stream is read to its end.
 */

import { failureOf, hasEffects } from "./attempts.js";
import { retryAfterMs } from "./cooldowns.js";
import type { RouteEntry } from "./documents.js";
import { resumed, send, type Outcome } from "./failover.js";
import { FirstContent, UNFRAMED_CHARS, type Progress } from "./firstContent.js";
import type { Routes } from "./routes.js";

const DIALECTS = { "/chat/completions": "openai-chat", "/responses": "openai-responses", "/messages": "anthropic" };
/** The accounts that the caller's key belongs to go with it. */
const KEY_HEADERS = [
  ...["authorization", "x-api-key", "x-goog-api-key", "api-key"],
  ...["openai-organization", "openai-project"],
];
/** The ends of the names of parameters that are keys in the query of an address, such as `key` in Google's dialect. */
const KEY_PARAMETER = /(key|token|secret|sig|signature|credential|auth|authorization|password)$/i;
/** Of a response that is read ahead; the caller gets a larger one as it comes. */
const MOST_HELD_BYTES = 4 << 20;

/** A request in a dialect; `endpoint` is its path after the base URL, `text` its body. */
interface DialectRequest {
  readonly url: URL;
  readonly dialect: string;
  readonly endpoint: string;
  readonly init: RequestInit;
  readonly headers: Headers;
  readonly signal: AbortSignal;
  readonly text: string;
}

/** A `fetch` by the tables of `routes`; other requests go to their own address by `own`. */
export function routedFetch(routes: Routes, own: typeof fetch = fetch): typeof fetch {
  return async (input, init) => {
    const request = await dialectRequest(input, init);
    if (!request) {
      routes.count("passed_through");
      return own(input, init);
    }
    const document = objectOf(request.text);
    const { model, stream } = document;
    const table = typeof model === "string" && model ? await routes.firstTable(model) : undefined;
    if (!table) {
      routes.count("passed_through");
      return own(request.url, { ...request.init, body: request.text });
    }
    const { url, dialect, text, headers, signal } = request;
    const limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"].map((name) => document[name]);
    return send({
      routes,
      table,
      isStreamed: stream === true,
      hasEffects: hasEffects(dialect, document),
      bodyBytes: text.length,
      maxTokens: limits.find((limit) => typeof limit === "number"),
      signal,
      obstacle(entry) {
        if (entry.dialect !== dialect) return `speaks ${entry.dialect}, not ${dialect}`;
        const isOwn = new URL(entry.base_url).origin === url.origin;
        const hasKey = withoutKeys(url) !== url.search || KEY_HEADERS.some((name) => headers.has(name));
        return routes.obstacle(entry, { sendsCallersKey: !isOwn && hasKey });
      },
      async ask(entry, abortSignal) {
        const { key } = routes.member(table, entry);
        const body = JSON.stringify({ ...document, model: entry.model });
        const addressed = { ...request.init, headers: headersFor(entry, headers, key), body, signal: abortSignal };
        // Another address must not get the key.
        return outcomeOf(own(addressOf(request, entry, key), { ...addressed, redirect: "manual" }), dialect, stream === true);
      },
      refuse: (status, code, message, more = {}) =>
        Response.json({ error: { message, type: code, code } }, { status, headers: more }),
    });
  };
}

/** Read a request; `undefined` if it cannot be routed. */
async function dialectRequest(input: string | URL | Request, init: RequestInit = {}): Promise<DialectRequest | undefined> {
  const given = input instanceof Request ? input : undefined;
  const url = new URL(given?.url ?? String(input));
  const [endpoint, dialect] = Object.entries(DIALECTS).find(([end]) => url.pathname.endsWith(end)) ?? [];
  const method = (init.method ?? given?.method ?? "GET").toUpperCase();
  if (!endpoint || !dialect || method !== "POST") return undefined;
  const request = new Request(input, init);
  const { headers, signal } = request;
  return { url, dialect, endpoint, init: { ...init, method, headers, signal }, headers, signal, text: await request.text() };
}

function objectOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
  } catch {
    return {};
  }
}

/** The URL of the request at a member, whose base URL may have a query; with a key of its own it gets no other one. */
function addressOf({ url, endpoint }: DialectRequest, { base_url }: RouteEntry, key: string | undefined): URL {
  const address = new URL(base_url);
  address.pathname = address.pathname.replace(/\/+$/, "") + endpoint;
  const query = key ? withoutKeys(url) : url.search;
  address.search = [address.search.slice(1), query.slice(1)].filter(Boolean).join("&");
  return address;
}

/** The query of an address without the keys in it. */
function withoutKeys({ search }: URL): string {
  const isKey = (pair: string): boolean => [...new URLSearchParams(pair).keys()].some((name) => KEY_PARAMETER.test(name));
  return search && `?${search.slice(1).split("&").filter((pair) => !isKey(pair)).join("&")}`;
}

/** The headers for a member: if it has a key, that one instead of the caller's. */
function headersFor({ dialect }: RouteEntry, given: Headers, key: string | undefined): Headers {
  const headers = new Headers(given);
  for (const name of ["host", "content-length", "cookie", ...(key ? KEY_HEADERS : [])]) headers.delete(name);
  if (key) headers.set(...((dialect === "anthropic" ? ["x-api-key", key] : ["authorization", `Bearer ${key}`]) as [string, string]));
  return headers;
}

async function outcomeOf(asked: Promise<Response>, dialect: string, isStreamed: boolean): Promise<Outcome<Response>> {
  let response: Response;
  try {
    response = await asked;
  } catch (error) {
    return { failure: "failed", error };
  }
  const { status, headers } = response;
  const type = headers.get("content-type")?.toLowerCase() ?? "";
  const failure = failureOf(status, { isPage: type.startsWith("text/html") });
  if (failure) return { failure, status, retryAfterMs: retryAfterMs(Object.fromEntries(headers)), value: response };
  if (status >= 300 || !response.body) return { value: response }; // the caller's own error
  return readAhead(response, response.body.getReader(), { dialect, isStreamed, isEvents: type.startsWith("text/event-stream") });
}

/** Read a stream up to its first content, and any other answer to its end; a failure before is the attempt's. */
async function readAhead(
  response: Response,
  reader: ReadableStreamDefaultReader<Uint8Array>,
  { dialect, isStreamed, isEvents }: { dialect: string; isStreamed: boolean; isEvents: boolean },
): Promise<Outcome<Response>> {
  const [finder, decoder] = [new FirstContent(dialect), new TextDecoder()];
  const held: Uint8Array[] = [];
  // Another answer may be the body of an error while it is small.
  const most = isEvents || !isStreamed ? MOST_HELD_BYTES : UNFRAMED_CHARS;
  let [size, isEnded] = [0, false];
  let progress: Progress = "waiting";
  try {
    while (progress === "waiting" && size <= most && !isEnded) {
      const { done, value } = await reader.read();
      isEnded = done;
      if (value) {
        held.push(value);
        size += value.length;
      }
      const isJudged = isEvents || size <= UNFRAMED_CHARS;
      if (isJudged) progress = done ? finder.end() : finder.receive(decoder.decode(value, { stream: true }));
    }
  } catch (error) {
    return { failure: "failed", error };
  }
  const isFailed = progress === "failed" || (isEvents && progress === "waiting" && isEnded);
  return { failure: isFailed ? "failed" : undefined, value: withBody(response, resumed(held, reader)) };
}

/** The response with another body, which is decoded already. */
function withBody({ status, statusText, headers }: Response, body: ReadableStream<Uint8Array>): Response {
  const kept = new Headers(headers);
  for (const name of ["content-encoding", "content-length"]) kept.delete(name);
  return new Response(body, { status, statusText, headers: kept });
}
