# SPDX-License-Identifier: Apache-2.0
"""Delay: a host that takes long to send or to answer probes, by their own stamps.

Six stamps tell the network's round trip from what the two hosts took. A host that gets no CPU
answers late, and some probes after their timeout: those are lost without any fault of the network,
and the survivors tell why. What others measured of a host is taken by the median over them, so that
one of them alone can accuse nobody.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.intake.places import met
from analyzer.intake.table import NOBODY, Owners, WindowTable
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom

STARVED_NS = 50_000_000
"""Nanoseconds of mean delay from which a host is late. Chosen: a tenth of the probes' timeout; of
delays that vary as they do, some then reach it. Hosts at work take some microseconds, busy ones a
millisecond."""
LATE_NS = 3_000_000
"""Nanoseconds of mean delay from which lateness may be why a host's probes are lost. Chosen: it may
have begun as the window ended."""
LATE_PER_LOSS_NS = 125_000_000
"""Nanoseconds of mean delay for each lost probe, of a host whose lateness is why. Chosen: a quarter
of the timeout of 500 ms; those that just came in time are as many, and nearly as late."""
LEAST_COUNT = 10
"""Least round trips of a window for their mean to count. Chosen: one late one is no starvation."""
LEAST_OTHERS = 2
"""Least hosts that measured another one, for their word to count. Chosen: of two, the lower one
does, so that none alone accuses anybody; each host speaks for itself."""
SHARED = 0.5
"""Share of the hosts from which it is nobody's own. Chosen: then something that they share starves
them, and it is not known what."""


@dataclass(slots=True)
class Delay:
    """Sees hosts that are late twice in a row."""

    symptoms: ClassVar[AbstractSet[Symptom]] = frozenset({Symptom.DELAY})

    starved: Mapping[str, float] = field(default_factory=dict)
    """Hosts whose losses of the newest window prove nothing -> nanoseconds late on average."""
    late: Mapping[str, float] = field(default_factory=dict)
    """Those of them that were late in the window before as well, if few are."""
    _before: AbstractSet[str] = frozenset()
    """Hosts that were late in the newest window."""

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the hosts that are late."""
        yield from ()  # no question is needed
        delays = delays_of(seen.table, seen.owners_of_known(), LATE_NS)
        slow = {host: ns for host, ns in sorted(delays.items()) if ns >= LATE_NS}
        shares = _lost(slow, seen) if slow else {}
        late = {host for host, ns in slow.items() if ns >= STARVED_NS}
        self.starved = {
            host: ns
            for host, ns in slow.items()
            if host in late or ns >= LATE_PER_LOSS_NS * shares.get(host, 0.0)
        }
        is_shared = len(late) > 1 and len(late) > SHARED * len(_measured(seen))
        again = {} if is_shared else {h: slow[h] for h in sorted(late & self._before)}
        self.late, self._before = again, late
        window = seen.state.window
        return [Anomaly(Component(Kind.HOST, h), Symptom.DELAY, window) for h in again]

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether none of these hosts is late any more, though it was measured."""
        hosts = {each.name for each in subjects if isinstance(each, Component)}
        here = hosts & {end.host for end in seen.endpoints.values()}
        return here <= _measured(seen) and not hosts & self._before

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Remember hosts only."""


def _measured(seen: Seen) -> AbstractSet[str]:
    return delays_of(seen.table, seen.owners_of_known()).keys()


def _lost(hosts: Collection[str], seen: Seen) -> dict[str, float]:
    """Return the share of lost probes from and to each of some hosts."""
    sent, lost = Counter[str](), Counter[str]()
    theirs = [key for key, end in seen.endpoints.items() if end.host in hosts]
    for view in seen.flows.where(seen.flows.of_any(theirs)):
        ends = {seen.endpoints[end].host for end in (view.flow.source, view.flow.target)}
        for host in ends & set(hosts):
            sent[host] += view.sent
            lost[host] += view.lost
    return {host: lost[host] / count for host, count in sent.items()}


def delays_of(table: WindowTable, owners: Owners, least_ns: float = 0.0) -> dict[str, float]:
    """Return by how much hosts were late in a window, in ns; only of those that were measured.

    Hosts that were late by less than `least_ns` may be left out: in health all are, at no cost.
    """
    rows, hosts = table.rows, len(table.hosts)
    if max(rows.prober_ns.max(initial=0), rows.responder_ns.max(initial=0)) < least_ns:
        return {}
    count = rows.count.astype(np.float64)
    answered = np.bincount(table.host, count, hosts)
    late = np.bincount(table.host, count * rows.prober_ns, hosts)
    is_enough = answered >= LEAST_COUNT
    own = np.flatnonzero(is_enough)
    means = zip(own.tolist(), (late[own] / answered[own]).tolist(), strict=True)
    made = {table.hosts[place]: mean for place, mean in means}
    owner, names = owners
    other = owner[table.ends[1]]
    is_other = other != NOBODY
    if least_ns > 0:  # a mean is that large only where one of those in it is
        may_be = np.zeros(len(names), np.bool_)
        may_be[other[is_other & (rows.responder_ns >= least_ns)]] = True
        is_other[is_other] = may_be[other[is_other]]
    mine = np.flatnonzero(is_enough[table.host] & is_other)
    both, place = met(table.host[mine] * len(names) + other[mine], hosts * len(names))
    answered, late = (
        np.bincount(place, each, len(both))
        for each in (count[mine], count[mine] * rows.responder_ns[mine])
    )
    told = answered >= LEAST_COUNT
    other, ns = both[told] % len(names), late[told] / answered[told]
    order = np.lexsort((ns, other))
    others, first, many = np.unique(other[order], return_index=True, return_counts=True)
    middle = ns[order][first + (many - 1) // 2]
    for host, one, count_of in zip(others.tolist(), middle.tolist(), many.tolist(), strict=True):
        if count_of >= LEAST_OTHERS:
            made[names[host]] = max(made.get(names[host], 0.0), one)
    return made
