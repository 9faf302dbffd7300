/** The collector's clock, by which tables expire. */

import os from "node:os";

/** The `Date` header has whole seconds. */
const TOLERANCE_MS = 2_000;

/**
 * The collector's clock: its last `Date` header and a steady clock since, so that a jump of this machine's clock changes
 * nothing; without one, this machine's clock. All instants are milliseconds.
 */
export class CollectorClock {
  #ahead: number | undefined;

  /** The instant, in milliseconds since the epoch. */
  now(): number {
    return this.#ahead === undefined ? Date.now() : steady() + this.#ahead;
  }

  /** Set the clock by a `Date` header that has just arrived. */
  set(date: string): void {
    const wall = Date.now();
    const lead = Date.parse(date) - wall;
    this.#ahead = wall + (Math.abs(lead) > TOLERANCE_MS ? lead : 0) - steady();
  }
}

/** A clock that counts while the machine is suspended, too, which that of `performance` does not on every platform. */
function steady(): number {
  return os.uptime() * 1000;
}
