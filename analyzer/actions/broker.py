# SPDX-License-Identifier: Apache-2.0
"""When something is done: by permission, after two confirmations, seldom, and never everywhere.

Theory of operation. An incident is taken each time that it is told. Once it is confirmed, and goes
on `CONFIRM_NS` later, each remedy that is permitted becomes an action, once per incident.
The breaker opens where an action failed, or where what it was done for did not recover in
`HELP_NS`; then nothing is done by itself until a person closes it; limits hold for persons, too.
Whatever happens, and whatever is held back, is an entry of the trail, from which all of this is
known again after a restart. Instants are Unix nanoseconds of the analyzer's clock.
"""

import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from analyzer.actions.verbs import PortWay, Remedy, Verb, remedies
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
"""Entries of the trail that are kept here; all of them go to a file. Chosen: to be read."""
MOST_WHY = 1_000
"""Most characters of why something is done: hosts' words are in it, and a line of the trail that is
too long is not read again. Chosen: to be read."""
PROPOSED = 10 * TRAIL
"""Ids of actions that are remembered, so that none is proposed twice. Chosen: bounds memory."""


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
    cordon: tuple[str, ...] = ()
    """Command that cordons; without one, that is advised only."""
    port: PortWay | None = None
    """How ports are disabled; None: they are not."""

    def permits(self, verb: Verb) -> bool:
        """Return whether a verb may be done without a person."""
        listed = self.mode is Mode.ACT and verb in self.verbs
        return listed and self.can(verb) and _heals(verb)

    def can(self, verb: Verb) -> bool:
        """Return whether there is a way to do it."""
        return verb is not Verb.CORDON or bool(self.cordon)


class Step(StrEnum):
    """What became of an action."""

    ADVISED = "advised"
    HELD = "held"
    """It is permitted, and a limit or the breaker holds it back."""
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    """The owner of its host does not permit it, or the host cannot; nothing was done."""
    HELPED = "helped"
    """Its incident recovered afterwards."""
    DID_NOT_HELP = "did-not-help"
    UNDONE = "undone"
    NOT_UNDONE = "not-undone"
    OPENED = "opened"
    """The breaker opened: nothing more is done by itself."""
    CLOSED = "closed"
    """A person closed it."""


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
    action: Action | None
    """None where it is about the breaker."""
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
    news: deque[Entry] = field(default_factory=lambda: deque(maxlen=PROPOSED))
    """Entries that are to be written down; whoever does takes them from here."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Entries since the start, by verb and step."""
    _proposed_ids: dict[str, None] = field(default_factory=dict)
    _begun: dict[str, None] = field(default_factory=dict)
    """What was tried, and is not tried again."""
    _cases: dict[str, _Case] = field(default_factory=dict)
    _running: dict[str, _Running] = field(default_factory=dict)
    _done: dict[str, Action] = field(default_factory=dict)
    """What may still be undone."""
    _starts: deque[tuple[int, str]] = field(default_factory=deque)
    """When something was done in the last hour, and on which host."""

    def restore(self, entries: Iterable[Entry]) -> None:
        """Take the trail of before a restart, oldest first, and before any incident."""
        for entry in entries:
            self.trail.append(entry)
            self._again(entry)
        if self.limits.mode is Mode.OBSERVE:
            self._running.clear()  # of no incident is taken how it goes on

    def unfinished(self) -> Sequence[Action]:
        """Return what was started, and of which nobody heard how it ended."""
        return [each.action for each in self._running.values() if each.ended_ns is None]

    def _again(self, entry: Entry) -> None:
        action = entry.action
        if action is None:
            self.opened = entry.text if entry.step is Step.OPENED else ""
            return
        _remember(self._proposed_ids, action.id)
        match entry.step:
            case Step.STARTED:
                _remember(self._begun, action.id)
                self._starts.append((entry.wall_ns, action.remedy.host))
                self._running[action.id] = _Running(action, entry.wall_ns)
            case Step.DONE:
                self._running.setdefault(
                    action.id, _Running(action, entry.wall_ns)
                ).ended_ns = entry.wall_ns
                self._undoable(action)
                if not _heals(action.remedy.verb):
                    del self._running[action.id]
            case Step.REFUSED:
                self._forget_start(action)
            case Step.FAILED | Step.HELPED | Step.DID_NOT_HELP:
                self._running.pop(action.id, None)
            case Step.UNDONE:
                self._running.pop(action.id, None)
                self._done.pop(action.id, None)
            case _:
                pass

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
            if case.incident.unobserved_ns is not None:
                continue  # nobody knows whether it goes on
            case.proposed = True
            starting += self._proposed(case.incident, wall_ns, hosts)
        return starting

    def offers(self, incident: str) -> Sequence[Action]:
        """Return what could be done about an incident that goes on."""
        case = self._cases.get(incident)
        return self._actions(case.incident) if case is not None else ()

    def held(self, action: Action, wall_ns: int, *, hosts: int) -> str:
        """Return which limit would hold a person back now; "" where none does."""
        return self._full(action.remedy, wall_ns, hosts)

    def begin(self, action_id: str, by: str, wall_ns: int, *, hosts: int) -> Action | str:
        """Return the action that a person wants to be done now, or why it is not.

        The breaker holds nobody back who looked.
        """
        incident = action_id.rpartition("-")[0]
        action = next((each for each in self.offers(incident) if each.id == action_id), None)
        if action is None:
            return "there is no such action, or its incident is over"
        if action_id in self._begun:
            return "it was begun before"
        if not self.limits.can(action.remedy.verb):
            return "no command is configured that does it (actions.cordon_command)"
        if held := self._full(action.remedy, wall_ns, hosts):
            return held
        self._start(action, wall_ns, by)
        return action

    def ended(self, action: Action, problem: str, wall_ns: int) -> None:
        """Take how an action ended; `problem` is "" where it was done."""
        running = self._running.get(action.id)
        if running is None:
            return
        if problem:
            del self._running[action.id]
            self._note(wall_ns, action, Step.FAILED, problem)
            why = f"{action.remedy.verb} on {action.remedy.host} failed: {problem}"
            self._open(why, wall_ns)
            return
        running.ended_ns = wall_ns
        self._note(wall_ns, action, Step.DONE)
        self._undoable(action)
        if not _heals(action.remedy.verb):
            del self._running[action.id]
        elif action.incident not in self._cases:
            self._recovered(action.incident, wall_ns)

    def refused(self, action: Action, why: str, wall_ns: int) -> None:
        """Take that nothing was done, since who owns the host does not want it or it cannot."""
        if action.id in self._running:
            self._forget_start(action)
            self._note(wall_ns, action, Step.REFUSED, why)

    def undo(self, action_id: str) -> Action | None:
        """Return the action whose `undo` is to be done now; None where there is none to undo."""
        return self._done.get(action_id)

    def undone(self, action: Action, by: str, problem: str, wall_ns: int) -> None:
        """Take how undoing went."""
        if problem:
            self._note(wall_ns, action, Step.NOT_UNDONE, problem, by)
            return
        self._done.pop(action.id, None)
        self._running.pop(action.id, None)
        self._note(wall_ns, action, Step.UNDONE, by=by)

    def close(self, by: str, wall_ns: int, why: str = "") -> None:
        """Close the breaker: a person looked, and says why."""
        if self.opened:
            self._note(wall_ns, None, Step.CLOSED, why, by)
        self.opened = ""

    def deadline_ns(self) -> int | None:
        """Return when to step again even if nothing comes."""
        due = [
            case.confirmed_ns + CONFIRM_NS
            for case in self._cases.values()
            if case.confirmed_ns is not None
            and not case.proposed
            and case.incident.unobserved_ns is None
        ]
        due += [r.ended_ns + HELP_NS for r in self._running.values() if r.ended_ns is not None]
        return min(due, default=None)

    def _actions(self, incident: Incident) -> Sequence[Action]:
        verdict = incident.verdict
        limits = self.limits
        found = remedies(verdict, bridge_of=self.bridge_of, cordon=limits.cordon, port=limits.port)
        return [
            Action(_id_of(incident.id, each), incident.id, each, verdict.summary[:MOST_WHY])
            for each in found
        ]

    def _proposed(self, incident: Incident, wall_ns: int, hosts: int) -> Iterable[Action]:
        for action in self._actions(incident):
            remedy = action.remedy
            if action.id in self._proposed_ids or action.id in self._begun:
                continue
            _remember(self._proposed_ids, action.id)
            if not self.limits.permits(remedy.verb):
                self._note(wall_ns, action, Step.ADVISED, remedy.command)
            elif self.opened:
                self._note(wall_ns, action, Step.HELD, f"the breaker is open: {self.opened}")
            elif held := self._full(remedy, wall_ns, hosts):
                self._note(wall_ns, action, Step.HELD, held)
            else:
                self._start(action, wall_ns)
                yield action

    def _start(self, action: Action, wall_ns: int, by: str = "netagent") -> None:
        _remember(self._begun, action.id)
        self._starts.append((wall_ns, action.remedy.host))
        self._running[action.id] = _Running(action, wall_ns)
        self._note(wall_ns, action, Step.STARTED, action.remedy.command, by)

    def _forget_start(self, action: Action) -> None:
        """Undo `_start`: nothing was done, so it may be tried again, by a person."""
        running = self._running.pop(action.id, None)
        self._begun.pop(action.id, None)
        if running is not None:
            with suppress(ValueError):
                self._starts.remove((running.started_ns, action.remedy.host))

    def _undoable(self, action: Action) -> None:
        if action.remedy.undo:
            self._done[action.id] = action
            while len(self._done) > TRAIL:
                del self._done[next(iter(self._done))]

    def _full(self, remedy: Remedy, wall_ns: int, hosts: int) -> str:
        """Return which limit holds it back now; "" where none does."""
        while self._starts and self._starts[0][0] <= wall_ns - HOUR_NS:
            self._starts.popleft()
        if len(self._starts) >= self.limits.per_hour:
            limit = f"{self.limits.per_hour} at most ([actions] per_hour)"
            return f"{len(self._starts)} actions in the last hour, {limit}"
        touched = {host for _, host in self._starts} | {remedy.host}
        most = max(1, int(self.limits.share * hosts))
        if len(touched) > most:
            done = f"something was done on {len(touched) - 1} of {hosts} hosts in the last hour"
            return f"{done}, {most} at most ([actions] share)"
        return ""

    def _judge(self, wall_ns: int) -> None:
        """Say of what was done whether it helped in its time."""
        for running in list(self._running.values()):
            if running.ended_ns is not None and wall_ns - running.ended_ns >= HELP_NS:
                del self._running[running.action.id]
                self._note(wall_ns, running.action, Step.DID_NOT_HELP)
                remedy = running.action.remedy
                self._open(f"{remedy.verb} on {remedy.host} did not help", wall_ns)

    def _recovered(self, incident: str, wall_ns: int) -> None:
        for running in list(self._running.values()):
            if running.action.incident == incident and running.ended_ns is not None:
                del self._running[running.action.id]
                self._note(wall_ns, running.action, Step.HELPED)

    def _open(self, why: str, wall_ns: int) -> None:
        if not self.opened:
            self.opened = why
            self._note(wall_ns, None, Step.OPENED, why)

    def _note(
        self, wall_ns: int, action: Action | None, step: Step, text: str = "", by: str = "netagent"
    ) -> None:
        entry = Entry(wall_ns, action, step, text, by)
        self.trail.append(entry)
        self.news.append(entry)
        if action is not None:
            self.counts[action.remedy.verb, step] += 1


def _heals(verb: Verb) -> bool:
    """Return whether an incident may be over by a verb: else nobody waits for that."""
    return verb is not Verb.DISABLE_PORT


def _id_of(incident: str, remedy: Remedy) -> str:
    """Return the same name for the same remedy of an incident, whenever it is asked for."""
    what = f"{remedy.verb} {remedy.host} {remedy.object}"
    return f"{incident}-{zlib.crc32(what.encode()):08x}"


def _remember(ids: dict[str, None], action_id: str) -> None:
    ids[action_id] = None
    while len(ids) > PROPOSED:
        del ids[next(iter(ids))]
