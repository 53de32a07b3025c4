# SPDX-License-Identifier: Apache-2.0
"""One question, answered by the rows of a host's databases: those recorded of a real OVN."""

import json
import resource
import subprocess
import sys

import pytest

from analyzer.controllers import messages, once
from analyzer.controllers.messages import HEAD, AskFlows, AskMeaning, AskOfRows, Flows, NoFlows
from netagent.wire.codec import deflated
from netagent.wire.walk import End, Quote
from tests.analyzer.intent.recorded import selected, told

HEADER = (
    "udp,in_port=5,reg14=0x2,metadata=0x2,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:03,"
    "nw_src=10.0.0.1,nw_dst=10.0.0.3,tp_src=0,tp_dst=4791"
)
ACL = next(f for f in selected().flows if f.stage == "ls_out_acl" and "4790" in f.match)
QUOTE = Quote(bridge="br-int", table=34, priority=0, cookie=ACL.cookie, text="...")
END = End(kind="dropped", bridge="br-int", table=34, reason="drop", header=HEADER, flow=QUOTE)
INSTALLED = tuple((table, cookie, where) for cookie, table, where in told()["hosts"]["h1"])
MEANING = AskMeaning(
    query=7, chassis="h1", installed=(*INSTALLED, (46, ACL.cookie, 2)), ends=(END,)
)


def body(tables):
    return deflated(json.dumps(tables).encode())


def asking(asked, **bodies):
    rows = {name: body(told()[name]) for name in ("northbound", "southbound")}
    return AskOfRows(asked=asked, **{**rows, **bodies})


def by_a_process(asked):
    done = subprocess.run(
        [sys.executable, "-m", once.__name__], input=messages.framed(asked), capture_output=True,
        check=True,
    )  # fmt: skip
    return messages.up(done.stdout[HEAD.size :])


def test_a_process_says_what_ends_mean_and_ends():
    answer = by_a_process(asking(MEANING))
    (meant,) = answer.meant
    assert (answer.query, meant.meaning, meant.by) == (7, "refused", "ACL quarantine")
    assert once.answer(asking(MEANING)) == answer


def test_flows_are_found_by_the_first_digits_of_their_uuids():
    answer = once.answer(asking(AskFlows(query=3, prefixes=(f"{ACL.cookie:08X}", "no such"))))
    assert isinstance(answer, Flows)
    (found,) = answer.flows
    assert (answer.query, found.uuid, answer.owners[found.hint]) == (3, ACL.uuid, "ACL quarantine")
    few = once.answer(asking(AskFlows(query=3, prefixes=("",), most=2)))
    assert (len(few.flows), few.more) == (2, len(selected().flows) - 2)


@pytest.mark.parametrize(
    "rows",
    [
        b"[]", b"7", b"{", b'{"Chassis": 7}', b'{"Chassis": [7]}', b"[" * 50_000, b"\x78\x9c\x01",
        b'{"Logical_Flow": [{"_uuid": ["uuid", "0"]}]}', b'{"Port_Binding": [{"_uuid": []}]}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("asked", [MEANING, AskFlows(query=7, prefixes=("0",))])
def test_rows_that_make_no_sense_are_an_answer(asked, rows):
    answer = once.answer(asking(asked, southbound=rows))
    assert isinstance(answer, NoFlows)
    assert answer.query == 7
    assert len(answer.error) < 1000


def test_what_it_may_take_is_bounded(monkeypatch):
    limits = {}
    monkeypatch.setattr(resource, "setrlimit", lambda what, both: limits.update({what: both}))

    class Nothing:
        buffer = type("", (), {"read": staticmethod(lambda _size: HEAD.pack(1 << 31))})

    monkeypatch.setattr(sys, "stdin", Nothing)
    with pytest.raises(once.RemoteProtocolError, match="a question of"):
        once.main()
    assert limits == {
        resource.RLIMIT_CPU: (once.CPU_S, once.CPU_S),
        resource.RLIMIT_AS: (once.MOST_BYTES, once.MOST_BYTES),
    }
