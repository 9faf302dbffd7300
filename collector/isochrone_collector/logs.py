"""How the collector logs: structlog to stderr, the libraries' own records through the same door."""

import logging
import sys
from typing import Literal

import structlog
from structlog.typing import Processor

Format = Literal["auto", "console", "json"]


def set_up(log_format: Format) -> None:
    """Log to stderr as console lines or JSON; `auto` is console on a terminal and JSON otherwise."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    final: list[Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    # One line per start is ours to say; these speak up only when something is wrong. httpx would tell the webhook's
    # address, which may hold a token, with every request.
    for name in ("alembic", "psycopg", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
