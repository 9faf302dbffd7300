/**
 * Members to which nothing is sent for a while, because their last response was a 429 or a failure. Pure.
 *
 * After a 429 a member rests until its `retry-after`; without one, and after a failure, for a second, doubled with each
 * further one up to a minute, plus a random half. The first success ends it.
 */

const FIRST_MS = 1_000;
const MAX_MS = 60_000;
const MAX_RETRY_AFTER_MS = 600_000;

interface Rest {
  readonly until: number;
  readonly count: number;
  readonly isThrottled: boolean;
}

/** The resting members; all instants are milliseconds of one monotonic clock, `draw` random numbers from 0 to 1. */
export class Cooldowns {
  readonly #rests = new Map<string, Rest>();

  /** Note a 429, with its `retry-after` in milliseconds. */
  throttle(target: string, retryAfterMs: number | undefined, now: number, draw: number): void {
    const count = this.#count(target);
    const rest = Math.min(retryAfterMs ?? growing(count, draw), MAX_RETRY_AFTER_MS);
    this.#rests.set(target, { until: now + rest, count, isThrottled: true });
  }

  /** Note a failed connection or a 5xx. */
  fail(target: string, now: number, draw: number): void {
    const count = this.#count(target);
    this.#rests.set(target, { until: now + growing(count, draw), count, isThrottled: false });
  }

  /** Note a response. */
  succeed(target: string): void {
    this.#rests.delete(target);
  }

  /** The members that asked to wait, with the milliseconds left. */
  throttled(now: number): Map<string, number> {
    return this.#left(now, true);
  }

  /** The members that failed a short time ago, with the milliseconds left. */
  failing(now: number): Map<string, number> {
    return this.#left(now, false);
  }

  #left(now: number, isThrottled: boolean): Map<string, number> {
    const rests = [...this.#rests].filter(([, rest]) => rest.isThrottled === isThrottled && now < rest.until);
    return new Map(rests.map(([target, rest]) => [target, rest.until - now]));
  }

  #count(target: string): number {
    return (this.#rests.get(target)?.count ?? 0) + 1;
  }
}

function growing(count: number, draw: number): number {
  return Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(count - 1, 10)) * (1 + draw / 2);
}

/** The milliseconds of a `retry-after-ms` or `retry-after` header; `undefined` without a valid one. */
export function retryAfterMs(headers: Readonly<Record<string, string>> = {}): number | undefined {
  const given = headers["retry-after"] ?? "";
  const untilDate = /[a-z]/i.test(given) ? Date.parse(given) - Date.parse(headers["date"] ?? "") : Number.NaN;
  const found = [number(headers["retry-after-ms"]), number(given) * 1000, Math.max(0, untilDate)];
  return found.find((ms) => Number.isFinite(ms) && ms >= 0);
}

function number(text = ""): number {
  return text.trim() === "" ? Number.NaN : Number(text);
}
