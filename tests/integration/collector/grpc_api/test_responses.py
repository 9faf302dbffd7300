"""Refusals over a real socket: their status and metadata."""

from typing import Any

import grpc
import grpc.aio
import pytest

from isochrone_collector.errors import BadRequest, CollectorError, ResourceExhausted
from isochrone_collector.grpc_api.responses import Context, answer
from isochrone_wire.text import MAX_SHOWN_CHARS


async def refused(error: CollectorError) -> grpc.aio.AioRpcError:
    """Return the error of a call whose work raises `error`."""

    async def work() -> bytes:
        raise error

    async def ask(_: bytes, context: Context) -> bytes:
        return await answer(context, work())

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(ask)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Service", {"Ask": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/test.Service/Ask")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", timeout=10)
    await server.stop(None)
    return caught.value


async def test_too_many_carries_a_delay() -> None:
    """RESOURCE_EXHAUSTED carries gRPC's metadata for the time to wait, in milliseconds."""
    error = await refused(ResourceExhausted("crowded", delay_us=5_000_000))
    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "crowded")
    assert ("grpc-retry-pushback-ms", "5000") in list(error.trailing_metadata())


async def test_other_refusals_carry_no_delay() -> None:
    """An invalid request gets no metadata that asks for a retry."""
    error = await refused(BadRequest("impossible"))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [key for key, _ in error.trailing_metadata() if "pushback" in key] == []


@pytest.mark.parametrize("text", ["x", "名", "😀"])
async def test_a_long_message_arrives_with_its_status(text: str) -> None:
    """A message is bounded as it is encoded in the metadata, of which clients accept 8 KiB: with more they would
    get another status.
    """
    error = await refused(BadRequest(text * 10_000))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert 500 < len(error.details() or "") <= MAX_SHOWN_CHARS
