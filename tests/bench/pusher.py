"""Agents that do nothing but push: one process, many vantages' worth of load, told over stdin what to do.

usage: pusher.py         the first line on stdin is a `Post`, every other one an `Order`; each is answered with a line
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
from isochrone_wire.address import parse_address
from isochrone_wire.channel import PLAIN, Trust, open_aio_channel
from isochrone_wire.model import Vantage
from isochrone_wire.v1 import fleet_pb2

PUSH = "/isochrone.v1.Fleet/Push"
ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Who this process is and whom it talks to. Without `roots` plain text is spoken."""

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
class Order:
    """Push batches of so many samples from `begin_at` (seconds of the monotonic clock): as many as are answered in
    `seconds` with `in_flight` of them on the way, or `per_second` of them however long the answers take, or `batches`.
    """

    samples: int
    begin_at: float
    seconds: float
    in_flight: int = 4
    per_second: float | None = None
    batches: int | None = None


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of an order: samples acknowledged as stored, from when until when, and how long each answer took from
    the instant its push was due, in seconds.
    """

    stored: int = 0
    begun_at: float = 0.0
    ended_at: float = 0.0
    waits: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class Pusher:
    """Pushes over one channel."""

    def __init__(self, post: Post, channel: grpc.aio.Channel) -> None:
        self._post = post
        self._push: Any = channel.unary_unary(PUSH, response_deserializer=fleet_pb2.PushResponse.FromString)
        self._vantage = Vantage(name=post.name, region=post.region)
        self._epoch = post.seed + 1
        self._seq = 0
        self._bodies: dict[int, list[push_payloads.Body]] = {}

    def prepare(self, samples: int) -> None:
        """Make the bodies of batches of so many samples."""
        if samples not in self._bodies:
            made = push_payloads.bodies(
                self._post.targets, now_at=self._post.now_at, seed=self._post.seed, samples=samples
            )
            self._bodies[samples] = [push_payloads.Body(body) for body in made]

    async def carry_out(self, order: Order) -> Report:
        """Do what was ordered."""
        self.prepare(order.samples)
        report = Report()
        await asyncio.sleep(max(0.0, order.begin_at - time.monotonic()))
        report.begun_at = time.monotonic()
        await (self._pace(order, report) if order.per_second else self._flood(order, report))
        report.ended_at = time.monotonic()
        return report

    async def _flood(self, order: Order, report: Report) -> None:
        left = order.batches if order.batches is not None else sys.maxsize
        until = time.monotonic() + order.seconds

        async def lane() -> None:
            nonlocal left
            while left > 0 and time.monotonic() < until:
                left -= 1
                await self._one(order.samples, time.monotonic(), report)

        await asyncio.gather(*(lane() for _ in range(order.in_flight)))

    async def _pace(self, order: Order, report: Report) -> None:
        assert order.per_second
        # Agents do not push in step.
        phase = random.Random(self._post.seed).random()
        async with asyncio.TaskGroup() as pushes:
            for nth in range(int(order.seconds * order.per_second)):
                due = report.begun_at + (nth + phase) / order.per_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                pushes.create_task(self._one(order.samples, due, report))

    async def _one(self, samples: int, due: float, report: Report) -> None:
        self._seq += 1
        now_at = time.time_ns() // 1000
        body = self._bodies[samples][push_payloads.due(now_at)].moved(push_payloads.later_us(self._post.now_at, now_at))
        request = push_payloads.request_head(self._vantage, epoch=self._epoch, seq=self._seq) + body
        try:
            response = await self._push(request, timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            report.refused.append(f"{error.code().name}: {error.details()}")
            return
        report.waits.append(time.monotonic() - due)
        report.stored += response.stored


async def main() -> None:
    """Push as told until stdin ends."""
    post = Post(**json.loads(sys.stdin.readline()))
    trust = Trust(roots=post.roots, server_name=post.server_name) if post.roots else PLAIN
    async with open_aio_channel(parse_address(post.address), trust, post.credential) as channel:
        pusher = Pusher(post, channel)
        print("{}", flush=True)  # noqa: T201  # the answer to the post
        while line := await asyncio.to_thread(sys.stdin.readline):
            report = await pusher.carry_out(Order(**json.loads(line)))
            print(json.dumps(asdict(report)), flush=True)  # noqa: T201  # the answer to the order


if __name__ == "__main__":
    asyncio.run(main())
