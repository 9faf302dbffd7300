/**
 * The state of the page in its address: the view is the path, its options are the query. An option with its default
 * value is left out. Pure.
 */

/** @typedef {Readonly<Record<string, string>>} Options */
/**
 * The state of the page: the name of the view, the `target` of a view of one target (else empty), and the options.
 * @typedef {{view: string, target: string, options: Options}} State
 */
/** @typedef {{name: string, path: string, defaults: Options}} ViewAddress */

/** Options of all views. Links from one view to another keep them. `from` and `until` replace `window`. */
export const COMMON_DEFAULTS = Object.freeze({ window: "24h", from: "", until: "", theme: "auto" });

const TARGET = ":target";

/**
 * Read the state from an address; `null` if no view has its path. Unknown options are dropped.
 * @param {URL} url
 * @param {readonly ViewAddress[]} views
 * @returns {State | null}
 */
export function readState(url, views) {
  for (const view of views) {
    const target = targetIn(url.pathname, view.path);
    if (target === null) continue;
    const defaults = { ...COMMON_DEFAULTS, ...view.defaults };
    const given = Object.entries(defaults).map(([name, value]) => [name, url.searchParams.get(name) ?? value]);
    return { view: view.name, target, options: Object.fromEntries(given) };
  }
  return null;
}

/**
 * Write a state as a path with a query.
 * @param {State} state
 * @param {readonly ViewAddress[]} views
 */
export function writeState(state, views) {
  const view = views.find((one) => one.name === state.view);
  if (!view) throw new Error(`there is no view ${state.view}`);
  const defaults = /** @type {Options} */ ({ ...COMMON_DEFAULTS, ...view.defaults });
  const query = new URLSearchParams();
  for (const [name, usual] of Object.entries(defaults)) {
    const value = state.options[name] ?? usual;
    if (value !== usual) query.set(name, value);
  }
  const path = view.path.replace(TARGET, state.target.split("/").map(encodeURIComponent).join("/"));
  return query.size ? `${path}?${query}` : path;
}

/**
 * The state of another view, with the common options of this one and those in `options`.
 * @param {State} state
 * @param {string} view
 * @param {{target?: string, options?: Options}} [more]
 * @returns {State}
 */
export function otherView(state, view, more = {}) {
  const common = Object.keys(COMMON_DEFAULTS).map((name) => [name, state.options[name] ?? ""]);
  return { view, target: more.target ?? "", options: { ...Object.fromEntries(common), ...more.options } };
}

/**
 * The same state with other options.
 * @param {State} state
 * @param {Options} options
 * @returns {State}
 */
export function withOptions(state, options) {
  return { ...state, options: { ...state.options, ...options } };
}

/**
 * The query by which the HTTP interface selects the window of a state.
 * @param {Options} options
 * @returns {Record<string, string>}
 */
export function windowQuery(options) {
  if (!options["from"]) return { window: options["window"] || COMMON_DEFAULTS.window };
  return options["until"] ? { from: options["from"], until: options["until"] } : { from: options["from"] };
}

/**
 * @param {string} path
 * @param {string} pattern
 * @returns {string | null}
 */
function targetIn(path, pattern) {
  if (!pattern.endsWith(TARGET)) return path === pattern ? "" : null;
  const head = pattern.slice(0, -TARGET.length);
  if (!path.startsWith(head) || path.length === head.length) return null;
  try {
    return path.slice(head.length).split("/").map(decodeURIComponent).join("/");
  } catch {
    return null;
  }
}
