# SPDX-License-Identifier: Apache-2.0
"""Controllers that push what should be: who may, how much of it, and what became of it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from analyzer import config
from analyzer.intent.model import Intent
from analyzer.intent.pushed import IntentChange, Pushed, WholeIntent
from analyzer.roster.admission import Admission
from analyzer.server.problems import Problem
from netagent.model.errors import NetAgentError
from netagent.wire.codec import ContentType, decode

log = structlog.get_logger()

Clock = Callable[[], int]


class PushedController:
    """One controller that pushes."""

    def __init__(
        self,
        name: str,
        settings: config.Pushed,
        clock: Clock,
        news: Callable[[], None],
        monotonic: Clock = time.monotonic_ns,
    ) -> None:
        """Call `news` whenever something was taken."""
        self.name, self.clients = name, settings.clients
        self._clock, self._monotonic, self._news = clock, monotonic, news
        self._kept = Pushed(name, settings.away_after_s * 10**9)
        self._admission = Admission()
        self.counts = Counter[str]()
        """What was pushed since the start: ``whole``, ``changes``, ``refused``."""
        self.client = ""
        """Who pushed last, as its certificate names it."""

    @property
    def intent(self) -> Intent:
        """What it says."""
        return self._kept.intent(self._clock())

    @property
    def version(self) -> str | None:
        """What it calls what is kept; None where nothing was pushed."""
        return self._kept.version

    def kept(self) -> WholeIntent | None:
        """Return what is kept as it could be put again; None where nothing was pushed."""
        return self._kept.kept()

    def put(self, body: bytes, caller: str | None) -> None:
        """Take a whole intent; raises RemoteProtocolError and CapabilityMissing."""
        with self._taking(body, caller, "whole"):
            self._kept.put(decode(body, WholeIntent, ContentType.JSON), self._clock())

    def patch(self, body: bytes, caller: str | None) -> None:
        """Take what changed; raises LostChange besides."""
        with self._taking(body, caller, "changes"):
            self._kept.patch(decode(body, IntentChange, ContentType.JSON), self._clock())

    @contextmanager
    def _taking(self, body: bytes, caller: str | None, what: str) -> Iterator[None]:
        try:
            self._admission.take(self.name, len(body), self._monotonic())
            yield
        except NetAgentError as error:
            self.counts["refused"] += 1
            log.info("intent_refused", controller=self.name, client=caller, error=str(error))
            raise
        self.counts[what] += 1
        self.client = caller or ""
        self._news()

    def check(self, caller: str | None) -> None:
        """Let only those pass who may push, and anybody without TLS; Problem otherwise."""
        if caller is not None and caller not in self.clients:
            self.counts["refused"] += 1
            raise Problem(
                403,
                f"the certificate names {caller!r}, who may not say what {self.name} wants",
                f"use a certificate of {' or '.join(self.clients)}, or add it to clients in "
                f"[controllers.pushed.{self.name}]",
            )
