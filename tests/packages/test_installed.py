# SPDX-License-Identifier: Apache-2.0
"""Both packages on a machine with systemd and without a network, from installation to purge.

One story, in the order of its tests: `make test-packages` tells it in guests. The machine is host,
analyzer and network team at once; its containers are namespaces on the system's Open vSwitch.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PACKAGES, require
from tests.waiting import wait_until

pytestmark = pytest.mark.packages

DEBS = Path(os.environ.get("NETAGENT_DEBS", "/nonexistent"))
TLS = Path("/var/lib/netagent-analyzer/tls")
ADMIN = {
    "NETAGENT_ANALYZER_URL": "https://localhost:8420",
    "NETAGENT_CA": "/var/lib/netagent-analyzer/ca/ca.pem",
    "NETAGENT_CERT": str(TLS / "admin.pem"),
    "NETAGENT_KEY": str(TLS / "admin.pem"),
}
SLOW_S = 180.0
"""Seconds that an emulated machine may take for what a real one does in ten."""
SECURITY = {"netagent": 5.0, "netagent-analyzer": 3.0}
"""Exposure, as `systemd-analyze security` has it, that a unit may have at most."""


def run(*words, ok=(0,), **more):
    """Return what a command prints; it must end with one of `ok`."""
    environ = {**os.environ, **ADMIN, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    environ.pop("PYTHONPATH", None)
    done = subprocess.run(
        words, capture_output=True, text=True, env=environ, check=False, cwd="/", **more
    )
    if done.returncode not in ok:
        words_of = ["journalctl", "-q", "-o", "cat", "-n", "60", "-u", "netagent*"]
        log = subprocess.run(words_of, capture_output=True, text=True, check=False).stdout
        pytest.fail(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}{log}")
    return done.stdout


def asked(*words):
    """Return what a command answers in JSON."""
    return json.loads(run(*words, "--json"))


def told(unit, what):
    return run("systemctl", "show", "-P", what, unit).strip()


def is_active(unit):
    return told(unit, "ActiveState") == "active"


def journal(unit):
    return run("journalctl", "-q", "-o", "cat", "-u", unit)


def active():
    """Return the active incidents, as who is at fault and whether anybody is named."""
    return asked("netagent-analyzer", "incidents", "--state", "active")["incidents"]


def named():
    verdicts = [each["verdict"].get("component") for each in active()]
    return {f"{each['kind']} {each['name']}" for each in verdicts if each}


def every():
    """Return every component that any incident ever named."""
    incidents = asked("netagent-analyzer", "incidents")["incidents"]
    found = [each["verdict"].get("component") for each in incidents]
    return {f"{each['kind']} {each['name']}" for each in found if each}


def enrol():
    token = asked("netagent-analyzer", "invite", "h0")["token"]
    run("netagent", "enroll", "--analyzer", "https://localhost:8420", "--token", "-", input=token)


def heard():
    """Return whether the analyzer hears of the host, with both containers."""
    return len(asked("netagent-analyzer", "endpoints")["endpoints"]) == 2


def debs():
    found = {path.name.partition("_")[0]: path for path in DEBS.glob("*.deb")}
    assert set(found) == {"netagent", "netagent-analyzer"}, DEBS
    return found


def repacked(deb, version, folder):
    """Return the same package as another version."""
    tree = folder / deb.name
    run("dpkg-deb", "-R", str(deb), str(tree))
    control = tree / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    lines = [f"Version: {version}" if line.startswith("Version:") else line for line in lines]
    control.write_text("\n".join(lines) + "\n")
    made = folder / f"{deb.name}-{version}.deb"
    run("dpkg-deb", "--root-owner-group", "-Znone", "-b", str(tree), str(made))
    shutil.rmtree(tree)
    return made


@pytest.fixture(scope="module", autouse=True)
def machine():
    """Be a machine on which packages start their services."""
    require(PACKAGES)
    Path("/usr/sbin/policy-rc.d").unlink(missing_ok=True)
    assert run("ip", "-o", "route", "show", "default") == ""  # no network
    wait_until(lambda: is_active("openvswitch-switch"), "Open vSwitch", SLOW_S)


def test_they_install_without_a_network_and_wait_for_a_configuration():
    run("dpkg", "-i", *map(str, debs().values()))
    for unit in SECURITY:
        assert told(unit, "ActiveState") == "inactive"
        assert told(unit, "UnitFileState") == "enabled"
        assert told(unit, "ConditionResult") == "no"
        assert "usage" in run(unit, "--help")
    assert run("netagent", "doctor", ok=(1, 2)) is not None


@pytest.mark.parametrize("unit", sorted(SECURITY))
def test_a_unit_is_exposed_no_more_than_it_must_be(unit):
    whole = run("systemd-analyze", "security", "--no-pager", unit, ok=(0, 1))
    [level] = [line for line in whole.splitlines() if "Overall exposure" in line]
    assert float(level.split(":")[1].split()[0]) <= SECURITY[unit], whole
    print(level)


def test_an_analyzer_is_set_up_by_one_command_and_runs_as_nobody_else():
    run("netagent-analyzer", "ca", "init", "--name", "localhost", "--address", "127.0.0.1")
    run("systemctl", "start", "netagent-analyzer")
    assert is_active("netagent-analyzer")
    status = Path(f"/proc/{told('netagent-analyzer', 'MainPID')}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert "Uid:\t0\t" not in status
    assert "listens on https://" in told("netagent-analyzer", "StatusText")
    assert asked("netagent-analyzer", "endpoints")["endpoints"] == []


def test_a_host_enrols_with_a_token():
    enrol()
    assert Path("/var/lib/netagent").stat().st_mode & 0o077 == 0
    run("systemctl", "start", "netagent")
    assert is_active("netagent")
    wait_until(lambda: asked("netagent-analyzer", "endpoints")["endpoints"] == [], "answer", SLOW_S)


def test_its_containers_are_found():
    run("ovs-vsctl", "add-br", "br-int")
    settings = ["type=vxlan", "options:remote_ip=flow", "options:key=flow"]
    settings += ["options:local_ip=127.0.0.1", "external_ids:rail=0"]
    run("ovs-vsctl", "add-port", "br-int", "vxlan0", "--", "set", "interface", "vxlan0", *settings)
    for number, name in enumerate(("one", "two")):
        mac, address = f"02:00:00:00:00:0{number}", f"10.0.0.1{number}/24"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"{name}-r0", "type", "veth", "peer", "eth0", "netns", name)
        run("ip", "-n", name, "link", "set", "eth0", "address", mac, "mtu", "1450", "up")
        run("ip", "-n", name, "addr", "add", address, "dev", "eth0")
        run("ip", "link", "set", f"{name}-r0", "up")
        ids = {"iface-id": f"a_{name}", "attached_mac": mac, "ip_addresses": address,
               "sandbox": name, "task": "train", "rail": "0"}  # fmt: skip
        words = [f'external_ids:{key}="{value}"' for key, value in ids.items()]
        port = f"{name}-r0"
        run("ovs-vsctl", "add-port", "br-int", port, "--", "set", "interface", port, *words)
    try:
        wait_until(heard, "both containers", SLOW_S)
    except AssertionError:
        print(journal("netagent"), run("netagent", "endpoints", ok=(0, 1)))
        raise


def test_a_fault_is_named_and_over_when_it_is_mended():
    wait_until(lambda: asked("netagent", "status")["targets"], "what to probe", SLOW_S)
    assert every() == set()
    run("ovs-ofctl", "del-flows", "br-int")
    try:
        wait_until(lambda: "flow h0/br-int/table=0" in named(), "the fault", SLOW_S)
    except AssertionError:
        print(run("netagent-analyzer", "incidents", "--json"), journal("netagent"))
        raise
    finally:
        run("ovs-ofctl", "add-flow", "br-int", "priority=0,actions=NORMAL")
    wait_until(lambda: not active(), "recovery", SLOW_S)


def test_it_is_upgraded_while_it_probes_and_nobody_is_blamed(tmp_path):
    before = every()
    deb = debs()["netagent"]
    for version, flags in (("99.0~deb0", []), (None, ["--force-downgrade"])):
        path = repacked(deb, version, tmp_path) if version else deb
        pid = told("netagent", "MainPID")
        run("dpkg", "-i", *flags, str(path))
        wait_until(lambda: is_active("netagent"), "agent", SLOW_S)
        assert told("netagent", "MainPID") != pid
        wait_until(heard, "both containers", SLOW_S)
    assert every() == before


def test_its_certificate_is_changed_while_it_runs():
    pid = told("netagent", "MainPID")
    before = journal("netagent").count("certificates_taken")
    enrol()
    wait_until(lambda: journal("netagent").count("certificates_taken") > before, "it", SLOW_S)
    assert told("netagent", "MainPID") == pid
    wait_until(heard, "both containers", SLOW_S)


def silent_s():
    """Return for how many seconds the analyzer has not heard of the host."""
    words = ["curl", "-s", "--cacert", ADMIN["NETAGENT_CA"], "--cert", ADMIN["NETAGENT_CERT"]]
    answer = json.loads(run(*words, f"{ADMIN['NETAGENT_ANALYZER_URL']}/v1/agents"))
    return answer["agents"][0]["silent_ms"] / 1000


def test_what_is_revoked_is_refused_and_a_new_certificate_ends_that():
    wait_until(lambda: silent_s() < 10, "the host", SLOW_S)
    run("netagent-analyzer", "ca", "revoke", "h0")
    wait_until(lambda: silent_s() > 20, "silence", 80)
    enrol()
    wait_until(lambda: silent_s() < 10, "the host", SLOW_S)


def test_nothing_is_left_of_what_is_purged():
    run("dpkg", "--purge", "netagent", "netagent-analyzer")
    for unit in SECURITY:
        for place in ("/etc", "/var/lib", "/usr/lib", "/run", "/usr/bin", "/usr/share/doc"):
            assert not Path(place, unit).exists()
        assert told(unit, "LoadState") in {"not-found", "masked"}
    assert not run("pgrep", "-f", "/usr/lib/netagent", ok=(0, 1))
