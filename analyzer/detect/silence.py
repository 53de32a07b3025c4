# SPDX-License-Identifier: Apache-2.0
"""Silence: a host that should have sent a summary, and did not.

The detector asks its agent for its status. An agent that begins anew is refused for seconds, and a
busy host does not answer in time: both are reported after two windows in a row (decision 21), a
timeout not while the agent has begun recently or makes a trace. One that answers tells its wall
clock: windows follow it, so that a wrong one keeps a host's summaries away. When most hosts are
silent at once, something that they share is the reason; when that is over, and when the analyzer
itself was away or in trouble, each has a minute to catch up.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.questions import Ask, Asking, Failed, Reply, StatusRequest, Why
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom
from netagent.wire.messages import Status

TIMEOUT_WINDOWS = 2
"""Windows in a row without a host's summary before a timeout of its agent counts. Chosen: a busy
host misses one window; more delay the report of a dead host."""
REFUSED_WINDOWS = 2
"""Windows in a row in which an agent's RPC is refused, before it counts as gone. Chosen: one that
is upgraded or begins anew is back within a window."""
CATCH_UP_WINDOWS = 12
"""Windows that a host may take to deliver what the analyzer refused. Chosen: a minute;
of many that wait, the newest go first."""
MOST_EXCUSED = 36
"""Windows in a row without the summary of a host that does not answer either, after which no
trouble of the analyzer is why. Chosen: three times what it needs to catch up; a dead host must not
be hidden by trouble that comes again and again."""
MUTE_WINDOWS = 3
"""Windows in a row without the summary of a host that answers, before it is an incident. Chosen:
an agent that retries a delivery catches up within two."""

CLOCK_NS = 1_000_000_000
"""Nanoseconds by which a clock is off, at least, to keep summaries away. Chosen: a delivery takes
some of GRACE_NS as well."""
ANSWER_NS = 5_000_000_000
"""Nanoseconds that an answer takes at most: its clock was read at any moment of them. Chosen: the
diagnosis waits for two seconds, and the analyzer may stand still."""

MOST_ASKED = 128
"""Most hosts asked for their status in a window. Chosen: a handshake each, half a second in all;
where more are silent, it is nobody's own, or a whole pod's, and its hosts have their turn."""

SHARED = 0.5
"""Share of the hosts from which silence is nobody's own. Chosen, as for hosts that are late: then
something that they share keeps them from being heard, and it is not known what."""


class Silence:
    """Distinguishes silent hosts from late ones."""

    symptoms = frozenset({Symptom.SILENCE})
    shared = False
    """Whether most hosts of the newest window are not heard, though none of them refuses."""

    impaired = False
    """Whether summaries may be missing because the analyzer itself refused or did not read them."""
    _excused: Mapping[str, int] = {}
    """Hosts that had no chance to deliver -> windows for which they may still catch up."""

    _absent: Mapping[str, int] = {}
    """Silent hosts -> windows in a row that lack their summaries, excused or not."""
    _asked: Mapping[str, int] = {}
    """Silent hosts -> how often they were asked since they are."""

    def __init__(self) -> None:
        self._missing: Counter[str] = Counter()
        """Windows in a row that lack a host's summary, without those that are excused."""
        self._refused: Counter[str] = Counter()
        """Windows in a row in which a host's agent was refused."""
        self.silent: Mapping[str, Failed | None] = {}
        """Silent hosts of the newest window -> how the agent's RPC fails; None where it answers."""
        self.clocks: Mapping[str, int] = {}
        """Silent hosts that answer with a wrong clock -> nanoseconds that it is ahead, at least."""
        self.undecided: AbstractSet[str] = frozenset()
        """Hosts of the newest window that may be silent or just busy."""

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the hosts whose silence is beyond doubt."""
        hosts = sorted(seen.absent)
        catching_up = self.impaired or (self.shared and not _most(hosts, seen))
        self._missing = Counter({host: self._missing[host] + 1 for host in hosts})
        asked = self._turns(hosts)
        replies = (yield [Ask(host, StatusRequest()) for host in asked]) if asked else ()
        answers = dict(zip(asked, replies, strict=True))
        waiting = set(hosts) - answers.keys()
        how = {host: reply for host, reply in answers.items() if isinstance(reply, Failed)}
        refused = {host for host, failed in how.items() if failed.why is Why.REFUSED}
        still = {host: self._refused[host] for host in waiting if self._refused[host]}
        self._refused = Counter(still | {host: self._refused[host] + 1 for host in sorted(refused)})
        self.shared = _most(seen.absent - refused, seen)
        odd = {host for host, failed in how.items() if failed.why in {Why.ODD, Why.CANNOT}}
        self._absent = {host: self._absent.get(host, 0) + 1 for host in hosts}
        dead = {host for host in how if self._absent[host] > MOST_EXCUSED}
        excused = self._excuse(hosts, catching_up=catching_up) - dead
        for host in excused:
            self._missing.pop(host, None)
        # These agents answer: their summaries are late, or never come in time.
        late = {host for host in asked if host not in how or host in odd}
        missing = {host for host in late if self._missing[host] >= MUTE_WINDOWS}
        ahead_ns = {host: _ahead_ns(answers[host], seen.now_ns) for host in sorted(missing)}
        clocks = {host: ns for host, ns in ahead_ns.items() if abs(ns) >= CLOCK_NS}
        # What comes some seconds late for no reason of the host's own is no silence.
        mute = missing - (seen.delivering - clocks.keys())
        self.undecided = frozenset(waiting) | frozenset(
            host for host in how.keys() - late if self._too_early(host, how[host], seen, excused)
        )
        told: dict[str, Failed | None] = dict.fromkeys(mute)
        told |= {host: how[host] for host in how.keys() - late - self.undecided}
        self.silent = dict(sorted(told.items()))
        self.clocks = clocks
        window = seen.state.window
        return [
            Anomaly(Component(Kind.AGENT, host), Symptom.SILENCE, window) for host in self.silent
        ]

    def _turns(self, hosts: Sequence[str]) -> list[str]:
        """Return the hosts to ask now: those that were refused once, and those asked least."""
        often = {host: self._asked.get(host, 0) for host in hosts}
        first = sorted(hosts, key=lambda host: (self._refused[host] != 1, often[host]))
        asked = sorted(first[:MOST_ASKED])
        self._asked = often | {host: often[host] + 1 for host in asked}
        return asked

    def _excuse(self, hosts: Sequence[str], *, catching_up: bool) -> AbstractSet[str]:
        """Return the hosts whose summaries may be missing by no fault of theirs.

        The analyzer was away or in trouble, or something that most hosts share; between two
        attempts to deliver they wait for seconds. Only a dead agent is told of meanwhile: its host
        says so.
        """
        left = dict.fromkeys(hosts, CATCH_UP_WINDOWS) if catching_up else {
            host: self._excused[host] - 1 for host in hosts if self._excused.get(host, 0) > 1
        }  # fmt: skip
        self._excused = left
        return left.keys()

    def _too_early(self, host: str, how: Failed, seen: Seen, excused: AbstractSet[str]) -> bool:
        if how.why is Why.REFUSED:
            return self._refused[host] < REFUSED_WINDOWS
        return host in seen.patience | excused or self._missing[host] < TIMEOUT_WINDOWS

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether each host sends summaries again, or is no longer expected to."""
        hosts = {each.name for each in subjects if isinstance(each, Component)}
        return all(host in seen.state.rows or host not in seen.expected for host in hosts)

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Remember hosts only."""


def _ahead_ns(reply: Reply, asked_ns: int) -> int:
    """Return by how much a host's clock is ahead at least; less than 0 where it is behind."""
    if not isinstance(reply, Status) or not reply.wall_ns:
        return 0
    ahead_ns = reply.wall_ns - asked_ns
    return ahead_ns if ahead_ns < 0 else max(ahead_ns - ANSWER_NS, 0)


def _most(hosts: Collection[str], seen: Seen) -> bool:
    return len(hosts) > max(1.0, SHARED * len(seen.expected))
