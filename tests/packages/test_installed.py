# SPDX-License-Identifier: Apache-2.0
"""Both packages on a machine with systemd and without a network, from installation to purge.

One story, in the order of its tests: `make test-packages` tells it in guests. The machine is
analyzer and network team at once; two hosts are namespaces with the kernel's Open vSwitch, the
first of them that of the installed unit, the second that of a copy of it.
"""

import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from functools import cache, partial
from pathlib import Path

import httpx
import pytest

from tests.conftest import PACKAGES, require
from tests.kernel.overlay import ADDRESSES, MACS, Overlay
from tests.waiting import wait_until as within

pytestmark = pytest.mark.packages

DEBS = Path(os.environ.get("NETAGENT_DEBS", "/nonexistent"))
TLS = Path("/var/lib/netagent-analyzer/tls")
HERE = "172.30.0.1"
"""The analyzer's address, on the hosts' underlay."""
ADMIN = {
    "NETAGENT_ANALYZER_URL": f"https://{HERE}:8420",
    "NETAGENT_CA": "/var/lib/netagent-analyzer/ca/ca.pem",
    "NETAGENT_CERT": str(TLS / "admin.pem"),
    "NETAGENT_KEY": str(TLS / "admin.pem"),
}
UNITS = ("netagent", "netagent-second")
SLOW_S = 180.0
"""Seconds that an emulated machine may take for what a real one does in ten."""
REST_S = 2.0
"""Seconds between two looks: looking takes the same two cores as what is looked at."""
NAMES = ("netagent", "netagent-analyzer")
SECURITY = {
    "netagent": 5.0,
    "netagent-analyzer": 3.0,
    "netagent-tracer@x": 3.0,
    "netagent-operators@x": 3.5,
}
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


def busiest():
    """Return the processes that took most CPU time."""
    columns = "pid,ni,cputime,etime,args"
    listed = run("ps", "-ww", "-eo", columns, "--sort=-cputime").splitlines()
    return "\n".join(line[:160] for line in listed[:25])


wait_until = partial(within, within_s=SLOW_S, rest=lambda _: time.sleep(REST_S))


@cache
def admin():
    """Return an administrator's client: emulated, a handshake takes a second of a core."""
    context = ssl.create_default_context(cafile=ADMIN["NETAGENT_CA"])
    context.load_cert_chain(ADMIN["NETAGENT_CERT"])
    return httpx.Client(verify=context, trust_env=False, timeout=SLOW_S)


def listed(what, **query):
    """Return what the analyzer's API lists: an emulated machine is slow to start a command."""
    url = f"{ADMIN['NETAGENT_ANALYZER_URL']}/v1/{what}"
    answer = admin().get(url, params=query)
    assert answer.is_success, answer.text
    return answer.json()[what]


def active():
    """Return the active incidents."""
    return listed("incidents", state="active")


def named():
    return {each["component"] for each in active()} - {None}


STARVED = ("is frozen: ", "answers its RPC, but ")
"""What is said of an agent that is there, and too slow to be heard or to answer in time."""


def is_starved(incident):
    """Return whether it says that a host gets no CPU, which is true of emulated ones.

    They get none for ten seconds beside other work, such as what dpkg does. Of an agent that is
    gone, as one is whose end or start was not taken for that, an incident says other words.
    """
    if incident["symptom"] == "silence":
        return any(words in incident["summary"] for words in STARVED)
    return incident["symptom"] == "delay" and incident["component"] in {"host gpu0", "host gpu1"}


def every():
    """Return every component that any incident names, or named at its end, starved hosts apart."""
    incidents = asked("netagent-analyzer", "incidents")["incidents"]
    print(*(f"{each['component']}: {each['summary']}" for each in incidents), sep="\n")
    return {each["component"] for each in incidents if not is_starved(each)} - {None}


def enrol(switch):
    """Have a host enrol, as `gpuN`."""
    name, words = f"gpu{switch.number}", []
    if switch.number:
        words = ["--state", f"/var/lib/{UNITS[1]}", "--config", f"/etc/{UNITS[1]}/agent.toml"]
    token = asked("netagent-analyzer", "invite", name)["token"]
    given = ["--analyzer", f"https://{HERE}:8420", "--token", "-", "--force", *words]
    run("ip", "netns", "exec", switch.name, "netagent", "enroll", *given, input=token)


def heard():
    """Return whether the analyzer hears of both hosts' containers."""
    return len(listed("endpoints")) == 2


def settings(switch):
    """Return what somebody set of a host's network and its container's, line by line."""
    shown = (
        ("ip", "-d", "-o", "link"), ("ip", "-o", "addr"), ("ip", "rule"),
        ("ip", "route", "show", "table", "all"), ("tc", "qdisc"),
        ("sysctl", "-a", "-r", r"^net\.(core|ipv4|ipv6)\."),
    )  # fmt: skip
    lines = [line for words in shown for name in (switch.name, switch.inside("a"))
             for line in run("ip", "netns", "exec", name, *words).splitlines()]  # fmt: skip
    socket_of = f"unix:{switch.rundir}/br-int.mgmt"
    flows = run("ovs-ofctl", "--no-stats", "dump-flows", socket_of).splitlines()
    return sorted(lines), flows


def own(switch, *words):
    """Return what an agent's command answers on its host, be all well or not."""
    config = f"/etc/{UNITS[switch.number]}/agent.toml"
    there = ["ip", "netns", "exec", switch.name, "netagent", *words, "--config", config, "--json"]
    return json.loads(run(*there, ok=(0, 1)))


def debs():
    found = {path.name.partition("_")[0]: path for path in DEBS.glob("*.deb")}
    assert set(found) == set(NAMES), DEBS
    return found


def repacked(deb, version, folder):
    """Return the same package as another version."""
    tree = folder / deb.name
    run("nice", "dpkg-deb", "-R", str(deb), str(tree))
    control = tree / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    lines = [f"Version: {version}" if line.startswith("Version:") else line for line in lines]
    control.write_text("\n".join(lines) + "\n")
    made = folder / f"{deb.name}-{version}.deb"
    run("nice", "dpkg-deb", "--root-owner-group", "-Znone", "-b", str(tree), str(made))
    shutil.rmtree(tree)
    return made


@pytest.fixture(scope="module", autouse=True)
def machine():
    """Be a machine on which packages start their services."""
    require(PACKAGES)
    Path("/usr/sbin/policy-rc.d").unlink(missing_ok=True)
    assert run("ip", "-o", "route", "show", "default") == ""  # no network


@pytest.fixture(scope="module")
def hosts(machine):
    """Return two hosts whose agents reach the analyzer."""
    tempfile.tempdir = "/run"  # the units have a /tmp of their own
    overlay = Overlay()
    run("ip", "link", "add", "here", "type", "veth", "peer", "here-f", "netns", overlay.fabric)
    run("ip", "-n", overlay.fabric, "link", "set", "here-f", "master", "br0", "up")
    run("ip", "addr", "add", f"{HERE}/24", "dev", "here")
    run("ip", "link", "set", "here", "up")
    for switch, unit in zip(overlay.hosts, UNITS, strict=True):
        folder = Path("/run/systemd/system", f"{unit}.service.d")
        folder.mkdir(parents=True, exist_ok=True)
        netns = f"[Service]\nNetworkNamespacePath=/run/netns/{switch.name}\n"
        (folder / "there.conf").write_text(netns)
    found = settings(overlay.hosts[0])
    yield overlay.hosts
    # No agent ever changed anything, nor did one leave anything behind.
    assert settings(overlay.hosts[0]) == found
    overlay.close()


def test_they_install_without_a_network_and_wait_for_a_configuration():
    run("dpkg", "-i", *map(str, debs().values()))
    for unit in NAMES:
        assert told(unit, "ActiveState") == "inactive"
        assert told(unit, "UnitFileState") == "enabled"
        assert told(unit, "ConditionResult") == "no"
        assert "usage" in run(unit, "--help")
    assert run("netagent", "doctor", ok=(1, 2)) is not None
    shipped = Path("/usr/share/netagent-analyzer")
    for verb, file in (("alerts", "netagent.rules.yml"), ("dashboard", "netagent.dashboard.json")):
        assert run("netagent-analyzer", verb) == (shipped / file).read_text()


@pytest.mark.parametrize("unit", sorted(SECURITY))
def test_a_unit_is_exposed_no_more_than_it_must_be(unit):
    whole = run("systemd-analyze", "security", "--no-pager", unit, ok=(0, 1))
    [level] = [line for line in whole.splitlines() if "Overall exposure" in line]
    assert float(level.split(":")[1].split()[0]) <= SECURITY[unit], whole
    print(level)


def test_an_analyzer_is_set_up_by_one_command_and_runs_as_nobody_else(hosts):
    run("netagent-analyzer", "ca", "init", "--name", "analyzer.example", "--address", HERE)
    run("systemctl", "start", "netagent-analyzer")
    assert is_active("netagent-analyzer")
    status = Path(f"/proc/{told('netagent-analyzer', 'MainPID')}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert "Uid:\t0\t" not in status
    assert "listens on https://" in told("netagent-analyzer", "StatusText")
    assert asked("netagent-analyzer", "endpoints")["endpoints"] == []


def test_hosts_enrol_with_tokens(hosts):
    text = Path("/usr/lib/systemd/system/netagent.service").read_text()
    second = text.replace("/etc/netagent/", f"/etc/{UNITS[1]}/")
    second = second.replace("Directory=netagent", f"Directory={UNITS[1]}")
    Path(f"/run/systemd/system/{UNITS[1]}.service").write_text(second)
    for switch, unit in zip(hosts, UNITS, strict=True):
        enrol(switch)
        assert Path("/var/lib", unit).stat().st_mode & 0o077 == 0
        with Path("/etc", unit, "agent.toml").open("a") as file:
            file.write(f'[ovs]\nrundir = "{switch.rundir}"\n')
    run("systemctl", "daemon-reload")
    for unit in UNITS:
        run("systemctl", "start", unit)
        assert is_active(unit)


def test_their_containers_are_found(hosts):
    for switch in hosts:
        port = f"a{switch.number}"
        ids = {"iface-id": port, "attached_mac": MACS[switch.number], "sandbox": port,
               "ip_addresses": f"{ADDRESSES[4][switch.number]}/24",
               "task": "train", "rail": "0"}  # fmt: skip
        words = [f'external_ids:{key}="{value}"' for key, value in ids.items()]
        switch.vsctl("set", "interface", port, *words)
        tunnel = [f"options:local_ip={switch.address}", "external_ids:rail=0"]
        switch.vsctl("set", "interface", "vxa", *tunnel)
    try:
        wait_until(heard, "both containers")
        wait_until(lambda: own(hosts[0], "status")["targets"], "what to probe")
    except AssertionError:
        print(journal("netagent"), own(hosts[0], "endpoints"), busiest())
        raise
    assert len(asked("netagent-analyzer", "endpoints")["endpoints"]) == 2


def test_a_fault_is_named_and_over_when_it_is_mended(hosts):
    assert every() == set()
    hosts[0].ofctl("del-flows", "in_port=a0")
    hosts[0].forget()
    try:
        wait_until(lambda: "flow gpu0/br-int/table=0" in named(), "the fault")
    except AssertionError:
        print(run("netagent-analyzer", "incidents", "--json"), journal("netagent"), busiest())
        raise
    finally:
        hosts[0].forward()
    wait_until(lambda: "flow gpu0/br-int/table=0" not in named(), "recovery")
    assert every() == {"flow gpu0/br-int/table=0"}


def test_a_trace_is_made_by_a_unit_that_alone_may(hosts):
    """The agent has no capability for it; what it asks for ends with the trace."""
    request = {"kind": "path", "flow": f"udp,nw_dst={ADDRESSES[4][1]}", "duration_s": 10.0}
    url = f"https://{hosts[0].address}:8421/v1/trace"

    def is_traced():
        answer = admin().post(url, json=request)
        if answer.status_code == 429:
            return False  # the analyzer has it trace something, too
        assert answer.status_code == 200, (answer.text, journal("netagent*"))
        return {"port_receive", "uplink_transmit"} <= {
            row["stage"] for row in answer.json()["stages"]
        }

    wait_until(is_traced, "a probe on its way")
    mine = Path(f"/proc/{told('netagent', 'MainPID')}/status").read_text()
    [effective] = (line.split()[1] for line in mine.splitlines() if line.startswith("CapEff"))
    assert int(effective, 16) >> 38 == 0  # CAP_PERFMON, CAP_BPF
    running = ("systemctl", "list-units", "--plain", "--no-legend", "netagent-tracer@*")
    wait_until(lambda: not run(*running), "the tracer's end")


def test_it_is_upgraded_while_it_probes_and_nobody_is_blamed(hosts, tmp_path):
    before = every()
    deb = debs()["netagent"]
    for version, flags in (("99.0~deb0", []), (None, ["--force-downgrade"])):
        path = repacked(deb, version, tmp_path) if version else deb
        pid = told("netagent", "MainPID")
        run("dpkg", "-i", *flags, str(path))
        wait_until(lambda: is_active("netagent"), "agent")
        assert told("netagent", "MainPID") != pid
        wait_until(heard, "both containers")
    assert every() == before, journal("netagent")


def test_its_certificate_is_changed_while_it_runs(hosts):
    pid = told("netagent", "MainPID")
    before = journal("netagent").count("certificates_taken")
    enrol(hosts[0])
    wait_until(lambda: journal("netagent").count("certificates_taken") > before, "it")
    assert told("netagent", "MainPID") == pid
    wait_until(heard, "both containers")


def agent_seen():
    """Return what the analyzer says of the host's agent."""
    [mine] = [each for each in listed("agents") if each["host"] == "gpu0"]
    return mine


def silent_s():
    """Return for how many seconds the analyzer has not heard of the host."""
    return agent_seen()["silent_ms"] / 1000


def limit_memory(most):
    """Give the installed unit another limit; nothing else restrains it meanwhile."""
    limits = ("MemoryHigh=infinity", f"MemoryMax={most}")
    run("systemctl", "set-property", "--runtime", "netagent.service", *limits)


def held():
    """Return the bytes of the unit that the kernel cannot take back."""
    folder = Path("/sys/fs/cgroup/system.slice/netagent.service")
    rows = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
    stat = {name: int(value) for name, value in rows}
    taken_back = ("inactive_file", "active_file", "slab_reclaimable")
    return int((folder / "memory.current").read_text()) - sum(stat[name] for name in taken_back)


def test_near_its_memory_limit_it_does_less_and_is_not_killed(hosts):
    before = told("netagent", "MainPID"), every()
    limit_memory(round(held() / 0.72))
    try:
        wait_until(lambda: agent_seen()["health"]["shed"] > 0, "it to shed load")
    finally:
        limit_memory("512M")
    wait_until(lambda: agent_seen()["health"]["shed"] == 0, "it to do all again")
    assert "load_shed" in journal("netagent")
    assert (told("netagent", "MainPID"), every()) == before


def test_what_is_revoked_is_refused_and_a_new_certificate_ends_that(hosts):
    wait_until(lambda: silent_s() < 10, "the host")
    run("netagent-analyzer", "ca", "revoke", "gpu0")
    wait_until(lambda: silent_s() > 20, "silence", within_s=80)
    enrol(hosts[0])
    wait_until(lambda: silent_s() < 10, "the host")


def test_nothing_is_left_of_what_is_purged():
    run("systemctl", "stop", UNITS[1])
    run("dpkg", "--purge", "netagent", "netagent-analyzer")
    for unit in NAMES:
        places = ("/etc", "/var/lib", "/var/cache", "/usr/lib", "/run", "/usr/bin")
        for place in (*places, "/usr/share/doc"):
            assert not Path(place, unit).exists()
        assert told(unit, "LoadState") in {"not-found", "masked"}
    assert not list(Path("/run").glob("netagent-tracer*"))
    assert not run("pgrep", "-f", "/usr/lib/netagent", ok=(0, 1))
