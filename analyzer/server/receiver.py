# SPDX-License-Identifier: Apache-2.0
"""One receiver of events: what waits for it, the way there, and what came back."""

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from analyzer.config import Webhook
from analyzer.poster import Poster
from analyzer.webhooks.answers import Answer
from analyzer.webhooks.outbox import Outbox
from analyzer.webhooks.wanted import Wanted


@dataclass(slots=True)
class Receiver:
    """A webhook of the configuration, and how it stands with it."""

    webhook: Webhook
    poster: Poster
    outbox: Outbox
    wanted: Wanted
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where something came, or was answered."""
    last: Answer | None = None
    """What came back of the newest attempt."""
    last_ns: int | None = None
    """When that was, Unix nanoseconds."""
    taken_ns: int | None = None
    """When an event was taken last."""

    @property
    def to(self) -> str:
        """Where events go, without path and query."""
        url = urlsplit(self.webhook.url)
        return f"{url.scheme}://{url.netloc}"

    @property
    def state(self) -> str:
        """Return `down`, `retrying` where an event waits that was not taken, `waiting`, or `ok`."""
        if self.outbox.is_down:
            return "down"
        if self.outbox.is_retrying:
            return "retrying"
        return "waiting" if self.outbox.waiting else "ok"

    def oldest_age_ns(self, wall_ns: int) -> int:
        """Return how long ago the oldest event happened that waits; 0 where none does."""
        oldest_ns = self.outbox.oldest_ns
        return 0 if oldest_ns is None else max(0, wall_ns - oldest_ns)
