"""The line to the collector: a channel that is built anew when this agent's identity changes.

Nobody notices but the collector: calls in flight end on the old channel, calls that begin take the new one.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Self, cast

import grpc.aio
import structlog

from isochrone_agent.errors import SettingsError
from isochrone_agent.file_watch import FileWatch
from isochrone_agent.settings import Settings, read_identity
from isochrone_wire.address import Address
from isochrone_wire.channel import PLAIN, open_aio_channel
from isochrone_wire.identity_file import Identity

_GRACE_SECONDS = 30.0

log = structlog.get_logger()


class ReconnectingChannel:
    """Use `async with`, give `channel` to stubs, and call `refresh` now and then. Raises `SettingsError`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._current = _open(settings.collector, settings.identity)
        self._watch = FileWatch(_files(settings, settings.identity))
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        for task in self._closing:
            task.cancel()
        await self._current.close()

    @property
    def channel(self) -> grpc.aio.Channel:
        """What a stub of unary calls can be made of, once: each call goes over the channel of its time."""
        return cast(grpc.aio.Channel, self)

    def unary_unary(self, *arguments: Any, **named: Any) -> Callable[..., Any]:  # noqa: ANN401  # gRPC's signature
        """As of a channel; which one is found out call by call."""

        def call(request: object, **more: Any) -> Any:  # noqa: ANN401  # as above
            return self._current.unary_unary(*arguments, **named)(request, **more)

        return call

    def refresh(self) -> None:
        """Build the channel anew if the identity or its client certificate has changed; one that is of no use is told
        in the log, and the line stays as it is.
        """
        if not self._watch.changed():
            return
        try:
            joined = read_identity(self._settings.identity_path)
            self._take_up(joined)
        except SettingsError as error:
            log.error("identity.unusable", reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback

    def _take_up(self, joined: Identity | None) -> None:
        vantage = self._settings.vantage
        if joined is None or (joined.name, joined.region) != (vantage.name, vantage.region):
            log.error("identity.ignored", hint="it is gone, or another vantage's: stop this agent and start it again")
            return
        before, self._current = self._current, _open(self._address(joined), joined)
        self._watch = FileWatch(_files(self._settings, joined))
        task = asyncio.get_running_loop().create_task(before.close(_GRACE_SECONDS))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        log.info("identity.renewed", collector=str(self._address(joined)))

    def _address(self, joined: Identity) -> Address:
        """Another address than the identity's was said, and goes on holding."""
        first = self._settings.identity
        said = first is None or first.address != self._settings.collector
        return self._settings.collector if said else joined.address


def open_collector_channel(settings: Settings) -> grpc.aio.Channel:
    """A channel for a question or two. Raises `SettingsError`."""
    return _open(settings.collector, settings.identity)


def _open(address: Address, joined: Identity | None) -> grpc.aio.Channel:
    try:
        if joined is None:
            return open_aio_channel(address, PLAIN)
        return open_aio_channel(address, joined.trust, joined.credential)
    except ValueError as error:
        raise SettingsError(str(error), hint="join again: isochrone-agent join") from error


def _files(settings: Settings, joined: Identity | None) -> tuple[Any, ...]:
    client = joined.trust.client if joined else None
    return (settings.identity_path, client.certificate, client.key) if client else (settings.identity_path,)
