"""Webhook that receives alerts: one signed POST per alert, and its result."""

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus

import httpx

from isochrone_collector import webhook_signature
from isochrone_collector.alerts.message import AlertMessage, name_of
from isochrone_collector.settings import WebhookSettings
from isochrone_wire import __version__
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of an attempt: accepted, or the reason why not; `is_final` if the receiver wants no more attempts."""

    accepted: bool
    reason: str = ""
    is_final: bool = False


def body_of(message: AlertMessage) -> bytes:
    """Return the JSON that the receiver gets."""
    data = {
        "id": name_of(message.id),
        "subject": message.subject,
        "sentence": message.sentence,
        **message.details,
    }
    body = {"type": f"isochrone.{message.kind.value}", "timestamp": rfc3339(message.raised_at), "data": data}
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


class Webhook:
    """One receiver. Redirects are not followed, and of a response only the status is read."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._client = httpx.AsyncClient(
            follow_redirects=False, timeout=TIMEOUT_S, headers={"user-agent": f"isochrone/{__version__}"}
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def send(self, message: AlertMessage, *, now_at: int) -> Reply:
        """Send an alert, signed as of `now_at`. Errors are returned in the reply."""
        body = body_of(message)
        signature = webhook_signature.headers(
            self._settings.secret, message=name_of(message.id), sent_s=now_at // SECOND_US, body=body
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._post(body, {**signature, "content-type": "application/json"})
        except (TimeoutError, httpx.TimeoutException):
            return Reply(accepted=False, reason=f"no response within {TIMEOUT_S:g} s")
        except httpx.HTTPError as error:
            # The text of the error may quote the address.
            return Reply(accepted=False, reason=_kind_of(error))

    async def _post(self, body: bytes, headers: dict[str, str]) -> Reply:
        async with self._client.stream("POST", self._settings.url, content=body, headers=headers) as response:
            if response.is_success:
                return Reply(accepted=True)
            reason = f"{response.status_code} {response.reason_phrase}".strip()
            if response.is_redirect:
                reason += "; redirects are not followed"
            return Reply(accepted=False, reason=reason, is_final=response.status_code == HTTPStatus.GONE)


_KINDS: tuple[tuple[type[httpx.HTTPError], str], ...] = (
    (httpx.ConnectError, "no connection"),
    (httpx.RemoteProtocolError, "the response is not HTTP"),
    (httpx.NetworkError, "the connection was lost"),
    (httpx.ProxyError, "the proxy failed"),
)


def _kind_of(error: httpx.HTTPError) -> str:
    return next((words for kind, words in _KINDS if isinstance(error, kind)), type(error).__name__)
