# SPDX-License-Identifier: Apache-2.0
import io
import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import ConfigError, RemoteProtocolError, Unreachable
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch import bundle as bundles
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.bundle import Answer, Bundle, Recorder, mangled, pack, read_archive, unpack
from ovs_checks.switch.sosreport import Sosreport

TABLES = {
    "Bridge": [
        {"name": "br0", "ports": ["uuid", "1"], "datapath_type": "dummy"},
    ],
    "Port": [
        {"_uuid": ["uuid", "1"], "name": "p1", "interfaces": ["uuid", "2"], "tag": ["set", []]}
        | {"trunks": ["set", []], "vlan_mode": ["set", []]}
    ],
    "Interface": [
        {"_uuid": ["uuid", "2"], "name": "p1", "type": "dummy", "ofport": 1}
        | {"options": ["map", []], "external_ids": ["map", []], "link_state": "up"}
        | {"mac_in_use": "00:00:00:00:00:01", "mtu": 1500}
    ],
}
SHOWN = {
    "ovs-appctl version": "ovs-vswitchd (Open vSwitch) 3.1.0\n",
    "ovs-appctl fdb/show br0": " port  VLAN  MAC  Age\n    1     0  00:00:00:00:00:01    3\n",
    "ovs-ofctl dump-flows br0": " cookie=0x7, table=0, priority=5,ip actions=output:1\n",
}


class Told:
    """A host that knows what it is told, and refuses the rest."""

    def rows(self):
        return TABLES

    def command(self, name, *arguments):
        return self._told(" ".join(("ovs-appctl", name, *arguments)))

    def ofctl(self, command, bridge):
        return self._told(f"ovs-ofctl {command} {bridge}")

    def _told(self, command):
        if command not in SHOWN:
            raise Unreachable("br0", "no such command")
        return SHOWN[command]


@pytest.fixture
def recorded():
    clock = iter(range(100, 1000))
    recorder = Recorder(Told(), "h0", lambda: next(clock))
    return assemble(recorder, "h0", wall_ns=100), recorder.bundle()


def test_a_bundle_answers_as_the_host_did(recorded, tmp_path):
    snapshot, bundle = recorded
    path = tmp_path / "h0.tar.gz"
    path.write_bytes(pack(bundle, version="1"))
    kept = open_answers(path)
    assert kept == bundle
    again = assemble(kept, kept.host, wall_ns=kept.wall_ns)
    assert again.bridges == snapshot.bridges
    assert (again.version, again.wall_ns) == ("3.1.0", 100)
    assert len(again.problems) == len(snapshot.problems) > 0
    assert any("no such command" in problem for problem in again.problems)


def test_a_bundle_can_be_unpacked_and_looked_into(recorded, tmp_path):
    _, bundle = recorded
    tar = ["tar", "-xzC", str(tmp_path)]
    subprocess.run(tar, input=pack(bundle, version="1"), check=True)
    assert "priority=5" in next(tmp_path.glob("answers/*-ovs-ofctl_dump-flows_br0")).read_text()
    assert open_answers(tmp_path) == bundle


answers = st.lists(
    st.builds(
        Answer, st.text(), st.integers(0, 1 << 62), st.text().map(lambda t: t.replace("\r", ""))
    )
)


@given(answers, st.lists(st.tuples(st.text(), st.text())), st.text())
def test_whatever_was_answered_survives_the_archive(told, refused, host):
    bundle = Bundle(_plain(host), 7, TABLES, tuple(map(_written, told)), _pairs(refused))
    packed = io.BytesIO(pack(bundle, version="1"))
    assert unpack(read_archive(packed, lambda _: True)) == bundle


def _plain(text):
    return text.encode(errors="replace").decode()


def _written(answer):
    return Answer(_plain(answer.command), answer.wall_ns, _plain(answer.text))


def _pairs(pairs):
    return tuple((_plain(a), _plain(b)) for a, b in pairs)


@given(st.data())
def test_an_archive_that_was_cut_off_gives_what_it_holds(data):
    told = tuple(Answer(f"c{n}", n, f"{n * 7919}" * 400) for n in range(40))
    packed = pack(Bundle("h0", 7, TABLES, told), version="1")
    cut = data.draw(st.integers(0, len(packed) - 1))
    try:
        kept = unpack(read_archive(io.BytesIO(packed[:cut]), lambda _: True))
    except RemoteProtocolError:
        return
    assert set(kept.answers) <= set(told)
    lost = {answer.command for answer in told} - {answer.command for answer in kept.answers}
    assert dict(kept.refused) == dict.fromkeys(lost, "cut off from the bundle")


def test_half_an_archive_still_answers():
    told = tuple(Answer(f"c{n}", n, f"{n * 7919}" * 4000) for n in range(400))
    packed = pack(Bundle("h0", 7, TABLES, told), version="1")
    kept = unpack(read_archive(io.BytesIO(packed[: len(packed) * 3 // 4]), lambda _: True))
    assert kept.answers
    assert kept.refused


@given(st.binary() | st.binary().map(lambda junk: b"\x1f\x8b\x08\0\0\0\0\0" + junk))
def test_arbitrary_bytes_are_no_archive(data):
    with pytest.raises(RemoteProtocolError):
        unpack(read_archive(io.BytesIO(data), lambda _: True))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        _nested := lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["format", "host", "wall_ns", "answers", "refused", "command", "file"]
                ),
                inner,
            )
        ),
    )
)
def test_an_odd_manifest_is_a_protocol_error(said):
    with pytest.raises(RemoteProtocolError):
        unpack({"manifest.json": json.dumps(said)})


def test_what_is_no_bundle_is_said(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="No such file"):
        open_answers(tmp_path / "none")
    with pytest.raises(ConfigError, match="neither a bundle nor a sosreport"):
        open_answers(tmp_path)
    newer = {"manifest.json": '{"format": 2}'}
    with pytest.raises(RemoteProtocolError, match="format 2"):
        unpack(newer)
    monkeypatch.setattr(bundles, "MAX_BYTES", 100)
    (tmp_path / "big.tar.gz").write_bytes(pack(Bundle("h0", 7, TABLES), version="1"))
    with pytest.raises(ConfigError, match="over 100 bytes"):
        open_answers(tmp_path / "big.tar.gz")


def test_samples_are_kept_in_order():
    told = (Answer("a", 1, "x"), Answer("b", 2, "y"), Answer("a", 3, "z"))
    bundle = Bundle("h0", 7, {}, told)
    assert [one.text for one in bundle.samples("a")] == ["x", "z"]
    assert bundle.told("a") == "x"
    with pytest.raises(Unreachable, match="not in the bundle: c"):
        bundle.told("c")
    with pytest.raises(Unreachable, match=r"ovsdb\.json is missing"):
        bundle.rows()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("ovs-appctl fdb/show br-int", "ovs-appctl_fdb.show_br-int"),
        ("ovs-ofctl -O OpenFlow14 dump-flows br.1", "ovs-ofctl_-O_OpenFlow14_dump-flows_br.1"),
        (
            "ovs-appctl dpctl/dump-flows -m system@ovs-system",
            "ovs-appctl_dpctl.dump-flows_-m_system_ovs-system",
        ),
    ],
)
def test_files_are_named_as_sos_names_them(command, name):
    assert mangled(command) == name


def test_what_sos_logged_is_no_answer():
    """It keeps both streams of a command in one file."""
    log = "2026-01-01T00:00:00Z|00001|vconn|WARN|unix:x: version negotiation failed\n"
    files = {
        f"{SOS}/openvswitch/ovs-ofctl_-O_OpenFlow14_dump-flows_br0": f"{log}ovs-ofctl: br0: failed",
        f"{SOS}/openvswitch/ovs-ofctl_-O_OpenFlow13_dump-flows_br0": f"{log} actions=drop",
    }
    assert Sosreport(files).ofctl("dump-flows", "br0").endswith("actions=drop")


SOS = "sosreport-h7-2026/sos_commands"


def test_a_sosreport_answers_with_the_newest_openflow():
    files = {
        f"{SOS}/openvswitch/ovs-ofctl_-O_OpenFlow13_dump-flows_br0": "old",
        f"{SOS}/openvswitch/ovs-ofctl_-O_OpenFlow14_dump-flows_br0": "new",
        f"{SOS}/openvswitch/ovs-ofctl_-O_OpenFlow15_dump-flows_br0": "ovs-ofctl: br0: failed",
        f"{SOS}/openvswitch/ovs-ofctl_dump-ports-desc_br0": "ports",
        f"{SOS}/openvswitch/ovs-appctl_tnl.arp.show": "arp",
        f"{SOS}/openvswitch/ovs-ofctl_-t_5_--version": "ovs-ofctl (Open vSwitch) 2.17.9\n",
        "sosreport-h7-2026/hostname": "h7\n",
    }
    report = Sosreport(files)
    assert report.host == "h7"
    assert report.ofctl("dump-flows", "br0") == "new"
    assert report.ofctl("dump-ports-desc", "br0") == "ports"
    assert report.command("tnl/neigh/show") == "arp"
    assert report.command("version").endswith("2.17.9\n")
    with pytest.raises(Unreachable, match="not in it: ovs-ofctl dump-groups br0"):
        report.ofctl("dump-groups", "br0")
    with pytest.raises(Unreachable, match="not in it: ovs-appctl fdb/show br0"):
        report.command("fdb/show", "br0")
    with pytest.raises(Unreachable, match=r"conf\.db"):
        report.rows()
