# SPDX-License-Identifier: Apache-2.0
"""The operators demo: a real job over the real overlay, broken in known ways, and its logs.

Each fault lasts some steps after healthy ones. What was recorded meanwhile is written as a table
beside the truth, what was before as another one, and the analyzer is asked who holds the job up.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any

from tests.lab import recorded
from tests.lab.commands import run as command
from tests.lab.commands import wait_for
from tests.lab.demo import Say
from tests.lab.errors import LabError
from tests.lab.lab import Lab
from tests.lab.probing import Probes
from tests.lab.shape import Shape, namespace, rnic
from tests.lab.training import QUICK, Training, recorded_as
from tests.lab.wrong import NOTE

TASK = "train-a"
OUTPUT = Path("build/operators")
RINGS, PROBED = "operators", "probed"
DP, PP, TP = 2, 2, 2
HEALTHY_STEPS, WRONG_STEPS = 8, 10
"""Steps that are recorded before a fault, and with it. Chosen: more than detectors need (five)."""
SOME_STEPS = 80
"""Likewise, where only some of them are long. Chosen: what is lost is mostly sent again at once."""
STEP_LIMIT_S = 150.0
"""Seconds that the steps with a fault may take. Chosen: some times what they do take."""
HANG_S = 8.0
"""Seconds for which a job that hangs is left alone. Chosen: eight steps."""
UPLINK_KBIT = 1000
"""Of a slow uplink or link. Chosen: a rank's gradients then take two seconds."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break the job, and the truth."""

    name: str
    kind: str
    """What is at fault: ``rank``, ``stage``, ``uplink``, ``link``, or ``nobody``."""
    ranks: tuple[int, ...] = ()
    """Who is; of an uplink or a link, whose traffic crosses it."""
    hangs: bool = False
    note: dict[str, Any] = field(default_factory=dict)
    """What the job itself is told."""
    target: str = ""
    """Of a fault of the lab; of a link its leaf."""
    steps: int = WRONG_STEPS
    """For which it lasts."""


FAULTS = (
    Fault("healthy", "nobody"),
    Fault("slow-rank", "rank", (3,), note={"rank": 3, "factor": 5.0}),
    Fault("slow-loader", "rank", (4,), note={"rank": 4, "seconds": 0.8}),
    Fault("imbalance", "stage", (2, 3, 6, 7), note={"stage": 1, "factor": 1.7}),
    Fault("garbage", "nobody", note={"seconds": 0.15}),
    Fault("slow-uplink", "uplink", (2,), target="h1/rnic0"),
    Fault("lossy-uplink", "uplink", (2,), target="h1/rnic0", steps=SOME_STEPS),
    Fault("slow-link", "link", (0, 2, 4, 6), target="leaf-s0-r0"),
    Fault("stopped", "rank", (5,), hangs=True),
    Fault("skipped", "rank", (1,), hangs=True, note={"rank": 1}),
    Fault("killed", "rank", (6,), hangs=True),
)
NAMES = ", ".join(each.name for each in FAULTS)
STEADY = {"imbalance", "garbage"}
"""What is so from the beginning on: the job is like that, before and after."""


@dataclass(slots=True)
class Told:
    """What came of a fault."""

    fault: str
    truth: str
    rows: int
    healthy_s: float
    """Median seconds of a step before the fault."""
    wrong_s: float | None
    """With it; None where the job hung."""
    probed: tuple[int, int] = (0, 0)
    """What probes saw that ranks did with others in the same steps, of what hooks did."""
    told: str = "not asked"
    right: bool | None = None
    """None: nobody was asked."""
    told_alone: str = "not asked"
    """By what probes saw, and nothing else."""
    right_alone: bool | None = None


def run(lab: Lab, say: Say, *, faults: tuple[str, ...] = (), output: Path = OUTPUT) -> list[Told]:
    """Run the demo on a fresh lab; the lab is taken down after. Raise LabError where it fails."""
    chosen = [each for each in FAULTS if not faults or each.name in faults]
    if len(chosen) < len(faults):
        raise LabError("no such fault of a job", f"known: {NAMES}")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    lab.up(Shape(), agents=False, tasks=(TASK,), traffic=None)
    try:
        job = _Job(lab, say)
        made = [_try(job, fault, say, output) for fault in chosen]
        job.end()
    finally:
        lab.down()
    (output / "truth.json").write_text(json.dumps([asdict(each) for each in chosen], indent=1))
    (output / "told.json").write_text(json.dumps([asdict(each) for each in made], indent=1))
    return made


def collect(lab: Lab) -> str:
    """Have the agents of a lab collect what jobs record; return where, ``{host}`` being a number.

    Agents are started again for that.
    """
    services, folder = lab.services(), f"{lab.directory}/{RINGS}/h{{host}}"
    for host in range(lab.state().shape.hosts):
        rings = folder.replace("{host}", str(host))
        with (lab.directory / f"h{host}" / "agent.toml").open("a") as file:
            file.write(f'\n[operators]\nenabled = true\nfolder = "{rings}"\n')
        services.restart_agent(host)
    return folder


def lines(made: list[Told]) -> list[str]:
    """Return the table for people."""
    head = f"{'fault':13} {'truth':22} {'step':>6} {'with it':>8}  {'told':34} right"
    table = [head] + [
        f"{each.fault:13} {each.truth:22} {each.healthy_s:5.2f}s {_seconds(each.wrong_s):>8}  "
        f"{each.told:34} {_yes(each.right)}"
        for each in made
    ]
    alone = [
        f"{each.fault:13} {each.truth:38}  {each.told_alone:34} {_yes(each.right_alone)}"
        for each in made
    ]
    return [*table, "", "by probes alone:", *alone]


def _yes(right: bool | None) -> str:  # noqa: FBT001 - what is said
    return "-" if right is None else "yes" if right else "NO"


def _seconds(value: float | None) -> str:
    return "hangs" if value is None else f"{value:.2f}s"


class _Job:
    """The job, started when it is needed."""

    def __init__(self, lab: Lab, say: Say) -> None:
        self.lab, self._say = lab, say
        self.rings = lab.directory / RINGS
        self.probed = lab.directory / PROBED
        self.training: Training | None = None
        self._probes: Probes | None = None

    def running(self) -> Training:
        """Return the job, which trains."""
        if self.training is not None and self.training.alive():
            return self.training
        self.end()
        self._say("starting 8 ranks: DP 2, PP 2, TP 2")
        self.rings.mkdir()
        # Where its libraries cannot be probed, the demo goes on without.
        self._probes = Probes(self.probed, self.lab.directory / "probes.log")
        state = self.lab.state()
        self.training = Training(self.lab.directory, state.containers, state.shape.rails)
        given = recorded_as(TASK, str(self.rings))
        self.training.start(dp=DP, pp=PP, environment=given, **QUICK)
        return self.training

    def end(self) -> None:
        """End it, and forget what it recorded."""
        if self.training is not None:
            self.training.stop()
            self.training = None
        if self._probes is not None:
            self._probes.end()
            self._probes = None
        for folder in (self.rings, self.probed):
            shutil.rmtree(folder, ignore_errors=True)

    def read(self) -> tuple[list[recorded.Ring], list[recorded.Ring]]:
        """Return what all ranks recorded, by rank, and what probes saw of the same moment."""
        held = [
            [path.read_bytes() for path in folder.glob("*.ring")]
            for folder in (self.rings, self.probed)
        ]
        hooks, probes = (_by_rank([recorded.read(data) for data in each]) for each in held)
        return hooks, probes

    def copy_probed(self, into: Path, since_ns: int, *, over: bool) -> None:
        """Copy what probes saw of operators that began since an instant (monotonic).

        `over`: of a job that goes on, whose rings are read one after the other, what has ended.
        """
        into.mkdir()
        for path in self.probed.glob("*.ring"):
            kept = recorded.since(path.read_bytes(), since_ns, over=over)
            (into / path.name).write_bytes(kept)


def _by_rank(found: list[recorded.Ring]) -> list[recorded.Ring]:
    return sorted((each for each in found if each.rank >= 0), key=lambda each: each.rank)


def _try(job: _Job, fault: Fault, say: Say, output: Path) -> Told:
    say(f"{fault.name}:")
    training = job.running()
    if fault.name in STEADY:
        _note(training, fault)
    before_ns = time.monotonic_ns()
    carried = _carried(fault.target) if fault.kind == "link" else {}
    _steps(training, HEALTHY_STEPS + 2, "healthy steps")
    begun, begun_ns = training.steps(), time.monotonic_ns()
    with _broken(job, training, fault, carried):
        if fault.hangs:
            with suppress(LabError):  # that it does not is what is waited for
                _steps(training, 10**6, "the job to hang", timeout_s=HANG_S)
        else:
            _steps(training, fault.steps, "steps with the fault", timeout_s=STEP_LIMIT_S)
        rings, probed = job.read()
        began_ns = before_ns if fault.hangs else begun_ns
        job.copy_probed(output / f"{fault.name}.probed", began_ns, over=not fault.hangs)
    told = _write(rings, probed, fault, begun, output)
    told.told, told.right = _asked(output / f"{fault.name}.csv", fault)
    told.told_alone, told.right_alone = _asked(output / f"{fault.name}.probed", fault)
    seen, of = told.probed
    say(f"  {told.rows} rows; probes saw {seen} operators of {of}")
    say(f"  {told.told}; by probes alone: {told.told_alone}")
    if fault.hangs:
        job.end()
    return told


def _steps(training: Training, more: int, what: str, *, timeout_s: float = STEP_LIMIT_S) -> None:
    goal = training.steps() + more
    wait_for(what, lambda: training.steps() >= goal, timeout_s=timeout_s)


@contextmanager
def _broken(job: _Job, training: Training, fault: Fault, carried: dict[str, int]) -> Iterator[None]:
    """Have a fault in effect; what was done to the network is undone.

    `carried`: of a link's leaf what its links carried before the job's last steps.
    """
    undo: Callable[[], object] = lambda: None  # noqa: E731
    if fault.name == "slow-uplink":
        where, interface = namespace("h1"), rnic(0)
        bucket = ("tbf", "rate", f"{UPLINK_KBIT}kbit", "burst", "16000", "latency", "500ms")
        command(*("tc", "-n", where, "qdisc", "replace", "dev", interface, "root"), *bucket)
        undo = lambda: command("tc", "-n", where, "qdisc", "del", "dev", interface, "root")  # noqa: E731
    elif fault.name == "lossy-uplink":
        job.lab.inject("rnic-loss", fault.target)
        undo = job.lab.heal
    elif fault.name == "slow-link":
        # Onto which of them a job's flows hash is chance, and may be onto one alone.
        now = _carried(fault.target)
        busiest = max(now, key=lambda spine: now[spine] - carried[spine])
        job.lab.inject("slow-link", f"{fault.target}--{busiest}", kbit=UPLINK_KBIT)
        undo = job.lab.heal
    elif fault.name in {"stopped", "killed"}:
        number = Signals.SIGSTOP if fault.name == "stopped" else Signals.SIGKILL
        training.signal(fault.ranks[0], number)
    elif fault.note:
        _note(training, fault)
    try:
        yield
    finally:
        undo()
        (training.folder / NOTE).unlink(missing_ok=True)


def _carried(leaf: str) -> dict[str, int]:
    """Return by spine how many bytes a leaf's link to it carried either way."""
    links = json.loads(command("ip", "-j", "-s", "-n", namespace(leaf), "link"))
    bytes_of = {
        link["ifname"]: sum(link["stats64"][way]["bytes"] for way in ("rx", "tx")) for link in links
    }
    return {spine: bytes_of[f"to-{spine}"] for spine in Shape().spine_names}


def _note(training: Training, fault: Fault) -> None:
    partial = training.folder / "wrong.new"
    partial.write_text(json.dumps({"kind": fault.name, **fault.note}))
    partial.rename(training.folder / NOTE)


def _write(
    rings: list[recorded.Ring], probed: list[recorded.Ring], fault: Fault, begun: int, output: Path
) -> Told:
    newest = min((ring.records[-1].step for ring in rings if ring.records), default=0)
    before = range(max(0, begun - HEALTHY_STEPS), begun)
    # Of a job that goes on, whole steps: what is under way at the end is no hang.
    wrong = range(before.start if fault.hangs else begun + 1, 2**31 if fault.hangs else newest)
    places = {rank: (rank // (PP * TP), rank // TP % PP, rank % TP) for rank in range(DP * PP * TP)}

    def table(read: list[recorded.Ring], steps: range) -> list[tuple[Any, ...]]:
        return [row for each in read for row in recorded.rows(each, places[each.rank], steps=steps)]

    hooks = {each.rank: each for each in rings}
    known = [recorded.stepped(each, hooks[each.rank]) for each in probed if each.rank in hooks]
    seen = table(known, wrong)
    hooked = table(rings, wrong)
    recorded.write(output / f"{fault.name}.csv", hooked)
    recorded.write(output / f"{fault.name}.before.csv", table(rings, before))
    recorded.write(output / f"{fault.name}.probes.csv", seen)
    took = _step_times(rings)
    with_it = None if fault.hangs else _median([took[each] for each in took if each in wrong])
    return Told(
        fault.name, f"{fault.kind} {','.join(map(str, fault.ranks))}".strip(), len(hooked),
        _median([took[each] for each in took if each in before]), with_it,
        (_shared(seen), _shared(hooked)),
    )  # fmt: skip


def _shared(table: list[tuple[Any, ...]]) -> int:
    """Return how many rows are of what ranks do with others."""
    return sum(row[2] in {"collective", "send", "recv"} for row in table)


def _step_times(rings: list[recorded.Ring]) -> dict[int, float]:
    """Return how long each whole step took rank 0, in seconds."""
    begins: dict[int, int] = {}
    for each in rings[0].records if rings else ():
        begins.setdefault(each.step, each.begun_ns)
    return {
        step: (begins[step + 1] - begun) / 1e9
        for step, begun in begins.items()
        if step + 1 in begins
    }


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


# --- what the analyzer says --------------------------------------------------------------------


def _asked(path: Path, fault: Fault) -> tuple[str, bool | None]:
    """Ask the analyzer's command about a log, where it has that verb."""
    done = subprocess.run(
        (sys.executable, "-m", "analyzer.cli", "operators", str(path), "--json"),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode == 2 and "invalid choice" in done.stderr:  # no such verb
        return "not asked", None
    path.with_suffix(f"{path.suffix}.told.json".replace(".csv", "")).write_text(done.stdout)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return f"exit {done.returncode}", False
    return _compared(said, fault)


def _compared(said: dict[str, Any], fault: Fault) -> tuple[str, bool]:
    """Return what was told, in short, and whether it is so."""
    named = said.get("culprits", [])
    first = f"{named[0]['kind']} {','.join(map(str, named[0]['ranks']))}" if named else ""
    told = " ".join(filter(None, (said["verdict"], first)))
    ranks = set(named[0]["ranks"]) if named else set()
    network = not said.get("innocent", True)
    match fault.kind:
        case "nobody":
            right = not named
        case "rank":
            right = bool(named) and named[0]["kind"] == "rank" and ranks == set(fault.ranks)
        case "stage":  # an uneven job, by plan: nobody's, or all of a stage's
            right = not named or ranks == set(fault.ranks)
        case "uplink":
            right = network and bool(ranks & set(fault.ranks))
        case _:
            right = network and bool(ranks) and ranks <= set(fault.ranks)
    return told, right
