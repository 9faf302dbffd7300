"""SQLite's write-ahead log, read frame by frame: what it holds, and what SQLite would drop of it without a word.

The format is SQLite's (https://www.sqlite.org/fileformat2.html, "The Write-Ahead Log"): a header of 32 bytes, then
frames of 24 bytes and a page each. Every frame repeats the salts of the header, and states a checksum over all frames
up to it. SQLite believes a log up to the first frame that is not right, because that is how a crash ends one. But a
transaction is on disk before the next begins; so where another was committed behind the bad frame, a disk did it.

Pure: bytes in, values out.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24

_MAGIC = 0x377F0682
# The last bit of the magic says in which order the words of the checksum are read.
_MAGIC_BIG = _MAGIC | 1
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One page as a transaction left it. `pages` is the size of the database in pages when the frame commits, else 0;
    `is_whole` whether it is what was written, judged by the checksum that the frame before it states.
    """

    page: int
    pages: int
    content: bytes
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The frames of a log up to the last that commits. SQLite believes the first `believed` of them."""

    frames: tuple[Frame, ...]
    believed: int
    has_header: bool

    @property
    def dropped_commits(self) -> int:
        """How many transactions SQLite would drop."""
        return sum(frame.pages > 0 for frame in self.frames[self.believed :])

    @property
    def is_damaged(self) -> bool:
        """Whether transactions would be dropped that a crash cannot have cut off: more than the last one."""
        return self.dropped_commits > (1 if self.has_header else 0)

    @property
    def rightful(self) -> tuple[Frame, ...]:
        """The frames that make up what was committed, the bad ones of a damaged log among them."""
        return self.frames if self.is_damaged else self.frames[: self.believed]


def read_log(content: bytes, page_bytes: int) -> Log:
    """The log of a database with pages of `page_bytes`; nothing raises, whatever the bytes are."""
    if len(content) < HEADER_BYTES:
        return Log(frames=(), believed=0, has_header=False)
    has_header = _header_holds(content, page_bytes)
    frames = _up_to_commit(list(_frames(content, page_bytes, has_header=has_header)))
    bad = next((place for place, frame in enumerate(frames) if not frame.is_whole), len(frames))
    believed = len(_up_to_commit(frames[:bad])) if has_header else 0
    return Log(frames=tuple(frames), believed=believed, has_header=has_header)


def _frames(content: bytes, page_bytes: int, *, has_header: bool) -> Iterator[Frame]:
    """All frames that are there in full, of which those of an earlier round of the log are not whole and commit
    nothing.
    """
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
        yield Frame(page=page, pages=pages if ours else 0, content=body, is_whole=expected == stated)


def _up_to_commit(frames: list[Frame]) -> list[Frame]:
    last = max((place for place, frame in enumerate(frames) if frame.pages), default=-1)
    return frames[: last + 1]


def _header_holds(content: bytes, page_bytes: int) -> bool:
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
