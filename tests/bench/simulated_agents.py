"""Some of the simulated agents of `bench.fleet`, in one process: each with its own channel, credential and epoch.

Reads one line of JSON, says `ready`, reads the instants of the course (CLOCK_MONOTONIC, seconds), lives through it,
and prints what every push took. An agent pushes a batch every 15 s at a phase of its own. At the storm it closes its
channel, opens another at once, and pushes a heartbeat and its backlog, one after the other; then it goes on as before.
A push that fails is tried again as the real agent does, and the time it took runs on meanwhile.

usage: python -m bench.simulated_agents        started by bench.fleet
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
import grpc.aio

from isochrone_agent.delivery.verdict import Backoff, draw
from isochrone_wire import codec
from isochrone_wire.grpc_options import CLIENT_OPTIONS
from isochrone_wire.model import SECOND_US, Batch, Outcome, Sample, TokenSource, Vantage, Vitals
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc

EVERY_SECONDS = 15.0
BACKLOG_BATCHES = 3
GIVE_UP_SECONDS = 15.0
CALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Where the collector is. Without a `certificate` (PEM) plain text is spoken."""

    address: str
    certificate: str | None = None
    server_name: str | None = None

    def channel(self, credential: str) -> grpc.aio.Channel:
        """A connection of one's own: gRPC would share one between channels that look the same."""
        options: list[tuple[str, int | str]] = [*CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
        if self.certificate is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        if self.server_name:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        trust = grpc.ssl_channel_credentials(root_certificates=self.certificate.encode())
        who = grpc.access_token_call_credentials(credential)
        return grpc.aio.secure_channel(self.address, grpc.composite_channel_credentials(trust, who), options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """When what happens, in seconds of CLOCK_MONOTONIC."""

    begin: float
    storm: float
    end: float


@dataclass(slots=True, kw_only=True)
class Agent:
    """One simulated agent. `pushes` are when each began, how many seconds it took, and in how many attempts."""

    number: int
    collector: Collector
    credential: str
    targets: Sequence[int]
    region: str
    pushes: list[tuple[float, float, int]] = field(default_factory=list)
    _seq: int = 0
    _give_up: float = 0.0
    _channel: grpc.aio.Channel | None = None

    async def live(self, course: Course, phase: float) -> None:
        """The whole course. `phase` is this agent's own place in every 15 s."""
        self._channel = self.collector.channel(self.credential)
        self._give_up = course.end + GIVE_UP_SECONDS
        await self._steady(course.begin + phase, course.storm)
        # Made before it is needed: a thousand real agents have a thousand processors for it.
        backlog = [self._request(samples) for samples in (0, *[len(self.targets)] * BACKLOG_BATCHES)]
        await _sleep_until(course.storm)
        await self._channel.close()
        self._channel = self.collector.channel(self.credential)
        for request in backlog:
            await self._push(request)
        await self._steady(course.storm + phase, course.end)
        await self._channel.close()

    async def _steady(self, first: float, until: float) -> None:
        instant = first
        while instant < until:
            await _sleep_until(instant)
            await self._push(self._request(len(self.targets)))
            instant += EVERY_SECONDS

    async def _push(self, request: fleet_pb2.PushRequest) -> None:
        began, attempts, backoff = time.monotonic(), 0, Backoff()
        while time.monotonic() < self._give_up:
            attempts += 1
            try:
                assert self._channel is not None
                stub = fleet_pb2_grpc.FleetStub(self._channel)
                compression = grpc.Compression.Gzip if request.samples else None
                await stub.Push(request, timeout=CALL_SECONDS, compression=compression)
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(backoff.next_wait_us(draw()) / SECOND_US)
        self.pushes.append((began, time.monotonic() - began, attempts))

    def _request(self, samples: int) -> fleet_pb2.PushRequest:
        now_at = time.time_ns() // 1000
        self._seq += samples > 0
        batch = Batch(
            vantage=Vantage(name=vantage_name(self.number), region=self.region),
            epoch=self.number + 1,
            seq=self._seq if samples else 0,
            samples=tuple(_sample(target_id, now_at) for target_id in self.targets[:samples]),
            vitals=Vitals(agent_version="bench", next_heartbeat_us=15 * SECOND_US),
            sent_at=now_at,
        )
        message: fleet_pb2.PushRequest = codec.encode(batch)
        return message


def vantage_name(number: int) -> str:
    """What the agent with this number is called."""
    return f"bench-{number:04}"


def _sample(target_id: int, now_at: int) -> Sample:
    """A sample with everything a real one has."""
    return Sample(
        target_id=target_id,
        round_at=now_at,
        outcome=Outcome.OK,
        dispatched_at=now_at,
        late_us=240,
        dns_us=900,
        tcp_us=14_200,
        tls_us=18_300,
        ttfb_us=180_000 + now_at % 40_000,
        ttft_us=201_000 + now_at % 40_000,
        ttfat_us=201_000 + now_at % 40_000,
        e2e_us=1_690_000,
        tokens_per_second=101.5,
        chunk_gap_p50_us=9_800,
        chunk_gap_p99_us=12_100,
        chunk_gap_max_us=15_000,
        stalls=0,
        prompt_tokens=14,
        output_tokens=150,
        chunks=150,
        output_chars=612,
        token_source=TokenSource.USAGE,
        rtt_us=14_100,
        rtt_min_us=13_900,
        remote_address="203.0.113.7",
        request_id=f"req_{now_at:x}",
        loop_lag_us=80,
        clock_offset_us=-300,
        clock_uncertainty_us=700,
        cost_usd=0.00042,
        http_status=200,
    )


async def _sleep_until(instant: float) -> None:
    await asyncio.sleep(max(0.0, instant - time.monotonic()))


async def _live(agents: Sequence[Agent], course: Course, fleet: int) -> None:
    phases = [EVERY_SECONDS * agent.number / fleet for agent in agents]
    await asyncio.gather(*(agent.live(course, phase) for agent, phase in zip(agents, phases, strict=True)))


def main() -> None:
    """Be told, live, tell."""
    told = json.loads(sys.stdin.readline())
    collector = Collector(**told["collector"])
    agents = [
        Agent(
            number=number,
            collector=collector,
            credential=credential,
            targets=told["targets"],
            region=told["region"],
        )
        for number, credential in told["agents"]
    ]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    course = Course(**json.loads(sys.stdin.readline()))
    asyncio.run(_live(agents, course, told["fleet"]))
    sys.stdout.write(json.dumps([push for agent in agents for push in agent.pushes]) + "\n")


if __name__ == "__main__":
    main()
