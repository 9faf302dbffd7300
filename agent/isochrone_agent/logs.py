"""Logs: a console for people, JSON lines for machines; always on stderr, so that stdout stays a command's answer."""

import logging
import sys

import structlog


def configure(log_format: str = "auto") -> None:
    """Set structlog up; `auto` is `console` on a terminal and `json` elsewhere."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(ensure_ascii=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
