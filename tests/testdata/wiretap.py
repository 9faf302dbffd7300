"""A TCP relay that records all bytes, for tests of what is sent on the wire."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

_PIECE = 65_536


class Wiretap:
    """Relays connections on the loopback port `port` to another port; `recorded` is the traffic of both directions."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = [self._listener]
        self._pieces: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._open:
            # Unlike close, shutdown wakes the thread that is reading the socket.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    @property
    def recorded(self) -> bytes:
        """All bytes so far, in order of arrival."""
        return b"".join(self._pieces)

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to_port))
            except OSError:
                return
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := source.recv(_PIECE):
                self._pieces.append(piece)
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return
