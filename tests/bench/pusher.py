"""A process that only pushes: the load of many vantages, with realistic samples in prepared batches.

usage: pusher.py, controlled by a `PusherConfig`, and then any number of `LoadSpec`, each answered with a `Report`
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import grpc
import numpy as np

from bench.processes import next_line, reply
from isochrone_collector.store.batches import Origin
from isochrone_common.address import parse_address
from isochrone_common.channel import open_aio_channel
from isochrone_common.trust import PLAIN, Trust
from isochrone_wire import codec
from isochrone_wire.model import MINUTE_US, Batch, Heartbeat, Outcome, Sample, Vantage
from isochrone_wire.v1 import fleet_pb2
from testdata.samples import Row, realistic_sample, sample_row

PUSH = "/isochrone.v1.Fleet/Push"
ANSWER_SECONDS = 60.0
BATCH_SAMPLES = 500
BODIES = 20
_INSTANT = 8
FAILED_SHARE, LIMITED_SHARE = 0.08, 0.5
FAILED_FIELDS = (
    *("late_us", "dns_us", "tcp_us", "tls_us", "rtt_us", "rtt_min_us", "retransmits", "remote_address", "edge"),
    *("loop_lag_us", "clock_offset_us", "clock_uncertainty_us"),
)
# Samples are of the last minute, except after an outage; each target has its own phase within it.
EVERY_US = MINUTE_US
HEARTBEAT = Heartbeat(agent_version="bench", plan_version=1, next_heartbeat_us=30_000_000, finished=1)


def bodies(targets: Sequence[int], *, now_at: int, seed: int, samples: int = BATCH_SAMPLES) -> list[tuple[Sample, ...]]:
    """Return lists of samples, one per part of the minute, each with targets whose rounds start in that part."""
    rng = random.Random(seed)
    phased = sorted(targets, key=lambda target_id: target_id % EVERY_US)
    parts = [
        phased[part * len(phased) // BODIES : (part + 1) * len(phased) // BODIES] or phased for part in range(BODIES)
    ]
    return [tuple(_sample(rng, rng.choice(part), now_at) for _ in range(samples)) for part in parts]


def current_body(now_at: int) -> int:
    """Return the index of the list that an agent without a backlog delivers at this instant."""
    return now_at % EVERY_US * BODIES // EVERY_US


def shift_us(made_at: int, now_at: int) -> int:
    """Return the shift, in whole minutes, from the rounds at `made_at` to those at `now_at`."""
    return (now_at // EVERY_US - made_at // EVERY_US) * EVERY_US


class PushBody:
    """The part of a push without its number (protobuf messages can be concatenated), whose instants can be shifted."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        batch = Batch(vantage=Vantage(name="", region=""), epoch=0, seq=0, samples=tuple(samples))
        content = codec.encode(batch).SerializeToString()
        self._content = np.frombuffer(content, np.uint8).copy()
        self._instants = np.array([at for sample in samples for at in (sample.round_at, sample.dispatched_at)])
        self._places = np.fromiter(_places(content, self._instants.tolist()), np.int64)[:, None] + np.arange(_INSTANT)

    def shifted(self, by_us: int) -> bytes:
        self._content[self._places] = (self._instants + by_us).astype("<i8").view(np.uint8).reshape(-1, _INSTANT)
        return self._content.tobytes()


def _places(content: bytes, instants: Sequence[int]) -> Iterator[int]:
    """Yield the position of each of these numbers, in order."""
    place = 0
    for at in instants:
        place = content.index(at.to_bytes(_INSTANT, "little"), place)
        yield place
        place += _INSTANT


def request_head(vantage: Vantage, *, epoch: int, seq: int) -> bytes:
    """Return the remaining part of the push."""
    return bytes(codec.encode(Batch(vantage=vantage, epoch=epoch, seq=seq, heartbeat=HEARTBEAT)).SerializeToString())


def rows(samples: Sequence[Sample], origin: Origin, seq: int, *, by_us: int = 0) -> list[Row]:
    """Return the samples as rows of `sample`, in column order, with every instant `by_us` later."""
    shifted = [
        replace(sample, round_at=sample.round_at + by_us, dispatched_at=sample.dispatched_at + by_us)
        for sample in samples
    ]
    return [sample_row(sample, index, replace(origin, seq=seq)) for index, sample in enumerate(shifted)]


def _sample(rng: random.Random, target_id: int, now_at: int) -> Sample:
    """Return a sample of the newest round; some have failed, some have no rate limits."""
    round_at = now_at // EVERY_US * EVERY_US + target_id % EVERY_US
    own: dict[str, Any] = {
        "target_id": target_id,
        "round_at": round_at,
        "dispatched_at": round_at + rng.randrange(20_000),
    }
    sample = realistic_sample(rng.randrange(1 << 30))
    if rng.random() < FAILED_SHARE:
        kept = {name: getattr(sample, name) for name in FAILED_FIELDS}
        error, outcome = "no first token within 60 s", Outcome.TIMED_OUT
        return Sample(**own, **kept, outcome=outcome, error=error, timeout_us=60_000_000)
    return replace(sample, **own, ratelimit=sample.ratelimit if rng.random() < LIMITED_SHARE else None)


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
    """The result of a load: samples stored, start and end, and the seconds from a due push to its reply."""

    stored: int = 0
    begun_at: float = 0.0
    ended_at: float = 0.0
    waits: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class Pusher:
    def __init__(self, config: PusherConfig, channel: grpc.aio.Channel) -> None:
        self._config = config
        self._push: Any = channel.unary_unary(PUSH, response_deserializer=fleet_pb2.Receipt.FromString)
        self._vantage = Vantage(name=config.name, region=config.region)
        self._epoch = config.seed + 1
        self._seq = 0
        self._bodies: dict[int, list[PushBody]] = {}

    def prepare(self, samples: int) -> None:
        if samples not in self._bodies:
            config = self._config
            made = bodies(config.targets, now_at=config.now_at, seed=config.seed, samples=samples)
            self._bodies[samples] = [PushBody(body) for body in made]

    async def run_load(self, load: LoadSpec) -> Report:
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
                due = report.begun_at + (nth + phase) / load.per_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                pushes.create_task(self._push_one(load.samples, due, report))

    async def _push_one(self, samples: int, due: float, report: Report) -> None:
        self._seq += 1
        now_at = time.time_ns() // 1000
        body = self._bodies[samples][current_body(now_at)].shifted(shift_us(self._config.now_at, now_at))
        request = request_head(self._vantage, epoch=self._epoch, seq=self._seq) + body
        try:
            response = await self._push(request, timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            report.refused.append(f"{error.code().name}: {error.details()}")
            return
        report.waits.append(time.monotonic() - due)
        report.stored += response.stored


async def main() -> None:
    config = PusherConfig(**next_line())
    trust = Trust(roots=config.roots, server_name=config.server_name) if config.roots else PLAIN
    async with open_aio_channel(parse_address(config.address), trust, config.credential) as channel:
        pusher = Pusher(config, channel)
        reply()
        while load := await asyncio.to_thread(next_line):
            reply(asdict(await pusher.run_load(LoadSpec(**load))))


if __name__ == "__main__":
    asyncio.run(main())
