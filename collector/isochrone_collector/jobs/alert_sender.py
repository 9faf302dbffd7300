"""Sender of alerts: one POST per notification, and its result."""

import asyncio
from dataclasses import dataclass

import httpx

from isochrone_collector.alerts.formats.request import HttpRequest
from isochrone_wire import __version__
from isochrone_wire.model import SECOND_US

TIMEOUT_S = 5.0
_MAX_WAIT_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of an attempt: accepted, or the reason why not with the HTTP status, if there was a response.
    `wait_us` is for how long, in microseconds, the receiver wants no further request.
    """

    accepted: bool
    reason: str = ""
    status: int | None = None
    wait_us: int = 0


class AlertSender:
    """The HTTP client of one receiver. Redirects are not followed; of a response only status and headers are read."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            timeout=TIMEOUT_S,
            headers={"user-agent": f"isochrone/{__version__}", "content-type": "application/json"},
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def send(self, request: HttpRequest) -> Reply:
        """Send a request. Errors are returned in the reply, without anything of the address."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._post(request)
        except (TimeoutError, httpx.TimeoutException):
            return Reply(accepted=False, reason=f"no response within {TIMEOUT_S:g} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # The text of the error may quote the address.
            return Reply(accepted=False, reason=_kind_of(error))

    async def _post(self, request: HttpRequest) -> Reply:
        stream = self._client.stream("POST", request.url, content=request.body, headers=dict(request.headers))
        async with stream as response:
            if response.is_success:
                return Reply(accepted=True, status=response.status_code)
            reason = f"{response.status_code} {response.reason_phrase}".strip()
            if response.is_redirect:
                reason += "; redirects are not followed"
            wait_us = _wait_us(response.headers.get("retry-after", ""))
            return Reply(accepted=False, reason=reason, status=response.status_code, wait_us=wait_us)


def _wait_us(retry_after: str) -> int:
    """Return the seconds of a header in microseconds; a date counts as none."""
    return min(int(retry_after), _MAX_WAIT_S) * SECOND_US if retry_after.isdecimal() else 0


_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectError, "no connection"),
    (httpx.RemoteProtocolError, "the response is not HTTP"),
    (httpx.NetworkError, "the connection was lost"),
    (httpx.ProxyError, "the proxy failed"),
)


def _kind_of(error: Exception) -> str:
    return next((words for kind, words in _KINDS if isinstance(error, kind)), type(error).__name__)
