"""Simulated agents of `bench.fleet` in one process, each with its own channel, credential and epoch.

The process reads its configuration, answers, reads the instants of the timeline (CLOCK_MONOTONIC, seconds), and answers
at its end with the durations of all pushes and of the phases of the storm. An agent pushes a batch every 15 s at its
own phase. At the storm it closes its channel, opens a new one at once, and pushes a heartbeat and its backlog one by
one; then it continues as before. Every tenth agent also fetches the plan after its heartbeat, as one without a plan
does. A failed push is retried like that of the real agent, and its duration includes the retries.

usage: python -m bench.simulated_agents started by bench.fleet
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import grpc
import grpc.aio

from bench.processes import next_line, own_channel, reply
from isochrone_agent.push_client import Backoff, draw
from isochrone_common.channel import CLIENT_OPTIONS
from isochrone_wire import codec
from isochrone_wire.model import SECOND_US, Batch, Heartbeat, Vantage
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc
from testdata.samples import realistic_sample

EVERY_SECONDS = 15.0
BACKLOG_BATCHES = 3
GIVE_UP_SECONDS = 15.0
CALL_SECONDS = 30.0
FETCHES_EVERY = 10
SAMPLE = realistic_sample(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """The address of the collector. Without a `certificate` (PEM), plain text is used."""

    address: str
    certificate: str | None = None
    server_name: str | None = None

    def channel(self, credential: str) -> grpc.aio.Channel:
        trust = {"roots": self.certificate, "server_name": self.server_name}
        return own_channel(self.address, **trust, credential=credential, options=CLIENT_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The instants of the run, in seconds of CLOCK_MONOTONIC."""

    begin: float
    storm: float
    end: float


@dataclass(slots=True, kw_only=True)
class Agent:
    """A simulated agent: start, seconds and attempts of its `pushes`, and seconds of the `phases` of its reconnect."""

    number: int
    collector: Collector
    credential: str
    targets: Sequence[int]
    region: str
    pushes: list[tuple[float, float, int]] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    _seq: int = 0
    _give_up: float = 0.0
    _channel: grpc.aio.Channel | None = None

    async def run(self, timeline: Timeline, phase: float) -> None:
        self._channel = self.collector.channel(self.credential)
        self._give_up = timeline.end + GIVE_UP_SECONDS
        await self._steady(timeline.begin + phase, timeline.storm)
        # Prepared in advance: a thousand real agents have a thousand processors for it.
        backlog = [self._request(samples) for samples in (0, *[len(self.targets)] * BACKLOG_BATCHES)]
        await _sleep_until(timeline.storm)
        await self._channel.close()
        await self._reconnect(backlog[0])
        for request in backlog[1:]:
            await self._push(request)
        await self._steady(timeline.storm + phase, timeline.end)
        await self._channel.close()

    async def _reconnect(self, heartbeat: fleet_pb2.Batch) -> None:
        began = time.monotonic()
        self._channel = self.collector.channel(self.credential)
        await asyncio.wait_for(self._channel.channel_ready(), CALL_SECONDS)
        connected, sent_at = time.monotonic(), time.time()
        receipt = await self._push(heartbeat, began)
        answered_at = time.time()
        self.phases = {
            "handshake": connected - began,
            "admission": receipt.received_at / SECOND_US - sent_at,
            "commit": (receipt.server_at - receipt.received_at) / SECOND_US,
            "reply": answered_at - receipt.server_at / SECOND_US,
        }
        if not self.number % FETCHES_EVERY:
            asked = time.monotonic()
            request = fleet_pb2.FetchPlanRequest(vantage=heartbeat.vantage)
            await fleet_pb2_grpc.FleetStub(self._channel).FetchPlan(request, timeout=CALL_SECONDS)
            self.phases["plan_fetch"] = time.monotonic() - asked

    async def _steady(self, first: float, until: float) -> None:
        instant = first
        while instant < until:
            await _sleep_until(instant)
            await self._push(self._request(len(self.targets)))
            instant += EVERY_SECONDS

    async def _push(self, request: fleet_pb2.Batch, began: float | None = None) -> fleet_pb2.Receipt:
        """Return the receipt of a push, whose duration runs from `began`, by default from now."""
        began, attempts, backoff = began or time.monotonic(), 0, Backoff()
        while True:
            attempts += 1
            try:
                assert self._channel is not None
                stub = fleet_pb2_grpc.FleetStub(self._channel)
                compression = grpc.Compression.Gzip if request.samples else None
                receipt: fleet_pb2.Receipt = await stub.Push(request, timeout=CALL_SECONDS, compression=compression)
            except grpc.aio.AioRpcError as error:
                if time.monotonic() > self._give_up:
                    raise
                await asyncio.sleep(backoff.next_wait_us(error.trailing_metadata() or (), draw()) / SECOND_US)
            else:
                self.pushes.append((began, time.monotonic() - began, attempts))
                return receipt

    def _request(self, samples: int) -> fleet_pb2.Batch:
        now_at = time.time_ns() // 1000
        self._seq += samples > 0
        batch = Batch(
            vantage=Vantage(name=vantage_name(self.number), region=self.region),
            epoch=self.number + 1,
            seq=self._seq if samples else 0,
            samples=tuple(
                replace(SAMPLE, target_id=target_id, round_at=now_at, dispatched_at=now_at)
                for target_id in self.targets[:samples]
            ),
            heartbeat=Heartbeat(agent_version="bench", next_heartbeat_us=15 * SECOND_US),
            sent_at=now_at,
            epoch_history=(self.number + 1,),
        )
        message: fleet_pb2.Batch = codec.encode(batch)
        return message


def vantage_name(number: int) -> str:
    return f"bench-{number:04}"


async def _sleep_until(instant: float) -> None:
    await asyncio.sleep(max(0.0, instant - time.monotonic()))


async def _run_all(agents: Sequence[Agent], timeline: Timeline, fleet: int) -> None:
    phases = [EVERY_SECONDS * agent.number / fleet for agent in agents]
    await asyncio.gather(*(agent.run(timeline, phase) for agent, phase in zip(agents, phases, strict=True)))


def main() -> None:
    config = next_line()
    collector, common = Collector(**config["collector"]), {name: config[name] for name in ("targets", "region")}
    agents = [
        Agent(number=number, collector=collector, credential=credential, **common)
        for number, credential in config["agents"]
    ]
    reply()
    asyncio.run(_run_all(agents, Timeline(**next_line()), config["fleet"]))
    pushes = [push for agent in agents for push in agent.pushes]
    reply({"pushes": pushes, "phases": [agent.phases for agent in agents]})


if __name__ == "__main__":
    main()
