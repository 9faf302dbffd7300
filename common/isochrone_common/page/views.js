/**
 * The views of the page, in the order of the navigation. To add one: write a module in `views/` that exports a `View`, add
 * it to `VIEWS`, and add its path to `VIEWS` of `http_api/page.py`.
 */

import { REPORT } from "./api.js";
import { FLEET } from "./views/fleet.js";
import { MAP } from "./views/map.js";
import { MATRIX } from "./views/matrix.js";
import { REQUESTS } from "./views/requests.js";
import { ROUTES } from "./views/routes.js";
import { STATUS } from "./views/status.js";
import { TARGET } from "./views/target.js";

/** @typedef {import("./url_state.js").State} State */
/** @typedef {import("./api.js").Answer} Answer */
/**
 * What a view may use: the state of the page, `now` in milliseconds since the epoch (a little behind the clock, so that
 * ages do not flicker), `set` to change options (`replace` adds no entry to the history), `href` for links to a state, which
 * are followed without a reload, `go` to show a state, and `details`, the handlers of a mark with facts.
 * @typedef {object} Context
 * @property {State} state
 * @property {number} now
 * @property {(options: import("./url_state.js").Options, how?: {replace?: boolean}) => void} set
 * @property {(state: State) => void} go
 * @property {(state: State) => string} href
 * @property {typeof import("./details.js").detailsOf} details
 */
/**
 * A view. `path` may end with `:target`, and then the view has no entry in the navigation. `defaults` are its options with
 * their usual values, beside the common ones. It asks the paths of `requests` when it is opened, and again when there is
 * news of one of its `topics`, or after `everyMs`. One that `isPublic` needs no login, if the collector has a public
 * page. If it `hasIntervals`, the page explains them. Requests that are `planned` are asked again for news of the plan only;
 * `optional` ones follow the others, and their failures are not shown.
 * `render` makes its content from the answers by the names of the requests; an answer that has not arrived or is refused is
 * missing.
 * @typedef {object} View
 * @property {string} name
 * @property {string} label
 * @property {string} path
 * @property {Readonly<Record<string, string>>} defaults
 * @property {readonly string[]} topics
 * @property {number} [everyMs]
 * @property {boolean} [isPublic]
 * @property {boolean} [hasIntervals]
 * @property {readonly string[]} [planned]
 * @property {readonly string[]} [optional]
 * @property {(state: State) => Record<string, string>} requests
 * @property {(answers: Record<string, Answer | undefined>, context: Context) => {title: string, content: Node[]}} render
 */

/** @type {readonly View[]} */
export const VIEWS = [MATRIX, MAP, TARGET, ROUTES, REQUESTS, FLEET, STATUS].map((view) => ({ ...view,
  defaults: Object.fromEntries(Object.entries(view.defaults).map(([name, value]) => [name, REPORT?.options[name] ?? value])) }));
