"""The ground truth: one record per exchange, written while it happens, for verifying measurements.

The laws:

1. Instants with the suffix `_ns` are CLOCK_MONOTONIC, which all processes of this machine share; `request_at` is the
   same instant as `request_at_ns` on the wall clock, in microseconds since the epoch.
2. The instant of a request is the kernel's timestamp of its last byte, however late the loop reads it.
3. The instant of a token is read right before the write that completes it; `first_token_write_ns` is the duration of
   that write, so the bytes reached the kernel within [first_token_at_ns, first_token_at_ns + first_token_write_ns].
4. `buffered` records do not guarantee that: the client read so slowly that bytes had to wait.
5. Recording delays a token by some microseconds at most: the file is written once a second, by a thread that holds the
   interpreter only until its write starts.
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from isochrone_sim.errors import SettingsError
from isochrone_sim.script import Channel
from isochrone_sim.server.service import Arrival, Reply

KEPT = 10_000
FLUSH_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class Record:
    """One exchange. Not frozen, because it is updated during its stream: `ending` is `None` while the stream lasts,
    then `complete` (played to its planned end), `client_left` or `stopped`. A response that hangs has no planned end.
    """

    reply: Reply
    arrival: Arrival
    first_token_at_ns: int | None = None
    first_token_write_ns: int | None = None
    last_token_at_ns: int | None = None
    done_at_ns: int | None = None
    worst_late_us: int = 0
    buffered: bool = False
    ending: str | None = None
    tokens: dict[Channel, int] = field(default_factory=lambda: dict.fromkeys(Channel, 0))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `/truth` and the file, including `true_ttft_us` (first token minus request)."""
        reply, arrival, played, first_ns = self.reply, self.arrival, self.reply.timeline, self.first_token_at_ns
        return {
            "request_id": arrival.request_id,
            "region": arrival.region,
            **{name: getattr(reply, name) for name in ("dialect", "model", "provider", "stream")},
            "status": played.status,
            "fault": played.fault,
            "nonce": reply.nonce,
            "planned_ttft_us": played.ttft_us,
            "planned_tokens_per_second": played.tokens_per_second,
            "request_at": arrival.at,
            "request_at_ns": arrival.at_ns,
            **{name: getattr(self, name) for name in _OBSERVED},
            "true_ttft_us": None if first_ns is None else (first_ns - arrival.at_ns) // 1000,
            "tokens": {channel.value: count for channel, count in self.tokens.items()},
        }


def new_record(reply: Reply, arrival: Arrival) -> Record | None:
    """Return the initial record of an exchange; `None` if the request was not for a model."""
    return Record(reply=reply, arrival=arrival) if reply.dialect else None


_OBSERVED = tuple(each.name for each in fields(Record) if each.name not in ("reply", "arrival", "tokens"))


def json_lines(records: Iterable[Record]) -> bytes:
    """Return the records as JSON lines."""
    return b"".join(json.dumps(record.to_json()).encode() + b"\n" for record in records)


class GroundTruth:
    """The last ten thousand records, and, with `path`, a file of all completed ones."""

    def __init__(self, path: Path | None = None) -> None:
        self._kept: deque[Record] = deque(maxlen=KEPT)
        self._ended: list[bytes] = []
        try:
            self._file = path.open("ab") if path else None
        except OSError as error:
            raise SettingsError(f"cannot write {path}: {error.strerror}", hint="see --truth") from error

    def begin(self, record: Record) -> None:
        """Add a record that will be updated."""
        self._kept.append(record)

    def end(self, record: Record, ending: str) -> None:
        """Mark the exchange of the record as ended; only the first ending counts."""
        if record.ending is None:
            record.ending = ending
            if self._file is not None:
                self._ended.append(json_lines([record]))

    def find(self, request_id: str | None = None) -> list[Record]:
        """Return all records, oldest first, or those of one request."""
        return [record for record in self._kept if request_id in (None, record.arrival.request_id)]

    async def flush_periodically(self) -> None:
        """Append completed records to the file once a second, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            ended, self._ended = self._ended, []
            if ended:
                await asyncio.to_thread(self._append, ended)

    def close(self) -> None:
        """Append the remaining records and close the file."""
        if self._file is not None:
            for record in self._kept:
                self.end(record, "stopped")
            self._append(self._ended)
            self._file.close()

    def _append(self, lines: list[bytes]) -> None:
        assert self._file is not None
        self._file.write(b"".join(lines))
        self._file.flush()
