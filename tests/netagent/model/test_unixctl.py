# SPDX-License-Identifier: Apache-2.0
import json
from fnmatch import fnmatch
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from netagent.model.unixctl import (
    OVN_CONTROLLER,
    VSWITCHD,
    Call,
    control_sockets,
    pid_file,
    pid_of,
    sockets,
)


def test_the_socket_of_the_pid_file_comes_first_and_then_any():
    assert control_sockets(VSWITCHD, None, []) == []
    assert control_sockets(VSWITCHD, 12, []) == ["ovs-vswitchd.12.ctl"]
    found = ["ovs-vswitchd.7.ctl", "ovs-vswitchd.12.ctl", "ovs-vswitchd.ctl"]
    unnumbered, seven = "ovs-vswitchd.ctl", "ovs-vswitchd.7.ctl"
    assert control_sockets(VSWITCHD, 12, found) == ["ovs-vswitchd.12.ctl", unnumbered, seven]
    assert control_sockets(VSWITCHD, None, found)[0] == unnumbered


def test_a_daemon_is_not_taken_for_one_whose_name_goes_on():
    names = ["ovn-controller.7.ctl", "ovn-controller.ctl", "ovn-controller-vtep.8.ctl"]
    found = [name for name in names if fnmatch(name, sockets(OVN_CONTROLLER))]
    assert control_sockets(OVN_CONTROLLER, 7, found) == names[:2]
    assert pid_file(OVN_CONTROLLER) == "ovn-controller.pid"


@pytest.mark.parametrize("text", ["", "what", "1 2"])
def test_a_pid_file_that_makes_no_sense_says_nothing(text):
    assert pid_of(text) is None
    assert pid_of("12\n") == 12


def test_a_request_is_json_rpc():
    request = json.loads(Call("fdb/show", ("br0",), max_bytes=9).request)
    assert request == {"id": 0, "method": "fdb/show", "params": ["br0"]}


@given(st.lists(st.integers(0, 200), max_size=4), st.text(max_size=20))
def test_a_reply_may_come_in_pieces_and_after_requests_of_the_server(cuts, text):
    echo = json.dumps({"id": "echo", "method": "echo", "params": [{}]})
    data = (echo + json.dumps({"id": 0, "result": text, "error": None}) + "\n").encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    call, whole = Call("m", (), max_bytes=1000), False
    for begin, end in pairwise(edges):
        whole = whole or call.feed(data[begin:end])
    assert whole
    assert call.result == text


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([b""], "closed after 0 bytes"),
        ([b'{"id": 0', b""], "closed after 8 bytes"),
        ([b"x" * 1001], "cut off after 1001 bytes"),
        ([b"[]}"], "no JSON-RPC message"),
        ([b'{"id": 0, "error": "no such bridge\\n"}'], "m: no such bridge"),
    ],
)
def test_what_is_no_reply_is_a_protocol_error(chunks, text):
    call = Call("m", (), max_bytes=1000)
    *first, last = chunks
    assert not any(map(call.feed, first))
    with pytest.raises(RemoteProtocolError, match=text):
        call.feed(last)
