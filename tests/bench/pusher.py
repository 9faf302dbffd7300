"""A process that only pushes: the load of many vantages, controlled over stdin.

usage: pusher.py stdin: one `PusherConfig`, then any number of `LoadSpec`; each is answered with one line
"""

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc

from bench import push_payloads
from isochrone_common.address import parse_address
from isochrone_common.channel import open_aio_channel
from isochrone_common.trust import PLAIN, Trust
from isochrone_wire.model import Vantage
from isochrone_wire.v1 import fleet_pb2

PUSH = "/isochrone.v1.Fleet/Push"
ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PusherConfig:
    """The vantage of this process and the address of the collector. Without `roots`, plain text is used."""

    address: str
    name: str
    region: str
    targets: list[int]
    now_at: int
    seed: int
    roots: str | None = None
    server_name: str | None = None
    credential: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """A load: push batches of `samples` samples from `begin_at` (seconds of the monotonic clock): for `seconds` with
    `in_flight` unanswered pushes, or at the rate `per_second` independent of replies, or a number of `batches`.
    """

    samples: int
    begin_at: float
    seconds: float
    in_flight: int = 4
    per_second: float | None = None
    batches: int | None = None


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of a load: samples acknowledged as stored, start and end, and the time from the due instant of each
    push to its reply, in seconds.
    """

    stored: int = 0
    begun_at: float = 0.0
    ended_at: float = 0.0
    waits: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class Pusher:
    """Pushes over one channel."""

    def __init__(self, config: PusherConfig, channel: grpc.aio.Channel) -> None:
        self._config = config
        self._push: Any = channel.unary_unary(PUSH, response_deserializer=fleet_pb2.PushResponse.FromString)
        self._vantage = Vantage(name=config.name, region=config.region)
        self._epoch = config.seed + 1
        self._seq = 0
        self._bodies: dict[int, list[push_payloads.PushBody]] = {}

    def prepare(self, samples: int) -> None:
        """Prepare the bodies of batches of this size."""
        if samples not in self._bodies:
            made = push_payloads.bodies(
                self._config.targets, now_at=self._config.now_at, seed=self._config.seed, samples=samples
            )
            self._bodies[samples] = [push_payloads.PushBody(body) for body in made]

    async def run_load(self, load: LoadSpec) -> Report:
        """Run a load."""
        self.prepare(load.samples)
        report = Report()
        await asyncio.sleep(max(0.0, load.begin_at - time.monotonic()))
        report.begun_at = time.monotonic()
        await (self._pace(load, report) if load.per_second else self._flood(load, report))
        report.ended_at = time.monotonic()
        return report

    async def _flood(self, load: LoadSpec, report: Report) -> None:
        left = load.batches if load.batches is not None else sys.maxsize
        until = time.monotonic() + load.seconds

        async def worker() -> None:
            nonlocal left
            while left > 0 and time.monotonic() < until:
                left -= 1
                await self._push_one(load.samples, time.monotonic(), report)

        await asyncio.gather(*(worker() for _ in range(load.in_flight)))

    async def _pace(self, load: LoadSpec, report: Report) -> None:
        assert load.per_second
        # Agents do not push in phase.
        phase = random.Random(self._config.seed).random()
        async with asyncio.TaskGroup() as pushes:
            for nth in range(int(load.seconds * load.per_second)):
                current_body = report.begun_at + (nth + phase) / load.per_second
                await asyncio.sleep(max(0.0, current_body - time.monotonic()))
                pushes.create_task(self._push_one(load.samples, current_body, report))

    async def _push_one(self, samples: int, current_body: float, report: Report) -> None:
        self._seq += 1
        now_at = time.time_ns() // 1000
        body = self._bodies[samples][push_payloads.current_body(now_at)].shifted(
            push_payloads.shift_us(self._config.now_at, now_at)
        )
        request = push_payloads.request_head(self._vantage, epoch=self._epoch, seq=self._seq) + body
        try:
            response = await self._push(request, timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            report.refused.append(f"{error.code().name}: {error.details()}")
            return
        report.waits.append(time.monotonic() - current_body)
        report.stored += response.stored


async def main() -> None:
    """Run loads until stdin ends."""
    config = PusherConfig(**json.loads(sys.stdin.readline()))
    trust = Trust(roots=config.roots, server_name=config.server_name) if config.roots else PLAIN
    async with open_aio_channel(parse_address(config.address), trust, config.credential) as channel:
        pusher = Pusher(config, channel)
        print("{}", flush=True)  # noqa: T201  # the reply to the configuration
        while line := await asyncio.to_thread(sys.stdin.readline):
            report = await pusher.run_load(LoadSpec(**json.loads(line)))
            print(json.dumps(asdict(report)), flush=True)  # noqa: T201  # the reply to the load


if __name__ == "__main__":
    asyncio.run(main())
