# SPDX-License-Identifier: Apache-2.0
"""Kill -9 of agents, analyzer, their helpers and Open vSwitch's daemons, again and again.

On a running lab. At some kills the analyzer's disk is full. After each kill the victim is started
again, as a service manager would; a helper is its parent's business. Then everything must recover:
the analyzer has a window of every agent that began after the restart, all endpoints are up, every
incident is over and no host states a finding. No link and no switch may be blamed on the way.

At the end the analyzer's database must hold every window of every host from its first to the newest
that its agent said was acknowledged, but for those in which the agent was dead: agents ship oldest
first, so all of these were acknowledged.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb
import httpx

from tests.lab.commands import wait_for
from tests.lab.config import ANALYZER_URL, agent_url
from tests.lab.lab import Lab
from tests.lab.processes import children, family

SETTLE_S = 20.0
RECOVER_S = 60.0
POLL_S = 0.25
WINDOW_NS = 5_000_000_000
STARTING_NS = 2_000_000_000
"""An agent counts its first window once it has found its endpoints."""
UNDERLAY = "underlay"
VICTIMS = ("agent", "analyzer", "vswitchd", "ovsdb", "helper")
FULL = "analyzer-disk-full"
DISK = "(disk full)"
FULL_SHARE = 0.1
"""Share of the kills at which the analyzer's disk is full."""
Say = Callable[[str], None]


@dataclass(slots=True)
class Report:
    """What was seen over all kills."""

    kills: Counter[str] = field(default_factory=Counter)
    recovered_s: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    incidents: Counter[str] = field(default_factory=Counter)
    """Incidents that opened, by layer and kind of component."""
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    """Host -> window starts that its agent said were acknowledged."""
    dead: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Host -> from when to when its agent was dead, Unix ns."""
    windows: int = 0
    """Windows that had to be in the database."""
    lost: int = 0

    @property
    def good(self) -> bool:
        """Whether everything held."""
        return not self.failures and not self.lost

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        full = self.kills[DISK]
        made = [f"kills: {self.kills.total() - full}, {full} of them on a full disk"]
        for victim in sorted(self.kills.keys() - {DISK}):
            times = sorted(self.recovered_s.get(victim, []))
            middle = times[len(times) // 2] if times else float("nan")
            worst = times[-1] if times else float("nan")
            made.append(
                f"  {victim:<9} killed {self.kills[victim]:>2} times; all well again after "
                f"{middle:.0f} s (median), {worst:.0f} s (longest)"
            )
        made.append("incidents that opened and recovered, by component:")
        made += [f"  {name}: {count}" for name, count in sorted(self.incidents.items())]
        made.append(f"summaries acknowledged: {self.windows}, lost: {self.lost}")
        made += [f"FAILED: {failure}" for failure in self.failures]
        made.append("result: " + ("everything held" if self.good else "NOT everything held"))
        return made


class Chaos:
    """Kills, restarts, and watches."""

    def __init__(self, lab: Lab, say: Say, *, seed: int) -> None:
        self._lab, self._say = lab, say
        self._chance = random.Random(seed)
        self._hosts = [f"h{n}" for n in range(lab.state().shape.hosts)]
        self._seen: set[str] = set()
        self._restarted_ns = 0
        self.report = Report()

    def run(self, kills: int) -> None:
        """Kill `kills` times in a row."""
        self._watch(SETTLE_S, until=lambda: False)
        for number in range(1, kills + 1):
            victim = self._chance.choice(VICTIMS)
            host = None if victim == "analyzer" else self._chance.choice(self._hosts)
            if self._chance.random() < FULL_SHARE:
                self._lab.inject(FULL)
                self.report.kills[DISK] += 1
            self._watch(self._chance.uniform(0, 5), until=lambda: False)
            killed_ns = time.time_ns()
            self._kill(victim, host)
            began = time.monotonic()
            self._watch(self._chance.uniform(0.2, 4), until=lambda: False)
            self._lab.heal()
            if victim != "helper":
                self._lab.restart(victim, host)
            self._restarted_ns = time.time_ns()
            if victim == "agent" and host is not None:
                self.report.dead.setdefault(host, []).append((killed_ns, self._restarted_ns))
            well = self._watch(RECOVER_S, until=self._all_well)
            took = time.monotonic() - began
            name = " ".join(filter(None, (victim, host)))
            self._say(f"{number:>3}/{kills} {name:<12} well again after {took:.1f} s")
            self.report.kills[victim] += 1
            self.report.recovered_s.setdefault(victim, []).append(took)
            if not well:
                self.report.failures.append(f"kill {number} ({name}): not well in {RECOVER_S} s")

    def _kill(self, victim: str, host: str | None) -> None:
        if victim == "helper":
            self._kill_helper(self._chance.choice((f"{host}/agent", "analyzer/analyzer")))
            return
        daemons = {"vswitchd": "ovs-vswitchd", "ovsdb": "ovsdb-server"}
        name = f"{host or victim}/{daemons.get(victim, victim)}"
        self._lab.processes.signal(name, signal.SIGKILL)

    def _kill_helper(self, parent: str) -> None:
        """Kill one of the processes that another one started, if it has any now."""
        pid = self._lab.processes.pid(parent)
        _, *helpers = family(pid, children()) if pid is not None else (0,)
        if helpers:
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(helpers), signal.SIGKILL)

    def _watch(self, seconds: float, *, until: Callable[[], bool]) -> bool:
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
            if status and status["acknowledged_ns"]:
                known = self.report.acknowledged.setdefault(host, set())
                known.add(status["acknowledged_ns"])
        for each in self._incidents():
            component = each["component"] or "insufficient evidence"
            key = f"{each['id']} {component}"
            if key not in self._seen:
                self._seen.add(key)
                self.report.incidents[component] += 1
                if each["layer"] == UNDERLAY:
                    self.report.failures.append(f"{component} was blamed: {each['summary']}")

    def _incidents(self) -> list[dict[str, Any]]:
        answer = self._get(ANALYZER_URL, "/v1/incidents")
        return list(answer["incidents"]) if answer else []

    def _all_well(self) -> bool:
        answer = self._get(ANALYZER_URL, "/v1/incidents")
        endpoints = self._get(ANALYZER_URL, "/v1/endpoints")
        agents = [self._get(agent_url(n), "/v1/status") for n in range(len(self._hosts))]
        if answer is None or endpoints is None or not all(agents):
            return False
        state = self._lab.state()
        wanted = len(state.containers) * state.shape.rails
        up = sum(each["state"] == "up" for each in endpoints["endpoints"])
        over = all(each["state"] == "recovered" for each in answer["incidents"])
        return (
            over
            and up == wanted
            and all(
                not agent["findings"] and agent["acknowledged_ns"] > self._restarted_ns
                for agent in agents
                if agent
            )
        )

    def _get(self, url: str, path: str) -> dict[str, Any] | None:
        try:
            with self._lab.services().client(url) as client:
                answer = client.get(path)
                return dict(answer.json()) if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None

    def audit(self) -> None:
        """Compare what was acknowledged with the analyzer's database, once it is stopped."""
        database = self._lab.directory / "analyzer" / "netagent.duckdb"
        with duckdb.connect(str(database), read_only=True) as connection:
            rows = connection.execute("SELECT host, start_ns FROM windows").fetchall()
        have: dict[str, set[int]] = {}
        for host, start_ns in rows:
            have.setdefault(host, set()).add(start_ns)
        for host, known in self.report.acknowledged.items():
            wanted = _wanted(min(have[host]), max(known), self.report.dead.get(host, []))
            missing = wanted - have[host]
            self.report.windows += len(wanted)
            self.report.lost += len(missing)
            self.report.failures += [f"window {start} of {host} is lost" for start in missing]


def _wanted(first_ns: int, last_ns: int, dead: list[tuple[int, int]]) -> set[int]:
    # An agent that is killed takes the window it is counting with it.
    return {
        start
        for start in range(first_ns, last_ns + 1, WINDOW_NS)
        if not any(
            start < until + STARTING_NS and since < start + WINDOW_NS for since, until in dead
        )
    }


def run(lab: Lab, say: Say, *, kills: int = 50, seed: int = 1) -> Report:
    """Run on a fresh lab, which is taken down after; return what was seen."""
    lab.up()
    try:
        chaos = Chaos(lab, say, seed=seed)
        chaos.run(kills)
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
