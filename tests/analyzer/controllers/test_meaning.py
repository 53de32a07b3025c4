# SPDX-License-Identifier: Apache-2.0
"""What ends mean, of the rows that were recorded of a real OVN."""

import pytest

from analyzer.controllers import meaning as room
from analyzer.controllers.meaning import meanings
from analyzer.controllers.messages import AskMeaning
from analyzer.questions import CHANGED
from netagent.model.errors import RemoteProtocolError
from netagent.wire.walk import End, Quote
from tests.analyzer.intent.recorded import selected, told

HEADER = (
    "udp,in_port=5,reg14=0x2,metadata=0x2,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:03,"
    "nw_src=10.0.0.1,nw_dst=10.0.0.3,tp_src=0,tp_dst=4791"
)
KNOWN = {flow.cookie for flow in selected().flows}
L2 = "ls_in_l2_lkup", "eth.dst == 02:00:00:00:00:03"


def flow_of(stage, match):
    return next(f for f in selected().flows if f.stage == stage and match in f.match)


def end(cookie, header=HEADER):
    quote = Quote(bridge="br-int", table=34, priority=0, cookie=cookie, text="...")
    return End(kind="dropped", bridge="br-int", table=34, reason="drop", header=header, flow=quote)


def asked(*ends, without=None, **values):
    flows = [
        (table, cookie, metadata)
        for cookie, table, metadata in told()["hosts"]["h1"]
        if cookie != without
    ]
    ours = (each.flow.cookie for each in ends if each.flow and each.flow.cookie in KNOWN)
    flows += [(46, cookie, 2) for cookie in ours]
    return AskMeaning(query=7, chassis="h1", installed=tuple(flows), ends=ends, **values)


def test_a_missing_flow_is_named_with_the_table_that_lacks_it():
    gone = flow_of(*L2).cookie
    default = flow_of("ls_in_l2_unknown", '"none"').cookie
    answer = meanings(selected(), asked(end(default), without=gone))
    (meant,) = answer.meant
    assert (answer.query, meant.meaning, meant.table, meant.by) == (7, "missing", 33, "port p3-0")
    assert not meant.part


def test_a_policy_a_disabled_port_and_one_that_is_nowhere_are_told_apart():
    acl = flow_of("ls_out_acl", "4790").cookie
    secured = flow_of("ls_in_apply_port_sec", "reg0[15]").cookie
    given = asked(end(acl), end(secured), end(0, f"{HEADER},reg15=0x4"), disabled=("p1-0",))
    policy, disabled, nowhere = meanings(selected(), given).meant
    assert (policy.meaning, policy.by) == ("refused", "ACL quarantine")
    assert (disabled.meaning, disabled.text) == ("refused", "port p1-0 is disabled")
    assert (nowhere.meaning, nowhere.part, nowhere.table) == ("missing", "port p3-0", -1)


def test_a_flow_that_is_gone_since_the_walk_tells_nothing():
    (meant,) = meanings(selected(), asked(end(0xDEAD))).meant
    assert meant.meaning == CHANGED


def test_a_host_that_lacks_all_its_flows_takes_no_more_than_its_time(monkeypatch):
    monkeypatch.setattr(room, "BUDGET_S", -1.0)
    with pytest.raises(RemoteProtocolError, match="too many"):
        meanings(selected(), asked(end(0)))


def test_an_end_that_arrives_means_nothing():
    arrived = End(kind="output", bridge="br-int", table=65, reason="", header=HEADER, port="p")
    (meant,) = meanings(selected(), asked(arrived)).meant
    assert meant.meaning == ""
