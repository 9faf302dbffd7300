"""The page in a real browser: when the matrix is shown, what a first visit loads, and how soon new data is shown."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fixtures.browser import Browser, installed, tab_of

WIDTH = 1280
SHOWN_WITHIN_S, LIVE_WITHIN_S = 30.0, 10.0
KIB = 1024

# The time since the navigation began, after the frame with the cells was painted.
_SHOWN = """
new MutationObserver((_, observer) => {
  if (!document.querySelector('.matrix .cell')) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.shownMs = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
# Instant at which the cell of KEY is there, in milliseconds since the epoch.
_AWAITED = """
window.arrivedAt = 0;
new MutationObserver((_, observer) => {
  if (!document.querySelector('[data-key="KEY"]')) return;
  observer.disconnect();
  window.arrivedAt = Date.now();
}).observe(document, { childList: true, subtree: true, attributes: true });
true
"""


def tab(profile: Path) -> AbstractContextManager[Browser]:
    """A tab of a browser with its data in a new folder, for the block. Exits the benchmark without a browser."""
    program = installed()
    if program is None:
        raise SystemExit("Chromium is not installed (Debian package: chromium)")
    profile.mkdir()
    return tab_of(program, profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The time from the navigation to the matrix, and the size as transferred of files and of answers."""

    seconds: float
    files_kib: float
    answers_kib: float


def first_visit(browser: Browser, url: str) -> Visit:
    """Open a matrix in a tab that was opened by `prepare`, with an empty cache."""
    browser.ask("Network.clearBrowserCache")
    browser.open(url, width=WIDTH)
    browser.until("window.shownMs", seconds=SHOWN_WITHIN_S)
    seconds = float(browser.evaluate("window.shownMs")) / 1000
    files_kib, answers_kib = transferred_kib(browser.events)
    return Visit(seconds=seconds, files_kib=files_kib, answers_kib=answers_kib)


def prepare(browser: Browser) -> None:
    browser.ask("Page.addScriptToEvaluateOnNewDocument", source=_SHOWN)


def leave(browser: Browser) -> None:
    browser.ask("Page.navigate", url="about:blank")


def shown_after_ms(browser: Browser, key: str, push: Callable[[], float]) -> float:
    """Return the time from a commit until the open matrix shows the cell with this key, in milliseconds, infinite if
    the collector is too busy for it; `push` returns the instant of the commit, in seconds since the epoch.
    """
    browser.evaluate(_AWAITED.replace("KEY", key))
    committed_s = push()
    with suppress(AssertionError):
        browser.until("window.arrivedAt", seconds=LIVE_WITHIN_S)
        return float(browser.evaluate("window.arrivedAt")) - 1000 * committed_s
    return inf


def transferred_kib(events: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the size as transferred, with heads, of the files of a page and of its answers that are complete."""
    paths: dict[str, str] = {}
    files = answers = 0.0
    for event in events:
        found = event.get("params", {})
        if event.get("method") == "Network.responseReceived":
            paths[found["requestId"]] = urlsplit(found["response"]["url"]).path
        elif event.get("method") == "Network.loadingFinished":
            path = paths.get(found["requestId"], "")
            if path.startswith(("/v1/", "/session")):
                answers += found["encodedDataLength"]
            else:
                files += found["encodedDataLength"]
    return files / KIB, answers / KIB
