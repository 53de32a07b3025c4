# SPDX-License-Identifier: Apache-2.0
"""The packages' units, as files; tests/packages runs them."""

import shutil
import subprocess
from pathlib import Path

import pytest

DEBIAN = Path(__file__).parent.parent / "debian"
EXPOSURE = {
    "netagent.service": 5.0, "netagent-analyzer.service": 3.0,
    "netagent@.netagent-tracer.service": 3.0, "netagent@.netagent-operators.service": 3.5,
}  # fmt: skip
"""The most that `systemd-analyze security` may find."""
WORKERS = {"netagent-tracer": "NETAGENT_TRACER", "netagent-operators": "NETAGENT_PROBER"}
"""Units that the agent has started by a connection, and the variable that names their socket."""


def values(name, key):
    """Return the values of a key in a unit, by line."""
    lines = (DEBIAN / name).read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


@pytest.mark.parametrize(("unit", "variable"), WORKERS.items())
def test_the_agent_finds_the_socket_behind_which_a_unit_is(unit, variable):
    [path] = values(f"netagent.{unit}.socket", "ListenStream")
    assert f"{variable}={path}" in values("netagent.service", "Environment")
    assert f"--name={unit}\n" in (DEBIAN / "rules").read_text()
    for key in ("Wants", "After"):
        assert f"{unit}.socket" in values("netagent.service", key)[0].split()


def test_the_agent_itself_may_load_no_program_and_open_no_probe():
    [held] = values("netagent.service", "CapabilityBoundingSet")
    assert not {"CAP_PERFMON", "CAP_BPF"} & set(held.split())
    [allowed] = values("netagent.service", "SystemCallFilter")
    assert not {"bpf", "perf_event_open"} & set(allowed.split())


def test_who_watches_libraries_may_load_no_program_and_stays_in_the_hosts_network():
    """A ring is believed of any process only where its writer is in the host's own namespace."""
    name = "netagent@.netagent-operators.service"
    [held] = values(name, "CapabilityBoundingSet")
    assert "CAP_BPF" not in held.split()
    assert values(name, "PrivateNetwork") == []
    assert values(name, "RestrictAddressFamilies") == ["AF_UNIX"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize(("name", "most"), EXPOSURE.items())
def test_a_unit_is_exposed_no_more_than_it_needs(name, most, tmp_path):
    unit = tmp_path / name.rpartition("@.")[2]
    shutil.copy(DEBIAN / name, unit)
    words = ("systemd-analyze", "security", "--offline=true", f"--threshold={most * 10:.0f}")
    done = subprocess.run([*words, unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
