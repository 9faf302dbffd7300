import signal
import sys

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.commands import options


@options.command("mcp", "isochrone mcp", "claude mcp add isochrone -- isochrone mcp")
@options.baseline
@options.asking
def mcp(*, collector: Collector, timeout_us: int, baseline: str) -> None:
    """Answer an assistant's questions over the Model Context Protocol.

    The assistant starts this command, and talks to it on standard input and output. Its tools are leaderboard, diff,
    routes, explain, incidents and estimate; they ask the collector what the commands ask, and change nothing.
    """
    with options.needing("isochrone mcp", "mcp", "mcp_types", "pydantic", extra="mcp"):
        from isochrone_client.mcp import Questions, serve  # noqa: PLC0415  # an extra
    if sys.stdin.isatty():
        terminal.remark("waiting for an assistant on standard input; Ctrl-C ends")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread that reads from a terminal would delay the end
    serve(Questions(collector=collector, timeout_us=timeout_us, baseline=baseline))
