# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.request import LIMITS, Caps, Request, read_request
from netagent.model.errors import ConfigError

WHOLE = {"kind": "path", "flow": "udp,tp_dst=9", "netns": 4, "duration_s": 1.5, "uplink": "u",
         "caps": {"rows": 64}, "tunnel": "", "tunnel_port": 0}  # fmt: skip


def read(**changes) -> Request:
    return read_request(json.dumps({**WHOLE, **changes}).encode())


def test_a_request_is_read():
    request = read()
    assert (request.kind, request.netns, request.uplink) == ("path", 4, "u")
    assert request.duration_ns == 1_500_000_000
    assert request.caps == Caps(rows=64)
    told = request.filter()
    assert (told.target_port, told.uplink, told.netns) == (9, "u", 4)
    assert told.events_per_s == Caps().events_per_s


@pytest.mark.parametrize(
    ("changes", "port", "geneve"),
    [({}, 4789, False), ({"tunnel": "geneve"}, 6081, True), ({"tunnel": "vxlan"}, 4789, False),
     ({"tunnel": "geneve", "tunnel_port": 7000}, 7000, True), ({"tunnel_port": 8472}, 8472, False)],
)  # fmt: skip
def test_the_kernel_is_told_what_the_tunnels_are(changes, port, geneve):
    told = read(**changes).filter()
    assert (told.tunnel_port, told.geneve) == (port, geneve)


def test_only_a_path_is_told_by_events():
    assert read(kind="drops").filter().events_per_s == 0


def test_the_defaults_are_within_the_limits():
    for name, (low, high) in LIMITS.items():
        assert low <= getattr(Caps(), name) <= high


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"kind": "all"}, "kind"),
        ({"kind": ["path"]}, "kind"),
        ({"flow": "arp"}, "arp"),
        ({"flow": 3}, "flow"),
        ({"netns": 0}, "netns"),
        ({"netns": True}, "netns"),
        ({"duration_s": 0}, "duration_s"),
        ({"duration_s": 61}, "duration_s"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"duration_s": "1"}, "duration_s"),
        ({"uplink": "a-name-longer-than-it-can-be"}, "uplink"),
        ({"caps": []}, "caps"),
        ({"caps": {"cpus": 1}}, "cpus"),
        ({"caps": {"ring_pages": 3}}, "ring_pages"),
        *(({"caps": {name: high + 1}}, name) for name, (_, high) in LIMITS.items()),
        ({"more": 1}, "more"),
        ({"tunnel": "gre"}, "tunnel"),
        ({"tunnel": ["geneve"]}, "tunnel"),
        ({"tunnel_port": 1 << 16}, "tunnel_port"),
    ],
)
def test_the_member_at_fault_is_named(changes, fault):
    with pytest.raises(ConfigError, match=fault):
        read(**changes)


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b"\xff", b"null"])
def test_what_is_no_request_is_refused(line):
    with pytest.raises(ConfigError):
        read_request(line)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), plain, max_size=3))
def test_any_request_is_read_or_refused(changes):
    try:
        request = read(**changes)
    except ConfigError:
        return
    assert 0 < request.duration_ns <= 60_000_000_000
    for name, (low, high) in LIMITS.items():
        assert low <= getattr(request.caps, name) <= high
