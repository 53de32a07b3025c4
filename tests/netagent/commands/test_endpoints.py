# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
from dataclasses import replace

import msgspec
import pytest

from netagent.cli import main
from netagent.commands import endpoints
from netagent.config import parse
from netagent.host.facts import HostView, Namespace, Uplink
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import rnic
from netagent.wire.unprobed import Unprobed, UnprobedPort, Why

CONFIG = 'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:1"\n'
C0 = EndpointId("train-a-with-a-long-name-0", 0)
VIEW = HostView(
    endpoints=(
        Endpoint(C0, "train-a", "h0", "10.0.0.10", "m", "172.30.0.10", "rnic0", "br-int", "p"),
    ),
    namespaces={C0: Namespace("/run/netns/x", 5)},
    findings=(Finding(FindingKind.RNIC_DOWN, rnic("h0", "rnic0"), "rnic0 is down", 0),),
    uplinks=(Uplink(0, "rnic0", "172.30.0.10", "br-phy0", "vxlan0", ("rnic0",)),),
    complete=True,
)


class Watcher:
    """Says what a test says."""

    views: tuple[HostView, ...] = ()
    fails: Exception | None = None

    def __init__(self, _) -> None:
        pass

    async def run(self, callback) -> None:
        for view in self.views:
            callback(view)
        if self.fails:
            raise self.fails
        await asyncio.Event().wait()


@pytest.fixture
def watcher(monkeypatch):
    monkeypatch.setattr(endpoints, "Watcher", Watcher)
    monkeypatch.setattr(Watcher, "views", (HostView(), VIEW))
    monkeypatch.setattr(Watcher, "fails", None)
    return Watcher


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(CONFIG)
    return str(path)


def test_endpoints_are_a_table_below_80_columns(watcher, file, capsys):
    assert main(["endpoints", "--config", file]) == 1, "there is a finding"
    text = capsys.readouterr().out
    assert "10.0.0.10" in text
    assert "! rnic h0/rnic0: rnic0 is down" in text
    assert all(len(line) < 80 for line in text.splitlines())


def test_addresses_of_ipv6_are_whole_and_in_columns(watcher, file, capsys, monkeypatch):
    longest = "2001:db8:1111:2222:3333:4444:5555:6666"
    (four,) = VIEW.endpoints
    six = replace(four, address=longest, underlay="fd00:30:1111:2222::10")
    monkeypatch.setattr(watcher, "views", (replace(VIEW, endpoints=(four, six)),))
    main(["endpoints", "--config", file])
    header, *rows = capsys.readouterr().out.splitlines()[:3]
    assert longest in rows[1].split()
    for name, key in (("ADDRESS", "address"), ("UNDERLAY", "underlay"), ("RNIC", "rnic")):
        at = header.index(name)
        assert [row[at:].split()[0] for row in rows] == [getattr(e, key) for e in (four, six)]


def test_ports_that_are_no_endpoint_are_counted_and_listed(watcher, file, capsys, monkeypatch):
    port = UnprobedPort(
        port="v", why=Why.NO_RAIL, text="it has none " * 9, bridge="br-int", task="t"
    )
    view = replace(VIEW, findings=(), unprobed=Unprobed(ports=(port,), count=3))
    monkeypatch.setattr(watcher, "views", (view,))
    assert main(["endpoints", "--config", file]) == 0
    assert "ports that are no endpoint: 3 (1 no-rail); see --unprobed" in capsys.readouterr().out
    assert main(["endpoints", "--config", file, "--unprobed"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("v on br-int of t: no-rail: it has none")
    assert text.endswith("and 2 more\n")
    assert all(len(line) < 80 for line in text.splitlines())
    main(["endpoints", "--config", file, "--json"])
    assert json.loads(capsys.readouterr().out)["unprobed"]["ports"][0]["why"] == "no-rail"


def test_endpoints_whose_paths_are_never_traced_are_said_to_be(watcher, file, capsys, monkeypatch):
    main(["endpoints", "--config", file])
    assert "not traced" not in capsys.readouterr().out
    (end,) = VIEW.endpoints
    bare = [replace(end, id=EndpointId("train-a-0", n), bridge="") for n in range(5)]
    monkeypatch.setattr(watcher, "views", (replace(VIEW, endpoints=(end, *bare), findings=()),))
    assert main(["endpoints", "--config", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[-2:]) == (
        "paths of train-a-0/rail0, train-a-0/rail1, train-a-0/rail2 and 2 more are not traced: "
        "no virtual switch carries them"
    )
    assert all(len(line) < 80 for line in lines)


def test_the_whole_view_as_json(watcher, file, capsys, monkeypatch):
    calm = HostView(VIEW.endpoints, VIEW.namespaces, (), VIEW.uplinks, complete=True)
    monkeypatch.setattr(watcher, "views", (calm,))
    assert main(["endpoints", "--config", file, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["endpoints"][0]["id"] == str(C0)
    assert answer["namespaces"][str(C0)] == {"path": "/run/netns/x", "inode": 5}
    assert answer["uplinks"][0]["device"] == "rnic0"


def test_a_host_without_endpoints_says_so(watcher, file, capsys, monkeypatch):
    monkeypatch.setattr(watcher, "views", (HostView(complete=True),))
    assert main(["endpoints", "--config", file]) == 0
    assert "(none)" in capsys.readouterr().out


def test_without_ovsdb_the_remedy_is_told(watcher, monkeypatch):
    monkeypatch.setattr(watcher, "views", (HostView(),))
    config = msgspec.structs.replace(parse(CONFIG), host="h0")
    with pytest.raises(CapabilityMissing, match="start ovsdb-server"):
        asyncio.run(endpoints.first_view(config, wait_s=0.05))


def test_a_watcher_that_fails_is_heard(watcher, monkeypatch):
    monkeypatch.setattr(watcher, "views", ())
    monkeypatch.setattr(watcher, "fails", CapabilityMissing("namespace events", "run as root"))
    with pytest.raises(CapabilityMissing, match="run as root"):
        asyncio.run(endpoints.first_view(parse(CONFIG)))
