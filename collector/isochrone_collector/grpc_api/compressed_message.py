"""Inflation of compressed requests, within a limit.

gRPC itself inflates a message before it checks any size: 8 MB of gzip become 8 GB. Its decompression is therefore
disabled (`isochrone_common.channel`), and the collector inflates here, after authentication. Compressed content is
recognised by its first bytes: no message begins with the header of gzip, nor with that of zlib as long as no request
has a field 15 (tests/unit/collector/grpc_api/test_compressed_message.py).

gzip ends with the size of what it contains (RFC 1952, section 2.3.1). One that states more than the limit is refused
without being inflated, and any other is inflated up to that size. Large results are made one at a time, in a thread, so
that they leave the other cores to pushes.
"""

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor

from isochrone_collector.errors import BadRequest, MessageTooLarge

INLINE_BYTES = 256 << 10
"""The size of a message up to which it is inflated in the event loop, which takes a millisecond."""

_GZIP = b"\x1f\x8b"
_ZLIB = 0x78
# The header of zlib is a multiple of this.
_ZLIB_CHECK = 31
# zlib detects which of the two headers it reads.
_EITHER_HEADER = zlib.MAX_WBITS | 32
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="inflating")


def is_compressed(content: bytes) -> bool:
    """Return whether the content is gzip (gRPC's `gzip`) or zlib (gRPC's `deflate`)."""
    if len(content) < len(_GZIP):
        return False
    return content.startswith(_GZIP) or (content[0] == _ZLIB and int.from_bytes(content[:2], "big") % _ZLIB_CHECK == 0)


async def inflate_beside_loop(content: bytes, max_bytes: int) -> bytes:
    """Inflate as `inflate` does, in a thread if the result is large; content that is not compressed costs nothing."""
    if not is_compressed(content):
        return _within(content, max_bytes)
    most = _most_bytes(content, max_bytes)
    try:
        return inflate(content, min(most, INLINE_BYTES))
    except MessageTooLarge:
        # Small content may be a large message, so the size of the result decides.
        if most <= INLINE_BYTES:
            raise
    return await asyncio.get_running_loop().run_in_executor(_THREAD, inflate, content, max_bytes)


def inflate(content: bytes, max_bytes: int) -> bytes:
    """Return the content, inflated if it is compressed; no more than `max_bytes` + 1 bytes are ever made.

    Raises `MessageTooLarge`, and `BadRequest` for content that is damaged.
    """
    if not is_compressed(content):
        return _within(content, max_bytes)
    most = _most_bytes(content, max_bytes)
    inflater = zlib.decompressobj(_EITHER_HEADER)
    try:
        inflated = inflater.decompress(content, most + 1)
    except zlib.error as error:
        raise BadRequest(f"cannot inflate the request: {error}") from None
    _within(inflated, max_bytes)
    if not inflater.eof or inflater.unused_data:
        raise BadRequest("cannot inflate the request: it is truncated, or has extra bytes")
    return inflated


def _most_bytes(content: bytes, max_bytes: int) -> int:
    """Return how many bytes compressed content may become. Raises `MessageTooLarge` if gzip states more."""
    if not content.startswith(_GZIP):
        return max_bytes
    stated = int.from_bytes(content[-4:], "little")
    if stated > max_bytes:
        raise _too_large(max_bytes)
    return stated


def _within(content: bytes, max_bytes: int) -> bytes:
    if len(content) > max_bytes:
        raise _too_large(max_bytes)
    return content


def _too_large(max_bytes: int) -> MessageTooLarge:
    # Agents recognise gRPC's own words, and split the batch.
    return MessageTooLarge(f"the request is larger than max: more than {max_bytes} bytes")
