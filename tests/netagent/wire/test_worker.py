# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import (
    CapabilityMissing,
    ConfigError,
    RemoteProtocolError,
    Unreachable,
    exit_code,
)
from netagent.wire.codec import ContentType, encode
from netagent.wire.messages import CheckRequest, FlowsReply
from netagent.wire.worker import (
    CheckWork,
    FlowsWork,
    head,
    problem_of,
    question,
    read_answer,
    read_head,
    read_question,
)

REPLY = FlowsReply(bridge="b", wall_ns=1, flows=("two\nlines",))
WORKS = st.builds(
    FlowsWork, rundir=st.text(), bridge=st.text(), table=st.none() | st.integers(0, 255)
) | st.builds(
    CheckWork,
    rundir=st.text(),
    bridge=st.text(),
    host=st.text(),
    request=st.just(CheckRequest(questions=())),
)


@given(WORKS)
def test_a_question_is_one_line(work):
    line = question(work)
    assert line.index(b"\n") == len(line) - 1
    assert read_question(line) == work


@given(st.binary(max_size=40))
def test_any_other_line_is_no_question(line):
    with pytest.raises(RemoteProtocolError):
        read_question(line)


@given(st.integers(-64, 255), st.integers(0, 1 << 40))
def test_a_head_says_code_and_length(code, length):
    assert read_head(head(code, length)) == (code, length)


@pytest.mark.parametrize("line", [b"", b"ready\n", b"0\n", b"0 -1\n", b"a b\n", b"1 2 3\n"])
def test_any_other_line_is_no_head(line):
    assert read_head(line) is None


def test_an_answer_is_the_reply():
    assert read_answer("w", 0, encode(REPLY, ContentType.JSON), FlowsReply) == REPLY


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (ConfigError("question", "no MAC"), RemoteProtocolError),
        (CapabilityMissing("OVSDB", "start it"), CapabilityMissing),
        (Unreachable("vswitchd", "timeout"), CapabilityMissing),
        (RemoteProtocolError("no flow"), CapabilityMissing),
    ],
)
def test_an_error_crosses_as_a_problem(error, becomes):
    output = encode(problem_of(error), ContentType.JSON)
    with pytest.raises(becomes) as caught:
        read_answer("w", exit_code(error), output, FlowsReply)
    assert str(error) in str(caught.value)


@pytest.mark.parametrize("output", [b"", b"[]", b"Segmentation fault"])
@pytest.mark.parametrize("code", [-9, 1, 2])
def test_an_end_without_a_word_is_no_answer(code, output):
    with pytest.raises(Unreachable, match=f"ended with code {code}"):
        read_answer("w", code, output, FlowsReply)
