"""Following the tables of a region until interrupted, across restarts of the collector.

A thread receives the tables; this one writes what is made of them, and runs a command.
"""

import queue
import random
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ReadClient
from isochrone_client.errors import ClientError, NoTableError, SlowError, UnreachableError
from isochrone_client.streams import TableStream
from isochrone_client.window import now_at
from isochrone_common.route_consumer import FollowedTables, defect, endpoint, routing_of
from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RegionTables, RouteTable, is_usable

_RETRY_SECONDS = 5.0
_NOT_READY = (UnreachableError, SlowError, NoTableError)

Output = TypeVar("Output")


def command_line(text: str | None) -> tuple[str, ...]:
    """The words of a command, split as a shell does, but nothing else of a shell. Raises `click.BadParameter`."""
    try:
        words = tuple(shlex.split(text or ""))
    except ValueError as error:
        raise click.BadParameter(f"cannot split {text!r} into words: {error}", param_hint="--exec") from error
    if text is not None and not words:
        raise click.BadParameter("no command is named", param_hint="--exec")
    return words


@dataclass(slots=True, kw_only=True)
class Follower(Generic[Output]):
    """The export of a region, or of one of its routes, that is kept up to date.

    `render` gives the texts of the file's parts and `write` replaces them; for another `place`, they give and take
    anything else, which is reported as `done`. `command` is run after each change of the routing, with a limit of a
    minute.
    """

    collector: Collector
    timeout_us: int
    region: str
    route: str
    render: Callable[[RegionTables], Output]
    write: Callable[[Output], None]
    place: str = "the file"
    done: str = "written"
    command: Sequence[str] = ()
    _tables: FollowedTables = field(default_factory=lambda: FollowedTables(share=random.random()))  # noqa: S311  # no secret
    _arrived: "queue.SimpleQueue[RouteTable | ClientError]" = field(default_factory=queue.SimpleQueue)
    _written: Output | None = None
    _routing: Mapping[str, object] = field(default_factory=dict)
    _static: frozenset[str] = frozenset()
    _plan_version: int = 0
    _failure: str = ""

    def run(self) -> None:
        """Follow until Ctrl-C or SIGTERM. A collector that is away at the start, or has no table yet, is waited for.

        Raises `ClientError` if the collector refuses the request, and if the first file cannot be made.
        """
        with suppress(KeyboardInterrupt), ReadClient(self.collector, timeout_us=self.timeout_us) as client:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            self._begin(client)
            threading.Thread(target=self._receive, daemon=True).start()
            while True:
                self._wait()
                newest = (route.newest.provenance.plan_version for route in self._tables.routes.values())
                if max(newest, default=0) != self._plan_version:
                    with suppress(ClientError):  # at the next table again
                        self._load(client)
                try:
                    self._update()
                    self._failure = ""
                except ClientError as error:  # the file stays as it is
                    if str(error) != self._failure:
                        terminal.remark(f"{error}; the last file stays")
                    self._failure = str(error)

    def _begin(self, client: ReadClient) -> None:
        reported = ""
        while True:
            try:
                self._load(client)
                break
            except _NOT_READY as error:
                if str(error) != reported:
                    terminal.remark(f"{error}; waiting for it")
                reported = str(error)
                time.sleep(_RETRY_SECONDS)
        self._update()

    def _load(self, client: ReadClient) -> None:
        plan = client.list_targets()
        tables = client.get_tables(self.region, self.route).tables
        for table in tables:
            self._accept(table)
        self._tables.keep_only(table.route for table in tables)
        self._tables.endpoints |= {target.name: endpoint(target) for target in plan.targets}
        self._plan_version = max((table.provenance.plan_version for table in tables), default=0)

    def _receive(self) -> None:
        """The thread: pass on each table as it arrives, and the error that ends the stream."""
        try:
            with ReadClient(self.collector, timeout_us=self.timeout_us) as client:
                watching = TableStream(
                    client=client, client_region=self.region, route=self.route, has_begun=True, report=terminal.remark
                )
                for table in watching.tables():
                    self._arrived.put(table)
        except ClientError as error:
            self._arrived.put(error)

    def _wait(self) -> None:
        """Wait for tables, or for the instant at which the file changes without any."""
        now = now_at()
        until = self._tables.next_change_at(now)
        # Wall clocks are set now and then: the instant is compared with them again after ten seconds.
        seconds = _RETRY_SECONDS if self._failure else 10.0
        if until is not None:
            seconds = min(seconds, (until - now) / SECOND_US)
        with suppress(queue.Empty):
            arrived = self._arrived.get(timeout=seconds)
            while True:
                if isinstance(arrived, ClientError):
                    raise arrived
                self._accept(arrived)
                arrived = self._arrived.get_nowait()

    def _accept(self, table: RouteTable) -> None:
        """Note a table, unless no consumer may act on it: then the last one stays, until it expires."""
        if why := defect(table):
            terminal.remark(f"{table.route}: generation {table.generation} is ignored: {why}")
        else:
            self._tables.receive(table)

    def _update(self) -> None:
        """Write the file if its content changes, and run the command if the routing does."""
        now = now_at()
        tables = self._tables.at(now)
        if not tables:
            return
        newest = max(tables, key=lambda table: table.generation)
        answer = RegionTables(
            client_region=newest.client_region or self.region,
            generation=newest.generation,
            etag=newest.etag,
            answered_at=now,
            tables=tuple(tables),
        )
        texts = self.render(answer)
        if texts != self._written:
            self.write(texts)
            self._written = texts
        static = frozenset(table.route for table in tables if not is_usable(table, now_at=now))
        for route in sorted(static - self._static):
            terminal.remark(f"{route}: no table may be used; {self.place} has the static order")
        for route in sorted(self._static - static):
            terminal.remark(f"{route}: {self.place} has a table again")
        self._static = static
        routing = routing_of(tables)
        if routing != self._routing:
            self._routing = routing
            terminal.remark(f"{self.done}: generation {newest.generation}")
            _run(self.command)


def _run(command: Sequence[str]) -> None:
    """Run the command, if there is one; a failure is reported and ends nothing."""
    if not command:
        return
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60.0, check=False)  # noqa: S603  # the user's own
    except (OSError, subprocess.TimeoutExpired) as error:
        terminal.remark(f"the command {shlex.join(command)} failed: {error}")
        return
    if done.returncode:
        terminal.remark(f"the command {shlex.join(command)} failed with exit code {done.returncode}")
