# SPDX-License-Identifier: Apache-2.0
import argparse
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.request import LIMITS, Caps
from netagent.cli import main
from netagent.commands import trace
from netagent.model.errors import CapabilityMissing, ConfigError, RemoteProtocolError, TooSoon
from netagent.wire.trace import (
    DropRow,
    Hop,
    Journey,
    MissingProgram,
    OuterRow,
    PortRow,
    RoceRow,
    StageRow,
    TraceReply,
    TraceRequest,
    UpcallRow,
)

EGRESS = ("port_receive", "lookup", "actions", "output", "port_transmit", "encapsulate")


def reply(kind: str = "path", *, last: int = 10, **more) -> TraceReply:
    stages = tuple(
        StageRow(stage=stage, packets=10, bytes=1000, p50_ns=1_500, p99_ns=2_000_000)
        for stage in EGRESS
    )
    values = {
        "ports": (PortRow(stage="output", device="vxlan_sys_4789", vni=100, packets=10),),
        "lost": {"events_lost": 3, "not_followed": 0},
        **more,
    }
    return TraceReply(
        kind=kind,
        flow="udp,tp_dst=4791",
        netns=5,
        lasted_ns=10**9,
        stages=(*stages, StageRow(stage="uplink_transmit", packets=last, bytes=0)),
        **values,
    )


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs the command against a worker that answers or raises."""
    asked: list[TraceRequest] = []

    def make(answer, *words: str) -> tuple[int, TraceRequest]:
        async def work(_self, request, *, stop, on_attached):
            assert not stop.is_set()
            asked.append(request)
            on_attached()
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(trace.TraceWorker, "trace", work)
        parser = argparse.ArgumentParser()
        trace.add_arguments(parser)
        return trace.run(parser.parse_args(words)), asked[-1]

    return make


def test_help_shows_each_cap_s_limits_and_default():
    parser = argparse.ArgumentParser()
    trace.add_arguments(parser)
    text = " ".join(parser.format_help().split())
    assert "packets followed at one time, 64 to 65536 (8192)" in text
    for name, (low, high) in LIMITS.items():
        assert f"{low} to {high} ({getattr(Caps(), name)})" in text
        assert 0 < getattr(Caps(), name) <= high
    assert "<" not in text


def test_the_arguments_are_the_request(run, tmp_path):
    (tmp_path / "ns").write_text("")
    words = ["path", "udp, udp_dst=4791", "--duration", "2", "--uplink", "up0", "--rows", "64"]
    code, request = run(reply(), *words, "--netns", str(tmp_path / "ns"))
    assert code == 0
    assert (request.kind, request.flow) == ("path", "udp,tp_dst=4791")
    assert (request.duration_s, request.uplink, request.caps.rows) == (2, "up0", 64)
    assert request.netns == (tmp_path / "ns").stat().st_ino
    assert request.caps.journeys is None


@pytest.mark.parametrize(
    "words",
    [
        ("path", "arp"),
        ("path", "udp", "--duration", "61"),
        ("path", "udp", "--duration", "0"),
        ("path", "udp", "--netns", "there-is-none"),
    ],
)
def test_what_makes_no_sense_is_a_config_error(run, words):
    with pytest.raises(ConfigError):
        run(reply(), *words)


def test_what_the_worker_refuses_is_the_command_lines_fault(run):
    with pytest.raises(ConfigError, match="rows is not within"):
        run(RemoteProtocolError("rows is not within 16 and 9"), "path", "udp", "--rows", "10")
    with pytest.raises(CapabilityMissing):
        run(CapabilityMissing("tracing", "use another kernel"), "path", "udp")


def test_packets_that_vanish_are_exit_1_with_place_and_evidence(run, capsys):
    drop = DropRow(
        reason="TC_EGRESS",
        location="__dev_queue_xmit+0x9f0",
        after="encapsulate",
        device="up0",
        packets=10,
    )
    code, _ = run(reply("drops", last=0, drops=(drop,)), "drops", "udp")
    out = capsys.readouterr().out
    assert code == 1
    assert "TC_EGRESS after encapsulate on up0" in out
    assert "at __dev_queue_xmit+0x9f0" in out
    assert "packets vanish: uplink transmit (after encapsulation) (10 of 10, sender)" in out


def test_latencies_have_units_and_lost_counts_show(run, capsys):
    run(reply("latency"), "latency", "udp")
    out, err = capsys.readouterr()
    assert "lookup                  10         0         0    1.5 us      2 ms" in out
    assert "events lost 3, not followed 0" in out
    assert "tracing udp for 5 s ..." in err


def test_upcalls_and_what_does_not_run(run, capsys):
    missing = MissingProgram(program="upcall", reason="no kprobes", remedy="another kernel")
    rows = (UpcallRow(command="miss", result="EAGAIN", packets=7),)
    run(reply("upcalls", upcalls=rows, missing=(missing,)), "upcalls", "udp")
    out = capsys.readouterr().out
    assert "        7  miss: EAGAIN" in out
    assert "upcall does not run: no kprobes\n  remedy: another kernel" in out


def test_json_has_trace_and_verdict(run, capsys):
    run(reply(), "path", "udp", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["trace"]["flow"] == "udp,tp_dst=4791"
    assert document["verdict"]["where"] is None


def hop(stage: str, device: str = "", after_ns: int = 0, **more) -> Hop:
    return Hop(**{"stage": stage, "device": device, "vni": 0, "outer_port": 0,
                  "after_ns": after_ns, **more})  # fmt: skip


def test_ways_are_a_tree_with_counts_and_mean_times():
    begin = (hop("port_receive", "p0"), hop("lookup", after_ns=1000))
    ways = [
        Journey(flow="f", hops=(*begin, hop("upcall", after_ns=3000))),
        Journey(flow="f", hops=(*begin, hop("actions", after_ns=2000), hop("output", "p1"))),
        Journey(flow="f", hops=(*begin, hop("actions", after_ns=4000), hop("output", "p1"))),
    ]
    lines = list(trace.lines_of(reply(journeys=tuple(ways))))
    assert lines[1].split() == ["port_receive", "p0", "3", "0", "ns"]
    assert lines[2].split() == ["lookup", "3", "1", "us"]
    assert lines[3].startswith("├ upcall ")
    assert lines[4].startswith("└ actions ")
    assert lines[4].split()[-3:] == ["2", "3", "us"]
    assert lines[5].startswith("  output p1 ")


texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=120)
hops = st.lists(
    st.builds(
        hop, st.sampled_from(EGRESS), st.text("abc0", max_size=15), st.integers(0, 10**10),
        vni=st.integers(0, 1 << 24), outer_port=st.integers(0, 65535), reason=texts, location=texts,
    ),
    max_size=12,
)  # fmt: skip


@given(st.lists(hops, max_size=8), texts, st.sampled_from(["path", "drops", "latency", "upcalls"]))
def test_whatever_was_seen_fits_80_columns(ways, text, kind):
    big = 10**9
    lines = trace.lines_of(
        reply(
            kind,
            journeys=tuple(Journey(flow=text, hops=tuple(way)) for way in ways),
            drops=(DropRow(reason=text, location=text, after=text, device=text, packets=big),),
            upcalls=(UpcallRow(command=text, result=text, packets=big),),
            outers=(
                OuterRow(
                    flow=text, source=text, target=text, source_port=1, vni=1,
                    transmitted=True, packets=big,
                ),
            ),
            roce=(RoceRow(device=text, transmitted=True, encapsulated=True, packets=big),),
            missing=(MissingProgram(program=text, reason=text, remedy=text),),
            notes=(text,),
        )
    )  # fmt: skip
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(None, "-"), (0, "0 ns"), (999, "999 ns"), (1_000, "1 us"), (1_234_567, "1.23 ms"),
     (2_500_000_000, "2.5 s")],
)  # fmt: skip
def test_durations_have_the_unit_that_fits(duration_ns, text):
    assert trace.duration_text(duration_ns) == text


@pytest.mark.parametrize(
    ("error", "code", "remedy"),
    [
        (CapabilityMissing("tracing (no kprobes)", "another kernel"), 3, "another kernel"),
        (TooSoon("trace worker", "another trace is at work on this host: try again later"), 3, ""),
        (RemoteProtocolError("rows is not within 16 and 9"), 2, ""),
    ],
)
def test_why_there_is_no_trace_is_said_as_json(monkeypatch, capsys, error, code, remedy):
    async def work(_self, _request, **_):
        raise error

    monkeypatch.setattr(trace.TraceWorker, "trace", work)
    assert main(["trace", "drops", "udp", "--json"]) == code
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert str(error) in said["error"]
    assert said["remedy"] == remedy
    assert err == f"netagent: {said['error']}\n"
