# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.intent.differences.contract import FRESH_NS, HostSaid, Sight
from analyzer.intent.differences.ghosts import GHOST_NS, REPLACED_NS, ghosts
from analyzer.intent.model import Chassis, Encapsulation
from tests.analyzer.intent.differences.clusters import Cluster


def with_record(**changes):
    cluster = Cluster()
    ends = (Encapsulation("geneve", "192.0.2.200"),)
    record = replace(Chassis("x", "x.example", ends, is_registered=False), **changes)
    cluster.chassis["x"] = record
    return cluster


def test_a_record_without_instance_and_agent_is_a_ghost():
    (told,) = ghosts(with_record().sight())
    assert (told.part, told.hosts, told.after_ns) == ("chassis x", (), GHOST_NS)


@pytest.mark.parametrize(
    "changes", [{"is_registered": True}, {"hostname": "h1.elsewhere"}, {"hostname": "h1"}]
)
def test_a_record_with_an_instance_or_an_agent_is_none(changes):
    assert list(ghosts(with_record(**changes).sight())) == []


def test_a_host_that_has_fallen_silent_is_still_there():
    cluster = with_record()
    cluster.host["h1"].chassis = "x"
    old = cluster.now_ns - 9 * FRESH_NS
    said = {h.name: HostSaid(cluster.state(h), old) for h in cluster.host.values()}
    told = ghosts(Sight(cluster.intent(), said, (), cluster.now_ns))
    assert [each.part for each in told] == []


@pytest.mark.parametrize("hostname", ["h1", "h1.example", "anything"])
def test_an_old_record_that_has_a_hosts_address_keeps_the_new_name_out(hostname):
    cluster = Cluster()
    cluster.host["h1"].chassis = "new"
    cluster.chassis["chassis-1"] = replace(cluster.chassis["chassis-1"], hostname=hostname)
    (told,) = ghosts(cluster.sight())
    assert (told.part, told.hosts, told.after_ns) == ("chassis chassis-1", ("h1",), REPLACED_NS)
    cluster.chassis["new"] = replace(cluster.chassis["chassis-1"], name="new", encapsulations=())
    assert list(ghosts(cluster.sight())) == []  # it can write: another one's address is not in use


def test_an_address_that_a_host_only_offers_makes_no_ghost_of_its_owner():
    cluster = Cluster()
    cluster.host["h1"].chassis, cluster.host["h1"].offered = "new", "192.0.2.200"
    record = Chassis("x", "h2", (Encapsulation("geneve", "192.0.2.200"),))
    cluster.chassis["x"] = record
    assert list(ghosts(cluster.sight())) == []
    cluster.host["h1"].address = "192.0.2.200"  # it has it, and h2 is there, whoever it is
    assert list(ghosts(cluster.sight())) == []


def test_records_that_were_read_long_ago_are_no_ghosts():
    cluster = with_record()
    cluster.away = {"OVN_Southbound": "refused"}
    assert list(ghosts(cluster.sight())) == []
