# SPDX-License-Identifier: Apache-2.0
import io
import re
from dataclasses import replace
from ipaddress import ip_address

import msgspec
import pytest

from analyzer.detect.held import JobVerdict
from analyzer.detect.operators.verdict import Culprit, Holdup, Who
from analyzer.detect.operators.verdict import Verdict as OfOperators
from analyzer.intent.differences.contract import Difference
from analyzer.replay import records
from analyzer.replay.anonymize import Names, anonymize, anonymized
from analyzer.replay.frames import frame
from analyzer.replay.player import play, read
from netagent.model.endpoint import Endpoint, oddity
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import controller
from netagent.model.task import Task
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from netagent.wire.codec import encode
from netagent.wire.controller import ControllerState, PluggedPort
from netagent.wire.inventory import Inventory
from netagent.wire.messages import Health, Registration, Status, Summary
from netagent.wire.unprobed import Unprobed, UnprobedPort, Why
from tests.analyzer.replay.test_player import recorded
from tests.analyzer.replay.worlds import Recorded


def anonymous(data):
    made = anonymized(lambda: read(io.BytesIO(data)))
    return b"".join(frame(records.pack(record)) for record in made)


def everything(data):
    return b"".join(
        record.payload if isinstance(record, records.Ingested) else records.pack(record)
        for record in read(io.BytesIO(data))
    )


def test_names_and_addresses_are_gone_and_the_incidents_are_the_same():
    data, told = recorded()
    made = anonymous(data)
    inside = everything(made)
    for secret in (b"t0-c1", b"172.30.", b"https://x", b"h2"):
        assert secret in everything(data)
        assert not re.search(rb"(?<![\w.-])" + re.escape(secret), inside)
    again = play(read(io.BytesIO(made)))
    assert again.differences == []
    assert not again.whole
    assert list(again.incidents) == list(told)
    tasks = {task for incident in again.incidents.values() for task in incident.tasks}
    assert all(task.startswith("task-") for task in tasks)


def test_the_same_name_becomes_the_same_everywhere_and_order_is_kept():
    data, told = recorded()
    again = play(read(io.BytesIO(anonymous(data))))
    ways = {}
    for then, now in zip(told.values(), again.incidents.values(), strict=True):
        for pair, other in zip(then.verdict.failing, now.verdict.failing, strict=True):
            assert ways.setdefault(pair.source.container, other.source.container) == (
                other.source.container
            )
    names = sorted(ways)
    assert [ways[name] for name in names] == sorted(ways.values())


NAMED = Registration(
    host="gpu-0417", instance="i", generation=1, rpc_url="", endpoints=(
        Endpoint(EndpointId("link", 0), "train", "gpu-0417", "10.1.2.3", "", "", "r", "b", "p"),
    ),
)  # fmt: skip


def names_replaced(text, *more):
    """Return `text` of a finding's summary, without names, beside some records."""
    verdict = Verdict(None, None, Symptom.LOSS, 0.5, text)
    incident = Incident("i", IncidentState.OPEN, verdict, 1, 1, 1, tasks=("a-task",))
    told = [
        records.Header(netagent="1", window_s=5, probe_port=1),
        records.Registered(registration=NAMED, now_ns=1),
        *more,
        records.Told(incident=incident),
    ]
    data = b"".join(frame(records.pack(each)) for each in (*told, records.End(records=len(told))))
    made = list(read(io.BytesIO(anonymous(data))))
    return made[-2].incident.verdict.summary


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("on host gpu-0417.", "0417"),
        ("probes to 10.1.2.3. It", "10.1.2.3"),
        ("probes to fd00:30::a1. It", "a1"),
        ("at fd00:30::a1: it", "a1"),
        ("at https://[fd00:30::a1]:8420/", "a1"),
        ("fd00:30::a1/64, FD00:30::B2", "00:30"),
        ("h0/fd00:30::a1", "a1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fd00:30:::a1", "a1"),
        ("gpu-0417.corp.example", "0417"),
        ("vxlan_gpu-0417", "0417"),
        ("GPU-0417", "0417"),
        ("of gone-host", "gone"),
        ("of heard-host", "heard"),
        ("of old-task", "old"),
        ("of a-task", "a-task"),
        ("of connected", "connected"),  # a word of nothing that is kept
    ],
)
def test_a_name_is_replaced_wherever_and_however_it_stands(text, secret):
    more = (
        records.Forgotten(host="gone-host", now_ns=1),
        records.Heard(host="heard-host", start_ns=1, now_ns=1),
        records.TaskDeleted(task="old-task", now_ns=1),
        records.TaskDeleted(task="connected", now_ns=1),
    )
    assert secret not in names_replaced(text, *more)


def test_addresses_of_both_versions_keep_their_order_and_endpoints_stay_endpoints():
    said = names_replaced("fd00:30::b fd00:30::a FD00:0030::b 10.0.0.9 10.0.0.10 fd00:30::b -- x")
    b, a, again, nine, ten, *_ = said.split()
    assert b == again == said.split()[5]
    assert ip_address(a) < ip_address(b)
    assert ip_address(nine) < ip_address(ten)
    (six,) = (
        replace(each, address="fd00:10::1", underlay="fd00:30::1") for each in NAMED.endpoints
    )
    names = Names()
    record = records.Registered(
        registration=msgspec.structs.replace(NAMED, endpoints=(six,)), now_ns=1
    )
    names.find(record)
    (made,) = anonymize(record, names.renamer()).registration.endpoints
    assert oddity(made) == ""
    assert not {made.address, made.underlay} & {six.address, six.underlay}
    assert made.address != made.underlay


def test_a_container_called_as_a_word_of_the_format_breaks_nothing():
    assert names_replaced("link a -- b") == "link a -- b"


def test_what_controllers_call_their_ports_and_hosts_is_gone():
    data = differing()
    secrets = (b"web-7f9", b"shop_web", b"chassis-ef01", b"node-4.corp", b"zoo-pod", b"0f0e-uuid")
    inside = everything(anonymous(data))
    for secret in secrets:
        assert secret in everything(data)
        assert secret not in inside
    assert b"northd" in inside
    again = play(read(io.BytesIO(anonymous(data))))
    assert again.differences == []
    named = {str(each.verdict.component).partition("-")[0] for each in again.incidents.values()}
    assert named == {"controller host", "controller northd"}


def differing():
    """Return a recording in which a controller's parts differ, and some of them are incidents."""
    read_there = {
        "iface-id": "zoo-pod", "owner": "0f0e-uuid", "hostname": "node-4.corp", "text": "a, b",
    }  # fmt: skip
    found = (
        (FindingKind.CONTROLLER_STALE, "h1", ("h1",), ()),
        (FindingKind.TRANSLATION_STALE, "northd", (), ("web-7f9", "shop_web")),
        (FindingKind.GHOST_CHASSIS, "chassis chassis-ef01", (), ()),
        (FindingKind.PORT_UNBOUND, "port web-7f9", ("h1",), ("web-7f9",)),
    )
    world = Recorded(1)
    world.live(3)
    differences = [
        Difference(
            Finding(kind, controller(part), f"{part} of {ports}", 1, read_there), hosts,
            ports=ports, endpoints=(EndpointId("t0-c1", 0),),
        )
        for kind, part, hosts, ports in found
    ]  # fmt: skip
    world.diagnosis.differed(differences)
    world.live(2)
    return world.recording()


def test_hosts_that_only_a_declaration_names_are_gone():
    task = Task("a-task", ("c0", "c1"), 1, (0,), hosts=("placed-host", ""))
    put = records.TaskPut(task=task, now_ns=1)
    assert "placed" not in names_replaced("of placed-host", put)


def test_what_a_host_is_made_of_and_what_is_plugged_in_are_left_out():
    port = PluggedPort(name="acme_worker-0", interface="acme0", addresses=("10.0.0.9",))
    told = Summary(
        host="gpu-0417", instance="i", start_ns=0, width_ns=5,
        inventory=Inventory(kernel="6.1.0-acme"),
        controller=ControllerState(
            source="ovn", chassis="acme-7", central="ssl:ovn.acme.example:6642", ports=(port,)
        ),
        unprobed=Unprobed(
            ports=(UnprobedPort(port="acme1", why=Why.ODD, text="acme", task="acme-2"),), count=1
        ),
    )  # fmt: skip
    status = Status(
        host="gpu-0417", instance="i", version="1", endpoints=(), pinglist_version=1, targets=0,
        last_window_ns=0, health=Health(), controller=told.controller,
        unprobed=told.unprobed,
    )  # fmt: skip
    made = [
        records.Header(netagent="1", window_s=5, probe_port=1),
        records.Ingested(payload=encode(told), now_ns=1),
        records.answered(1, status, 2),
    ]
    data = b"".join(frame(records.pack(each)) for each in (*made, records.End(records=len(made))))
    assert b"acme" in everything(data)
    assert b"acme" not in everything(anonymous(data))


def test_who_holds_a_job_up_is_told_without_its_name():
    culprit = Culprit(Who.RANK, (3,), 0.9, "rank 3 on gpu-0417 computes slowly", "gpu-0417")
    told = OfOperators(Holdup.SLOW_RANK, "acme-llm waits for rank 3", (culprit,))
    job = JobVerdict("acme-llm", told, 5, {3: (EndpointId("acme-llm-3", 0),)})
    text = "acme-llm/3 of acme-llm-3 on gpu-0417"
    replaced = names_replaced(text, records.HeldUp(jobs=(job,), now_ns=9))
    assert "acme" not in replaced
    assert "gpu-0417" not in replaced
