# SPDX-License-Identifier: Apache-2.0
"""Tells receivers of incidents: takes what the journal has, and runs each one's outbox."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol

import structlog

from analyzer.config import Webhook
from analyzer.judge.workers import Workers
from analyzer.poster import Poster
from analyzer.runbooks.pages import Runbooks
from analyzer.server import views
from analyzer.server.journal import BATCH, RETRY_S, STORE_S, Event
from analyzer.server.receiver import Receiver
from analyzer.webhooks.answers import Answer, Outcome
from analyzer.webhooks.cloudevents import cloud_event
from analyzer.webhooks.outbox import Letter, Outbox
from analyzer.webhooks.wanted import Wanted
from netagent.model.errors import CapabilityMissing
from netagent.model.verdict import Incident, IncidentState

log = structlog.get_logger()

Find = Callable[[str], Incident | None]
"""Returns an incident as it now is; None where it is kept no more."""


class Storage(Protocol):
    """Stores letters; `analyzer.store.tables.Store` in production."""

    async def change_letters(self, put: Sequence[Letter], drop: Sequence[str]) -> None:
        """Store letters and drop those of these keys; that is on disk when this returns."""


class Mail:
    """All receivers of one analyzer."""

    def __init__(
        self,
        webhooks: Sequence[Webhook],
        path: str,
        clock: Callable[[], int],
        runbooks: Runbooks = views.PAGES,
    ) -> None:
        """Tell the receivers of the configuration file at `path`. Raises ConfigError."""
        self._clock, self._runbooks = clock, runbooks
        self._find: Find = lambda _: None
        self.receivers = {each.name: _receiver(each, path) for each in webhooks}
        self._put: dict[str, Letter] = {}
        """Letters that are not stored as they are, by key."""
        self._drop: dict[str, None] = {}
        """Keys of letters that are gone, and may be stored."""
        self._news = asyncio.Event()

    def restore(self, stored: Iterable[Letter], find: Find) -> None:
        """Take what waited before a restart; what was for nobody that is configured is dropped.

        A letter without its body is made anew of what `find` returns.
        """
        self._find = find
        known = list(stored)
        self._drop |= {each.key: None for each in known if each.webhook not in self.receivers}
        if self._drop:
            log.warning("letters_without_receiver", letters=len(self._drop))
        for letter in sorted(known, key=lambda each: each.seq):
            if letter.webhook in self.receivers:
                self.receivers[letter.webhook].outbox.take(letter, time.monotonic_ns())
        self._note_changes()

    def letters(self, events: Iterable[Event], *, stored: bool) -> list[Letter]:
        """Return what receivers are told of events; `stored`: a restart will know of them."""
        try:
            return [
                self._letter(receiver.webhook, event, stored=stored)
                for event in events
                for receiver in self.receivers.values()
                if receiver.wanted.wants(event.incident, event.before)
            ]
        except Exception:  # a bug, but whoever asks for incidents shall see them
            log.exception("letters_not_written")
            return []

    def take(self, letters: Iterable[Letter], stored: Iterable[str]) -> None:
        """Send letters; those of the keys `stored` are on disk."""
        on_disk = set(stored)
        for letter in letters:
            if letter.key not in on_disk:
                self._put[letter.key] = letter
            receiver = self.receivers[letter.webhook]
            receiver.outbox.take(letter, time.monotonic_ns())
            receiver.news.set()
        self._note_changes()

    def work(self, workers: Workers, store: Storage) -> None:
        """Send and store, in the background."""
        for name, receiver in self.receivers.items():
            workers.start(f"webhook {name}", partial(self._send, receiver))
        if self.receivers or self._drop:
            workers.start("mail", partial(self._keep, store))

    async def test(self, name: str) -> Answer:
        """Send a receiver an event that is none, at once; raises KeyError where there is none."""
        receiver, wall_ns = self.receivers[name], self._clock()
        return await receiver.poster.post(
            cloud_event(
                "test",
                f"test.{wall_ns}",
                source=receiver.webhook.source,
                subject="",
                wall_ns=wall_ns,
                data={"webhook": name},
            )
        )

    async def write(self, store: Storage) -> bool:
        """Store some of what changed; return whether the disk took it."""
        put = dict(islice(self._put.items(), BATCH))
        drop = list(self._drop)
        if not put and not drop:
            return True
        try:
            async with asyncio.timeout(STORE_S):
                await store.change_letters(list(put.values()), drop)
        except (TimeoutError, CapabilityMissing) as error:
            log.warning("letters_not_stored", error=str(error) or f"not within {STORE_S:g} s")
            return False
        for key, letter in put.items():
            if self._put.get(key) is letter:
                del self._put[key]
        for key in drop:
            del self._drop[key]
        return True

    async def close(self, store: Storage) -> None:
        """Store what is not stored, and drop every connection."""
        while (self._put or self._drop) and await self.write(store):
            pass
        for receiver in self.receivers.values():
            await receiver.poster.close()

    # --- the inside -----------------------------------------------------------------------------

    async def _keep(self, store: Storage) -> None:
        while True:
            if not self._put and not self._drop:
                self._news.clear()
                await self._news.wait()
            if not await self.write(store):
                await asyncio.sleep(RETRY_S)

    async def _send(self, receiver: Receiver) -> None:
        """Send what is due, over and over."""
        async with asyncio.TaskGroup() as flights:
            while True:
                receiver.news.clear()
                for letter in receiver.outbox.due(time.monotonic_ns()):
                    flights.create_task(self._deliver(receiver, letter))
                due_ns = receiver.outbox.deadline()
                wait_s = None if due_ns is None else max(0, due_ns - time.monotonic_ns()) / 1e9
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await receiver.news.wait()

    async def _deliver(self, receiver: Receiver, letter: Letter) -> None:
        answer: Answer | None = Answer(Outcome.LATER, "this analyzer gave up")
        try:
            body = letter.body or self._body(receiver.webhook, letter)
            answer = await receiver.poster.post(body) if body else None
        except Exception:  # a bug, but the letters of others shall go
            log.exception("letter_not_sent", webhook=letter.webhook, event=letter.id)
        finally:
            self._answered(receiver, letter, answer)

    def _answered(self, receiver: Receiver, letter: Letter, answer: Answer | None) -> None:
        outbox, now_ns = receiver.outbox, time.monotonic_ns()
        if answer is None:
            outbox.given_up(letter, now_ns)
        else:
            was_down = outbox.is_down
            outcome = outbox.answered(letter, answer.outcome, now_ns, answer.retry_after_ns)
            receiver.last, receiver.last_ns = answer, self._clock()
            if outcome is Outcome.TAKEN:
                receiver.taken_ns = receiver.last_ns
            _log(letter, outcome, answer, was_down=was_down, is_down=outbox.is_down)
        self._note_changes()
        receiver.news.set()

    def _note_changes(self) -> None:
        for receiver in self.receivers.values():
            emptied, gone = receiver.outbox.changes()
            self._put |= {letter.key: letter for letter in emptied}
            for key in gone:
                self._put.pop(key, None)
                self._drop[key] = None
        if self._put or self._drop:
            self._news.set()

    def _letter(self, webhook: Webhook, event: Event, *, stored: bool) -> Letter:
        incident = event.incident
        component = incident.verdict.component
        letter = Letter(
            webhook=webhook.name,
            seq=event.seq,
            incident=incident.id,
            event=event.event,
            component=str(component) if component else "",
            wall_ns=incident.updated_ns,
            body=b"",
        )
        return replace(letter, body=self._composed(webhook, letter, incident, stored=stored))

    def _body(self, webhook: Webhook, letter: Letter) -> bytes:
        """Return the body that a letter lost, of its incident as it is; empty where none is."""
        incident = self._find(letter.incident)
        if incident is None:
            return b""
        return self._composed(webhook, letter, incident, stored=True)

    def _composed(
        self, webhook: Webhook, letter: Letter, incident: Incident, *, stored: bool
    ) -> bytes:
        return cloud_event(
            f"incident.{letter.event}",
            letter.id,
            source=webhook.source,
            subject=letter.component,
            wall_ns=letter.wall_ns,
            data=views.incident(incident, stored=stored, runbooks=self._runbooks),
        )


def _receiver(webhook: Webhook, path: str) -> Receiver:
    outbox = Outbox(
        most_letters=webhook.queue_events,
        most_bytes=webhook.queue_bytes,
        jitter=random.random,
    )
    wanted = Wanted(
        confirmed=webhook.state is IncidentState.CONFIRMED, kinds=frozenset(webhook.kinds)
    )
    return Receiver(webhook, Poster(webhook, path), outbox, wanted)


def _log(
    letter: Letter, outcome: Outcome, answer: Answer, *, was_down: bool, is_down: bool
) -> None:
    """Log what is refused, and when a receiver goes and comes back: not each attempt."""
    known = {"webhook": letter.webhook, "answer": answer.text}
    if outcome is Outcome.REFUSED:
        log.warning("event_refused", id=letter.id, said=answer.said[:200], **known)
    if is_down and not was_down:
        log.warning("receiver_down", **known)
    elif was_down and not is_down:
        log.info("receiver_back", **known)
