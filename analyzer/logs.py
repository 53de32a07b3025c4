# SPDX-License-Identifier: Apache-2.0
"""Where logs go: to standard error, in the form that its reader needs."""

import contextlib
import io
import logging
import sys
from typing import TextIO, cast

import structlog


class _Log(io.TextIOBase):
    """Standard error; a log that nobody reads any more stops nobody."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


_LOG = cast("TextIO", _Log())


def configure_logging(*, verbose: bool) -> None:
    """Send logs to stderr: plain text on a terminal, else JSON lines."""
    level = logging.DEBUG if verbose else logging.INFO
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor]
    if sys.stderr.isatty():
        last = [structlog.dev.ConsoleRenderer()]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(_LOG),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(_LOG)  # what uvicorn and asyncio have to say
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if verbose else logging.WARNING)
