# SPDX-License-Identifier: Apache-2.0
"""Kill -9 of agents, analyzer, their helpers and Open vSwitch's daemons, again and again.

On a running lab. An agent may also get no more memory for a while, a host's or the analyzer's
certificate may end, and, where that is asked for, the machine's clock is set. At some kills the
analyzer's disk is full. After each kill the victim is started again, as a service manager would; a
helper is its parent's business. Then everything must recover: the analyzer has a window of every
agent that began after the restart, all endpoints are up, every incident is over, no host states a
finding, and the judge has judged a window since. Nobody may be blamed on the way but those hosts of
which something was killed, and what is on them. In the end a link is cut, and must be named: a
judge that names nobody has judged nothing before.

At the end the analyzer's database must hold every window that an agent said was acknowledged, and
every one that it said it had closed between two of these, but for those in which it was dead:
agents ship the oldest of the newest two minutes first, and no outage here is longer, so all of
these were acknowledged. Each is read and decoded. Where the clock was set, that holds on each side
of it; where the disk was full, a host's oldest windows may have been deleted, of those that began
before it had room again.
"""

import math
import os
import random
import resource
import signal
import statistics
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import httpx
from prometheus_client import parser

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode
from netagent.wire.messages import Summary
from tests.lab.audit import Stretch, is_innocent, missing
from tests.lab.certs import ANALYZER
from tests.lab.commands import wait_for
from tests.lab.config import ANALYZER_URL, agent_url
from tests.lab.errors import LabError
from tests.lab.health import CONTROL
from tests.lab.lab import Lab
from tests.lab.processes import children, family
from tests.lab.shape import Shape

SETTLE_S = 20.0
RECOVER_S = 60.0
POLL_S = 0.25
KINDS = ("agent", "analyzer", "vswitchd", "ovsdb", "helper", "memory", "certificate")
SELDOM = {"memory": 0.25}
"""Kind -> how often it is drawn, against the others: most of these take a minute each."""
VALID_S = 15.0
"""For which a certificate that is to end is valid: an agent takes it within ten."""
WATCHDOG_S = 60.0
"""As in the agent's unit: who gives no sign of life for so long is started again."""
STEP_S = (60.0, 300.0)
FARTHEST_S = 900.0
"""By which the clock is set away from the time at most."""
FULL = "analyzer-disk-full"
DISK = "(disk full)"
FULL_SHARE = 0.1
"""Share of the kills at which the analyzer's disk is full."""
UNDECIDED = "insufficient evidence"
STALE_S = 5.0
"""Seconds after which what the judge said last does not show that it lives."""
Say = Callable[[str], None]
T = TypeVar("T")


class Victim(NamedTuple):
    """What is killed, and on which host; None where it is of no host."""

    kind: str
    host: str | None

    def __str__(self) -> str:
        """Return it as text."""
        return " ".join(filter(None, self))


@dataclass(slots=True)
class Report:
    """What was seen over all kills."""

    kills: Counter[str] = field(default_factory=Counter)
    recovered_s: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    incidents: Counter[str] = field(default_factory=Counter)
    """Incidents that opened, by layer and kind of component."""
    windows: int = 0
    """Windows that had to be in the database."""
    freed: int = 0
    """Of those that are not, how many were a host's oldest, when the disk had been full."""
    lost: int = 0
    named_s: float | None = None
    """Seconds until the link was named that was cut in the end; None where it was not."""

    @property
    def good(self) -> bool:
        """Whether everything held, and there was something that could have been lost."""
        return not (self.failures or self.lost or self.named_s is None) and self.windows > 0

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        full = self.kills[DISK]
        made = [f"kills: {self.kills.total() - full}; times at which the disk was full: {full}"]
        for victim in KINDS if "clock" not in self.kills else (*KINDS, "clock"):
            times = sorted(self.recovered_s.get(victim, []))
            told = f"  {victim:<11} {self.kills[victim]:>3} times"
            if times:
                middle, worst = statistics.median(times), times[-1]
                told += f"; all well again after {middle:.0f} s (median), {worst:.0f} s (longest)"
            made.append(told)
        made.append("incidents that opened and recovered, by component:")
        made += [f"  {name}: {count}" for name, count in sorted(self.incidents.items())]
        made.append(
            f"summaries that had to be there: {self.windows}, deleted to make room: {self.freed}, "
            f"there: {self.windows - self.freed - self.lost}, lost: {self.lost}"
        )
        named = "NOT named" if self.named_s is None else f"named after {self.named_s:.0f} s"
        made.append(f"a link that was cut in the end was {named}")
        made += [f"FAILED: {failure}" for failure in self.failures]
        made.append("result: " + ("everything held" if self.good else "NOT everything held"))
        return made


class Chaos:
    """Kills, restarts, and watches."""

    def __init__(
        self,
        lab: Lab,
        say: Say,
        *,
        seed: int,
        sets_clock: bool = False,
        recover_s: float = RECOVER_S,
    ) -> None:
        self._lab, self._say, self._recover_s = lab, say, recover_s
        self._kinds = (*KINDS, "clock") if sets_clock else KINDS
        self._off_s = 0.0
        """By how much the clock was set in all."""
        self._stretches = [Stretch(0)]
        self._is_full = False
        """Whether the analyzer's disk is full now."""
        self._parties: dict[Victim, str] = {}
        """Whose certificate ends."""
        self._chance = random.Random(seed)
        self._hosts = [f"h{n}" for n in range(lab.state().shape.hosts)]
        self._seen: set[str] = set()
        self._touched: set[str] = set()
        """Hosts of which something was killed last, and the analyzer, which is in no component."""
        self._guilty = ""
        """The link that was cut."""
        self._containers = {each.id: f"h{each.host}" for each in lab.state().containers}
        self._restarted_ns = 0
        self._unwell = list[str]()
        """What was last waited for."""
        self._hung_s = 0.0
        """When who was kept short of memory, and gives no sign of life, is started again."""
        self.report = Report()

    def run(self, kills: int, minutes: float, together: int) -> None:
        """Kill `kills` times, `together` at once; or as often as can be in so many minutes."""
        self._watch(SETTLE_S, until=lambda: False)
        until = time.monotonic() + minutes * 60
        done = 0
        while done < kills and time.monotonic() < until:
            victims = self._draw(min(together, kills - done))
            if self._chance.random() < FULL_SHARE:
                self._lab.inject(FULL)
                self._is_full = True
                self.report.kills[DISK] += 1
                self._stretches[-1].full_until_ns = time.time_ns()
            self._watch(self._chance.uniform(0, 5), until=lambda: False)
            done += self._episode(victims, f"{done:>3}/{kills}")
        self._cut()

    def _cut(self) -> None:
        began = time.monotonic()
        fault = self._lab.inject(CONTROL)
        self._guilty, self._touched = fault.truth.component, set()
        try:
            if self._watch(self._recover_s, until=lambda: self._guilty in self._active()):
                self.report.named_s = time.monotonic() - began
        finally:
            self._lab.heal(fault.key)
        self._restarted_ns = time.time_ns()
        if not self._watch(self._recover_s, until=self._all_well):
            self.report.failures.append(f"a link that is mended: {'; '.join(self._unwell)}")

    def _active(self) -> set[str]:
        return {str(each["component"]) for each in self._incidents() if _is_active(each)}

    def _draw(self, count: int) -> list[Victim]:
        # An agent, its helpers and certificate, ovs-vswitchd and ovsdb-server; and an analyzer.
        count = min(count, 5 * len(self._hosts) + 1)
        victims: dict[str, Victim] = {}
        while len(victims) < count:
            (kind,) = self._chance.choices(self._kinds, [SELDOM.get(k, 1) for k in self._kinds])
            of_host = kind not in {"analyzer", "clock"}
            victim = Victim(kind, self._chance.choice(self._hosts) if of_host else None)
            # One agent cannot be killed and kept short of memory.
            victims.setdefault(str(victim).replace("memory", "agent"), victim)
        return list(victims.values())

    def _episode(self, drawn: list[Victim], number: str) -> int:
        killed_ns, began = time.time_ns(), time.monotonic()
        self._touched = set()
        victims = [victim for victim in drawn if self._kill(victim)]
        self._watch(self._chance.uniform(0.2, 4), until=lambda: False)
        self._lab.heal()
        if self._is_full:
            self._is_full = False
            self._stretches[-1].full_until_ns = time.time_ns()
        for victim in victims:
            if victim.kind == "memory":
                self._unbound(victim)
                self._was_dead(victim, killed_ns)
        self._hung_s = time.monotonic() + WATCHDOG_S
        for victim in sorted(victims, key=_order):
            if self._mend(victim):
                self._was_dead(victim, killed_ns)
            self._restarted_ns = time.time_ns()
        well = self._watch(self._recover_s, until=self._all_well)
        took = time.monotonic() - began
        names = ", ".join(map(str, victims))
        self._say(f"{number} {names:<12} {'' if well else 'NOT '}well again after {took:.1f} s")
        for victim in victims:
            self.report.kills[victim.kind] += 1
            if well:
                self.report.recovered_s.setdefault(victim.kind, []).append(took)
        if not well:
            left = f"not well in {self._recover_s:g} s: {'; '.join(self._unwell)}"
            self.report.failures.append(f"kill {number} ({names}): {left}")
        return len(victims)

    def _kill(self, victim: Victim) -> bool:
        """Do it; return False where there is nobody to kill."""
        kind, host = victim
        whose = host or ANALYZER
        match kind:
            case "helper":
                whose = self._chance.choice((whose, ANALYZER))
                if not self._kill_helper(f"{whose}/{ANALYZER if whose == ANALYZER else 'agent'}"):
                    return False
            case "memory":
                _bound_memory(self._lab.processes.pid(f"{host}/agent"))
            case "certificate":
                self._parties[victim] = whose = self._chance.choice((whose, ANALYZER))
                self._lab.services().certificates.sign(whose, valid_s=VALID_S)
            case "clock":
                self._set_clock()
            case _:
                daemons = {"vswitchd": "ovs-vswitchd", "ovsdb": "ovsdb-server"}
                name = f"{host or kind}/{daemons.get(kind, kind)}"
                self._lab.processes.signal(name, signal.SIGKILL)
        self._touched.add(whose)
        return True

    def _was_dead(self, victim: Victim, since_ns: int) -> None:
        if victim.host is not None:
            stretch, now_ns = self._stretches[-1], time.time_ns()
            began_ns = since_ns if since_ns <= now_ns else stretch.began_ns
            stretch.dead.setdefault(victim.host, []).append((began_ns, now_ns))

    def _mend(self, victim: Victim) -> bool:
        """Do it; return whether an agent was started again."""
        kind, host = victim
        match kind:
            case "helper" | "clock":
                pass
            case "memory":
                url, left_s = (
                    agent_url(self._hosts.index(host or "")),
                    self._hung_s - time.monotonic(),
                )
                # Python waits for ever for a thread that had no memory to begin.
                if not self._watch(left_s, until=lambda: self._get(url, "/v1/status")):
                    self._lab.restart("agent", host)
                    return True
            case "certificate":
                self._watch(VALID_S, until=lambda: False)
                self._lab.services().certificates.sign(self._parties.pop(victim))
            case _:
                self._lab.restart(kind, host)
        return kind == "agent"

    def _unbound(self, victim: Victim) -> None:
        pid = self._lab.processes.pid(f"{victim.host}/agent")
        if pid is not None:
            resource.prlimit(pid, resource.RLIMIT_DATA, _UNBOUNDED)

    def _set_clock(self) -> None:
        step_s = self._chance.uniform(*STEP_S) * self._chance.choice((-1, 1))
        if abs(self._off_s + step_s) > FARTHEST_S:
            step_s = -step_s
        self._off_s += step_s
        time.clock_settime(time.CLOCK_REALTIME, time.time() + step_s)
        self._stretches.append(Stretch(time.time_ns()))
        self._say(f"the clock was set by {step_s:+.0f} s")

    def _kill_helper(self, parent: str) -> bool:
        """Kill one of the processes that another one started, if it has any now."""
        pid = self._lab.processes.pid(parent)
        _, *helpers = family(pid, children()) if pid is not None else (0,)
        if helpers:
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(helpers), signal.SIGKILL)
        return bool(helpers)

    def _watch(self, seconds: float, *, until: Callable[[], object]) -> bool:
        # Collect what agents say was acknowledged, and what incidents open, all the time.
        deadline = time.monotonic() + seconds
        while True:
            self._look()
            if until():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)  # polling remote states, with a bound

    def _look(self) -> None:
        for number, host in enumerate(self._hosts):
            status = self._get(agent_url(number), "/v1/status")
            if status:
                said = status["acknowledged_ns"], status["last_window_ns"]
                self._stretches[-1].note(host, *said, now_ns=time.time_ns())
        for each in self._incidents():
            component = each["component"] or UNDECIDED
            key = f"{each['id']} {component}"
            if key not in self._seen:
                self._seen.add(key)
                self.report.incidents[component] += 1
                if component in {self._guilty, UNDECIDED}:
                    continue
                if is_innocent(component, self._containers, self._touched):
                    self.report.failures.append(f"{component} was blamed: {each['summary']}")

    def _incidents(self) -> list[dict[str, Any]]:
        answer = self._get(ANALYZER_URL, "/v1/incidents")
        return list(answer["incidents"]) if answer else []

    def _all_well(self) -> bool:
        self._unwell = self._what_is_not_well()
        return not self._unwell

    def _what_is_not_well(self) -> list[str]:
        answer = self._get(ANALYZER_URL, "/v1/incidents")
        endpoints = self._get(ANALYZER_URL, "/v1/endpoints")
        agents = [self._get(agent_url(n), "/v1/status") for n in range(len(self._hosts))]
        if answer is None or endpoints is None:
            return ["the analyzer does not answer"]
        active = filter(_is_active, answer["incidents"])
        found = [f"incident: {each['summary']}" for each in active]
        state = self._lab.state()
        wanted = len(state.containers) * state.shape.rails
        up = sum(each["state"] == "up" for each in endpoints["endpoints"])
        if up != wanted:
            found.append(f"{up} of {wanted} endpoints are up")
        for host, agent in zip(self._hosts, agents, strict=True):
            if not agent:
                found.append(f"the agent of {host} does not answer")
            elif agent["findings"]:
                found.append(f"{host} states findings")
            elif not self._restarted_ns < agent["acknowledged_ns"] <= time.time_ns():
                found.append(f"no new window of {host} is acknowledged")
        if not found and not self._has_judged():
            found.append("the judge has judged no new window")
        return found

    def _has_judged(self) -> bool:
        """Return whether the judge answers, and has judged a window since the last restart."""
        text = self._ask(ANALYZER_URL, "/metrics", lambda answer: answer.text)
        families = {
            each.name: each.samples for each in parser.text_string_to_metric_families(text or "")
        }
        ages = [families.get(f"netagent_{name}_age_seconds") for name in ("window", "figures")]
        if not all(ages):
            return False
        judged_s, answered_s = (samples[0].value for samples in ages if samples)
        return answered_s < STALE_S and time.time() - judged_s > self._restarted_ns / 1e9

    def _get(self, url: str, path: str) -> dict[str, Any] | None:
        return self._ask(url, path, lambda answer: dict(answer.json()))

    def _ask(self, url: str, path: str, read: Callable[[httpx.Response], T]) -> T | None:
        try:
            with self._lab.services().client(url) as client:
                answer = client.get(path)
                return read(answer) if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None

    def audit(self) -> None:
        """Compare what was acknowledged with the analyzer's database, once it is stopped."""
        database = self._lab.directory / "analyzer" / "netagent.duckdb"
        with duckdb.connect(str(database), read_only=True) as connection:
            rows = connection.execute("SELECT segment, place, bytes FROM windows").fetchall()
        read = (_stored(Path(f"{database}.summaries"), *row) for row in rows)
        kept = [(each.host, each.start_ns) for each in read if each is not None]
        found = missing(self._stretches, kept)
        self.report.windows, self.report.freed = found.wanted, found.freed
        self.report.lost = len(found.lost)
        newest = found.lost[-20:]
        self.report.failures += [f"window {start} of {host} is lost" for host, start in newest]


def _stored(folder: Path, segment: int, place: int, length: int) -> Summary | None:
    """Return a summary as the analyzer stored it (docs/operating.md); None where it is damaged."""
    try:
        with (folder / f"{segment:010d}.segment").open("rb") as file:
            file.seek(place)
            head, payload = file.read(8), file.read(length)
        is_whole = head == struct.pack("<II", length, zlib.crc32(payload))
        return decode(payload, Summary) if is_whole else None
    except (OSError, RemoteProtocolError):
        return None


def _is_active(incident: Mapping[str, Any]) -> bool:
    return bool(incident["state"] != "recovered")


_UNBOUNDED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def _order(victim: Victim) -> int:
    """Return who is mended first.

    Who is started again is waited for, which takes a certificate that has not ended; and an
    ovs-vswitchd does not start without its database.
    """
    return {"certificate": -2, "ovsdb": -1}.get(victim.kind, 0)


def _bound_memory(pid: int | None) -> None:
    """Let a process have no more memory than it has now."""
    if pid is None:
        return
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (data,) = (line.split()[1] for line in lines if line.startswith("VmData:"))
    resource.prlimit(pid, resource.RLIMIT_DATA, (int(data) * 1024, resource.RLIM_INFINITY))


def run(
    lab: Lab,
    say: Say,
    *,
    kills: int = 50,
    minutes: float = math.inf,
    together: int = 1,
    seed: int = 1,
    sets_clock: bool = False,
    hosts: int = Shape().hosts,
    recover_s: float = RECOVER_S,
) -> Report:
    """Run on a fresh lab, which is taken down after; return what was seen."""
    lab.up(Shape(hosts=hosts))
    try:
        chaos = Chaos(lab, say, seed=seed, sets_clock=sets_clock, recover_s=recover_s)
        try:
            chaos.run(kills, minutes, together)
        except LabError as error:  # what was acknowledged before must be there all the same
            chaos.report.failures.append(str(error))
        if lab.processes.pid("analyzer/analyzer") is not None:
            lab.processes.signal("analyzer/analyzer", signal.SIGTERM)
        wait_for(
            "the analyzer to stop",
            lambda: lab.processes.pid("analyzer/analyzer") is None,
            timeout_s=10,
        )
        chaos.audit()
    finally:
        lab.down()
    return chaos.report
