"""A reader of SQLite's write-ahead log (WAL) that also finds the transactions SQLite would silently drop.

The format is SQLite's (https://www.sqlite.org/fileformat2.html, "The Write-Ahead Log"): a header of 32 bytes, then
frames of 24 bytes and a page each. Every frame repeats the salts of the header and has a checksum over all frames up to
it. SQLite reads a log up to the first invalid frame, because a crash leaves such a log. But a transaction is on disk
before the next one begins. So if a transaction is committed after the invalid frame, the disk damaged the log.

Pure: bytes in, values out.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24

_MAGIC = 0x377F0682
# The last bit of the magic number is the byte order of the checksum's words.
_MAGIC_BIG = _MAGIC | 1
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One page. `pages`: the size of the database if the frame commits, else 0. `is_intact`: the checksum is right."""

    page: int
    pages: int
    content: bytes
    is_intact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAheadLog:
    """The frames of a log up to the last one that commits. SQLite reads only the first `valid_frames` of them."""

    frames: tuple[Frame, ...]
    valid_frames: int
    has_header: bool

    @property
    def lost_commits(self) -> int:
        """Number of transactions that SQLite would drop."""
        return sum(frame.pages > 0 for frame in self.frames[self.valid_frames :])

    @property
    def is_damaged(self) -> bool:
        """True if SQLite would drop more than the last transaction. A crash can have cut off only that one."""
        return self.lost_commits > (1 if self.has_header else 0)

    @property
    def committed(self) -> tuple[Frame, ...]:
        """The frames of all committed transactions, including the invalid frames of a damaged log."""
        return self.frames if self.is_damaged else self.frames[: self.valid_frames]


def read_log(content: bytes, page_bytes: int) -> WriteAheadLog:
    """Parse the log of a database with pages of `page_bytes`. Never raises, whatever the content is."""
    if len(content) < HEADER_BYTES:
        return WriteAheadLog(frames=(), valid_frames=0, has_header=False)
    has_header = _is_valid_header(content, page_bytes)
    frames = _until_last_commit(list(_frames(content, page_bytes, has_header=has_header)))
    bad = next((index for index, frame in enumerate(frames) if not frame.is_intact), len(frames))
    valid = len(_until_last_commit(frames[:bad])) if has_header else 0
    return WriteAheadLog(frames=tuple(frames), valid_frames=valid, has_header=has_header)


def _frames(content: bytes, page_bytes: int, *, has_header: bool) -> Iterator[Frame]:
    """All complete frames. Frames left from before the log was restarted are not intact and commit nothing."""
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    order = _order(content)
    salts_at = 16 if has_header else HEADER_BYTES + 8
    salts = content[salts_at : salts_at + 8]
    stated = struct.unpack_from(">2I", content, 24)
    for begin in range(HEADER_BYTES, len(content) - frame_bytes + 1, frame_bytes):
        page, pages = struct.unpack_from(">2I", content, begin)
        ours = content[begin + 8 : begin + 16] == salts
        body = content[begin + FRAME_HEADER_BYTES : begin + frame_bytes]
        expected = _checksum(content[begin : begin + 8] + body, stated, order) if ours else None
        stated = struct.unpack_from(">2I", content, begin + 16)
        yield Frame(page=page, pages=pages if ours else 0, content=body, is_intact=expected == stated)


def _until_last_commit(frames: list[Frame]) -> list[Frame]:
    last = max((index for index, frame in enumerate(frames) if frame.pages), default=-1)
    return frames[: last + 1]


def _is_valid_header(content: bytes, page_bytes: int) -> bool:
    magic, _, found_bytes = struct.unpack_from(">3I", content)
    stated = struct.unpack_from(">2I", content, 24)
    known = magic in (_MAGIC, _MAGIC_BIG) and found_bytes == page_bytes
    return known and _checksum(content[:24], (0, 0), _order(content)) == stated


def _order(content: bytes) -> str:
    return ">" if struct.unpack_from(">I", content)[0] == _MAGIC_BIG else "<"


def _checksum(content: bytes, seed: tuple[int, ...], order: str) -> tuple[int, int]:
    first, second = seed
    words = iter(struct.unpack(f"{order}{len(content) // 4}I", content))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & _MASK
        second = (second + other + first) & _MASK
    return first, second
