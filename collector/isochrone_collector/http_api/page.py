"""The live page, with its files and its login; and what the public may read with `--public-page`: status and badges.

1. The files contain no data and are open to all. They are read and compressed once, and have a common folder whose name
   is a digest of their content, so that browsers keep them for ever and load the new ones after an upgrade. Only the
   document itself is checked at each visit; it is the same for every view.
2. A reader presents its credential once, in the body of `POST /session`, or the token of a link that it got with the
   credential, and gets a cookie with the token of a session. The interface accepts the cookie for reading only. No
   other site can use it: it is `SameSite=Strict`, and changes of a session are accepted from pages of this collector
   only.
3. Callers of the status without a credential cost little: all share one answer, which is computed at most once a second
   and takes at most a twentieth of the time, and each address has a limit of requests. It has nothing that is not
   about a target; a reader gets all.
4. A badge is a small SVG image without a script, style sheet, font or address. Every value is escaped, and
   characters that XML does not allow are replaced.
"""

import asyncio
import gzip
import hashlib
import html
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from types import MappingProxyType
from unicodedata import east_asian_width
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isochrone_collector.auth.authenticator import LIFETIME_US, Authenticator, bearer_credential
from isochrone_collector.auth.limits import BucketPerKey, LeakyBucket, RefusalPause, network_of, without_details
from isochrone_collector.errors import BadRequest, Forbidden, ResourceExhausted, Unauthenticated, UnknownName
from isochrone_collector.http_api import requests, responses
from isochrone_collector.http_api.bearer_auth import ROLES, authenticate, cookie_name, proxy_user, session_token
from isochrone_collector.http_api.queries import SharedAnswers, document_response
from isochrone_collector.http_api.requests import FORMAT, Endpoint
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.queries import status
from isochrone_collector.queries.context import QueryContext
from isochrone_wire.model import SECOND_US
from isochrone_wire.queries.status import State, StatusList, TargetStatus
from isochrone_wire.text import shortened

MATRIX = "/"
VIEWS = (MATRIX, "/fleet", "/routes", "/requests", "/map", "/status", "/target/{target:path}")
"""The paths of views, all of which have the same document."""

_MAX_BODY_BYTES = 4 << 10
_UNCACHED = {"Cache-Control": "no-store"}
_USUAL_WINDOW = "24h"
# As in the page's `matrix_model.js`.
_QUANTITIES = ("ttft_p50_us", "e2e_p50_us", "tokens_per_second_p50", "success")
_WINDOW = re.compile(r"[0-9]{1,6}[a-z]{1,3}")


class PageRoutes:
    """The routes of the page. With `has_public_page` it tells browsers that its status needs no session."""

    def __init__(self, *, authenticator: Authenticator, has_public_page: bool = False) -> None:
        self._authenticator = authenticator
        self._has_public_page = has_public_page
        self.routes = (
            *(Route(path, self._view, methods=["GET"], include_in_schema=False) for path in VIEWS),
            Route(f"{FOLDER}/{{name:path}}", self._file, methods=["GET"], include_in_schema=False),
            Route("/session", self._session, methods=["GET", "POST", "DELETE"], include_in_schema=False),
            Route("/session/link", self._link, methods=["POST"], include_in_schema=False),
        )
        """The routes of the views, the files and the session."""

    def is_public(self, path: str) -> bool:
        """Return whether the path is one of the page, which needs no credential."""
        return any(route.path_regex.match(path) for route in self.routes)

    async def _view(self, request: Request) -> Response:
        response = self._response(request, DOCUMENT)
        if request.url.path == MATRIX and (early := _early_requests(request)):
            response.headers["Link"] = early
        return response

    async def _file(self, request: Request) -> Response:
        path = request.url.path
        if path not in read_files():
            raise UnknownName("there is no such file; reload the page")
        return self._response(request, path)

    def _response(self, request: Request, path: str) -> Response:
        found = read_files()[path]
        headers = {**found.headers, "ETag": responses.weak(found.etag)}
        if responses.is_current(request.headers.get("if-none-match"), found.etag):
            return Response(status_code=304, headers=headers)
        if responses.accepts_gzip(request.headers):
            return Response(found.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(found.content, headers=headers)

    async def _session(self, request: Request) -> Response:
        """Return the caller's `name`, whether it `reads` data, a logout `ends` that, and the status is `public`; or
        begin a session (POST), or end it (DELETE). Raises `Forbidden` for other sites.
        """
        if request.method in ("GET", "HEAD"):
            caller = None
            with suppress(Unauthenticated, Forbidden):
                caller = await authenticate(self._authenticator, request)
            name = caller.name if caller is not None and caller.has_credential else None
            value = {
                "name": name,
                "reads": caller is not None,
                "ends": name is not None and proxy_user(self._authenticator, request) is None,
                "public": self._has_public_page,
            }
            return responses.JsonResponse(responses.encode_line(value), headers=_UNCACHED)
        require_same_origin(request)
        if request.method != "DELETE":
            return await self._begin_session(request)
        if token := session_token(request):
            self._authenticator.sessions.end(token)
        return self._with_cookie(request, "", max_age=0)

    async def _begin_session(self, request: Request) -> Response:
        """Begin a session for the field `credential` or `link` of a form. Raises as `authenticate`."""
        body = await responses.read_body(request, max_bytes=_MAX_BODY_BYTES)
        try:
            ((name, (value,)),) = parse_qs(body.decode("ascii"), max_num_fields=1).items()
        except ValueError:
            name = ""
        if name not in ("credential", "link"):
            raise BadRequest("the form must have the field `credential` or `link`, once")
        sessions = self._authenticator.sessions
        if name == "link":
            token = sessions.follow(value)
        else:
            token = sessions.begin(await self._credential_id([f"Bearer {value.strip()}"]))
        return self._with_cookie(request, token, max_age=LIFETIME_US // SECOND_US)

    async def _link(self, request: Request) -> Response:
        """Return the token of a link for the credential in the header; none where no credential is required."""
        given = request.headers.getlist("authorization")
        is_open = not given and not self._authenticator.required
        token = "" if is_open else self._authenticator.sessions.link(await self._credential_id(given))
        return responses.JsonResponse(responses.encode_line({"token": token}), headers=_UNCACHED)

    async def _credential_id(self, authorization: Sequence[str]) -> int:
        """Return the id of a reader's valid credential. Raises as `authenticate`."""
        metadata = [("authorization", value) for value in authorization]
        await self._authenticator.authenticate(metadata, ROLES)
        return bearer_credential(metadata).id

    @staticmethod
    def _with_cookie(request: Request, token: str, *, max_age: int) -> Response:
        response = Response(status_code=204, headers=_UNCACHED)
        name, is_secure = cookie_name(request), request.url.scheme == "https"
        response.set_cookie(name, token, max_age=max_age, secure=is_secure, httponly=True, samesite="strict")
        return response


def _early_requests(request: Request) -> str:
    """Return the header by which a browser sends the matrix's queries while it loads the page's files."""
    window = request.query_params.get("window") or _USUAL_WINDOW
    if request.query_params.get("from") or _WINDOW.fullmatch(window) is None:
        return ""
    query = urlencode({"window": window, "quantity": _QUANTITIES}, doseq=True)
    paths = (f"/v1/leaderboard?{query}", "/v1/targets", "/v1/vantages")
    return ", ".join(f"<{path}>; rel=preload; as=fetch; crossorigin" for path in paths)


def require_same_origin(request: Request) -> None:
    """Raises `Forbidden` unless a page of this collector asks, by headers of browsers that no script can set."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "")
    is_same = site == "same-origin" if site else urlsplit(origin).netloc == request.headers.get("host") != ""
    if not is_same:
        raise Forbidden("a session begins and ends on the collector's own page only")


DOCUMENT = "index.html"
FOLDER = "/page"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content-Security-Policy of every file: nothing of another address is loaded, and no script or style is inline."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """A file as it is sent: its bytes, the same with gzip, and the headers of both, in lower case."""

    content: bytes
    compressed: bytes
    etag: str
    headers: Mapping[str, str]


@cache
def read_files() -> Mapping[str, PageFile]:
    """Return the files by their paths on the server, that of the document being `DOCUMENT`; read at the first call."""
    contents = dict(_contents(resources.files("isochrone_common") / "page", PurePosixPath()))
    document = contents.pop(DOCUMENT)
    folder = f"{FOLDER}/{_digest(*contents, *contents.values())}"
    found = {
        f"{folder}/{name}": _file(name, content, "public, max-age=31536000, immutable")
        for name, content in contents.items()
    }
    # Links by which all modules are loaded at once.
    links = (f'<link rel="modulepreload" href="{folder}/{name}">' for name in contents if name.endswith(".js"))
    text = document.decode().replace("<!-- modules -->", "\n".join(links)).replace("FOLDER", folder)
    return found | {DOCUMENT: _file(DOCUMENT, text.encode(), "no-cache")}


def _contents(folder: Traversable, place: PurePosixPath) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _contents(entry, place / entry.name)
        elif PurePosixPath(entry.name).suffix in _MEDIA_TYPES:
            yield str(place / entry.name), entry.read_bytes()


def _file(name: str, content: bytes, cache_control: str) -> PageFile:
    headers = {"Content-Type": _MEDIA_TYPES[PurePosixPath(name).suffix], "Cache-Control": cache_control, **_HEADERS}
    return PageFile(content=content, compressed=gzip.compress(content, mtime=0), etag=_digest(content), headers=headers)


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:20]


UNKNOWN_VALUE = "\N{EN DASH}"
MAX_LABEL_CHARS = 60
_NEUTRAL = "#57606a"
_COLOURS = {State.OK: "#1a7f37", State.SLOW: "#8a5a00", State.FAILING: "#b3202c"}
# The widths of characters of Verdana at the size of the text: of the usual ones, of capitals, and of others.
_CHAR_PX, _CAPITAL_PX, _EAST_ASIAN_PX, _MARGIN_PX = 6.8, 7.7, 12.0, 6

_WIDTHS_PX = (
    dict.fromkeys("ijl", 3.1)
    | dict.fromkeys("frtI .,:;|!'()[]", 4.4)
    | dict.fromkeys("-/", 5.0)
    | dict.fromkeys("mwMW%@<>=+~", 9.5)
)

# Longer latencies are shown in seconds.
_SECONDS_FROM_US = 10 * SECOND_US

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" viewBox="0 0 {width} 20" role="img"
 aria-label="{title}">
<title>{title}</title>
<clipPath id="shape"><rect width="{width}" height="20" rx="3"/></clipPath>
<g clip-path="url(#shape)">
<rect width="{left}" height="20" fill="#333b44"/>
<rect x="{left}" width="{right}" height="20" fill="{colour}"/>
</g>
<g fill="#ffffff" font-family="{font}" font-size="11" aria-hidden="true">
<text x="{margin}" y="14" textLength="{label_px}">{label}</text>
<text x="{value_x}" y="14" textLength="{value_px}">{value}</text>
</g>
</svg>
"""


@dataclass(frozen=True, slots=True)
class Badge:
    """The bytes of an image, and its entity tag."""

    content: bytes
    etag: str


def _first_token(row: TargetStatus) -> str:
    if row.ttft_p50_us is None:
        return UNKNOWN_VALUE
    early = "?" if row.is_early else ""
    if row.ttft_p50_us >= _SECONDS_FROM_US:
        return f"{row.ttft_p50_us / SECOND_US:.1f}{early} s"
    return f"{row.ttft_p50_us / 1_000:.0f}{early} ms"


def _success(row: TargetStatus) -> str:
    """Round down, so that 100.0 % means all."""
    return UNKNOWN_VALUE if row.success is None else f"{math.floor(1_000 * row.success + 1e-9) / 10:.1f} %"


METRICS: Mapping[str, tuple[str, Callable[[TargetStatus], str]]] = MappingProxyType(
    {
        "state": ("state", lambda row: row.state.phrase),
        "ttft": ("median first token", _first_token),
        "success": ("success", _success),
    }
)
"""What a badge can show: its words in the title, and the text of the value."""


def badge_of(row: TargetStatus, metric: str) -> Badge:
    """Return the badge of a target from a region, with one of `METRICS`; its colour is that of the state."""
    words, text_of = METRICS[metric]
    text = text_of(row)
    told = f"{words} {text}" if metric == "state" else f"{words} {text} in 24 hours, state {row.state.phrase}"
    return _badge(f"{row.target} {row.region}", text, title=f"{row.target} from {row.region}: {told}", state=row.state)


def unknown_badge() -> Badge:
    """Return the badge of a target or region that is not known. It repeats nothing of the request."""
    return _badge("isochrone", "unknown", title="isochrone: unknown target or region", state=None)


def _badge(label: str, value: str, *, title: str, state: State | None) -> Badge:
    label, value = shortened(_printable(label), MAX_LABEL_CHARS), _printable(value)
    label_px, value_px = _width_px(label), _width_px(value)
    left, right = label_px + 2 * _MARGIN_PX, value_px + 2 * _MARGIN_PX
    content = _SVG.format(
        width=left + right,
        left=left,
        right=right,
        margin=_MARGIN_PX,
        value_x=left + _MARGIN_PX,
        label_px=label_px,
        value_px=value_px,
        label=html.escape(label),
        value=html.escape(value),
        title=html.escape(_printable(title)),
        colour=_COLOURS.get(state or State.STALE, _NEUTRAL),
        font="Verdana,DejaVu Sans,Geneva,sans-serif",
    ).encode()
    return Badge(content, hashlib.sha256(content).hexdigest()[:20])


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _width_px(text: str) -> int:
    """Return the width of a text in the usual fonts; the image stretches other fonts to it."""
    wide = [char for char in text if east_asian_width(char) in "WF"]
    others = (_WIDTHS_PX.get(char, _CAPITAL_PX if char.isupper() else _CHAR_PX) for char in text if char not in wide)
    return math.ceil(len(wide) * _EAST_ASIAN_PX + sum(others))


BADGE = "/badge/{target:path}/{region}.svg"

MAX_AGE_S = 60.0
"""The greatest age of a shared answer, in seconds; it is that old only if its query took three seconds."""

# Requests of the public, of one address and of all.
_PER_SECOND, _BURST = 10.0, 100.0
_ALL_PER_SECOND, _ALL_BURST = 200.0, 400.0
_KEPT_S = 10
# Of a private and of a public answer.
_CACHE_CONTROL = ("private, no-cache", f"public, max-age={_KEPT_S}")

_BADGE_HEADERS = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}

_Answer = tuple[StatusList, responses.EncodedDocument]


class StatusRoutes:
    """The status and badges, public if `is_public`. All callers share one answer, with these `targets` only, except
    readers of a public page: they get everything.
    """

    def __init__(
        self,
        query_context: QueryContext,
        authenticator: Authenticator,
        *,
        is_public: bool,
        targets: NameFilter = EVERY_NAME,
    ) -> None:
        self._query_context, self._authenticator = query_context, authenticator
        self._is_public, self._targets = is_public, targets
        self._shared = SharedAnswers[_Answer]()
        self._of_address = BucketPerKey(per_second=_PER_SECOND, burst=_BURST)
        self._of_all = LeakyBucket(per_second=_ALL_PER_SECOND, burst=_ALL_BURST)
        self._pause = RefusalPause()
        self.routes = (
            *requests.routes(STATUS, self, query_context.clock),
            Route(BADGE, self._badge, methods=["GET"], include_in_schema=False),
        )
        """All paths with data that need no credential with `--public-page`."""

    def is_public(self, path: str) -> bool:
        """Return whether a path needs no credential."""
        return self._is_public and any(route.path_regex.match(path) for route in self.routes)

    async def status(self, request: Request) -> Response:
        """Return what is wrong now; to the public only about targets."""
        is_public = self._is_public and not await self._reads(request)
        (_, document), age_s = await self._answer(request, is_public=is_public)
        return document_response(request, document, age_s, cache_control=_CACHE_CONTROL[is_public])

    async def _reads(self, request: Request) -> bool:
        """Return whether the caller of a public page may read everything."""
        with suppress(Unauthenticated, Forbidden):
            return bool(await authenticate(self._authenticator, request))
        return False

    async def _badge(self, request: Request) -> Response:
        """Return the badge of a target from a region; a neutral one with 404 if either is unknown."""
        values = requests.parse(request.scope["query_string"], known=["metric"])
        metric = requests.choice(values, "metric", METRICS) or "state"
        (found, _), _ = await self._answer(request, is_public=self._is_public)
        wanted = request.path_params["target"], request.path_params["region"]
        row = next((row for row in found.states if (row.target, row.region) == wanted), None)
        badge = unknown_badge() if row is None else badge_of(row, metric)
        headers = {
            "Cache-Control": _CACHE_CONTROL[self._is_public],
            "ETag": responses.quoted(badge.etag),
            "Cross-Origin-Resource-Policy": "cross-origin" if self._is_public else "same-origin",
            **_BADGE_HEADERS,
        }
        if row is not None and responses.is_current(responses.none_match(request.headers), badge.etag):
            return Response(status_code=304, headers=headers)
        status_code = 404 if row is None else 200
        return Response(badge.content, status_code=status_code, headers=headers, media_type="image/svg+xml")

    async def _answer(self, request: Request, *, is_public: bool) -> tuple[_Answer, float]:
        """Return the shared answer and its age in seconds. Raises `ResourceExhausted`, and as the query."""
        if is_public:
            now_at = self._query_context.clock()
            address = network_of(request.client.host if request.client else "")
            if not (self._of_address.take(address, now_at) and self._of_all.take(now_at)):
                await self._pause.wait()
                raise ResourceExhausted("too many requests; the answer changes every few seconds only")
        with without_details() if is_public else nullcontext():
            return await self._shared.get(is_public, partial(self._make, is_public=is_public), max_age_s=MAX_AGE_S)

    async def _make(self, *, is_public: bool) -> _Answer:
        shown = self._targets if is_public else EVERY_NAME
        found = await status.status(self._query_context, shown=shown, is_public=is_public)
        return found, await asyncio.to_thread(responses.encode_document, found)


STATUS = (
    Endpoint(
        path="/v1/status",
        summary="What is wrong now, and the state of each target from each region; about targets open to all with "
        "--public-page.",
        work=StatusRoutes.status,
        parameters=(FORMAT,),
        answer=StatusList,
    ),
)
