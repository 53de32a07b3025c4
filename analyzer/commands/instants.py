# SPDX-License-Identifier: Apache-2.0
"""Instants as people write them on a command line."""

import re
from datetime import UTC, datetime

from netagent.model.errors import ConfigError

UNITS_NS = {"s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
FORMS = "2h (ago; s, m, h, d), 2026-11-26T04:15 (UTC) or Unix nanoseconds"
"""What an instant may be written as, for --help."""


def instant_of(text: str, option: str, *, now_ns: int) -> int:
    """Return an instant in Unix nanoseconds. Raises ConfigError for what is none."""
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return max(0, now_ns - round(float(ago[1]) * UNITS_NS[ago[2]]))
    if re.fullmatch(r"\d{15,19}", text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) * 10**9
    except (OverflowError, ValueError):
        raise ConfigError(option, f"{text!r} is no instant; write {FORMS}") from None


def span_of(since: str, until: str | None, *, now_ns: int) -> tuple[int, int]:
    """Return what --since and --until say, in Unix nanoseconds; without the latter, until now.

    Raises ConfigError where that is no time.
    """
    since_ns = instant_of(since, "--since", now_ns=now_ns)
    until_ns = instant_of(until, "--until", now_ns=now_ns) if until else now_ns
    if since_ns >= until_ns:
        raise ConfigError("--since, --until", "ask for some time that is over")
    return since_ns, until_ns
