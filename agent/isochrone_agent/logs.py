"""Logs: a console for people, JSON lines for machines; always on stderr, so that stdout stays a command's answer."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _absent(name: str) -> Iterator[None]:
    """Whatever is imported in the block finds no module of this name, unless it was loaded before."""
    absent = name not in sys.modules
    if absent:
        sys.modules[name] = None  # type: ignore[assignment]  # the language's own word for "not to be found"
    try:
        yield
    finally:
        if absent:
            del sys.modules[name]


# structlog takes rich along for tracebacks in colour, wherever it is installed: 4.5 MB in an agent that shows none.
with _absent("rich"):
    import structlog


def configure(log_format: str = "auto") -> None:
    """Set structlog up; `auto` is `console` on a terminal and `json` elsewhere."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    # The console shows tracebacks by itself.
    rendering: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
