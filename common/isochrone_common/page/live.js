/**
 * Notices of new data: one stream of server-sent events for the page, and whether it is alive. A hidden page has no
 * stream, because browsers limit the connections to one address; it asks again when it is shown.
 */

/**
 * `live`: notices arrive. `reconnecting`: the stream was lost. `stale`: for some time nothing arrives, or the collector
 * itself has lost its database; `since` is when that began, in milliseconds since the epoch.
 * @typedef {{state: "connecting" | "live" | "reconnecting" | "stale", since: number}} Liveness
 */
/** @typedef {{topics: string[], sent_at: string, refresh_us: number, generation: number, stale_since_at: string | null}} ChangeEvent */

// The collector sends a heartbeat every ten seconds.
const SILENT_AFTER_MS = 25_000;
const RETRY_MS = 3_000;

/**
 * Whether the stream is alive, by what is known of it. Pure.
 * @param {{isOpen: boolean, wasOpen: boolean, heardAt: number, staleSince: number | null, now: number}} known
 * @returns {Liveness}
 */
export function livenessOf({ isOpen, wasOpen, heardAt, staleSince, now }) {
  if (isOpen && staleSince !== null) return { state: "stale", since: staleSince };
  if (wasOpen && now - heardAt > SILENT_AFTER_MS) return { state: "stale", since: heardAt };
  if (isOpen) return { state: "live", since: heardAt };
  return { state: wasOpen ? "reconnecting" : "connecting", since: heardAt };
}

/** The stream of the page. */
export class Live {
  #onNotice;
  #onLiveness;
  #isWanted = false;
  /** @type {EventSource | null} */
  #source = null;
  #known = { isOpen: false, wasOpen: false, heardAt: Date.now(), staleSince: /** @type {number | null} */ (null) };

  /**
   * @param {{onNotice: (notice: ChangeEvent, isNew: boolean) => void, onLiveness: (liveness: Liveness) => void}}
   *   handlers `isNew` is true for the first notice of a stream: others may have been missed.
   */
  constructor({ onNotice, onLiveness }) {
    this.#onNotice = onNotice;
    this.#onLiveness = onLiveness;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.#open()));
    setInterval(() => this.#report(), 1_000);
  }

  /** Open the stream, now or when the page is shown. */
  start() {
    this.#isWanted = true;
    this.#open();
  }

  /** Close the stream. */
  stop() {
    this.#isWanted = false;
    this.#close();
  }

  #open() {
    if (this.#source || document.hidden || !this.#isWanted) return;
    const source = new EventSource("/v1/changes");
    this.#source = source;
    let isNew = true;
    source.addEventListener("change", (event) => {
      this.#hear(JSON.parse(event.data), isNew);
      isNew = false;
    });
    source.onerror = () => {
      this.#known.isOpen = false;
      isNew = true;
      this.#report();
      // After a refusal the browser does not try again.
      if (source.readyState === EventSource.CLOSED) {
        this.#close();
        setTimeout(() => this.#open(), RETRY_MS);
      }
    };
  }

  #close() {
    this.#source?.close();
    this.#source = null;
    this.#known.isOpen = false;
  }

  /**
   * @param {ChangeEvent} notice
   * @param {boolean} isNew
   */
  #hear(notice, isNew) {
    const staleSince = notice.stale_since_at ? Date.parse(notice.stale_since_at) : null;
    this.#known = { isOpen: true, wasOpen: true, heardAt: Date.now(), staleSince };
    this.#report();
    this.#onNotice(notice, isNew);
  }

  #report() {
    if (!document.hidden && this.#isWanted) this.#onLiveness(livenessOf({ ...this.#known, now: Date.now() }));
  }
}
