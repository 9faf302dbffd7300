"""HTTP routes of the live page: its files, which contain no data and are open to all, and its login.

A reader presents its credential once, in the body of `POST /session`, and gets a cookie with the token of a session.
The interface accepts the cookie for reading only. No other site can use it: it is `SameSite=Strict`, and changes of a
session are accepted from pages of this collector only.
"""

import re
from contextlib import suppress
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isochrone_collector.auth.authenticator import LIFETIME_US, Authenticator, bearer_credential
from isochrone_collector.errors import BadRequest, Forbidden, Unauthenticated, UnknownName
from isochrone_collector.http_api.bearer_auth import ROLES, authenticate, cookie_name, proxy_user
from isochrone_collector.http_api.bodies import JsonResponse, read_body
from isochrone_collector.http_api.encoded_documents import accepts_gzip
from isochrone_collector.http_api.encoded_tables import encode_line
from isochrone_collector.http_api.entity_tags import is_current, weak
from isochrone_collector.page.files import DOCUMENT, FOLDER, read_files
from isochrone_wire.model import SECOND_US

MATRIX = "/"
VIEWS = (MATRIX, "/fleet", "/routes", "/map", "/status", "/target/{target:path}")
"""The paths of views, all of which have the same document."""

SESSION = "/session"
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
            Route(SESSION, self._session, methods=["GET", "POST", "DELETE"], include_in_schema=False),
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
        headers = {**found.headers, "ETag": weak(found.etag)}
        if is_current(request.headers.get("if-none-match"), found.etag):
            return Response(status_code=304, headers=headers)
        if accepts_gzip(request.headers):
            return Response(found.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(found.content, headers=headers)

    async def _session(self, request: Request) -> Response:
        """Return the holder of a session, begin one with POST, or end it with DELETE. Raises `Forbidden` for changes by
        pages of other sites.
        """
        if request.method in ("GET", "HEAD"):
            return await self._holder(request)
        require_same_origin(request)
        return await (self._end_session(request) if request.method == "DELETE" else self._begin_session(request))

    async def _holder(self, request: Request) -> Response:
        """Return the `name` of the caller, `None` without a credential; whether it `reads` data, whether a logout
        `ends` that, and whether the status is `public`.
        """
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
        return JsonResponse(encode_line(value), headers=_UNCACHED)

    async def _begin_session(self, request: Request) -> Response:
        """Begin a session for the credential in the field `credential` of a form. Raises as `authenticate`."""
        metadata = [("authorization", f"Bearer {await _posted_credential(request)}")]
        await self._authenticator.authenticate(metadata, ROLES)
        response = Response(status_code=204, headers=_UNCACHED)
        token = self._authenticator.sessions.begin(bearer_credential(metadata).id)
        self._set_cookie(request, response, token, max_age=LIFETIME_US // SECOND_US)
        return response

    async def _end_session(self, request: Request) -> Response:
        """End the session of the cookie, if there is one."""
        token = request.cookies.get(cookie_name(request))
        if token:
            self._authenticator.sessions.end(token)
        response = Response(status_code=204, headers=_UNCACHED)
        self._set_cookie(request, response, "", max_age=0)
        return response

    @staticmethod
    def _set_cookie(request: Request, response: Response, token: str, *, max_age: int) -> None:
        response.set_cookie(
            cookie_name(request),
            token,
            max_age=max_age,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


def _early_requests(request: Request) -> str:
    """Return the header that makes a browser ask the queries of the matrix while it loads the page's files: those that
    are the same for all metrics, of a window up to now.
    """
    window = request.query_params.get("window") or _USUAL_WINDOW
    if request.query_params.get("from") or _WINDOW.fullmatch(window) is None:
        return ""
    query = urlencode({"window": window, "quantity": _QUANTITIES}, doseq=True)
    paths = (f"/v1/leaderboard?{query}", "/v1/targets", "/v1/vantages")
    return ", ".join(f"<{path}>; rel=preload; as=fetch; crossorigin" for path in paths)


def require_same_origin(request: Request) -> None:
    """Raises `Forbidden` unless a page of this collector sent the request. Browsers state it in a header that no script
    can set: `Sec-Fetch-Site`, or only `Origin` in older ones and in plain text.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "")
    is_same = site == "same-origin" if site else urlsplit(origin).netloc == request.headers.get("host") != ""
    if not is_same:
        raise Forbidden("a session begins and ends on the collector's own page only")


async def _posted_credential(request: Request) -> str:
    """Return the credential in the form. Raises `BadRequest`, and as `read_body`."""
    body = await read_body(request, max_bytes=_MAX_BODY_BYTES)
    try:
        (credential,) = parse_qs(body.decode("ascii"), max_num_fields=1)["credential"]
    except (ValueError, KeyError):
        raise BadRequest("the form must have the field `credential`, once") from None
    return credential.strip()
