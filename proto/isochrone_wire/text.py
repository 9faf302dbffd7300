"""Text for people: names that are close to each other, text from elsewhere made safe for a terminal,
the check of a URL, and sentences that several outputs state.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from urllib.parse import parse_qsl, urlsplit

MAX_SHOWN_CHARS = 2_000
"""Maximum length of a message that goes into a log or an answer."""

# A run of the key this long reveals more than the prefix that all keys of a provider share.
MASKED_RUN_CHARS = 8
# No name is longer, so that a longer one is not similar to any.
_MAX_NAME_CHARS = 200
# A comparison takes up to 0.1 ms.
_MAX_COMPARED = 2_000
_MAX_SHOWN_NAME_CHARS = 100
_SHOWN = 20
_SPECIAL_IN_MARKDOWN = re.compile(r"([\\`*_|<>\[\]])")

_SECRET_NAMES = {"key", "api_key", "apikey", "api-key", "token", "access_token", "subscription-key", "sig"}
_ENDPOINTS = ("/chat/completions", "/responses", "/messages")

ESTIMAND = "intervals are of the long-run level; values and counts describe this window"
"""What the numbers of an answer are of, for a note."""
ESTIMAND_SENTENCE = f"{ESTIMAND.capitalize()}."
SERVER_CAVEAT = "everything behind the address that was dialled, from the provider's edge to the model"
"""What a "server" part of a duration is."""


def same_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that differs from `name` at most in case, or in `-` in place of `_`; `None` if there is none."""
    spelled = _spelled(name)
    return next((one for one in known if _spelled(one) == spelled), None)


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name most similar to `name`, or `None` below a similarity of `cutoff`, from 0 (any) to 1 (equal), and
    among thousands of names. A `name` without a slash is also compared with what follows the last slash: `kimi-k25`
    with `moonshot/kimi-k2.5`.
    """
    if len(name) > _MAX_NAME_CHARS:
        return None
    import difflib  # noqa: PLC0415  # only a misspelt name needs it, and every start of a command would load it

    names = sorted(known)
    if len(names) > _MAX_COMPARED:
        return None
    last_parts = {} if "/" in name else {_spelled(one.rpartition("/")[2]): one for one in names}
    name_of = last_parts | {_spelled(one): one for one in names}
    matches = difflib.get_close_matches(_spelled(name), name_of, n=1, cutoff=cutoff)
    return name_of[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no known name is similar."""
    match = nearest(name, known)
    return f"; did you mean {match!r}?" if match else ""


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """Return an error message for an unknown name, with the most similar one and the known names."""
    listing = first_of(sorted(known), _SHOWN) or "none yet"
    named = f"unknown {kind} {shortened(name, _MAX_SHOWN_NAME_CHARS)!r}"
    return f"{named}{did_you_mean(name, known) or ';'} known: {listing}"


def shortened(text: str, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """The text, with an ellipsis at its end if it is longer than `max_chars`."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first names, at most `most`, and the number of the others: `a, b and 3 more`."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of equal length as lines with left-aligned columns, two spaces apart, without control characters."""
    rows = [[*map(printable, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def printable(text: str, *, keep: str = "") -> str:
    """The text with a space in place of every character that could move a cursor, change a colour or the direction of
    writing, except those to `keep`.
    """
    return "".join(mark if mark.isprintable() or mark in keep else " " for mark in text)


def printable_json(text: str) -> str:
    """JSON of the same value, with the escape of each such character in place of it."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(mark if mark.isprintable() or mark == "\n" else json.dumps(mark)[1:-1] for mark in text)


def redact(text: str, secret: str) -> str:
    """Mask every run of `MASKED_RUN_CHARS` characters or more that occurs in `secret`, or a shorter secret whole."""
    length = min(len(secret), MASKED_RUN_CHARS)
    if not length:
        return text
    pieces = {secret[at : at + length] for at in range(len(secret) - length + 1)}
    hidden = bytearray(len(text))
    for at in range(len(text) - length + 1):
        if text[at : at + length] in pieces:
            hidden[at : at + length] = b"\1" * length
    runs = groupby(zip(text, hidden, strict=True), key=lambda marked: marked[1])
    return "".join("***" if secret_run else "".join(char for char, _ in run) for secret_run, run in runs)


def escaped_markdown(text: str) -> str:
    """The text with Markdown's special characters escaped and without control characters."""
    return _SPECIAL_IN_MARKDOWN.sub(r"\\\1", printable(text))


def _spelled(name: str) -> str:
    return name.casefold().replace("_", "-")


def is_http_url(text: str) -> bool:
    """Return whether a text is an http or https URL with a host and a valid port."""
    return _url_fault(text) is None


def _url_fault(text: str) -> str | None:
    """Return which part of a text makes it no URL, empty for its scheme or a secret one; `None` if it is one."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return "" if "@" in text else f": {str(error)[:1].lower()}{str(error)[1:]}"
    if parts.scheme not in ("http", "https"):
        return ""
    return ": it has no host" if not parts.hostname else ": it has port 0" if port == 0 else None


def base_url_problem(text: str) -> str | None:
    """Return why a text cannot be the base URL of an API, without quoting a secret in it; `None` if it can."""
    fault = _url_fault(text)
    if fault is not None or " " in text:
        return f"{text.rpartition('@')[2]!r} is not an http or https URL{fault or ''}"
    if problem := secret_problem(text):
        return problem
    parts = urlsplit(text)
    if parts.fragment:
        return "a base URL has no fragment"
    end = next((end for end in _ENDPOINTS if parts.path.rstrip("/").endswith(end)), None)
    return end and f"a base URL does not end with {end}: the dialect adds it"


def secret_problem(text: str) -> str | None:
    """Return which secret a URL contains, without quoting it; `None` if it contains none, or is not a URL."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    if "@" in parts.netloc:
        return "a URL must not contain a user or password; API keys stay with the agent"
    if _SECRET_NAMES & {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}:
        return "a URL must not contain a key in its query; API keys stay with the agent"
    return None


def endpoint_url(base_url: str, endpoint: str) -> str:
    """Append the path of an endpoint, and its query, to a base URL, which may have a query of its own."""
    base, _, query = base_url.partition("?")
    path, _, own = endpoint.partition("?")
    queries = "&".join(filter(None, (query, own)))
    return f"{base.rstrip('/')}/{path.lstrip('/')}" + (f"?{queries}" if queries else "")
