"""A hostile collector that answers with a plan of a quarter of a gigabyte, and a real agent process."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

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
