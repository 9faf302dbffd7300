/**
 * The answers of the shown view, asked again when there may be new ones: at most once a second, and more rarely the more
 * pages are open and the slower the collector answers.
 */

import { RequestError, ask } from "./api.js";

const MIN_PAUSE_MS = 1_000;
// Of the time, at most a twentieth is spent in requests.
const PAUSE_SHARE = 20;

/**
 * The pause until the next request in milliseconds, after one that took so long, if the collector asks for `askedMs`. Pure.
 * @param {number} tookMs
 * @param {number} askedMs
 */
export function pauseAfter(tookMs, askedMs) {
  return Math.max(MIN_PAUSE_MS, askedMs, PAUSE_SHARE * tookMs);
}

/** The answers of a round of requests; they are of `asOf`, in milliseconds of the page's own time, or later. */
/** @typedef {{answers: Record<string, import("./api.js").Answer | undefined>, error: RequestError | null, isNew: boolean, asOf: number}} Result */

/** The requests of one view at a time. */
export class Refresher {
  #onResult;
  /** @type {Record<string, string>} */
  #requests = {};
  /** @type {Result["answers"]} */
  #answers = {};
  #running = new AbortController();
  #isRunning = false;
  #isWanted = false;
  #wantedAt = 0;
  #pauseMs = MIN_PAUSE_MS;
  #allowedAt = 0;
  #askedAt = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {(result: Result) => void} onResult is called after each round of requests. */
  constructor(onResult) {
    this.#onResult = onResult;
  }

  /**
   * Ask other paths, at once. Answers to equal requests are kept.
   * @param {Record<string, string>} requests
   */
  open(requests) {
    const before = this.#requests;
    this.#running.abort();
    this.#requests = requests;
    this.#answers = Object.fromEntries(Object.entries(requests).map(([name, path]) =>
      [name, before[name] === path ? this.#answers[name] : undefined]));
    this.#allowedAt = 0;
    this.#isRunning = false;
    this.refresh();
  }

  /**
   * Set the shortest pause that the collector asks for.
   * @param {number} ms
   */
  setPause(ms) {
    this.#pauseMs = ms;
  }

  /** When the collector was asked last, in milliseconds since the epoch. */
  get askedAt() {
    return this.#askedAt;
  }

  /** Whether an answer of the shown view is missing. */
  get isIncomplete() {
    return Object.values(this.#answers).some((answer) => answer === undefined);
  }

  /** The answers so far. */
  get answers() {
    return this.#answers;
  }

  /** Ask again as soon as the pause allows it. */
  refresh() {
    this.#isWanted = true;
    this.#wantedAt = performance.now();
    if (!this.#isRunning) this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#run(), Math.max(0, this.#allowedAt - performance.now()));
  }

  async #run() {
    const running = new AbortController(), requests = this.#requests, began = performance.now();
    this.#running = running;
    this.#askedAt = Date.now();
    this.#isRunning = true;
    this.#isWanted = false;
    const result = await this.#ask(requests, running.signal);
    // Another view was opened meanwhile.
    if (running.signal.aborted) return;
    this.#allowedAt = performance.now() + pauseAfter(performance.now() - began, this.#pauseMs);
    this.#isRunning = false;
    this.#answers = result.answers;
    this.#onResult(result);
    // An answer that is shared with other pages may be older than what made this page ask.
    if (this.#isWanted || result.asOf < this.#wantedAt) this.#schedule();
  }

  /**
   * @param {Record<string, string>} requests
   * @param {AbortSignal} signal
   * @returns {Promise<Result>}
   */
  async #ask(requests, signal) {
    const answers = { ...this.#answers }, began = performance.now();
    let asOf = began;
    /** @type {RequestError | null} */
    let error = null;
    await Promise.all(Object.entries(requests).map(async ([name, path]) => {
      try {
        const { answer, ageMs } = await ask(path, signal);
        answers[name] = answer;
        asOf = Math.min(asOf, began - ageMs);
      } catch (failure) {
        if (signal.aborted) return;
        if (!(failure instanceof RequestError)) throw failure;
        if (!error || failure.status === 401) error = failure;
        // What was refused is not shown as if it were of now; what cannot be asked now stays.
        if (failure.status >= 400 && failure.status < 500) answers[name] = undefined;
      }
    }));
    const isNew = Object.keys(requests).some((name) => answers[name] !== this.#answers[name]);
    return { answers, error, isNew, asOf };
  }
}
