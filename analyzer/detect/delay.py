# SPDX-License-Identifier: Apache-2.0
"""Delay: a host that takes long to send or to answer probes, by their own stamps.

Six stamps tell the network's round trip from what the two hosts took. A host that gets no CPU
answers late, and some probes after their timeout: those are lost without any fault of the network,
and the survivors tell why. What others measured of a host is taken by the median over them, so that
one of them alone can accuse nobody.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from statistics import median_low
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
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
        delays = delays_of(seen.state.rows, seen.numbers, seen.endpoints)
        slow = {host: ns for host, ns in sorted(delays.items()) if ns >= LATE_NS}
        shares = _lost(slow, seen) if slow else {}
        late = {host for host, ns in slow.items() if ns >= STARVED_NS}
        self.starved = {
            host: ns
            for host, ns in slow.items()
            if host in late or ns >= LATE_PER_LOSS_NS * shares.get(host, 0.0)
        }
        is_shared = len(late) > max(1.0, SHARED * len(delays))
        again = {} if is_shared else {h: slow[h] for h in sorted(late & self._before)}
        self.late, self._before = again, late
        window = seen.state.window
        return [Anomaly(Component(Kind.HOST, h), Symptom.DELAY, window) for h in again]

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether none of these hosts is late any more, though it was measured."""
        hosts = {each.name for each in subjects if isinstance(each, Component)}
        here = hosts & {end.host for end in seen.endpoints.values()}
        measured = delays_of(seen.state.rows, seen.numbers, seen.endpoints).keys()
        return here <= measured and not hosts & self._before

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Remember hosts only."""


def _lost(hosts: Collection[str], seen: Seen) -> dict[str, float]:
    """Return the share of lost probes from and to each of some hosts."""
    sent, lost = Counter[str](), Counter[str]()
    for view in seen.flows:
        ends = {seen.endpoints[end].host for end in (view.flow.source, view.flow.target)}
        for host in ends & set(hosts):
            sent[host] += view.sent
            lost[host] += view.lost
    return {host: lost[host] / count for host, count in sent.items()}


def delays_of(
    rows: Mapping[str, WindowRows], numbers: FlowNumbers, endpoints: Mapping[EndpointId, Endpoint]
) -> dict[str, float]:
    """Return by how much hosts were late in a window, in ns; only of those that were measured."""
    made: dict[str, float] = {}
    seen_by_others: dict[str, list[float]] = defaultdict(list)
    for host, each in rows.items():
        count = each.count.astype(np.float64)
        if count.sum() < LEAST_COUNT:
            continue
        made[host] = float(each.prober_ns @ count / count.sum())
        target = numbers.ends(each.flow)[1]
        total = np.bincount(target, count)
        late = np.bincount(target, count * each.responder_ns)
        by_host: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for number in np.flatnonzero(total).tolist():
            end = endpoints.get(numbers.endpoint(number))
            if end is not None:
                by_host[end.host][0] += float(total[number])
                by_host[end.host][1] += float(late[number])
        for other, (answered, ns) in by_host.items():
            if answered >= LEAST_COUNT:
                seen_by_others[other].append(ns / answered)
    for host, delays in seen_by_others.items():
        if len(delays) < LEAST_OTHERS:
            continue
        made[host] = max(made.get(host, 0.0), median_low(delays))
    return made
