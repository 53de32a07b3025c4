# SPDX-License-Identifier: Apache-2.0
"""An analyzer that knows as much as one of a large cluster, filled at once: without a socket."""

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from analyzer.config import Config
from analyzer.history.figures import LE_S, MAX_GROUPS, OTHERS, Group, Told
from analyzer.intake.reports import Report
from analyzer.questions import Why
from analyzer.server.analyzer import Analyzer
from analyzer.server.asker import ANSWERED, KINDS
from netagent.model.endpoint import Endpoint
from netagent.model.finding import FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from netagent.wire.messages import Health, Registration
from tests.analyzer.server.direct import Direct
from tests.waiting import until

RAILS = 8
HOSTS_OF_TASK = 4
SECOND = 10**9


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Analyzer]:
    """Run an analyzer whose judge is in this process."""
    config = Config(database=str(folder / "netagent.duckdb"))
    analyzer = await Analyzer.start(config, "x.toml", open_link=Direct(time.time_ns).open)
    try:
        yield analyzer
    finally:
        await analyzer.stop()


async def fill(analyzer: Analyzer, *, rnics: int, incidents: int = 200) -> None:
    """Let hosts with eight RNICs each have registered and reported; a tenth of them is silent."""
    wall_ns = analyzer.clock()
    for number in range(rnics // RAILS):
        host = f"gpu-{number:05d}"
        heard_ns = wall_ns - (900 * SECOND if number % 10 == 0 else SECOND)
        analyzer.registry.apply(_registration(host, number), heard_ns)
        report = _report(number, heard_ns)
        analyzer.reports.take(host, report, wall_ns)
        analyzer.totals.add(report)
    for number in range(incidents):
        analyzer.journal.note(_incident(number, wall_ns))
    await until(lambda: len(analyzer.journal.incidents()) == incidents, within_s=60)
    for kind in KINDS.values():
        for outcome in (ANSWERED, *(why.value for why in Why)):
            analyzer.asker.asked[kind, outcome] += 1


def told(now_ns: int) -> Told:
    """Return what a judge says of more tasks than have a place."""
    buckets = tuple(range(len(LE_S) + 1))
    group = Group(
        task=OTHERS, source=OTHERS, target=OTHERS, sent=10**9, lost=12_345, buckets=buckets,
        sum_s=1.5, round_s=0.25,
    )  # fmt: skip
    names = [(f"train-{n:04d}", str(rail)) for n in range(MAX_GROUPS) for rail in range(RAILS)]
    groups = (
        Group(
            task=task, source=rail, target=rail, sent=10**6, lost=7, buckets=buckets, sum_s=3.25,
            round_s=1.0,
        )
        for task, rail in names[: MAX_GROUPS - 1]
    )  # fmt: skip
    return Told(
        groups=(group, *groups), windows=1_000, newest_end_ns=now_ns - SECOND, flows=1_357_824,
        unknown_paths=4_711, findings={kind.value: 3 for kind in FindingKind},
        history={"minutes_lost": 1},
    )  # fmt: skip


def _registration(host: str, number: int) -> Registration:
    container = f"train-{number // HOSTS_OF_TASK:04d}-{number % HOSTS_OF_TASK}"
    endpoint = Endpoint(
        EndpointId(container, 0), f"train-{number // HOSTS_OF_TASK:04d}", host, "", "", "", "",
        "br-int", "",
    )  # fmt: skip
    address = f"{number >> 8 & 255}.{number & 255}"
    rails = (
        replace(
            endpoint, id=EndpointId(container, rail), address=f"10.{rail}.{address}",
            mac=f"02:00:00:{rail:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
            underlay=f"172.{16 + rail}.{address}", rnic=f"mlx5_{rail}", port=f"vf-{rail}",
        )
        for rail in range(RAILS)
    )  # fmt: skip
    return Registration(
        host=host, instance="i", generation=1, rpc_url=f"https://{host}:8421",
        endpoints=tuple(rails),
    )  # fmt: skip


def _report(number: int, heard_ns: int) -> Report:
    health = Health(
        sent=500, answered=500, cpu_ms=100 + number % 50, rss_kb=49_000 + number % 3_000,
        stalled_ms=number % 40, shed=number % 4, capped=1, send_errors=number % 2,
    )  # fmt: skip
    # Every host has names of its own besides, as no driver has.
    grown = {"out_of_sequence": 1, "rx_icrc_encapsulated": 2, f"counter_{number}": 1}
    counters = {f"mlx5_{rail}": grown for rail in range(RAILS)}
    return Report(heard_ns, health, counters, 0, {})


def _incident(number: int, wall_ns: int) -> Incident:
    component = Component(Kind.LINK, f"leaf-{number} -- spine-{number % 8}")
    symptoms = list(Symptom)
    verdict = Verdict(component, Layer.UNDERLAY, symptoms[number % len(symptoms)], 0.9, "it loses")
    state = IncidentState.RECOVERED if number % 5 == 0 else IncidentState.CONFIRMED
    at_ns = wall_ns - number * SECOND
    return Incident(f"i{number}", state, verdict, at_ns, at_ns, at_ns)
