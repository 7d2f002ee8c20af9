"""Logging: key-value events, JSON unless a person is watching."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog


def set_up(level: str = "info", stream: TextIO | None = None) -> None:
    """Send log events to a stream, standard error unless told otherwise."""
    target = stream or sys.stderr
    renderer: structlog.typing.Processor
    if target.isatty():
        renderer = structlog.dev.ConsoleRenderer(pad_event=24)
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=True,
    )
