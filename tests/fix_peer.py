"""A scripted peer: a server on loopback that reads the head of a request and then runs the handler of the test."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
ANSWER = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@asynccontextmanager
async def peer(handler: Handler, *, reads_head: bool = True) -> AsyncIterator[int]:
    """Yield the port of a server that runs `handler` for every connection after the head of the first request."""
    ending = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running = asyncio.ensure_future(_run_handler(handler, reader, writer, reads_head=reads_head))
        waiting = asyncio.ensure_future(ending.wait())
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        for task in (running, waiting):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await running
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        ending.set()
        server.close()
        await asyncio.sleep(0.01)


async def _run_handler(
    handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, reads_head: bool
) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        if reads_head:
            await reader.readuntil(b"\r\n\r\n")
        await handler(reader, writer)


def saying(data: bytes) -> Handler:
    """Return a handler that sends these bytes and closes the connection."""

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return handle


def stream_of(*events: object) -> bytes:
    """Return a response whose events contain these objects as JSON."""
    return STREAM_HEAD + b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection (RST)."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
