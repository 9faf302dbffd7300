"""Logs: a console for people, JSON lines for machines; always on stderr, so that stdout stays the command's answer."""

import logging
import sys

import structlog


def configure() -> None:
    """Set structlog up: coloured lines on a terminal, JSON elsewhere."""
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
