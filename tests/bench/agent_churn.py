# SPDX-License-Identifier: Apache-2.0
"""`agent-churn`: what an agent holds while containers start and stop as fast as they can.

Two hosts of the lab, whose containers are stopped and started in turn: one of the measured agent,
one of its peer, and so on. Each is waited for until the agent probes all there is again. What a
start leaves behind adds up: a row after some starts each, then the slope over the second half, in
megabytes per thousand starts, with its interval. What levels off has none there. With
NETAGENT_BENCH_BEFORE, a checkout of an earlier version in which `make setup` was run, that one is
measured as well, first. NETAGENT_CHURN_STARTS sets how many. Needs root and Open vSwitch. Minutes.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

from tests.bench.agent_cost import AGENT, restart
from tests.lab import Lab, Shape, holdings
from tests.lab.commands import wait_for
from tests.lab.config import agent_url
from tests.lab.holdings import Reading
from tests.lab.trends import theil_sen

STARTS = int(os.environ.get("NETAGENT_CHURN_STARTS", "400"))
EVERY = 20
"""Starts from one row to the next."""
READINGS = 3
SETTLE_S = 60.0
"""Seconds in which all must be probed again. Chosen: what a starved machine needs."""
KINDS = ("memory_mb", "descriptors", "threads")


def run() -> Iterator[dict[str, object]]:
    """Yield what was held, row by row, and the slope, of each version."""
    before = os.environ.get("NETAGENT_BENCH_BEFORE")
    versions = ({"before": Path(before)} if before else {}) | {"this": Path.cwd()}
    for version, checkout in versions.items():
        with _lab(checkout) as lab:
            yield from ({"version": version, **row} for row in _rows(lab))


@contextmanager
def _lab(checkout: Path) -> Iterator[Lab]:
    lab = Lab()
    lab.up(Shape(hosts=2), traffic=None)
    try:
        restart(lab, checkout)
        yield lab
    finally:
        lab.down()


def _rows(lab: Lab) -> Iterator[dict[str, object]]:
    points = []
    _settled(lambda: lab.services().status(agent_url(0)) is not None)
    with lab.services().client(agent_url(0)) as client:

        def targets() -> int:
            return int(client.get("/v1/status").json()["targets"])

        state = lab.state()
        everyone = sorted(state.containers, key=lambda each: (each.task, each.host))
        most = state.shape.rails * len(everyone) // 2
        _settled(lambda: targets() == most)
        for n, container in enumerate(islice(cycle(everyone), STARTS), start=1):
            lab.stop_container(container.id)
            _settled(lambda: targets() < most)
            lab.start_container(container.id)
            _settled(lambda: targets() == most)
            if n % EVERY == 0:
                held = _held(lab)
                points.append((n, held["memory_mb"]))
                yield {"starts": n, **held}
    yield of_second_half(points)


def _settled(condition: Callable[[], bool]) -> None:
    wait_for("the agent to follow what started and stopped", condition, timeout_s=SETTLE_S)


def _held(lab: Lab) -> dict[str, float]:
    readings: list[Reading] = []
    while len(readings) < READINGS:
        readings.append(holdings.read(lab))
    least = holdings.least(readings).held
    values = {kind: least.get((AGENT, kind)) for kind in KINDS}
    return {kind: round(value, 2) for kind, value in values.items() if value is not None}


def of_second_half(points: Sequence[tuple[int, float]]) -> dict[str, object]:
    """Return what is held at the half and at the end, and the slope in between."""
    half = points[len(points) // 2 :]
    slope = theil_sen([(n / 1000, mb) for n, mb in half])
    rates = (slope.least, slope.middle, slope.most) if slope else ()
    return {
        "starts": [half[0][0], half[-1][0]],
        "memory_mb": [half[0][1], half[-1][1]],
        "mb_per_1000_starts": [round(rate, 2) for rate in rates],
    }
