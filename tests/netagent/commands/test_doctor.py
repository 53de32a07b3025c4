# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bpf.trace.programs import PROGRAMS, KernelFacts, Refusal
from netagent.adapters import capabilities
from netagent.adapters.host.board import read_hardware
from netagent.adapters.host.settings import Settings
from netagent.adapters.host.sysfs import RdmaPort
from netagent.adapters.host.vswitchd import VswitchdError
from netagent.cli import main
from netagent.commands import doctor, endpoints
from netagent.commands.doctor import Diagnosis, diagnose
from netagent.config import AgentConfig, AnalyzerConfig, OvsConfig, parse
from netagent.host.facts import HostView, Namespace, Uplink
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing, ConfigError
from netagent.model.ids import EndpointId
from netagent.wire.controller import ControllerState, Working
from tests.netagent.server_board import gpu_server

CONFIG = 'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:1"\n'
C0 = EndpointId("c0", 0)
VIEW = HostView(
    (Endpoint(C0, "t", "h0", "10.0.0.10", "m", "172.30.0.10", "rnic0", "br-int", "p"),),
    {C0: Namespace("/run/netns/x", 5)},
    (),
    (Uplink(0, "rnic0", "172.30.0.10", "br-phy0", "vxlan0", ("rnic0",)),),
    rnics=("rnic0",),
    complete=True,
)
NEEDED = ["privileges", "state folder", "Open vSwitch", "OVSDB", "rails", "namespaces"]
NEEDED += ["timestamps", "packet capture", "analyzer"]


@pytest.fixture
def able(monkeypatch):
    """Make a host that can do everything."""

    async def fine(*_: object) -> str:
        return "ovs-vswitchd 3.1\n"

    async def view(_: object) -> HostView:
        return VIEW

    monkeypatch.setattr(capabilities, "missing_privileges", list)
    for name in ("writable", "timestamps", "packet_socket", "clock_synchronised"):
        monkeypatch.setattr(capabilities, name, lambda *_: "fine")
    monkeypatch.setattr(capabilities, "analyzer_answers", fine)
    monkeypatch.setattr(doctor, "appctl", fine)
    monkeypatch.setattr(doctor, "first_view", view)
    monkeypatch.setattr(doctor, "rdma_ports", lambda: (RdmaPort("mlx5_0", 1, "ACTIVE", "E"),))
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(Path, "exists", lambda _: True)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(CONFIG)
    return str(path)


def states() -> dict[str, Diagnosis]:
    return {each.capability: each for each in asyncio.run(diagnose(parse(CONFIG)))}


def test_a_host_that_can_do_everything_is_well(able, file, capsys):
    assert main(["doctor", "--config", file]) == 0
    text = capsys.readouterr().out
    assert "missing" not in text
    assert "0: rnic0 172.30.0.10" in text
    assert all(len(line) < 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("where", "name", "capability", "remedy"),
    [
        (capabilities, "timestamps", "timestamps", "another kernel"),
        (capabilities, "packet_socket", "packet capture", "CAP_NET_RAW"),
        (doctor, "first_view", "OVSDB", "start ovsdb-server"),
        (capabilities, "clock_synchronised", "clock", "run chrony"),
    ],
)
def test_what_is_lacking_comes_with_its_remedy(able, monkeypatch, where, name, capability, remedy):
    def lack(*_: object) -> str:
        raise CapabilityMissing("x", remedy)

    monkeypatch.setattr(where, name, lack)
    found = states()[capability]
    assert found.state == ("missing" if capability in NEEDED else "absent")
    assert found.detail == remedy


def test_a_host_whose_endpoints_are_all_declared_needs_no_open_vswitch(able, monkeypatch):
    bare = replace(VIEW.endpoints[0], bridge="", port="net1")

    async def view(_: object) -> HostView:
        return replace(VIEW, endpoints=(bare,), uplinks=())

    async def dead(*_: object) -> str:
        raise VswitchdError("no pid file in /run")

    monkeypatch.setattr(doctor, "first_view", view)
    monkeypatch.setattr(doctor, "appctl", dead)
    config = parse(f'{CONFIG}[ovs]\nintegration_bridge = ""\n')
    found = {each.capability: each for each in asyncio.run(diagnose(config))}
    assert {found[name].state for name in ("Open vSwitch", "OVSDB", "rails")} == {"ok"}
    untraced = "paths of c0/rail0 are not traced: no virtual switch carries them"
    assert found["rails"].detail == f"none with a tunnel; rnic0 carry endpoints; {untraced}"


def test_a_host_without_open_vswitch_is_well_before_its_first_container(able, monkeypatch):
    async def view(_: object) -> HostView:
        return HostView(complete=True)

    monkeypatch.setattr(doctor, "first_view", view)
    config = parse(f'{CONFIG}[ovs]\nintegration_bridge = ""\n')
    found = {each.capability: each.state for each in asyncio.run(diagnose(config))}
    assert set(found.values()) == {"ok"}
    assert not {"eBPF", "kernel datapath"} & set(found)


def test_endpoints_whose_paths_are_never_traced_are_told_beside_the_rails(able, monkeypatch):
    bare = replace(VIEW.endpoints[0], id=EndpointId("c1", 0), bridge="", port="net1")

    async def view(_: object) -> HostView:
        return replace(VIEW, endpoints=(*VIEW.endpoints, bare))

    monkeypatch.setattr(doctor, "first_view", view)
    found = {each.capability: each for each in asyncio.run(diagnose(parse(CONFIG)))}
    assert (found["rails"].state, found["rails"].detail) == (
        "ok",
        "0: rnic0 172.30.0.10; paths of c1/rail0 are not traced: no virtual switch carries them",
    )


def test_without_a_view_of_the_host_rails_and_namespaces_point_at_ovsdb(able, monkeypatch):
    async def lack(_: object) -> HostView:
        raise CapabilityMissing("OVSDB", "start ovsdb-server")

    monkeypatch.setattr(doctor, "first_view", lack)
    found = states()
    assert found["rails"].detail == found["namespaces"].detail == "see OVSDB above"


def test_a_host_without_rails_or_with_hidden_namespaces_is_told(able, monkeypatch):
    async def bare(_: object) -> HostView:
        return HostView(endpoints=VIEW.endpoints, complete=True)

    monkeypatch.setattr(doctor, "first_view", bare)
    found = states()
    assert "external_ids:rail" in found["rails"].detail
    assert "hidden: c0/rail0" in found["namespaces"].detail


@pytest.mark.parametrize(
    ("working", "state", "detail"),
    [
        (Working.CONNECTED, "ok", "ovn is connected to tcp:10.9.0.1:6642 and installed "),
        (Working.STOPPED, "absent", "ovn is stopped (no pid file): see that ovn-controller runs"),
    ],
)
@pytest.mark.parametrize("generation", [7, None])
def test_how_a_controllers_part_of_the_host_is_gets_a_line(
    able, monkeypatch, working, state, detail, generation
):
    async def view(_: object) -> HostView:
        driven = ControllerState(source="ovn", central="tcp:10.9.0.1:6642", generation=generation)
        return replace(VIEW, controller=driven)

    async def asked(rundir: Path) -> tuple[Working, str]:
        assert rundir == Path("/var/run/ovn")
        return working, "" if working is Working.CONNECTED else "no pid file"

    assert states()["controller"].detail == "none drives the integration bridge"
    monkeypatch.setattr(doctor, "first_view", view)
    monkeypatch.setattr(doctor, "working_of", asked)
    found = states()["controller"]
    assert found.state == state
    assert found.detail.startswith(detail)
    if working is Working.CONNECTED:
        assert found.detail.endswith("generation unknown" if generation is None else "7")


@pytest.mark.parametrize(
    ("working", "state", "detail"),
    [
        (Working.CONNECTED, "ok", "acme is connected, and 0 ports are plugged in"),
        (Working.CUT_OFF, "absent", "acme is cut-off: see `ovs-vsctl list controller`"),
    ],
)
def test_another_controllers_part_of_the_host_is_open_vswitchs_word(working, state, detail):
    config = AgentConfig(
        host="h0",
        analyzer=AnalyzerConfig(url="http://127.0.0.1:1"),
        ovs=OvsConfig(driven_by="acme"),
    )
    view = replace(VIEW, controller=ControllerState(source="acme", working=working))
    told = doctor._controller(config, [view])
    if state == "ok":
        assert asyncio.run(told) == detail
    else:
        with pytest.raises(CapabilityMissing, match="list controller"):
            asyncio.run(told)


def test_privileges_and_daemons_that_are_lacking_are_named(able, monkeypatch):
    async def dead(*_: object) -> str:
        raise VswitchdError("no pid file in /run")

    async def bad(*_: object) -> str:
        raise ConfigError("c.pem", "TLS files cannot be used")

    monkeypatch.setattr(capabilities, "missing_privileges", lambda: ["CAP_NET_RAW"])
    monkeypatch.setattr(doctor, "appctl", dead)
    monkeypatch.setattr(capabilities, "analyzer_answers", bad)
    found = states()
    assert "grant CAP_NET_RAW" in found["privileges"].detail
    assert "start ovs-vswitchd" in found["Open vSwitch"].detail
    assert "TLS files" in found["analyzer"].detail


def test_what_one_can_do_without_fails_nobody(able, file, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "rdma_ports", tuple)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: None)
    assert main(["doctor", "--config", file, "--json"]) == 0
    found = {each["capability"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["RDMA"]["state"] == found["eBPF"]["state"] == "absent"


FACTS = KernelFacts(
    "6.1", frozenset(), has_kprobes=True, has_bcc=True, is_privileged=True, layout=None,
    layout_problem="the kernel has no BTF",
)  # fmt: skip


def test_a_kernel_without_btf_or_openvswitch_is_told(able, monkeypatch):
    monkeypatch.setattr(doctor, "read_facts", lambda: FACTS)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    found = states()
    assert "the kernel has no BTF" in found["eBPF"].detail
    assert "CONFIG_DEBUG_INFO_BTF" in found["eBPF"].detail
    assert "modprobe openvswitch" in found["kernel datapath"].detail


def test_programs_that_cannot_run_are_told_beside_those_that_can(able, monkeypatch):
    found = [PROGRAMS["drop"]], [Refusal("lookup", "no kprobes", "a newer kernel")]
    monkeypatch.setattr(doctor, "read_facts", lambda: FACTS)
    monkeypatch.setattr(doctor, "choose", lambda kind, facts, tunnel: found)
    assert states()["eBPF"].detail == "1 programs can run; not lookup: no kprobes"


def test_devices_without_pyverbs_are_probed_by_udp(able, monkeypatch):
    port = RdmaPort("mlx5_0", 1, "ACTIVE", "LinkUp")
    monkeypatch.setattr(doctor, "rdma_ports", lambda: (port,))
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: None)
    assert "python3-pyverbs" in states()["RDMA"].detail


def test_a_bare_host_is_told_what_it_needs(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(endpoints, "WAIT_S", 0.2)
    text = CONFIG + f'[ovs]\nrundir = "{tmp_path}"\n'
    Path(file).write_text(f'state_dir = "{tmp_path}/state"\n' + text)
    assert main(["doctor", "--config", file]) == 1
    out = capsys.readouterr().out
    assert "Open vSwitch       missing  -> start ovs-vswitchd" in out
    assert "analyzer           missing" in out
    assert all(len(line) < 80 for line in out.splitlines())


def test_without_a_configuration_the_rest_is_told(able, tmp_path, capsys):
    assert main(["doctor", "--config", str(tmp_path / "none.toml"), "--json"]) == 1
    found = {row["capability"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["configuration"]["state"] == "missing"
    assert "none.toml" in found["configuration"]["detail"]
    assert found["timestamps"]["state"] == "ok"
    assert "OVSDB" not in found


def test_remedies_are_not_broken_at_hyphens(capsys):
    doctor.show(doctor.Diagnosis("x", "absent", "install " + "a-package " * 12))
    text = capsys.readouterr().out
    assert not any(line.endswith("-") for line in text.splitlines())
    assert "-> install" in text


def test_a_deep_look_tells_of_the_board_and_of_what_the_host_states(
    able, file, tmp_path, monkeypatch, capsys
):
    board = gpu_server(tmp_path)
    board.say("0000:13:00.0", current_link_width="8")
    read = partial(
        read_hardware, sysfs=board.sysfs, procfs=board.procfs, ask=lambda name: Settings("mlx5")
    )
    monkeypatch.setattr(doctor, "read_hardware", lambda names: read([*names, "rnic1"]))
    assert main(["doctor", "--config", file]) == 0
    capsys.readouterr()
    assert main(["doctor", "--config", file, "--deep", "--json"]) == 1
    table = {row["capability"]: row for row in json.loads(capsys.readouterr().out)}
    assert table["PCIe link"]["state"] == "wrong"
    assert table["PCIe link"]["detail"].startswith("rnic0 has 8 lanes at 32 GT/s on PCIe")
    assert "reseat the card" in table["PCIe link"]["detail"]
    assert table["GPUDirect"]["state"] == "ok"


def test_a_deep_look_without_a_configuration_says_what_it_can(able, tmp_path, capsys):
    main(["doctor", "--config", str(tmp_path / "none.toml"), "--deep"])
    shown = capsys.readouterr().out
    assert "PCIe link" in shown
    assert all(len(line) < 80 for line in shown.splitlines())
