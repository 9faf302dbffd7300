"""The channel to the collector, which is opened again when the agent's identity changes.

Calls in flight end on the old channel; later calls use the new one.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import grpc.aio
import structlog

from isochrone_agent.errors import SettingsError
from isochrone_agent.file_watch import FileWatch
from isochrone_agent.settings import Settings, read_identity
from isochrone_common.address import Address
from isochrone_common.channel import open_aio_channel
from isochrone_common.identity_file import Identity
from isochrone_common.trust import PLAIN

_GRACE_SECONDS = 30.0

log = structlog.get_logger()


class ReconnectingChannel:
    """Use `async with`, take `current` for every call, and call `refresh` periodically. `identity` is the one in use.
    Raises `SettingsError`.
    """

    def __init__(self, settings: Settings, *, interceptors: Sequence[grpc.aio.ClientInterceptor] = ()) -> None:
        self._settings = settings
        self._interceptors = interceptors
        self._current = _open(settings.collector, settings.identity, interceptors)
        self.identity = settings.identity
        self._watch = FileWatch(_files(settings, settings.identity))
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        for task in self._closing:
            task.cancel()
        await self._current.close()

    @property
    def current(self) -> grpc.aio.Channel:
        """The channel for the next call."""
        return self._current

    def refresh(self) -> None:
        """Open the channel again if the identity file or the client certificate has changed.

        An identity that cannot be used is logged, and the current channel stays.
        """
        if not self._watch.changed():
            return
        try:
            identity = read_identity(self._settings.identity_path)
            self._reopen(identity)
        except SettingsError as error:
            log.error("identity.unusable", reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback

    def _reopen(self, identity: Identity | None) -> None:
        vantage = self._settings.vantage
        if identity is None or (identity.name, identity.region) != (vantage.name, vantage.region):
            log.error("identity.ignored", hint="it is missing or belongs to another vantage: restart this agent")
            return
        old, self._current = self._current, _open(self._address(identity), identity, self._interceptors)
        self.identity = identity
        self._watch = FileWatch(_files(self._settings, identity))
        task = asyncio.get_running_loop().create_task(old.close(_GRACE_SECONDS))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        log.info("identity.renewed", collector=str(self._address(identity)))

    def _address(self, identity: Identity) -> Address:
        """The address of `identity`, unless the settings named another one at the start."""
        first = self._settings.identity
        is_explicit = first is None or first.address != self._settings.collector
        return self._settings.collector if is_explicit else identity.address


def open_collector_channel(settings: Settings) -> grpc.aio.Channel:
    """A channel for a few calls, with the identity of now. Raises `SettingsError`."""
    return _open(settings.collector, settings.identity)


def _open(
    address: Address, identity: Identity | None, interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
) -> grpc.aio.Channel:
    trust, credential = (identity.trust, identity.credential) if identity else (PLAIN, None)
    try:
        return open_aio_channel(address, trust, credential, interceptors=interceptors)
    except ValueError as error:
        raise SettingsError(str(error), hint="join again: isochrone-agent join") from error


def _files(settings: Settings, identity: Identity | None) -> list[Path]:
    client = identity.trust.client if identity else None
    return [settings.identity_path, *((client.certificate, client.key) if client else ())]
