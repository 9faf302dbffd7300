"""The signals that stop a server: SIGTERM, Ctrl-C, and SIGHUP, which a closed terminal sends."""

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that is set by the first of these signals; `nohup` ignores SIGHUP."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
