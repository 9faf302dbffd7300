/**
 * The answers of the shown view, asked again when there may be new ones: each request at most once a second, and more
 * rarely the more pages are open and the longer its own answers take. A slow request does not delay the others.
 */

import { RequestError, ask } from "./api.js";

const MIN_PAUSE_MS = 1_000;
// Of the time, at most a twentieth is spent in a request.
const PAUSE_SHARE = 20;
// Answers that arrive within this time of each other are drawn together.
const TOGETHER_MS = 100;

/**
 * The pause until a request is sent again in milliseconds, after it took so long, if the collector asks for `askedMs`. Pure.
 * @param {number} tookMs
 * @param {number} askedMs
 */
export function pauseAfter(tookMs, askedMs) {
  return Math.max(MIN_PAUSE_MS, askedMs, PAUSE_SHARE * tookMs);
}

/** The first failure of the requests, that of a missing login before others, and whether an answer is another one. */
/** @typedef {{error: RequestError | null, isNew: boolean}} Result */

/** A request that is sent again and again, one at a time, with its newest answer and its newest failure. */
class RepeatedRequest {
  #pauseMs;
  #onEnd;
  #running = new AbortController();
  #isWanted = false;
  // In milliseconds of the page's own time.
  #wantedAt = 0;
  #allowedAt = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {string} path
   * @param {import("./api.js").Answer | undefined} answer a known one
   * @param {{pauseMs: () => number, onEnd: (isNew: boolean) => void}} options `pauseMs` is the shortest pause that the collector
   *   asks for, and `onEnd` is called after each answer or failure, with whether it is another one.
   */
  constructor(path, answer, { pauseMs, onEnd }) {
    this.path = path;
    this.answer = answer;
    this.error = /** @type {RequestError | null} */ (null);
    this.isRunning = false;
    this.#pauseMs = pauseMs;
    this.#onEnd = onEnd;
  }

  /** Send it as soon as the pause allows it. */
  refresh() {
    this.#isWanted = true;
    this.#wantedAt = performance.now();
    if (!this.isRunning) this.#schedule();
  }

  /** Send it no more. */
  end() {
    clearTimeout(this.#timer);
    this.#running.abort();
  }

  #schedule() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#run(), Math.max(0, this.#allowedAt - performance.now()));
  }

  async #run() {
    const before = this.answer, hadFailed = Boolean(this.error), began = performance.now();
    this.isRunning = true;
    this.#isWanted = false;
    const asOf = await this.#ask(began);
    if (this.#running.signal.aborted) return;
    this.isRunning = false;
    this.#allowedAt = performance.now() + pauseAfter(performance.now() - began, this.#pauseMs());
    this.#onEnd(this.answer !== before || Boolean(this.error) !== hadFailed);
    // An answer that is shared with other pages may be older than what made this page ask.
    if (this.#isWanted || asOf < this.#wantedAt) this.#schedule();
  }

  /**
   * Return the instant of which the answer is, or a later one.
   * @param {number} began
   */
  async #ask(began) {
    try {
      const { answer, ageMs } = await ask(this.path, this.#running.signal);
      if (this.#running.signal.aborted) return began;
      this.answer = answer;
      this.error = null;
      return began - ageMs;
    } catch (failure) {
      if (this.#running.signal.aborted) return began;
      if (!(failure instanceof RequestError)) throw failure;
      this.error = failure;
      // What was refused is not shown as if it were of now; what cannot be asked now stays.
      if (failure.status >= 400 && failure.status < 500) this.answer = undefined;
      return began;
    }
  }
}

/** The requests of one view at a time. */
export class Refresher {
  #onResult;
  /** @type {ReadonlyMap<string, RepeatedRequest>} */
  #requests = new Map();
  #pauseMs = MIN_PAUSE_MS;
  #askedAt = 0;
  #isNew = false;
  /** @type {readonly string[]} */
  #optional = [];
  // Whether the optional requests wait for the others.
  #isHeld = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {(result: Result) => void} onResult is called after answers have arrived. */
  constructor(onResult) {
    this.#onResult = onResult;
  }

  /**
   * Ask other paths, at once, and the `optional` ones when the others are answered. Answers to equal requests are kept.
   * @param {Record<string, string>} paths
   * @param {readonly string[]} [optional] the names of requests whose failures are not reported
   */
  open(paths, optional = []) {
    this.#optional = optional;
    const before = this.#requests, options = { pauseMs: () => this.#pauseMs, onEnd: (/** @type {boolean} */ isNew) => this.#collect(isNew) };
    for (const request of before.values()) request.end();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#requests = new Map(Object.entries(paths).map(([name, path]) => {
      const old = before.get(name);
      return [name, new RepeatedRequest(path, old?.path === path ? old.answer : undefined, options)];
    }));
    this.refresh();
  }

  /**
   * Set the shortest pause that the collector asks for.
   * @param {number} ms
   */
  setPause(ms) {
    this.#pauseMs = ms;
  }

  /** When the answers were wanted last, in milliseconds since the epoch. */
  get askedAt() {
    return this.#askedAt;
  }

  /** Whether an answer of the shown view is missing. */
  get isIncomplete() {
    return [...this.#requests].some(([name, request]) => !request.answer && !(request.error && this.#optional.includes(name)));
  }

  /** Whether all requests but the optional ones have an answer. */
  get #isAnswered() {
    return [...this.#requests].every(([name, request]) => request.answer || this.#optional.includes(name));
  }

  /**
   * The answers so far.
   * @returns {Record<string, import("./api.js").Answer | undefined>}
   */
  get answers() {
    return Object.fromEntries([...this.#requests].map(([name, request]) => [name, request.answer]));
  }

  /**
   * Ask again as soon as the pauses allow it.
   * @param {readonly string[]} [others] the names of requests that are not sent again, unless they failed
   */
  refresh(others = []) {
    this.#askedAt = Date.now();
    this.#isHeld = !this.#isAnswered;
    for (const [name, request] of this.#requests) {
      if ((request.error || !others.includes(name)) && !(this.#isHeld && this.#optional.includes(name))) request.refresh();
    }
  }

  /** @param {boolean} isNew */
  #collect(isNew) {
    this.#isNew ||= isNew;
    if (this.#isHeld && this.#isAnswered) {
      this.#isHeld = false;
      for (const name of this.#optional) this.#requests.get(name)?.refresh();
    }
    if (![...this.#requests.values()].some((request) => request.isRunning)) this.#report();
    else this.#timer ??= setTimeout(() => this.#report(), TOGETHER_MS);
  }

  #report() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const errors = [...this.#requests].flatMap(([name, { error }]) => error?.status === 401 || !this.#optional.includes(name) ? error ?? [] : []), isNew = this.#isNew;
    this.#isNew = false;
    this.#onResult({ error: errors.find(({ status }) => status === 401) ?? errors[0] ?? null, isNew });
  }
}
