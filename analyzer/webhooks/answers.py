# SPDX-License-Identifier: Apache-2.0
"""What a receiver's answer means for the event that it was sent. Pure."""

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from netagent.model.strenum import StrEnum

NOT_THIS_ONE = frozenset({400, 413, 415, 422})
"""Statuses that speak of the event, which no repetition changes (RFC 9110)."""
NOT_NOW = frozenset({408, 425, 429})
"""Statuses of 4xx that ask to come again (RFC 9110, RFC 8470, RFC 6585)."""


class Outcome(StrEnum):
    """What became of an attempt to deliver an event."""

    TAKEN = "taken"
    LATER = "later"
    """It is sent again, for as long as it takes."""
    UNWELCOME = "unwelcome"
    """The receiver wants none from us, as by 401, 404 or 410: it is sent again for a while, since
    what is wrong may be mended."""
    REFUSED = "refused"
    """It is never sent again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    outcome: Outcome
    text: str
    """For people: the status, or why there is none."""
    status: int | None = None
    """None where nothing came that is HTTP."""
    retry_after_ns: int | None = None
    """Nanoseconds for which the receiver wants to be left alone."""
    said: str = ""
    """The beginning of the answer's body."""


def outcome_of(status: int) -> Outcome:
    """Return what an answer of that status means; a redirect is not followed, and no taking."""
    if 200 <= status < 300:
        return Outcome.TAKEN
    if status in NOT_THIS_ONE:
        return Outcome.REFUSED
    if 400 <= status < 500 and status not in NOT_NOW:
        return Outcome.UNWELCOME
    return Outcome.LATER


def retry_after_ns(header: str | None, wall_ns: int) -> int | None:
    """Return what Retry-After asks for, as seconds or as a date (RFC 9110, 10.2.3); None: nothing.

    `wall_ns` is when it came, Unix nanoseconds.
    """
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return int(text[:12]) * 10**9
    try:
        date = parsedate_to_datetime(text)
        at_ns = int(date.replace(tzinfo=date.tzinfo or UTC).timestamp()) * 10**9
    except (ValueError, OverflowError):
        return None
    return max(0, at_ns - wall_ns)
