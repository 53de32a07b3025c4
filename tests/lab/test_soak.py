# SPDX-License-Identifier: Apache-2.0
import os
import subprocess

from tests.lab import soak
from tests.lab.health import Report as Seen
from tests.lab.soak import Held, Report, compared

KEY = ("h0/agent", "memory_kb")


def report(values: list[float], incidents: dict[str, str] | None = None) -> Report:
    return Report(Seen(windows={5}, incidents=incidents or {}), [{KEY: v} for v in values])


def test_what_grows_all_the_time_is_a_leak() -> None:
    grown = report([50_000 + 200 * n for n in range(80)])
    assert not grown.good
    assert grown.lines()[-1].endswith("GREW")


def test_a_step_in_the_warm_up_is_none() -> None:
    assert report([30_000.0] * 20 + [60_000.0] * 60).good


def test_what_comes_and_goes_is_none() -> None:
    assert report([50_000.0 + 4000 * (n % 2) for n in range(80)]).good


def test_an_incident_about_anything_is_bad() -> None:
    assert not report([50_000.0] * 80, {"i1": "link:a-b"}).good


def test_too_few_readings_tell_nothing() -> None:
    assert not report([50_000.0] * 3).good


def test_a_helper_that_comes_late_is_held_against_its_own_second_quarter() -> None:
    late: tuple[str, str] = ("h1/agent's helper", "threads")
    readings = [{KEY: 9000.0}] * 60 + [{KEY: 9000.0, late: 3.0 + n} for n in range(20)]
    assert compared(readings)[1] == Held(*late, (5.0, 10.0, 15.0, 20.0))


def test_what_a_process_holds_is_read_and_of_one_that_ended_nothing() -> None:
    own = os.getpid()
    assert soak._memory_kb(own) > 1000
    assert soak._threads(own) >= 1
    assert soak._descriptors(own) >= 3
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert soak._memory_kb(ended.pid) == soak._descriptors(ended.pid) == 0.0
