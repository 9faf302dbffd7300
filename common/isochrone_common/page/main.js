/** The page: it reads the state from the address, asks the collector, shows the view, and does so again for new data. */

import { REPORT, RequestError, logIn, logOut, ownAccess, reported } from "./api.js";
import { addDetails, detailsOf } from "./details.js";
import { html, show } from "./dom.js";
import { moment } from "./formats.js";
import { Live } from "./live.js";
import { loginForm } from "./login.js";
import { Refresher } from "./refresher.js";
import { COMMON_DEFAULTS, otherView, readState, withOptions, writeState } from "./url_state.js";
import { VIEWS } from "./views.js";

/** @typedef {import("./live.js").Liveness} Liveness */
/** @typedef {import("./url_state.js").State} State */

const AGES_EVERY_MS = 5_000;
const THEMES = /** @type {const} */ (["auto", "light", "dark"]);

const [header, main, footer, announcement] = ["header", "view", "footer", "announcement"].map((id) => {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the document has no element ${id}`);
  return found;
});

/** @type {State | null} */
let state = readState(addressOf(location.href), VIEWS);
/** @type {Liveness} */
let liveness = { state: "connecting", since: Date.now() };
let refusal = "", needsLogin = false, shownAt = 0;
/** @type {import("./api.js").Access | null} */
let access = null;
// The collector's clock is ahead of this one by so many milliseconds.
let ahead = 0;
/** @type {import("./api.js").RequestError | null} */
let failure = null;

const refresher = new Refresher(({ error, isNew }) => {
  const changed = failure?.message !== error?.message;
  failure = error;
  needsLogin = error?.status === 401;
  if (!REPORT && !needsLogin && shownView()?.topics.length) live.start();
  else live.stop();
  if (isNew || changed) draw();
});
const live = new Live({
  onNotice: ({ topics, sent_at, refresh_us }, isNew) => {
    const view = shownView();
    ahead = Date.parse(sent_at) - Date.now();
    refresher.setPause(refresh_us / 1000);
    const heard = view?.topics.filter((topic) => topics.includes(topic)) ?? [];
    if (isNew || heard.length) refresher.refresh(isNew || heard.includes("plan") ? [] : view?.planned);
  },
  onLiveness: (fresh) => {
    const changed = fresh.state !== liveness.state;
    liveness = fresh;
    if (changed) drawFrame();
    if (changed && fresh.state !== "connecting") announce(`the page is ${livenessText(fresh)}`);
  },
});

/**
 * The address of a view in that of a document: its end in a report, which is one file.
 * @param {string} url
 */
function addressOf(url) {
  return REPORT ? new URL(new URL(url).hash.slice(1) || "/", url) : new URL(url);
}

function shownView() {
  return VIEWS.find((view) => view.name === state?.view);
}

/**
 * Show another state.
 * @param {State} next
 * @param {{replace?: boolean}} [options]
 */
function go(next, { replace = false } = {}) {
  const isOther = next.view !== state?.view || next.target !== state?.target;
  history[replace ? "replaceState" : "pushState"](null, "", href(next));
  open();
  if (isOther) {
    scrollTo(0, 0);
    main?.focus();
  }
}

/**
 * Change options of the state.
 * @param {import("./url_state.js").Options} options
 * @param {{replace?: boolean}} [how]
 */
function set(options, how) {
  if (state) go(withOptions(state, options), how);
}

/** Begin the session of a link, which works once and is then no part of the address; show the state of the address. */
async function start() {
  const [, link = ""] = /^#login=([\w-]+)$/.exec(REPORT ? "" : location.hash) ?? [];
  if (!link) return open();
  history.replaceState(null, "", location.pathname + location.search);
  if ((await ownAccess())?.reads) return open();
  try {
    await logIn({ link });
    // The queries that the document began were refused.
    location.reload();
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    refusal = error.message;
    open();
  }
}

/** Show the state of the address. */
function open() {
  if (REPORT && state && /^#[^/]/.test(location.hash)) return;
  state = readState(addressOf(location.href), VIEWS);
  document.documentElement.dataset["theme"] = state?.options["theme"] ?? "auto";
  const view = shownView();
  if (state && view) refresher.open(view.requests(state), view.optional);
  draw();
}

function draw() {
  shownAt = REPORT ? Date.parse(REPORT.at) : Date.now() + ahead;
  drawFrame();
  if (!main) return;
  const shown = `${state?.view} ${state?.target}`;
  // Until the answers to a changed question arrive, what is shown stays, and is marked.
  const isWaiting = refresher.isIncomplete && !failure && !needsLogin && main.dataset["shown"] === shown;
  main.setAttribute("aria-busy", String(isWaiting));
  if (isWaiting) return;
  main.dataset["shown"] = refresher.isIncomplete ? "" : shown;
  show(main, content());
}

/** @returns {Node[]} */
function content() {
  const view = shownView();
  if (!state || !view) return [html("p", { class: "empty" }, "There is no such view. ", html("a", { href: REPORT ? "#/" : "/" }, "Show the matrix"))];
  if (needsLogin) return [loginForm(refusal, endLogin)];
  const error = failure ? [html("p", { class: "failure", role: "alert" }, failure.message)] : [];
  const { title, content: shown } = view.render(refresher.answers, { state, now: shownAt, set, go, href, details: detailsOf });
  document.title = `${title} · Isochrone`;
  const waiting = refresher.isIncomplete && !failure ? [html("p", { class: "waiting" }, "asking the collector …")] : [];
  return [html("h1", {}, title), ...error, ...shown, ...waiting];
}

/** @param {State} of */
function href(of) {
  return `${REPORT ? "#" : ""}${writeState(of, VIEWS)}`;
}

/** @param {string} reason */
function endLogin(reason) {
  refusal = reason;
  if (!reason) {
    readAccess();
    refresher.refresh();
  }
  draw();
}

function drawFrame() {
  if (!header || !footer) return;
  const theme = state?.options["theme"] ?? "auto";
  const next = THEMES[(THEMES.indexOf(/** @type {"auto"} */ (theme)) + 1) % THEMES.length] ?? "auto";
  show(header, [
    html("a", { class: "brand", href: REPORT ? "#/" : "/", onclick: follow }, "Isochrone"),
    html("nav", { "aria-label": "views" }, html("ul", {}, ...VIEWS.filter((view) => !view.path.includes(":") && isOpen(view)).map(entry))),
    shownView()?.topics.length && !needsLogin && !REPORT ? html("p", { class: `liveness ${liveness.state}` },
      html("span", { class: "dot", "aria-hidden": "true" }), livenessText(liveness)) : null,
    html("button", { type: "button", class: "quiet", title: "change the colours",
      onclick: () => set({ theme: next }, { replace: true }) }, `colours: ${theme === "auto" ? "system" : theme}`),
    ...account(),
  ]);
  const window = Object.values(refresher.answers).find((answer) => answer?.window)?.window;
  show(footer, window && !needsLogin ? [
    html("p", {}, `Window: ${moment(window.from_at, 0)} to ${moment(window.until_at, 0)} UTC.`),
    shownView()?.hasIntervals ? html("p", {}, "A 95 % interval is for the value over a longer time, of which this window is a sample.") : null,
  ] : []);
}

/**
 * Whether this browser may read a view, as far as it is known; whether a report has its answers.
 * @param {import("./views.js").View} view
 */
function isOpen(view) {
  if (!REPORT) return !access?.public || access.reads || Boolean(view.isPublic);
  return Object.entries(view.requests({ view: view.name, target: "", options: { ...COMMON_DEFAULTS, ...view.defaults } }))
    .every(([name, path]) => view.optional?.includes(name) || reported(path));
}

/** The user, and how to end or begin the session. */
function account() {
  if (access?.public && !access.reads && shownView()?.isPublic) {
    // The document is loaded again, because a proxy may have a login of its own.
    return [html("a", { class: "quiet", href: "/" }, "log in")];
  }
  if (!access?.name || needsLogin) return [];
  if (!access.ends) return [html("span", { class: "note" }, access.name)];
  return [html("button", { type: "button", class: "quiet", onclick: leave }, `log out ${access.name}`)];
}

/** @param {import("./views.js").View} view */
function entry(view) {
  const target = state ? otherView(state, view.name) : { view: view.name, target: "", options: {} };
  return html("li", { "data-key": view.name },
    html("a", { href: href(target), "aria-current": view.name === state?.view ? "page" : null, onclick: follow }, view.label));
}

/**
 * Follow a link of the page without loading the document again, unless a key or button asks for another tab.
 * @param {MouseEvent} event
 */
function follow(event) {
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const next = link.origin === location.origin ? readState(addressOf(link.href), VIEWS) : null;
  if (!next || (link.hash && !REPORT)) return;
  event.preventDefault();
  go(next);
}

async function readAccess() {
  access = await ownAccess();
  drawFrame();
}

async function leave() {
  await logOut();
  live.stop();
  readAccess();
  refresher.refresh();
}

/** @param {Liveness} of */
function livenessText({ state: name, since }) {
  return name === "stale" ? `stale since ${moment(new Date(since + ahead).toISOString(), Date.now() + ahead)} UTC` : name;
}

/** @param {string} text */
function announce(text) {
  if (announcement) announcement.textContent = text;
}

main?.addEventListener("click", follow);
addEventListener("popstate", start);
setInterval(() => {
  if (document.hidden || needsLogin || REPORT) return;
  const view = shownView();
  if (view?.everyMs && Date.now() - refresher.askedAt >= view.everyMs) refresher.refresh();
  draw();
}, AGES_EVERY_MS);
addDetails();
main?.replaceChildren();
start();
readAccess();
