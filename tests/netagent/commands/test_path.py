# SPDX-License-Identifier: Apache-2.0
import json

from netagent.cli import main
from netagent.model.ids import EndpointId
from netagent.wire.codec import decode
from netagent.wire.messages import PathAnswer, PathReply, PathRequest

REPLY = PathReply(
    paths=(
        PathAnswer(source_port=40000, outer_port=51000, hops=("10.254.0.1", "", "10.254.0.9")),
        PathAnswer(source_port=40001, outer_port=None),
    )
)
PAIR = ["c0/rail0", "c1/rail0"]


def test_a_path_is_a_line_per_flow(agent, answering, capsys):
    assert main(["path", *PAIR, *answering(REPLY)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "40000 51000  10.254.0.1 * 10.254.0.9"
    assert lines[2] == "40001     -  (not traced)"
    ((path, body),) = agent.asked
    assert path == "/v1/path"
    request = decode(body, PathRequest)
    assert (request.source, request.target) == (EndpointId("c0", 0), EndpointId("c1", 0))


def test_no_path_is_exit_1(answering, capsys):
    assert main(["path", *PAIR, *answering(PathReply(paths=())), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"paths": []}


def test_ways_are_asked_for_and_shown_with_what_arrived(agent, answering, capsys):
    way = PathAnswer(
        source_port=0, outer_port=49152, hops=("a", "b", "c"), sent=50, answered=(50, 50, 41)
    )
    assert (
        main(["path", *PAIR, "--ways", "8", "--count", "50", *answering(PathReply(paths=(way,)))])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["    - 49152  a b c", "             of 50 packets each, 50 50 41 arrived"]
    request = decode(agent.asked[0][1], PathRequest)
    assert (request.ways, request.count) == (8, 50)
