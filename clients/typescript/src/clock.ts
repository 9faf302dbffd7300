/** The collector's clock, by which tables expire. */

/** The `Date` header has whole seconds. */
const TOLERANCE_MS = 2_000;

/**
 * The collector's clock: its last `Date` header and a steady clock since, so that a jump of this machine's clock changes
 * nothing; without one, this machine's clock. All instants are milliseconds.
 */
export class CollectorClock {
  readonly #wall: () => number;
  readonly #steady: () => number;
  #ahead: number | undefined;

  constructor(wall = () => Date.now(), steady = () => performance.now()) {
    this.#wall = wall;
    this.#steady = steady;
  }

  /** The instant, in milliseconds since the epoch. */
  now(): number {
    return this.#ahead === undefined ? this.#wall() : this.#steady() + this.#ahead;
  }

  /** Set the clock by a `Date` header that has just arrived. */
  set(date: string): void {
    const wall = this.#wall();
    const lead = Date.parse(date) - wall;
    this.#ahead = wall + (Math.abs(lead) > TOLERANCE_MS ? lead : 0) - this.#steady();
  }
}
