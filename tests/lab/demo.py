# SPDX-License-Identifier: Apache-2.0
"""The demo: break a living network in several ways and see what netagent says.

The analyzer is asked as any user would ask it, over its API; what was injected is known here only.
"""

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from tests.lab import cms
from tests.lab.errors import LabError
from tests.lab.lab import Bursts, Lab
from tests.lab.shape import Controller, Shape, Transport, Tunnel
from tests.lab.state import Fault
from tests.lab.targets import endpoint_of
from tests.lab.workload import DEFAULT_TASKS

FAULTS = {
    Transport.UDP: (
        "link-loss",
        "spine-down",
        "rnic-down",
        "flow-deleted",
        "flow-loop",
        "wrong-tunnel-remote",
        "container-crash",
        "agent-killed",
    ),
    Transport.RDMA: (
        "link-loss",
        "rdma-port-down",
        "gid-change",
        "flow-deleted",
        "rdma-drop",
        "link-delay",
        "agent-killed",
    ),
}
ON_OVN = (
    "link-loss", "rnic-down", "container-crash", "flow-lost", "port-unbound", "port-misplaced",
    "controller-gone", "tunnel-address-wrong", "address-refused", "policy-drop", "port-disabled",
    "port-contested", "controller-frozen", "controller-cut-off", "tunnel-address-taken",
    "translation-stale", "ghost-chassis",
)  # fmt: skip
"""Faults where OVN drives the virtual switches."""
INTENDED = {"policy-drop": "ACL quarantine", "port-disabled": "logical port {}, which is disabled"}
"""What is no fault, though packets are lost -> who refuses them, as a diagnosis on demand says."""
NOTED = frozenset({"ghost-chassis"})
"""What costs nobody anything, now or later: a finding names it, and no incident."""
LASTING_S = dict.fromkeys(
    ("controller-frozen", "controller-cut-off", "tunnel-address-taken", "translation-stale"), 150.0
) | {"ghost-chassis": 360.0, "port-contested": 90.0}
"""Seconds more for what costs no probe, or a part of them: it is told once it has lasted."""
SPARED_S = 150.0
"""Seconds for which nobody may be named where somebody intends what is lost. Chosen: longer than
what differs from a controller has to last before anybody is named for it."""
OUTPUT_OVN = "build/demo-ovn.json"
OUTPUT = {Transport.UDP: "build/demo.json", Transport.RDMA: "build/demo-rdma.json"}
SHAPES = {
    Transport.UDP: Shape(),
    # Emulated, a guest has the strength of one small host.
    Transport.RDMA: Shape(rails=1, transport=Transport.RDMA),
}
TASKS = {Transport.UDP: DEFAULT_TASKS, Transport.RDMA: DEFAULT_TASKS[:1]}
TRAFFIC = {Transport.UDP: Bursts(), Transport.RDMA: None}
HEALTHY_S = 60.0
SETTLE_S = {Transport.UDP: 20.0, Transport.RDMA: 60.0}
"""Endpoints are judged only after their first whole windows; an emulated guest is slow to start."""
FIND_WITHIN_S = {Transport.UDP: 10.0, Transport.RDMA: 20.0}
"""An emulated guest has few endpoints, hence few probes to count: a second window decides."""
FIND_SLOW_LATER_S = 10.0
"""More for latency: it is judged against what was learned, and by two windows."""
SLOW = frozenset({"link-delay", "slow-link"})
FIND_GONE_LATER_S = 3.0
"""More for an agent: one that begins anew is back within a window, so that two have to pass."""
GONE = frozenset({"agent-killed"})
GIVE_UP_AFTER_S = 10.0
"""Seconds beyond the deadline: an answer that comes too late is shown, too."""
PATIENT_S = 60.0
"""The same for tests, which ask who is named, and not when: other work may keep a machine busy."""
RECOVER_WITHIN_S = {Transport.UDP: 15.0, Transport.RDMA: 40.0}
"""Healed, that is; an emulated guest takes ten seconds to start an agent."""
RECOVER_RARE_LATER_S = 50.0
"""More where a window loses few probes: several without a loss must pass, a minute at most
(`analyzer.diagnosis.incidents.MOST_CLEAN`)."""
RARE = frozenset({"link-loss"})
POLL_S = 0.2
WINDOW_S = 5.0
Say = Callable[[str], None]


def find_within_s(fault: str, transport: Transport) -> float:
    """Return how many seconds netagent has to name what a fault broke."""
    later_s = FIND_SLOW_LATER_S if fault in SLOW else FIND_GONE_LATER_S if fault in GONE else 0
    return FIND_WITHIN_S[transport] + later_s + LASTING_S.get(fault, 0)


def recover_within_s(fault: str, transport: Transport) -> float:
    """Return how many seconds netagent has to tell that a healed fault is over."""
    return RECOVER_WITHIN_S[transport] + (RECOVER_RARE_LATER_S if fault in RARE else 0)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one fault. Times are seconds from the injection, or from the healing."""

    fault: str
    truth: tuple[str, str]
    """Layer and component."""
    verdict: tuple[str, str, float] | None = None
    """Layer, component and confidence; None where nothing was said in time."""
    detected_s: float | None = None
    localized_s: float | None = None
    recovered_s: float | None = None
    others: tuple[str, ...] = ()
    """Components of further incidents that opened meanwhile, and names that were taken back."""
    transport: Transport = Transport.UDP

    @property
    def right(self) -> bool:
        """Whether the verdict is the truth, in time, alone, and over when it was healed."""
        return (
            self.verdict is not None
            and self.verdict[:2] == self.truth
            and self.localized_s is not None
            and self.localized_s <= find_within_s(self.fault, self.transport)
            and self.over
            and not self.others
        )

    @property
    def over(self) -> bool:
        """Whether the incident ended in time when the fault was healed."""
        limit_s = recover_within_s(self.fault, self.transport)
        return self.recovered_s is not None and self.recovered_s <= limit_s

    def plain(self) -> dict[str, Any]:
        """Return the JSON form."""
        verdict = self.verdict or ("", "", 0.0)
        return {
            "fault": self.fault,
            "truth": {"layer": self.truth[0], "component": self.truth[1]},
            "verdict": {
                "layer": verdict[0],
                "component": verdict[1],
                "confidence": verdict[2],
            },
            "detected_s": self.detected_s,
            "localized_s": self.localized_s,
            "recovered_s": self.recovered_s,
            "others": list(self.others),
        }


@dataclass(slots=True)
class Observer:
    """Reads the analyzer's incidents."""

    client: httpx.Client
    known: dict[str, object] = field(default_factory=dict)
    """Id of an incident -> the component that it named."""

    def incidents(self) -> list[dict[str, Any]]:
        """Return every incident, oldest first; an analyzer that is busy is asked again."""
        return self._all("incidents")

    def windows(self) -> list[int]:
        """Return the start of each host's newest window that was taken."""
        newest = (agent["window_ns"] for agent in self._all("agents"))
        return [start_ns for start_ns in newest if start_ns is not None]

    def status(self) -> dict[str, Any]:
        """Return what the analyzer says of itself, and of its judge."""
        return self._get("status")

    def written(self) -> int:
        """Return how many files of history its judge wrote: it closed the windows in them."""
        return int(self._get("history/counts")["files_written"])

    def findings(self) -> list[dict[str, Any]]:
        """Return what is stated, by hosts and beside what a controller says."""
        return self._all("findings")

    def verdict(self, job: str) -> dict[str, Any] | None:
        """Return the newest verdict about a job; None where there is none, or nobody answers."""
        try:
            answer = self.client.get(f"/v1/operators/{job}")
        except httpx.HTTPError:
            return None
        found: dict[str, Any] | None = answer.json()["verdict"] if answer.is_success else None
        return found

    def endpoints_up(self) -> int:
        """Return how many endpoints are registered and up."""
        return sum(each["state"] == "up" for each in self._all("endpoints"))

    def webhooks(self) -> list[dict[str, Any]]:
        """Return how it stands with each receiver of events."""
        return self._all("webhooks")

    def _all(self, what: str) -> list[dict[str, Any]]:
        return list(self._get(what)[what])

    def _get(self, what: str) -> dict[str, Any]:
        for _ in range(10):
            try:
                answer = self.client.get(f"/v1/{what}")
                answer.raise_for_status()
                return dict(answer.json())
            except httpx.HTTPError:
                time.sleep(POLL_S)  # a poll of a remote state, with a bound
        raise LabError(f"the analyzer does not answer /v1/{what}", "see its log")

    def new(self) -> list[dict[str, Any]]:
        """Return incidents that opened since `remember`, or name somebody else since."""
        return self._unknown(self.incidents())

    def remember(self) -> list[dict[str, Any]]:
        """Take all incidents so far as known; return those that were new."""
        incidents = self.incidents()
        new = self._unknown(incidents)
        self.known = {each["id"]: each["component"] for each in incidents}
        return new

    def _unknown(self, incidents: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            each
            for each in incidents
            if each["id"] not in self.known or each["component"] != self.known[each["id"]]
        ]

    def wait(self, reached: Callable[[], Any], *, timeout_s: float) -> Any:
        """Poll until `reached()` is true or time is up; return its last value."""
        deadline = time.monotonic() + timeout_s
        while not (value := reached()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return value


def run(
    lab: Lab,
    say: Say,
    *,
    transport: Transport = Transport.UDP,
    faults: Sequence[str] = (),
    healthy_s: float = HEALTHY_S,
    output: Path | None = None,
    on_ovn: bool = False,
) -> bool:
    """Run the demo on a fresh lab; return whether all was right. The lab is taken down after.

    Without `faults` and `output`, they are the transport's, or OVN's.
    """
    faults = faults or (ON_OVN if on_ovn else FAULTS[transport])
    output = output or Path(OUTPUT_OVN if on_ovn else OUTPUT[transport])
    shape = SHAPES[transport]
    if on_ovn:
        shape = replace(shape, controller=Controller.OVN, encapsulation=Tunnel.GENEVE)
    lab.up(shape, tasks=TASKS[transport], traffic=TRAFFIC[transport])
    try:
        with lab.services().client() as client:
            observer = Observer(client)
            healthy = _watch_health(observer, say, SETTLE_S[transport], healthy_s)
            found = [
                _spare(lab, observer, name, say)
                if name in INTENDED
                else _note(lab, observer, name, say)
                if name in NOTED
                else _try(lab, observer, name, say, transport)
                for name in faults
            ]
            record(client, output.with_suffix(".recording"), say)
    finally:
        lab.down()
    output.parent.mkdir(exist_ok=True)
    document = {"healthy_incidents": healthy, "faults": [each.plain() for each in found]}
    output.write_text(json.dumps(document, indent=1) + "\n")
    say("")
    for line in table(found):
        say(line)
    right = sum(each.right for each in found)
    say(f"\n{right} of {len(found)} right; {healthy} incidents in {healthy_s:.0f} s of health")
    return right == len(found) and not healthy


def record(client: httpx.Client, to: Path, say: Say) -> None:
    """Write to a file what the analyzer was given, for its replay."""
    answer = client.get("/v1/recording", timeout=60)
    answer.raise_for_status()
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(answer.content)
    say(f"recorded: netagent-analyzer replay {to}")


def _watch_health(observer: Observer, say: Say, settle_s: float, healthy_s: float) -> int:
    say(f"letting endpoints settle ({settle_s:.0f} s), then watching {healthy_s:.0f} s of health")
    observer.wait(lambda: False, timeout_s=settle_s)
    observer.wait(observer.new, timeout_s=healthy_s)
    opened = observer.new()
    for each in opened:
        say(f"  unexpected: {each['component']}: {each['summary']}")
    observer.remember()
    return len(opened)


def _try(
    lab: Lab,
    observer: Observer,
    name: str,
    say: Say,
    transport: Transport = Transport.UDP,
    *,
    phase_s: float | None = None,
    later_s: float = GIVE_UP_AFTER_S,
    parameters: Mapping[str, float] = MappingProxyType({}),
) -> Found:
    # Faults do not wait for windows: inject at any moment of one, or at a given one.
    phase_s = random.uniform(0, WINDOW_S) if phase_s is None else phase_s
    observer.wait(lambda: False, timeout_s=(phase_s - time.time()) % WINDOW_S)
    observer.remember()
    began_ns = time.time_ns()
    fault = lab.inject(name, None, **parameters)
    say(f"{name}: injected at {fault.target}")
    truth = (fault.truth.layer, fault.truth.component)
    give_up_s = find_within_s(name, transport) + later_s
    accused: dict[str, None] = {}  # in order

    def look() -> list[dict[str, Any]]:
        # An operator acts on what is said first: a name that was taken back counts.
        new = observer.new()
        named = (each["component"] for each in new)
        accused.update(dict.fromkeys(str(who) for who in named if who not in {None, truth[1]}))
        return new

    first = observer.wait(lambda: _best(look(), fault), timeout_s=give_up_s)
    healed_ns = time.time_ns()
    lab.heal(fault.key)
    incident = first or next(iter(look()), None)
    if incident is None:
        say("  nothing found")
        return Found(name, truth, transport=transport)
    say(f"  {incident['component']} ({incident['confidence']:.2f}): {incident['summary']}")
    over = observer.wait(
        lambda: all(each["state"] == "recovered" for each in look()),
        timeout_s=recover_within_s(name, transport) + later_s,
    )
    after = {each["id"]: each for each in look()}
    mine = after.pop(incident["id"])
    others = dict.fromkeys(str(each["component"]) for each in after.values())
    for each in after.values():
        say(f"  also {each['component']} ({each['confidence']:.2f}): {each['summary']}")
    for other in accused:
        if other not in {*others, mine["component"]}:
            say(f"  also {other}, which was taken back")
            others[other] = None
    recovered_ns = max(e["recovered_ns"] for e in (mine, *after.values())) if over else None
    return Found(
        name,
        truth,
        (mine["layer"] or "", mine["component"] or "insufficient evidence", mine["confidence"]),
        _seconds(began_ns, mine["detected_ns"]),
        _seconds(began_ns, mine["localized_ns"]),
        _seconds(healed_ns, recovered_ns),
        tuple(others),
        transport,
    )


def _spare(lab: Lab, observer: Observer, name: str, say: Say) -> Found:
    """Have packets lost because somebody wants that: nobody may be named, and that be told."""
    observer.remember()
    fault = lab.inject(name)
    say(f"{name}: injected at {fault.target}")
    observer.wait(observer.new, timeout_s=SPARED_S)
    named = [str(each["component"]) for each in observer.new()]
    asked_ns = time.time_ns()
    question = {"source": "train-a-0/rail0", "target": fault.target}
    told = observer.client.post("/v1/diagnose", json=question, timeout=30).json()
    answered_ns = time.time_ns()
    lab.heal(fault.key)
    observer.wait(observer.new, timeout_s=3 * WINDOW_S)
    named += [str(each["component"]) for each in observer.new()]
    refused = {each["by"] for each in told["observations"] if each["action"] == "refused"}
    by = ", ".join(sorted(refused)) or "nobody refuses it"
    say(f"  {told['outcome']}: {told['text']}")
    endpoint = endpoint_of(fault.target, lab.state().shape)
    truth = "intended", INTENDED[name].format(cms.port(endpoint))
    for other in dict.fromkeys(named):
        say(f"  also {other}")
    took_s = _seconds(asked_ns, answered_ns)
    return Found(
        name, truth, (truth[0] if told["outcome"] == "refused" else "", by, 1.0), took_s, took_s,
        0.0, tuple(dict.fromkeys(named)),
    )  # fmt: skip


def _note(lab: Lab, observer: Observer, name: str, say: Say) -> Found:
    """Break what costs nobody anything: a finding has to name it, and nobody else be accused."""
    observer.remember()
    began_ns = time.time_ns()
    fault = lab.inject(name)
    say(f"{name}: injected at {fault.target}")
    truth = (fault.truth.layer, fault.truth.component)

    def told() -> list[dict[str, Any]]:
        return [each for each in observer.findings() if each["component"] == truth[1]]

    give_up_s = find_within_s(name, Transport.UDP) + GIVE_UP_AFTER_S
    found = observer.wait(told, timeout_s=give_up_s)
    found_ns = time.time_ns()
    lab.heal(fault.key)
    gone = observer.wait(lambda: not told(), timeout_s=recover_within_s(name, Transport.UDP))
    gone_ns = time.time_ns() if gone else None
    others = tuple(dict.fromkeys(str(each["component"]) for each in observer.new()))
    for other in others:
        say(f"  also {other}")
    if not found:
        say("  nothing found")
        return Found(name, truth, others=others)
    say(f"  a finding on {truth[1]}: {found[0]['text']}")
    took_s = _seconds(began_ns, found_ns)
    return Found(
        name, truth, (found[0]["layer"], truth[1], 1.0), took_s, took_s,
        _seconds(found_ns, gone_ns), others,
    )  # fmt: skip


def _best(incidents: list[dict[str, Any]], fault: Fault) -> dict[str, Any] | None:
    # Wait for the right answer; a wrong one is what counts if no right one comes.
    for incident in incidents:
        if incident["component"] == fault.truth.component:
            return incident
    return None


def _seconds(since_ns: int, at_ns: int | None) -> float | None:
    return round((at_ns - since_ns) / 1e9, 1) if at_ns is not None else None


def table(found: Sequence[Found]) -> list[str]:
    """Return a table for a terminal of 80 columns: truth and verdict of each fault."""
    lines = [f"{'fault':<19} {'':<8}{'component':<26} {'layer':<9} detect locate"]
    for each in found:
        said = each.verdict or ("", "nothing found", 0.0)
        times = [f"{s:.1f}s" if s is not None else "-" for s in (each.detected_s, each.localized_s)]
        lines.append(f"{each.fault:<19} {'truth':<8}{each.truth[1]:<26} {each.truth[0]}")
        mark = " ok" if each.right else " NO"
        row = f"{said[1]:<26} {said[0]:<9} {times[0]:>5} {times[1]:>6}{mark}"
        lines.append(f"{'':<19} {'verdict':<8}{row}")
        lines += [f"{'':<19} also:   {other}" for other in each.others]
        if not each.over:
            lines.append(f"{'':<19} recovered after {each.recovered_s} s")
    return lines
