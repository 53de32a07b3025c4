# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from netagent.cli import main
from netagent.wire.codec import decode
from netagent.wire.messages import ProbeAnswer, ProbeReply, ProbeRequest

GOOD = ProbeAnswer(
    source_port=40000,
    size=1100,
    outcome="replied",
    network_ns=123_456,
    prober_ns=20_000,
    responder_ns=30_000,
)
LOST = ProbeAnswer(source_port=40001, size=64, outcome="lost")
WORDS = ["probe", "c0/rail0", "c1/rail0", "-c", "2", "--address", "10.0.0.9"]


@pytest.mark.parametrize(("probes", "code"), [((GOOD, GOOD), 0), ((GOOD, LOST), 1), ((), 1)])
def test_only_if_every_probe_was_answered_all_is_well(answering, capsys, probes, code):
    assert main([*WORDS, *answering(ProbeReply(probes=probes))]) == code
    text = capsys.readouterr().out
    assert text.count("\n") == 1 + len(probes)
    assert all(len(line) < 80 for line in text.splitlines())
    if code == 0:
        assert "40000  1100      123.5       20.0       30.0 replied" in text


def answered(port, *, timed=True, outcome="replied"):
    times = {"network_ns": 1_000, "prober_ns": 2_000, "responder_ns": 3_000} if timed else {}
    return ProbeAnswer(source_port=port, size=9000, outcome=outcome, **times)


def test_an_answer_without_times_says_why(answering, capsys):
    """Two probes go out per port; the second one's reply tells what the first one's took."""
    probes = (
        answered(40000), answered(40000, timed=False), answered(65535), answered(65535, timed=False)
    )  # fmt: skip
    assert main([*WORDS, *answering(ProbeReply(probes=probes))]) == 0
    _, first, last, other, other_last, *why = capsys.readouterr().out.splitlines()
    assert first.endswith(" replied")
    assert other.endswith(" replied")
    assert last.endswith("          -          -          - replied (last of its port)")
    assert other_last.endswith(" replied (last of its port)")
    assert max(map(len, (last, other_last, *why))) < 80
    said = " ".join(" ".join(why).split())
    assert said.startswith("last of its port: what the responder took comes with the next reply")
    assert "stamp missing" not in said


def test_a_stamp_that_did_not_come_is_told_from_the_last_reply(answering, capsys):
    probes = (
        answered(40000, timed=False), answered(40000, timed=False),
        answered(40000, timed=False, outcome="lost"),
    )  # fmt: skip
    assert main([*WORDS, *answering(ProbeReply(probes=probes))]) == 1
    _, first, last, lost, *why = capsys.readouterr().out.splitlines()
    assert first.endswith(" replied (stamp missing)")
    assert last.endswith(" replied (last of its port)")
    assert lost.endswith(" lost")
    text = "\n".join(why)
    assert text.index("last of its port: ") < text.index("stamp missing: a later reply came")
    assert max(map(len, (first, last, *why))) < 80


def test_the_request_says_what_the_command_line_says(agent, answering, capsys):
    main([*WORDS, *answering(ProbeReply(probes=(GOOD,))), "--json"])
    assert json.loads(capsys.readouterr().out)["probes"][0]["size"] == 1100
    request = decode(agent.asked[0][1], ProbeRequest)
    assert (request.count, request.address) == (2, "10.0.0.9")


def test_what_is_no_endpoint_is_misuse(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["probe", "c0", "c1/rail0"])
    assert ended.value.code == 2
    assert "CONTAINER/railN" in capsys.readouterr().err
