# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from msgspec import structs

from analyzer.intent.differences.contract import HostSaid, Sight
from analyzer.intent.differences.ladder import away, instances, translation
from analyzer.intent.model import Ladder
from netagent.model.finding import FindingKind
from netagent.wire.controller import Working
from tests.analyzer.intent.differences.clusters import Cluster


def test_what_cannot_be_read_is_said_once_with_all_reasons():
    cluster = Cluster()
    assert list(away(cluster.sight())) == []
    cluster.away = {"OVN_Northbound": "refused", "OVN_Southbound": "no answer"}
    (told,) = away(cluster.sight())
    assert (told.kind, told.part) == (FindingKind.CONTROLLER_AWAY, "ovn")
    assert told.evidence == cluster.away


@pytest.mark.parametrize(
    ("hosts", "cut_off", "shared"), [(4, 2, False), (4, 3, True), (1, 1, False)]
)
def test_what_most_hosts_do_not_reach_is_none_of_theirs(hosts, cut_off, shared):
    cluster = Cluster(hosts=hosts)
    for host in list(cluster.host.values())[:cut_off]:
        host.working = Working.CUT_OFF
    assert len(list(away(cluster.sight()))) == shared
    assert len(list(instances(cluster.sight()))) == (0 if shared else cut_off)


def test_who_says_no_steps_owes_none():
    cluster = Cluster()
    sight = cluster.sight()
    stale = replace(sight.intent, placements={})
    (told,) = translation(replace(sight, intent=stale))
    assert told.part == "northd"
    assert list(translation(replace(sight, intent=replace(stale, ladder=Ladder())))) == []


def test_another_controllers_translation_has_its_name():
    cluster = Cluster()
    cluster.translated = 6
    sight = cluster.sight()
    (told,) = translation(replace(sight, intent=replace(sight.intent, source="acme")))
    assert (told.part, "translation acme is at 6" in told.text) == ("translation acme", True)


def test_ports_that_another_controller_leaves_out_say_nothing_of_its_translation():
    cluster = Cluster()
    sight = cluster.sight()
    placements = dict(sight.intent.placements)
    placements.pop(next(iter(placements)))
    for left in (placements, {}):
        intent = replace(sight.intent, placements=left)
        assert len(list(translation(replace(sight, intent=intent)))) == 1
        others = replace(sight, intent=replace(intent, source="acme"))
        assert list(translation(others)) == []


@pytest.mark.parametrize("asked", [None, 7, 8])
@pytest.mark.parametrize("translated", [None, 6, 7])
def test_a_translation_is_behind_where_both_numbers_say_so(asked, translated):
    cluster = Cluster(ports=0)
    cluster.asked, cluster.translated = asked, translated
    behind = None not in (asked, translated) and translated < asked
    assert [each.mark for each in translation(cluster.sight())] == (
        [str(translated)] if behind else []
    )


def test_ports_that_nobody_is_plugged_in_for_say_nothing_of_the_translation():
    cluster = Cluster(ports=2)
    cluster.frozen = True
    port = cluster.declare()
    cluster.asked = cluster.translated
    cluster.settle()
    assert list(translation(cluster.sight())) == []
    cluster.plug(port, "h0")
    (told,) = translation(cluster.sight())
    assert (told.ports, told.evidence["plugged in and not translated"]) == ((port.name,), port.name)


@pytest.mark.parametrize(
    "how", [Working.STOPPED, Working.SILENT, Working.CUT_OFF, Working.CONNECTED]
)
def test_an_instance_that_does_not_work_is_told_with_what_it_did_not_install(how):
    cluster = Cluster(ports=1)
    cluster.host["h1"].working = how
    plug = cluster.plug(cluster.declare(), "h1")
    told = list(instances(cluster.sight()))
    if how is Working.CONNECTED:
        assert told == []
        return
    (each,) = told
    assert (each.part, each.hosts, each.ports, each.is_whole) == (
        "h1",
        ("h1",),
        (plug.name,),
        False,
    )
    assert each.evidence["instance"] == how.value


@pytest.mark.parametrize(
    ("source", "says_so", "costs"),
    [("ovn", True, True), ("ovn", False, False), ("acme", True, False)],
)
def test_where_no_port_is_ever_said_to_have_flows_none_is_without(source, says_so, costs):
    """Else a leaf that cuts a host off from its controller, too, would be that instance's fault."""
    cluster = Cluster(ports=0)
    name = cluster.plug(cluster.declare(), "h1").name
    cluster.plug(cluster.declare(), "h2")
    cluster.host["h1"].working = Working.CUT_OFF
    cluster.settle()
    said = {}
    for host in cluster.host.values():
        state = cluster.state(host)
        ports = [
            structs.replace(port, is_installed=says_so and port.is_installed)
            for port in state.ports
        ]
        state = structs.replace(state, source=source, ports=tuple(ports))
        said[host.name] = HostSaid(state, cluster.now_ns)
    intent = replace(cluster.intent(), source=source)
    (told,) = instances(Sight(intent, said, cluster.endpoints(), cluster.now_ns))
    assert told.ports == ((name,) if costs else ())


def test_a_host_without_a_record_is_reached_by_nobody():
    cluster = Cluster()
    cluster.chassis.pop("chassis-1")
    (told,) = instances(cluster.sight())
    assert (told.part, told.is_whole) == ("h1", True)
    cluster.away = {"OVN_Southbound": "refused"}
    assert list(instances(cluster.sight())) == []


@pytest.mark.parametrize(("installed", "behind"), [(6, ["h1"]), (7, []), (8, ["ovn"]), (None, [])])
def test_behind_is_who_installed_less_than_another(installed, behind):
    cluster = Cluster(ports=0)
    cluster.asked = cluster.translated = 8
    cluster.chassis["chassis-1"] = replace(cluster.chassis["chassis-1"], installed=installed)
    assert [each.part for each in instances(cluster.sight())] == behind


@pytest.mark.parametrize("translated", [7, None])
def test_who_says_that_it_has_what_is_not_translated_puts_nobody_behind(translated):
    cluster = Cluster(ports=0)
    cluster.translated = translated
    cluster.chassis["chassis-1"] = replace(cluster.chassis["chassis-1"], installed=1 << 60)
    behind = [each.part for each in instances(cluster.sight())]
    assert behind == ([] if translated else ["ovn"])


@pytest.mark.parametrize(
    ("installed", "told"),
    [
        ([8, 8], []),
        ([8, 7], ["h1"]),  # of two, by the other's word
        ([8, 7, 7], ["ovn"]),
        ([8, 8, 7], ["h2"]),
        ([8, 8, 7, 7], ["h2", "h3"]),
        ([8, 7, 7, 7], ["ovn"]),
        ([8, 7, 7, 3], ["ovn", "h3"]),
        ([7, 7, 7, 7], []),  # all of them: by no host's word is there more
        ([8, 8, 8, 7, 6, 5], ["h3", "h4", "h5"]),
        ([9], []),  # more than is translated
    ],
)
def test_what_most_hosts_lack_is_none_of_theirs(installed, told):
    cluster = Cluster(hosts=len(installed), ports=0)
    cluster.asked = cluster.translated = 8
    for n, each in enumerate(installed):
        cluster.chassis[f"chassis-{n}"] = replace(cluster.chassis[f"chassis-{n}"], installed=each)
    found = list(instances(cluster.sight()))
    assert [each.part for each in found] == told
    assert not any(each.hosts for each in found if each.part == "ovn")


@pytest.mark.parametrize("installed", [1, 8])
def test_records_of_hosts_that_are_gone_acquit_nobody(installed):
    cluster = Cluster(hosts=2, ports=0)
    cluster.asked = cluster.translated = 8
    cluster.chassis["chassis-0"] = replace(cluster.chassis["chassis-0"], installed=8)
    for n in range(5):
        gone = replace(cluster.chassis["chassis-1"], name=f"gone-{n}", installed=installed)
        cluster.chassis[gone.name] = gone
    assert [each.part for each in instances(cluster.sight())] == ["h1"]


def test_one_host_alone_is_behind_nobody_and_records_of_nobody_count_not():
    cluster = Cluster(hosts=1, ports=0)
    cluster.asked = 99
    cluster.chassis["x"] = replace(
        cluster.chassis["chassis-0"], name="x", installed=99, is_registered=False
    )
    assert list(instances(cluster.sight())) == []


def test_a_host_that_nobody_set_up_is_no_fault():
    cluster = Cluster(ports=0)
    cluster.host["h1"].chassis = ""
    cluster.host["h1"].working = Working.STOPPED
    assert list(instances(cluster.sight())) == []
