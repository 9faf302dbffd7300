/**
 * Whether routing is effective: the share of the requests that go where the weights of their tables send them.
 *
 * If a member has no key, tables change and traffic does not. Only the first attempt of a request counts, and none while
 * a member with weight rests after a failure. Pure.
 */

import type { Targets } from "./attempts.js";
import type { RouteEntry } from "./documents.js";

/** Routing is not effective below the first share, until it reaches the other. */
const [LEAST, AGAIN] = [0.9, 0.95];
const [ENOUGH, LATEST] = [20, 100];

/**
 * The share of the members' weight that a request can follow if it goes by weight to the `usable` ones; `undefined`
 * while one with weight is `resting`. Without any weight it follows the ranks, which is what the table wants.
 */
export function followed(members: readonly RouteEntry[], usable: Targets, resting: Targets): number | undefined {
  const weighted = members.filter(({ weight }) => weight > 0);
  if (weighted.some(({ target }) => resting.has(target))) return undefined;
  const sum = (entries: readonly RouteEntry[]): number => entries.reduce((whole, { weight }) => whole + weight, 0);
  return weighted.length > 0 ? sum(weighted.filter(({ target }) => usable.has(target))) / sum(weighted) : 1;
}

/** The mean over the latest requests of a route, about a hundred. */
export class Effectiveness {
  #share = 1;
  #count = 0;
  #isEffective = true;

  /** `undefined` before twenty requests. */
  get share(): number | undefined {
    return this.#count < ENOUGH ? undefined : this.#share;
  }

  /**
   * Note a request, with the share of the weights that it followed. Return whether it is the one after which routing is
   * no longer effective.
   */
  add(followed: number): boolean {
    const wasEffective = this.#isEffective;
    this.#count += 1;
    this.#share += (followed - this.#share) / Math.min(this.#count, LATEST);
    this.#isEffective = this.#count < ENOUGH || this.#share >= (wasEffective ? LEAST : AGAIN);
    return wasEffective && !this.#isEffective;
  }
}
