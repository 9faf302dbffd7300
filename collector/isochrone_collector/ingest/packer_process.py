"""The process that packs batches for a collector, which starts it and talks to it over the socket it is handed.

usage: python -m isochrone_collector.ingest.packer_process SOCKET      ends when the other end of the socket does
"""

import pickle
import signal
import socket
import sys
from typing import BinaryIO

from isochrone_collector import process_tuning
from isochrone_collector.ingest.packer import LENGTH_BYTES
from isochrone_collector.ingest.packing import pack
from isochrone_collector.ingest.raw_push import decode_push
from isochrone_wire import __version__


def main(number: int) -> None:
    """Seal what comes until nothing more can."""
    # Ctrl-C is for the collector, which ends this process by ending itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_tuning.tune_process()
    with socket.socket(fileno=number) as ours, ours.makefile("rb") as requests, ours.makefile("wb") as answers:
        _write_frame(answers, __version__.encode())
        while len(head := requests.read(LENGTH_BYTES)) == LENGTH_BYTES:
            _write_frame(answers, _pack_request(requests.read(int.from_bytes(head, "big"))))


def _pack_request(requests: bytes) -> bytes:
    """The answer; empty when there is none, for then the collector does it itself and meets the error."""
    try:
        content, received_at, criteria = pickle.loads(requests)  # noqa: S301  # from our own parent
        batch = decode_push(content, received_at)
        return pickle.dumps(pack(batch, criteria))
    except Exception:  # noqa: BLE001  # see above
        return b""


def _write_frame(answers: BinaryIO, content: bytes) -> None:
    answers.write(len(content).to_bytes(LENGTH_BYTES, "big"))
    answers.write(content)
    answers.flush()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(0)
