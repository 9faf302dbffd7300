"""A TCP relay that records all bytes, for tests of what is sent on the wire."""

import contextlib
import socket
import socketserver
import threading

_PIECE = 65_536


class Wiretap(socketserver.ThreadingTCPServer):
    """Relays connections on the loopback port `port` to another port; `recorded` is the traffic of both directions."""

    daemon_threads = True

    def __init__(self, to_port: int) -> None:
        self.recorded = bytearray()  # extended in place, as both directions of all connections are at once
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.port: int = self.server_address[1]
        self._to_port = to_port
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request: socket.socket, _client: object) -> None:  # type: ignore[override]  # TCP only
        """Relay a connection until both directions end."""
        with socket.create_connection(("127.0.0.1", self._to_port)) as far:
            back = threading.Thread(target=self._forward, args=(far, request))
            back.start()
            self._forward(request, far)
            back.join()

    def server_close(self) -> None:
        self.shutdown()
        super().server_close()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                self.recorded += piece
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
