"""A provider that costs its callers as little as possible to wait for: a process that writes prepared bytes.

`POST /CHUNKS/PAUSE_US/v1/chat/completions` is answered with a stream of so many chunks, each so many microseconds after
the one before, or all at once without a pause; with JSON for no chunks.

usage: python -m bench.client.provider prints its port as JSON
"""

import asyncio
import json

_EVENT = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "word"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(delta: object, reason: str | None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
    return _chunk(f"data: {json.dumps(_EVENT | {'choices': choices})}\n\n".encode())


_TOKEN = _event({"content": "word "}, None)
_END = _event({}, "stop") + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_BODY = json.dumps(_ANSWER).encode()
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
            chunks, pause_us = (int(part) for part in head.split(b"/")[1:3])
            if not chunks:
                writer.write(_WHOLE)
            elif not pause_us:
                writer.write(_STREAM_HEAD + _TOKEN * chunks + _END)
            else:
                await _write_slowly(writer, chunks, pause_us / 1e6)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _write_slowly(writer: asyncio.StreamWriter, chunks: int, pause_s: float) -> None:
    writer.write(_STREAM_HEAD)
    for _ in range(chunks):
        writer.write(_TOKEN)
        await asyncio.sleep(pause_s)
    writer.write(_END)


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1000)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)  # noqa: T201  # the ready line
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
