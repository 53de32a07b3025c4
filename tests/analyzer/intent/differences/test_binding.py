# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.intent.differences.binding import MOST_MOVES, contested, unbound
from netagent.model.finding import FindingKind
from netagent.wire.controller import Working
from tests.analyzer.intent.differences.clusters import Cluster


def one_port():
    cluster = Cluster(ports=0)
    plug = cluster.plug(cluster.declare(), "h1")
    cluster.settle()
    return cluster, plug


def nowhere(cluster, plug):
    cluster.placement[plug.name] = replace(cluster.placement[plug.name], chassis="")


def test_a_port_that_is_at_no_host_is_told_with_its_interface():
    cluster, plug = one_port()
    assert list(unbound(cluster.sight())) == []
    nowhere(cluster, plug)
    (told,) = unbound(cluster.sight())
    assert (told.kind, told.hosts) == (FindingKind.PORT_UNBOUND, ("h1",))
    assert told.interface == ("h1", plug.interface)
    assert told.evidence["iface-id"] == plug.name


@pytest.mark.parametrize("wrong", ["", "px"])
def test_a_wrong_name_is_quoted(wrong):
    cluster, plug = one_port()
    nowhere(cluster, plug)
    name, plug.name = plug.name, wrong
    (told,) = unbound(cluster.sight())
    assert (told.part, told.evidence["iface-id"]) == (f"port {name}", wrong)
    assert f"says {wrong or 'no name'}" in told.text


def test_nobody_is_plugged_in_for_a_port_whose_container_is_not_there():
    cluster, plug = one_port()
    nowhere(cluster, plug)
    cluster.plugs.clear()
    assert list(unbound(cluster.sight())) == []


def test_a_disabled_port_is_meant_to_be_shut():
    cluster, plug = one_port()
    nowhere(cluster, plug)
    cluster.port[plug.name] = replace(cluster.port[plug.name], is_enabled=False)
    assert list(unbound(cluster.sight())) == []


@pytest.mark.parametrize("how", [Working.STOPPED, Working.CUT_OFF, Working.UNKNOWN])
@pytest.mark.parametrize("is_named", [True, False])
def test_where_the_instance_does_not_work_no_port_is_told(how, is_named):
    cluster, plug = one_port()
    nowhere(cluster, plug)
    plug.name = plug.name if is_named else ""
    cluster.host["h1"].working = how
    assert list(unbound(cluster.sight())) == []


@pytest.mark.parametrize("hosts", [("chassis-1",), ("h1",), ("h1.example",), ("h2", "chassis-1")])
def test_a_wanted_host_may_have_any_of_its_names(hosts):
    cluster, plug = one_port()
    nowhere(cluster, plug)
    cluster.port[plug.name] = replace(cluster.port[plug.name], hosts=hosts)
    assert [each.kind for each in unbound(cluster.sight())] == [FindingKind.PORT_UNBOUND]


def test_a_port_at_a_host_that_is_not_wanted_is_misplaced_unless_it_is_bound_where_it_is():
    cluster, plug = one_port()
    cluster.port[plug.name] = replace(cluster.port[plug.name], hosts=("chassis-2",))
    assert list(unbound(cluster.sight())) == []  # it is bound still: a migration begins so
    nowhere(cluster, plug)
    (told,) = unbound(cluster.sight())
    assert (told.kind, told.evidence["wanted at"]) == (FindingKind.PORT_MISPLACED, "chassis-2")
    cluster.plug(cluster.port[plug.name], "h2")
    assert [each.kind for each in unbound(cluster.sight())] == [FindingKind.PORT_UNBOUND]


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("moves", [MOST_MOVES, MOST_MOVES + 1])
def test_moves_tell_who_fights_unless_all_hosts_say_that_one_has_it(silent, two, moves):
    cluster, plug = one_port()
    if two:
        cluster.plug(cluster.port[plug.name], "h2")
    cluster.placement[plug.name] = replace(cluster.placement[plug.name], moves=moves)
    if silent:
        cluster.host["h3"].working = Working.UNKNOWN
    told = list(contested(cluster.sight()))
    assert bool(told) is (moves > MOST_MOVES and (two or silent))
    assert all(each.ports == (plug.name,) for each in told)


def test_nothing_is_said_of_ports_while_their_controller_cannot_be_read():
    cluster, plug = one_port()
    nowhere(cluster, plug)
    cluster.placement[plug.name] = replace(cluster.placement[plug.name], moves=99)
    cluster.plug(cluster.port[plug.name], "h2")
    cluster.away = {"OVN_Southbound": "refused"}
    assert [*unbound(cluster.sight()), *contested(cluster.sight())] == []
