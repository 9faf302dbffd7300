"""A hostile collector that answers with a plan of a quarter of a gigabyte, and a real agent process."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from isochrone_agent.plan.policy import load_policy
from isochrone_agent.runner import run
from isochrone_agent.settings import Settings
from isochrone_common.address import Address
from isochrone_wire import codec
from isochrone_wire.model import Batch, Outcome, Plan, Price, Sample, Target, Vantage, Workload
from isochrone_wire.operations import Receipt
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc

PLAN_MIB = 256
MAX_AGENT_MB = 200
PATIENCE_SECONDS = 60


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.NoCompression])
async def test_a_long_plan_does_not_grow_the_agent(tmp_path: Path, compression: grpc.Compression) -> None:
    """The agent never inflates what a collector sends, receives nothing beyond its limit, and goes on asking."""
    asked = 0

    async def bomb(_request: bytes, _context: Any) -> bytes:
        nonlocal asked
        asked += 1
        return bytes(PLAN_MIB << 20)

    server = grpc.aio.server(compression=compression, options=[("grpc.max_send_message_length", -1)])
    handlers: dict[str, Any] = {"FetchPlan": grpc.unary_unary_rpc_method_handler(bomb)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("isochrone.v1.Fleet", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    flags = ["--vantage", "v", "--region", "r", "--collector", f"127.0.0.1:{port}", "--data-dir", str(tmp_path)]
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "isochrone_agent", "run", *flags, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while asked < 2:
                await asyncio.sleep(0.2)
        await asyncio.sleep(0.5)
        status = await asyncio.to_thread(Path(f"/proc/{agent.pid}/status").read_text)
    finally:
        agent.kill()
        await agent.wait()
        await server.stop(None)
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak_kb / 1000 < MAX_AGENT_MB


EVERY_US = 200_000
REFUSED = "refused by the agent's policy: "
ANSWER = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 36\r\n\r\n"
SECRET = b'{"error":{"message":"root-password"}}'[:36]


@dataclass(slots=True)
class Listener:
    port: int = 0
    connections: int = 0
    paths: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request with a refusal that contains a text."""
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.paths.append(head.split(b" ")[1].decode())
            writer.write(ANSWER + SECRET)
            await writer.drain()
        writer.close()


class StolenCollector(fleet_pb2_grpc.FleetServicer):
    """Serves any plan, and keeps what the agent pushes."""

    def __init__(self) -> None:
        self.plan = Plan(version=1, baseline="us")
        self.samples: list[Sample] = []
        self.refused_targets = ""

    async def Join(self, _request: Any, _context: Any) -> fleet_pb2.Joined:  # noqa: N802  # as below
        """No agent joins."""
        raise NotImplementedError

    async def Renew(self, _request: Any, _context: Any) -> fleet_pb2.Renewed:  # noqa: N802  # as below
        """No agent has an identity."""
        raise NotImplementedError

    async def FetchPlan(self, _request: Any, _context: Any) -> fleet_pb2.FetchPlanResponse:  # noqa: N802  # gRPC's name
        return fleet_pb2.FetchPlanResponse(plan=codec.encode(self.plan))

    async def Push(self, request: fleet_pb2.Batch, _context: Any) -> fleet_pb2.Receipt:  # noqa: N802  # as above
        """Take every sample."""
        batch = codec.decode(Batch, request)
        self.samples += batch.samples
        self.refused_targets = batch.heartbeat.refused_targets or self.refused_targets
        receipt = Receipt(stored=len(batch.samples), plan_version=self.plan.version)
        return cast(fleet_pb2.Receipt, codec.encode(receipt))


@dataclass(slots=True)
class Scene:
    """The hostile collector and four listeners: the allowed one, another port, another address, and IPv6."""

    collector: StolenCollector
    address: Address
    allowed: Listener
    others: Sequence[Listener]

    def target(self, base_url: str, number: int, **more: Any) -> Target:
        """Return a hostile target, free of charge and of a provider of its own."""
        fields: dict[str, Any] = {"every_us": EVERY_US, "price": Price(), "workload": Workload(max_output_tokens=1)}
        names = {"name": f"t{number}", "provider": f"p{number}", "model": "m"}
        return Target(id=number, base_url=base_url, **(fields | names | more))


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    collector, listeners = StolenCollector(), [Listener() for _ in range(4)]
    server = grpc.aio.server()
    fleet_pb2_grpc.add_FleetServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with contextlib.AsyncExitStack() as stack:
        for listener, host in zip(listeners, ("127.0.0.1", "127.0.0.1", "127.0.0.2", "::1"), strict=True):
            serving = await asyncio.start_server(listener.serve, host, 0)
            stack.push_async_callback(serving.wait_closed)
            stack.callback(serving.close)
            listener.port = serving.sockets[0].getsockname()[1]
        yield Scene(collector, Address("127.0.0.1", port), listeners[0], listeners[1:])
    await server.stop(None)


@asynccontextmanager
async def agent(found: Scene, folder: Path, policy: str | None) -> AsyncIterator[Settings]:
    path = folder / "policy.toml"
    settings = Settings(vantage=Vantage(name="sg-1", region="sg"), collector=found.address, data_dir=folder)
    if policy is not None:
        path.write_text(policy)
    stop = asyncio.Event()
    running = asyncio.create_task(run(settings, stop))
    try:
        yield settings
    finally:
        stop.set()
        await running


async def sampled(found: Scene, numbers: set[int]) -> dict[int, Sample]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not numbers <= {sample.target_id for sample in found.collector.samples}:
            await asyncio.sleep(0.05)
    return {sample.target_id: sample for sample in found.collector.samples}


def outside(found: Scene) -> Iterator[Target]:
    """Yield targets that lead to another place than `http://127.0.0.1:PORT/v1`."""
    port, (other, address, six) = found.allowed.port, (one.port for one in found.others)
    urls = [
        f"http://127.0.0.1:{other}/v1",
        f"http://127.0.0.1:{port}/admin",
        f"http://127.0.0.1:{port}/v1x",
        f"http://127.0.0.1:{port}/v1/../admin",
        f"http://127.0.0.1:{port}/v1/%252e%252e/admin",
        f"http://127.0.0.1:{port}/v1/..;/admin",
        f"http://127.0.0.1:{port}/v1#",
        f"http://127.0.0.2:{address}/v1",
        f"http://[::1]:{six}/v1",
        f"http://[::ffff:127.0.0.1]:{port}/v1",
        f"http://2130706433:{port}/v1",
        f"http://localhost:{port}/v1",
        f"http://127.0.0.1:{port}@127.0.0.2:{address}/v1",
    ]
    for number, url in enumerate(urls, 10):
        yield found.target(url, number)
    inside = f"http://127.0.0.1:{port}/v1"
    yield found.target(inside, 50, dialect="gemini", model="../../admin?x=")
    yield found.target(inside, 52, workload=Workload(concurrency=1000))
    yield found.target(inside, 53, workload=Workload(concurrency=3))


async def test_nothing_leaves_for_a_host_path_or_volume_outside_the_policy(tmp_path: Path) -> None:
    """A stolen collector gets at most the day's requests, below the allowed URL; the rest is reported as refused."""
    async with scene() as found:
        policy = (
            'networks = ["127.0.0.1"]\nmax_streams = 2\nerror_chars = 8\n[[allow]]\nrequests_per_day = 5\n'
            f'url = "http://127.0.0.1:{found.allowed.port}/v1"\n'
        )
        inside = [found.target(f"http://127.0.0.1:{found.allowed.port}/v1", n) for n in (1, 2)]
        refused = list(outside(found))
        found.collector.plan = Plan(version=7, baseline="us", targets=(*inside, *refused))
        for _ in range(2):
            async with agent(found, tmp_path, policy):
                found.collector.samples.clear()
                samples = await sampled(found, {target.id for target in (*inside, *refused)})
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not found.collector.samples or found.collector.samples[-1].outcome is Outcome.HTTP_ERROR:
                        await asyncio.sleep(0.05)
            for target in refused:
                assert samples[target.id].outcome is Outcome.SKIPPED_NOT_READY, target
                assert (samples[target.id].error or "").startswith(REFUSED), target
        texts = {one.error for one in found.collector.samples if one.outcome is Outcome.HTTP_ERROR}
        assert all(len(text or "") <= 8 for text in texts)
        assert "is not below an allowed URL" in found.collector.refused_targets
        assert set(found.allowed.paths) == {"/v1/chat/completions"}
        assert found.allowed.connections == len(found.allowed.paths) == 5
        assert [other.connections for other in found.others] == [0, 0, 0]


async def test_the_address_that_is_dialled_is_checked(tmp_path: Path) -> None:
    """An allowed name with an address outside the networks is not dialled; the round is skipped with the reason."""
    async with scene() as found:
        url = f"http://localhost:{found.allowed.port}/v1"
        found.collector.plan = Plan(version=1, baseline="us", targets=(found.target(url, 1),))
        async with agent(found, tmp_path, f'[[allow]]\nurl = "{url}"\n'):
            samples = await sampled(found, {1})
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not found.collector.refused_targets:
                    await asyncio.sleep(0.05)
        assert samples[1].outcome is Outcome.SKIPPED_NOT_READY
        assert not samples[1].sent
        assert "which is not a public address" in (samples[1].error or "")
        assert "localhost is" in found.collector.refused_targets
        assert found.allowed.connections == 0


async def test_without_a_policy_such_a_plan_reaches_them(tmp_path: Path) -> None:
    """Without the policy the same plan reaches them: the built-in one allows loopback to a local collector."""
    async with scene() as found:
        targets = [target for target in outside(found) if target.id not in (50, 52)]
        found.collector.plan = Plan(version=1, baseline="us", targets=tuple(targets))
        async with agent(found, tmp_path, None):
            await sampled(found, {target.id for target in targets})
        assert "/admin/chat/completions" in found.allowed.paths
        assert min(other.connections for other in found.others) > 0


def test_the_built_in_policy_allows_this_machine_to_a_collector_on_it_only(tmp_path: Path) -> None:
    """An agent of a remote collector refuses loopback and private addresses, and every agent the metadata service."""
    here = Settings(vantage=Vantage(name="v", region="r"), collector=Address("127.0.0.1", 1), data_dir=tmp_path)
    policies = load_policy(here), load_policy(replace(here, collector=Address("192.0.2.1", 1)))
    target = Target(id=1, name="t", provider="p", model="m", base_url="")
    for host, refused_here, refused_remotely in (
        ("127.0.0.1", False, True),
        ("10.0.0.1", True, True),
        ("169.254.169.254", True, True),
        ("8.8.8.8", False, False),
    ):
        refusals = [policy.refusal(replace(target, base_url=f"http://{host}/v1")) for policy in policies]
        assert [bool(one) for one in refusals] == [refused_here, refused_remotely], host
