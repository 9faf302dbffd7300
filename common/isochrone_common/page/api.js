/**
 * Requests to the HTTP interface. The browser keeps answers with their entity tags and asks whether they have changed;
 * an unchanged answer is the same object as before.
 */

/** A document of the interface: `rows`, and other fields by its schema. */
/** @typedef {{schema?: string, rows: any[], window?: {from_at: string, until_at: string}, [name: string]: any}} Answer */

/** @type {Map<string, {etag: string, answer: Answer}>} */
const known = new Map();
const MAX_KNOWN = 64;
// The collector shares an answer for a second, or twenty times as long as its query took.
const MAX_AGE_S = 60;

/**
 * What `isochrone report` wrote into this document: the instant of its answers, the defaults of options, and the answers by
 * their paths without escapes; null on the page of a collector.
 * @type {{at: string, options: Record<string, string>, answers: Record<string, Answer>} | null}
 */
export const REPORT = JSON.parse(globalThis.document?.getElementById("report")?.textContent ?? "null");

/**
 * The answer of the report to a path, if it has one.
 * @param {string} path
 */
export function reported(path) {
  return REPORT?.answers[decodeURIComponent(path.replaceAll("+", " "))];
}

/** An answer other than the one asked for. `status` is 0 if the collector was not reached. */
export class RequestError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * The path of a request; values that are lists are repeated, empty ones left out.
 * @param {string} path
 * @param {Record<string, string | readonly string[]>} [query]
 */
export function apiPath(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one) parameters.append(name, one);
  }
  return parameters.size ? `${path}?${parameters}` : path;
}

/**
 * Return the answer of a path, and its age in milliseconds: open pages share answers. Throws `RequestError`, or what
 * `signal` throws when it is aborted.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<{answer: Answer, ageMs: number}>}
 */
export async function ask(path, signal) {
  if (REPORT) {
    const answer = reported(path);
    if (answer) return { answer, ageMs: 0 };
    throw new RequestError(404, "This report does not contain that; the page of its collector does.");
  }
  // No other header, or it would not be the request that the document preloads.
  const headers = { "Cache-Control": `max-age=${MAX_AGE_S}` };
  const response = await request(path, { signal: signal ?? null, headers });
  const etag = response.headers.get("etag") ?? "", ageMs = 1_000 * Number(response.headers.get("age") ?? 0);
  const before = known.get(path);
  if (before && etag && before.etag === etag) return { answer: before.answer, ageMs };
  const answer = await response.json();
  known.delete(path);
  known.set(path, { etag, answer });
  for (const oldest of known.keys()) if (known.size > MAX_KNOWN) known.delete(oldest);
  return { answer, ageMs };
}

/**
 * Begin a session. Throws `RequestError` if the credential or link is refused.
 * @param {{credential: string} | {link: string}} by
 */
export async function logIn(by) {
  await request("/session", { method: "POST", body: new URLSearchParams(by) });
}

/**
 * What this browser may do: the `name` of its user, empty without a credential; whether it `reads` all data, whether a
 * logout `ends` that, and whether the status is `public`.
 * @typedef {{name: string, reads: boolean, ends: boolean, public: boolean}} Access
 */

/**
 * Return what this browser may do; `null` if the collector does not answer.
 * @returns {Promise<Access | null>}
 */
export async function ownAccess() {
  if (REPORT) return null;
  try {
    const answer = await (await request("/session", {})).json();
    return { ...answer, name: String(answer.name ?? "") };
  } catch (error) {
    if (error instanceof RequestError) return null;
    throw error;
  }
}

/** End the session. */
export async function logOut() {
  known.clear();
  await request("/session", { method: "DELETE" });
}

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error instanceof DOMException) throw error;
    throw new RequestError(0, "the collector does not answer");
  }
  if (!response.ok) throw new RequestError(response.status, await reasonOf(response));
  return response;
}

/** @param {Response} response */
async function reasonOf(response) {
  try {
    const problem = await response.json();
    return [problem.detail || problem.title, problem.hint].filter(Boolean).join(": ");
  } catch {
    return `the collector answers with status ${response.status}`;
  }
}
