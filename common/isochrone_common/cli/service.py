import asyncio
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

LogFormat = Literal["auto", "console", "json"]
# These log a line per request or per start. httpx would also log the webhook's URL, which may hold a token.
_QUIET = ("alembic", "psycopg", "httpx", "httpcore")


@contextmanager
def _absent(name: str) -> Iterator[None]:
    """An import in the block finds no module of this name, unless it was loaded before."""
    absent = name not in sys.modules
    if absent:
        sys.modules[name] = None  # type: ignore[assignment]  # the language's own word for "not to be found"
    try:
        yield
    finally:
        if absent:
            del sys.modules[name]


# structlog imports rich for coloured tracebacks wherever it is installed: 4.5 MB that an agent never uses.
with _absent("rich"):
    import structlog


def set_up_logs(log_format: LogFormat = "auto") -> None:
    """Log to stderr as console lines or JSON; `auto` is console on a terminal and JSON otherwise."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(log_format)],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _rendering(log_format: LogFormat) -> list[structlog.typing.Processor]:
    if log_format == "console" or (log_format == "auto" and sys.stderr.isatty()):
        # It prints tracebacks itself.
        return [structlog.dev.ConsoleRenderer()]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that is set by the first of these signals; `nohup` ignores SIGHUP."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
