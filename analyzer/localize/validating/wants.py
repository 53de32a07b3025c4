# SPDX-License-Identifier: Apache-2.0
"""Comparisons of flow tables that are wanted, that run and that were made.

A comparison takes some seconds and disturbs what its host forwards. So it outlives the window that
wanted it, few hosts make one at a time, and each host is left alone for a while afterwards: twice
as long each time that it found nothing. Pure: `due` returns the questions to send, and `answer`
takes the replies.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from analyzer.localize.case import Endpoints, OrderedPair
from analyzer.localize.validating.judge import accused, honest
from analyzer.localize.walks import ANY_PORT, probed_port
from analyzer.questions import Ask, Failed, Reply, Why
from netagent.wire.validate import ValidateReply, ValidateRequest

DEADLINE_S = 40.0
"""Seconds that a comparison may take. Chosen: the agent gives up after 15 s, and walks may be
worked on before it."""
EVERY_NS = 60_000_000_000
"""Nanoseconds for which a host is left alone after a comparison that found something. Chosen: a
dump disturbs what it shows; an operator needs minutes to mend it."""
MAX_EVERY_NS = 480_000_000_000
"""Most nanoseconds for which a host is left alone after comparisons that found nothing. Chosen: 8
times EVERY_NS; a pair that keeps losing is looked at again."""
SPARE_NS = 20_000_000_000
"""Nanoseconds for which a comparison is believed after the host may be asked again. Chosen: four
windows, in which the next one is made."""
CANNOT_NS = 600_000_000_000
"""Nanoseconds for which a host that cannot compare is not asked again. Chosen: only an installation
or a restart changes that."""
RETRY_NS = 30_000_000_000
"""Nanoseconds for which a host that was busy or did not answer is not asked again. Chosen: it needs
its processor for other things."""
MAX_HOSTS = 4
"""Hosts that compare at one time. Chosen: both ends of two pairs; the rest of the fabric stays
undisturbed."""


@dataclass(frozen=True, slots=True)
class Look:
    """A host's comparison of its tables for the packets of a pair."""

    host: str
    pair: OrderedPair
    """The end on that host first."""


@dataclass(frozen=True, slots=True)
class _Made:
    reply: ValidateReply | Failed
    until_ns: int
    """Instant until which it is believed."""


class Comparisons:
    """Comparisons by host and pair."""

    def __init__(self) -> None:
        self._made: dict[Look, _Made] = {}
        self._failed: dict[str, _Made] = {}
        """Host -> why it made none."""
        self._running: dict[str, tuple[Look, int]] = {}
        """Host -> what it compares, and the instant from which no answer is waited for."""
        self._due: deque[tuple[Look, Ask]] = deque()
        self._alone: dict[str, tuple[int, int]] = {}
        """Host -> instant until which it is left alone, and for how long, in ns, if the next
        comparison finds nothing either."""

    def known(self, look: Look, *, now_ns: int) -> ValidateReply | Failed | None:
        """Return what a comparison said while it is believed, or why its host makes none."""
        for made in (self._made.get(look), self._failed.get(look.host)):
            if made is not None and now_ns < made.until_ns:
                return made.reply
        return None

    def may_ask(self, host: str, *, now_ns: int) -> bool:
        """Return whether a host neither compares now nor is left alone."""
        return host not in self._running and self._alone.get(host, (0, 0))[0] <= now_ns

    def want(self, looks: Iterable[tuple[Look, ValidateRequest]], *, now_ns: int) -> None:
        """Have these comparisons made, except where a host may not be asked."""
        self._running = {h: each for h, each in self._running.items() if now_ns < each[1]}
        for look, request in looks:
            if len(self._running) < MAX_HOSTS and self.may_ask(look.host, now_ns=now_ns):
                self._running[look.host] = (look, now_ns + round(2e9 * DEADLINE_S))
                self._due.append((look, Ask(look.host, request)))

    def due(self) -> list[tuple[Look, Ask]]:
        """Return, once each, the questions to put to agents now."""
        due = list(self._due)
        self._due.clear()
        return due

    def answer(self, look: Look, reply: Reply, endpoints: Endpoints, *, now_ns: int) -> None:
        """Take the reply to a question; `endpoints` says whose RNIC it may accuse."""
        if self._running.get(look.host, (None, 0))[0] != look:
            return
        del self._running[look.host]
        self._forget(now_ns)
        taken = taken_of(look.host, reply)
        if isinstance(taken, Failed):
            lasting = taken.why in {Why.CANNOT, Why.ODD}
            until_ns = now_ns + (CANNOT_NS if lasting else RETRY_NS)
            self._failed[look.host] = _Made(taken, until_ns)
            self._alone[look.host] = (until_ns, EVERY_NS)
            return
        self._failed.pop(look.host, None)
        end = endpoints.get(look.pair[0])
        found = end is not None and accused(taken, end, is_slow=True) is not None
        pause_ns = EVERY_NS if found else self._alone.get(look.host, (0, EVERY_NS))[1]
        again_ns = EVERY_NS if found else min(2 * pause_ns, MAX_EVERY_NS)
        self._alone[look.host] = (now_ns + pause_ns, again_ns)
        self._made[look] = _Made(taken, now_ns + pause_ns + SPARE_NS)

    def _forget(self, now_ns: int) -> None:
        self._made = {look: made for look, made in self._made.items() if now_ns < made.until_ns}
        self._failed = {host: made for host, made in self._failed.items() if now_ns < made.until_ns}
        self._alone = {
            host: (until_ns, next_ns)
            for host, (until_ns, next_ns) in self._alone.items()
            if now_ns < until_ns + MAX_EVERY_NS
        }


def taken_of(host: str, reply: Reply) -> ValidateReply | Failed:
    """Return a reply as far as it is believed."""
    if isinstance(reply, ValidateReply):
        return reply if honest(reply, host) else Failed(Why.ODD, "it speaks of another host")
    return reply if isinstance(reply, Failed) else Failed(Why.ODD, "it answers something else")


def looks_of(pair: OrderedPair, endpoints: Endpoints) -> list[Look]:
    """Return the comparisons that show all of a pair: one on each host of its ends."""
    ways = (pair, (pair[1], pair[0]))
    return list(
        {endpoints[way[0]].host: Look(endpoints[way[0]].host, way) for way in ways}.values()
    )


def request_of(
    look: Look, endpoints: Endpoints, *, port: int, source_port: int = ANY_PORT
) -> ValidateRequest:
    """Return what to ask the host of a look; `port` is that of UDP probes."""
    near, far = (endpoints[key] for key in look.pair)
    apart = near.host != far.host
    return ValidateRequest(
        local=near.id,
        remote_address=far.address,
        remote_mac=far.mac,
        local_underlay=near.underlay if apart else "",
        remote_underlay=far.underlay if apart else "",
        source_port=source_port,
        destination_port=probed_port(far, port),
    )
