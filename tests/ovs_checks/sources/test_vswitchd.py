# SPDX-License-Identifier: Apache-2.0
"""The rim against a stand-in server; tests/ovs asks the real one."""

import json
import os
import socket
import stat
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.model.unixctl import find_reply
from ovs_checks.openflow.packet import Header
from ovs_checks.sources.vswitchd import Vswitchd
from ovs_checks.switch.rows import bridge_parts, configuration
from ovs_checks.switch.shows import parse_ports
from ovs_checks.switch.snapshot import FdbEntry, Lane, Mirror, Port


def uuid(n):
    return ["uuid", f"u{n}"]


def interface(n, name, **more):
    defaults = {
        "type": "",
        "ofport": n,
        "options": ["map", []],
        "external_ids": ["map", []],
        "mac_in_use": f"00:00:00:00:00:0{n}",
        "link_state": "up",
    }
    return {"_uuid": uuid(n), "name": name, **defaults, **more}


def port_row(n, name, *interfaces, **more):
    members = [uuid(i) for i in interfaces]
    inside = members[0] if len(members) == 1 else ["set", members]
    none = {column: ["set", []] for column in ("tag", "trunks", "vlan_mode")}
    return {"_uuid": uuid(n), "name": name, "interfaces": inside, **none, **more}


ROWS = {
    "Bridge": [
        {"name": "br0", "ports": ["set", [uuid(11), uuid(12), uuid(13)]], "mirrors": uuid(21)},
        {"name": "br1", "ports": uuid(14), "other_config": ["map", [["forward-bpdu", "true"]]]},
    ],
    "Port": [
        port_row(11, "p1", 1),
        port_row(12, "bond0", 2, 3),
        port_row(13, "access", 4, tag=5),
        port_row(14, "vx", 5),
    ],
    "Interface": [
        interface(1, "p1", external_ids=["map", [["sandbox", "c1"]]]),
        interface(2, "b1"),
        interface(3, "b2", ofport=["set", []], mac_in_use=["set", []], link_state=["set", []]),
        interface(4, "access", ofport=-1, link_state="down"),
        interface(5, "vx", type="vxlan", options=["map", [["remote_ip", "flow"], ["key", "1"]]]),
    ],
    "Mirror": [
        {
            "_uuid": uuid(21),
            "name": "m0",
            "select_all": False,
            "select_src_port": uuid(13),
            "select_dst_port": ["set", []],
            "select_vlan": 5,
            "output_port": uuid(11),
            "output_vlan": ["set", []],
            "snaplen": ["set", []],
        }
    ],
}


def test_ports_from_ovsdb_rows():
    ports = {bridge.name: bridge.ports for bridge in bridge_parts(ROWS)}
    assert ports["br0"] == (
        Port(
            "p1",
            1,
            "br0",
            external_ids=(("sandbox", "c1"),),
            mac="00:00:00:00:00:01",
            state="up",
        ),
        Port("b1", 2, "br0", mac="00:00:00:00:00:02", state="up", bond="bond0"),
        Port("b2", -1, "br0", bond="bond0"),
        Port("access", -1, "br0", mac="00:00:00:00:00:04", state="down", vlan="tag=[5]"),
    )
    bridges = {bridge.name: bridge for bridge in bridge_parts(ROWS)}
    assert bridges["br0"].lanes == (
        Lane("p1", (1,)),
        Lane("bond0", (2,)),
        Lane("access", (-1,), "access", 5),
    )
    watched, vlans = frozenset({"access"}), frozenset({5})
    assert bridges["br0"].mirrors == (Mirror("m0", watched, frozenset(), vlans, "p1"),)
    assert bridges["br1"].forwards_bpdu
    assert ports["br1"][0].options == (("key", "1"), ("remote_ip", "flow"))


_json = st.recursive(
    st.none() | st.integers() | st.text(max_size=4) | st.sampled_from(("set", "uuid", "u1")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.sampled_from(sorted(ROWS)), st.data())
def test_odd_rows_are_a_protocol_error(table, data):
    """Any one column of any one row replaced by junk."""
    rows = json.loads(json.dumps(ROWS))
    row = data.draw(st.sampled_from(rows[table]))
    row[data.draw(st.sampled_from(sorted(row)))] = data.draw(_json)
    with suppress(RemoteProtocolError):
        bridge_parts(rows)


@pytest.mark.parametrize("odd", [[5], [{"other_config": 5}], [{"other_config": ["map", [5]]}], 5])
def test_odd_settings_are_a_protocol_error(odd):
    with pytest.raises(RemoteProtocolError):
        configuration({"Open_vSwitch": odd})
    assert configuration({}) == {}


@given(st.binary(max_size=60) | _json.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_bytes_are_no_reply_or_a_protocol_error(data):
    with suppress(RemoteProtocolError):
        reply = find_reply(data)
        assert reply is None or "method" not in reply


def test_a_port_without_a_number_is_passed_over():
    """And what is said of it is not taken for its neighbour's."""
    text = " 1(p1): addr:00:00:00:00:00:01\n     config: 0\n     state: LIVE\n"
    odd = " what(p2): addr:00:00:00:00:00:02\n     config: PORT_DOWN\n     state: 0\n"
    (port,) = parse_ports(text + odd)
    assert (port.number, port.live, port.config) == (1, True, frozenset())


def test_requests_of_the_server_are_passed_over():
    echo = json.dumps({"id": "echo", "method": "echo", "params": []}).encode()
    reply = json.dumps({"id": 0, "result": "ü", "error": None}).encode()
    assert find_reply(echo) is None
    assert find_reply(echo + reply)["result"] == "ü"
    assert find_reply(reply[:-5]) is None


class StandIn(threading.Thread):
    """A JSON-RPC server: answers each connection's first request by `answer(request)`."""

    def __init__(self, path, answer):
        super().__init__(daemon=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._answer = answer
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):  # the client may have seen enough
                request = json.loads(connection.recv(65536))
                for piece in self._answer(request):
                    connection.sendall(piece)

    def stop(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.join(5)


@contextmanager
def stand_in(path, answer):
    server = StandIn(path, answer)
    try:
        yield
    finally:
        server.stop()


def says(result=None, error=None):
    return json.dumps({"id": 0, "result": result, "error": error}).encode()


@pytest.fixture
def rundir(tmp_path):
    (tmp_path / "ovs-vswitchd.pid").write_text("42\n")
    return tmp_path


def test_a_command_goes_to_the_control_socket_of_the_running_process(rundir):
    def answer(request):
        whole = says(f"{request['method']} {request['params']}")
        yield whole[:7]
        yield whole[7:]

    for name in ("ovs-vswitchd.ctl", "ovs-vswitchd.42.ctl"):
        with stand_in(rundir / name, answer):
            assert Vswitchd(rundir).command("fdb/show", "br0") == "fdb/show ['br0']"


def test_a_socket_that_a_daemon_left_behind_is_passed_over(rundir):
    """Whichever name it has, and whatever the pid file says."""
    names = ("ovs-vswitchd.42.ctl", "ovs-vswitchd.ctl", "ovs-vswitchd.43.ctl")
    for alive in names:
        for name in names:
            leave_behind(rundir / name)
        (rundir / alive).unlink()
        with stand_in(rundir / alive, lambda r: [says(r["method"])]):
            assert Vswitchd(rundir).command("version") == "version"
        (rundir / alive).unlink()
    (rundir / "ovs-vswitchd.pid").unlink()
    with stand_in(rundir / "ovs-vswitchd.43.ctl", lambda r: [says(r["method"])]):
        assert Vswitchd(rundir).command("version") == "version"
    with pytest.raises(CapabilityMissing, match="Open vSwitch"):
        Vswitchd(rundir).command("version")


def leave_behind(path):
    """Make the socket file of a daemon that was killed."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_a_packet_is_traced_in_the_syntax_of_open_vswitch(rundir):
    with stand_in(rundir / "ovs-vswitchd.ctl", lambda r: [says(" ".join(r["params"]))]):
        vswitchd = Vswitchd(rundir)
        header = Header(in_port=3, eth_type=0x800, nw_proto=17, tp_dst=5)
        assert vswitchd.trace("br0", header) == "br0 udp,in_port=3,udp_dst=5"
        assert vswitchd.trace("br0", "in_port=p1") == "br0 in_port=p1"


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([says(error="unknown bridge")], "unknown bridge"),
        ([says(result=5)], "text expected"),
        ([b'{"id":0,'], "cut off"),
        ([b"[]}"], "no JSON-RPC message"),
        ([b"x" * 5000], "cut off"),
    ],
)
def test_bad_answers_are_protocol_errors(rundir, pieces, error):
    vswitchd = Vswitchd(rundir, max_bytes=4096)
    server = stand_in(rundir / "ovs-vswitchd.ctl", lambda _: pieces)
    with server, pytest.raises(RemoteProtocolError, match=error):
        vswitchd.command("version")


def test_silence_is_bounded_in_time(rundir):
    """Neither a server that says nothing nor one that never finishes can hold us."""
    for pause_s in (100, 0):
        gate = threading.Event()

        def trickle(_, gate=gate, pause_s=pause_s):
            while not gate.is_set():
                yield b" "
                gate.wait(pause_s)

        with stand_in(rundir / f"ovs-vswitchd.{pause_s}.ctl", trickle):
            (rundir / "ovs-vswitchd.pid").write_text(str(pause_s))
            began = time.monotonic()
            with pytest.raises(Unreachable, match="timeout"):
                Vswitchd(rundir, timeout_s=0.1).command("version")
            assert time.monotonic() - began < 60  # the server would be silent for longer
            gate.set()


def test_a_socket_that_cannot_be_is_unreachable(tmp_path):
    rundir = tmp_path / ("long" * 30)
    rundir.mkdir()
    (rundir / "ovs-vswitchd.pid").write_text("42")
    with pytest.raises(Unreachable, match="too long"):
        Vswitchd(rundir).command("version")


def test_an_absent_vswitch_is_a_missing_capability(tmp_path):
    vswitchd = Vswitchd(tmp_path)
    with pytest.raises(CapabilityMissing, match="Open vSwitch"):
        vswitchd.command("version")
    with pytest.raises(CapabilityMissing):
        vswitchd.snapshot("h0")
    with pytest.raises(CapabilityMissing):
        vswitchd.dump_flows("br0")
    (tmp_path / "ovs-vswitchd.pid").write_text("42")
    with pytest.raises(CapabilityMissing):
        vswitchd.command("version")
    (tmp_path / "ovs-vswitchd.ctl").mkdir()
    with pytest.raises((CapabilityMissing, Unreachable)):
        vswitchd.command("version")


@pytest.fixture
def ofctl(rundir, monkeypatch):
    """Give a function that makes the `ovs-ofctl` found on PATH a shell script."""
    (rundir / "bin").mkdir()
    for name in ("br0", "br1"):
        (rundir / f"{name}.mgmt").touch()

    def install(script):
        path = rundir / "bin" / "ovs-ofctl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{rundir}/bin{os.pathsep}/usr/bin{os.pathsep}/bin")

    return install


def test_a_snapshot_joins_ports_flows_and_addresses(rundir, ofctl):
    lines = "echo ' priority=5 actions=output:1'; echo ' cookie=0x0, tab'"
    ofctl(f'case "$*" in *dump-flows*) {lines};; *meters*) echo no meters; exit 1;; esac')

    def answer(request):
        shown = {
            "fdb/show": "port VLAN MAC Age\n 1 0 00:00:00:00:00:01 3\n",
            "version": "ovs-vswitchd (Open vSwitch) 3.1.0\n",
        }
        yield says(shown.get(request["method"], ""))

    def database(request):
        asked = [operation["table"] for operation in request["params"][1:]]
        yield says([{"rows": ROWS.get(table, [])} for table in asked])

    with stand_in(rundir / "db.sock", database), stand_in(rundir / "ovs-vswitchd.ctl", answer):
        snapshot = Vswitchd(rundir).snapshot("h0", bridges=["br0"], wall_ns=7)
        everything = Vswitchd(rundir).snapshot("h0")
    assert (snapshot.host, snapshot.version, snapshot.wall_ns) == ("h0", "3.1.0", 7)
    assert [bridge.name for bridge in snapshot.bridges] == ["br0"]
    assert snapshot.bridges[0].fdb == (FdbEntry(1, 0, 1, 3),)
    assert snapshot.bridges[0].flows[0].priority == 5
    assert snapshot.problems[0].startswith("br0: flows: line 2")
    assert snapshot.problems[1] == "br0: dump-meters: no meters"
    assert [bridge.name for bridge in everything.bridges] == ["br0", "br1"]
    assert everything.wall_ns > 0


def test_an_odd_database_is_a_protocol_error(rundir):
    server = stand_in(rundir / "db.sock", lambda _: [says([{"error": "no such table"}])])
    with server, pytest.raises(RemoteProtocolError, match="OVSDB"):
        Vswitchd(rundir).snapshot("h0")


def test_ofctl_s_troubles_are_typed(rundir, ofctl, monkeypatch):
    ofctl("echo 'ovs-ofctl: br0: connection failed'; exit 1")
    with pytest.raises(Unreachable, match="connection failed"):
        Vswitchd(rundir).dump_flows("br0")
    ofctl("exit 3")
    with pytest.raises(Unreachable, match="ended 3"):
        Vswitchd(rundir).dump_flows("br0")
    ofctl("while :; do echo ' priority=5 actions=output:1'; done")
    with pytest.raises(RemoteProtocolError, match="4096 bytes"):
        Vswitchd(rundir, max_bytes=4096).dump_flows("br0")
    monkeypatch.setenv("PATH", str(rundir))
    with pytest.raises(CapabilityMissing, match="ovs-ofctl"):
        Vswitchd(rundir).dump_flows("br0")
