# SPDX-License-Identifier: Apache-2.0
"""When something is done: by permission, after two confirmations, seldom, and never everywhere.

Theory of operation. An incident is taken each time that it is told. Once it is confirmed, and goes
on `CONFIRM_NS` later, each remedy that is permitted becomes an action, once per incident.
The breaker opens where an action failed, or where what it was done for did not recover in
`HELP_NS`; then nothing is done until a person closes it. Whatever happens, and whatever is held
back, is an entry of the trail. Instants are Unix nanoseconds of the analyzer's clock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from analyzer.actions.verbs import Remedy, Verb, remedies
from netagent.model.strenum import StrEnum
from netagent.model.verdict import Incident, IncidentState

CONFIRM_NS = 30 * 10**9
"""Nanoseconds that a confirmed incident goes on until something may be done. Chosen: what heals by
itself has healed."""
HELP_NS = 300 * 10**9
"""Nanoseconds in which an action helps, or did not. Chosen: a controller with 30,000 logical flows
installs them in seconds, and an incident is over within a minute of its last loss."""
HOUR_NS = 3600 * 10**9
TRAIL = 1_000
"""Entries of the trail that are kept here; all of them go to the log. Chosen: to be read."""


class Mode(StrEnum):
    """What is permitted."""

    OBSERVE = "observe"
    """Nothing, and nothing is proposed."""
    ADVISE = "advise"
    """To say what could be done."""
    ACT = "act"
    """To do what is listed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an operator permits."""

    mode: Mode = Mode.OBSERVE
    verbs: frozenset[Verb] = frozenset()
    """What may be done where the mode is to act; the rest is advised."""
    per_hour: int = 4
    """Most actions in any hour."""
    share: float = 0.02
    """Most of the fleet's hosts on which something is done in any hour; one host always may."""


class Step(StrEnum):
    """What became of an action."""

    ADVISED = "advised"
    HELD = "held"
    """It is permitted, and a limit or the breaker holds it back."""
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    HELPED = "helped"
    """Its incident recovered afterwards."""
    DID_NOT_HELP = "did-not-help"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Action:
    """One remedy for one incident."""

    id: str
    incident: str
    remedy: Remedy
    why: str
    """The verdict's sentence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the trail."""

    wall_ns: int
    action: Action
    step: Step
    text: str = ""
    by: str = "netagent"
    """Who did it."""


@dataclass(slots=True)
class _Case:
    incident: Incident
    confirmed_ns: int | None = None
    proposed: bool = False


@dataclass(slots=True)
class _Running:
    action: Action
    started_ns: int
    ended_ns: int | None = None


@dataclass(slots=True)
class Broker:
    """Decides what is done; does nothing itself."""

    limits: Limits
    bridge_of: Callable[[str], str]
    """See `analyzer.actions.verbs.remedies`."""
    opened: str = ""
    """Why the breaker is open; "" while it is closed."""
    trail: deque[Entry] = field(default_factory=lambda: deque(maxlen=TRAIL))
    _cases: dict[str, _Case] = field(default_factory=dict)
    _running: dict[str, _Running] = field(default_factory=dict)
    _done: dict[str, Action] = field(default_factory=dict)
    """What may still be undone."""
    _starts: deque[tuple[int, str]] = field(default_factory=deque)
    """When something was done in the last hour, and on which host."""

    def take(self, incident: Incident, wall_ns: int) -> None:
        """Take an incident as it is told."""
        if self.limits.mode is Mode.OBSERVE:
            return
        if incident.state is IncidentState.RECOVERED:
            self._cases.pop(incident.id, None)
            self._recovered(incident.id, wall_ns)
            return
        case = self._cases.setdefault(incident.id, _Case(incident))
        if case.incident.verdict.component != incident.verdict.component:
            case.confirmed_ns, case.proposed = None, False  # revised: it is about another part now
        case.incident = incident
        if incident.state is IncidentState.CONFIRMED and case.confirmed_ns is None:
            case.confirmed_ns = wall_ns

    def step(self, wall_ns: int, *, hosts: int) -> Sequence[Action]:
        """Return what is to be started now; `hosts` are those of the fleet."""
        self._judge(wall_ns)
        starting: list[Action] = []
        for case in list(self._cases.values()):
            since_ns = case.confirmed_ns
            if case.proposed or since_ns is None or wall_ns - since_ns < CONFIRM_NS:
                continue
            case.proposed = True
            found = remedies(case.incident.verdict, bridge_of=self.bridge_of)
            starting += self._proposed(case.incident, found, wall_ns, hosts)
        return starting

    def ended(self, action: Action, problem: str, wall_ns: int) -> None:
        """Take how an action ended; `problem` is "" where it was done."""
        running = self._running.get(action.id)
        if running is None:
            return
        if problem:
            del self._running[action.id]
            self._note(wall_ns, action, Step.FAILED, problem)
            self._open(f"{action.remedy.verb} on {action.remedy.host} failed: {problem}")
            return
        running.ended_ns = wall_ns
        self._note(wall_ns, action, Step.DONE)
        if action.remedy.undo:
            self._done[action.id] = action
            while len(self._done) > TRAIL:
                del self._done[next(iter(self._done))]
        if action.incident not in self._cases:
            self._recovered(action.incident, wall_ns)

    def undo(self, action_id: str) -> Action | None:
        """Return the action whose `undo` is to be done now; None where there is none to undo."""
        return self._done.get(action_id)

    def undone(self, action: Action, by: str, problem: str, wall_ns: int) -> None:
        """Take how undoing went."""
        if problem:
            self._note(wall_ns, action, Step.FAILED, f"not undone: {problem}", by)
            return
        self._done.pop(action.id, None)
        self._running.pop(action.id, None)
        self._note(wall_ns, action, Step.UNDONE, by=by)

    def close(self) -> None:
        """Close the breaker: a person looked."""
        self.opened = ""

    def deadline_ns(self) -> int | None:
        """Return when to step again even if nothing comes."""
        due = [
            case.confirmed_ns + CONFIRM_NS
            for case in self._cases.values()
            if case.confirmed_ns is not None and not case.proposed
        ]
        due += [r.ended_ns + HELP_NS for r in self._running.values() if r.ended_ns is not None]
        return min(due, default=None)

    def _proposed(
        self, incident: Incident, found: Iterable[Remedy], wall_ns: int, hosts: int
    ) -> Iterable[Action]:
        for number, remedy in enumerate(found):
            action = Action(
                f"{incident.id}-{number}", incident.id, remedy, incident.verdict.summary
            )
            if self.limits.mode is not Mode.ACT or remedy.verb not in self.limits.verbs:
                self._note(wall_ns, action, Step.ADVISED, remedy.command)
            elif held := self._held(remedy, wall_ns, hosts):
                self._note(wall_ns, action, Step.HELD, held)
            else:
                self._starts.append((wall_ns, remedy.host))
                self._running[action.id] = _Running(action, wall_ns)
                self._note(wall_ns, action, Step.STARTED, remedy.command)
                yield action

    def _held(self, remedy: Remedy, wall_ns: int, hosts: int) -> str:
        """Return why nothing is done now; "" where it may be."""
        while self._starts and self._starts[0][0] <= wall_ns - HOUR_NS:
            self._starts.popleft()
        if self.opened:
            return f"the breaker is open: {self.opened}"
        if len(self._starts) >= self.limits.per_hour:
            return f"{len(self._starts)} actions in the last hour, {self.limits.per_hour} at most"
        touched = {host for _, host in self._starts} | {remedy.host}
        most = max(1, int(self.limits.share * hosts))
        if len(touched) > most:
            return f"something was done on {len(touched) - 1} of {hosts} hosts in the last hour"
        return ""

    def _judge(self, wall_ns: int) -> None:
        """Say of what was done whether it helped in its time."""
        for running in list(self._running.values()):
            if running.ended_ns is not None and wall_ns - running.ended_ns >= HELP_NS:
                del self._running[running.action.id]
                self._note(wall_ns, running.action, Step.DID_NOT_HELP)
                remedy = running.action.remedy
                self._open(f"{remedy.verb} on {remedy.host} did not help")

    def _recovered(self, incident: str, wall_ns: int) -> None:
        for running in list(self._running.values()):
            if running.action.incident == incident and running.ended_ns is not None:
                del self._running[running.action.id]
                self._note(wall_ns, running.action, Step.HELPED)

    def _open(self, why: str) -> None:
        self.opened = self.opened or why

    def _note(
        self, wall_ns: int, action: Action, step: Step, text: str = "", by: str = "netagent"
    ) -> None:
        self.trail.append(Entry(wall_ns, action, step, text, by))
