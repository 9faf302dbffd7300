"""A program that ends with the demo: `python -m isochrone_client.demo.child MODULE OPTIONS…` runs `python -m MODULE`.

Its standard input is a pipe whose other end only the demo's process has. When that process ends, however it ends, the
kernel closes the pipe; the program then gets SIGTERM, as if the demo had stopped it.
"""

import os
import runpy
import signal
import sys
import threading
import time

# A clean stop of the collector takes up to 5 s for its calls, then it stops PostgreSQL.
_STOP_SECONDS = 30.0


def _stop_with_the_demo() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_the_demo, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
