# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from analyzer.detect.held import JobVerdict
from analyzer.detect.operators.verdict import Culprit, Holdup, Who
from analyzer.detect.operators.verdict import Verdict as OfOperators
from analyzer.intent.differences.contract import Difference
from analyzer.questions import Failed, Why
from analyzer.replay import records
from netagent.model.errors import RemoteProtocolError
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import controller
from netagent.wire.codec import MAX_BODY_BYTES
from netagent.wire.messages import CheckReply, PathReply
from netagent.wire.trace import TraceReply
from tests.analyzer.localize.validating.test_judge import found
from tests.analyzer.localize.validating.test_judge import reply as compared

HEADER = records.Header(netagent="1", window_s=5, probe_port=1)


@pytest.mark.parametrize(
    "reply",
    [
        Failed(Why.REFUSED, "refused"),
        CheckReply(walks=(), wall_ns=3),
        PathReply(paths=()),
        TraceReply(kind="drops", flow="udp", netns=1, lasted_ns=2),
        compared(found("stale-megaflow")),
        Failed(Why.BUSY, "just compared"),
    ],
    ids=lambda reply: type(reply).__name__,
)
def test_a_reply_is_what_it_was(reply):
    record = records.unpack(records.pack(records.answered(7, reply, 9)))
    assert (record.question, record.now_ns) == (7, 9)
    assert records.reply_of(record) == reply


@pytest.mark.parametrize("change", [{"kind": "other"}, {"kind": "check"}, {"body": b"\xc1"}])
def test_a_reply_that_is_none_is_refused(change):
    record = records.answered(7, Failed(Why.ODD, "x"), 9)
    with pytest.raises(RemoteProtocolError):
        records.reply_of(structs.replace(record, **change))


def test_a_later_format_and_what_is_no_record_are_refused():
    assert records.unpack(records.pack(HEADER)) == HEADER
    with pytest.raises(RemoteProtocolError, match="update"):
        records.unpack(records.pack(structs.replace(HEADER, format=records.FORMAT + 1)))
    with pytest.raises(RemoteProtocolError):
        records.unpack(b"\x80")


@pytest.mark.parametrize("change", [{"window_s": 0}, {"probe_port": 0}, {"probe_port": 65536}])
def test_a_header_that_no_analyzer_writes_is_refused(change):
    with pytest.raises(RemoteProtocolError):
        records.unpack(records.pack(structs.replace(HEADER, **change)))


def test_what_differed_is_what_it_was():
    finding = Finding(FindingKind.PORT_UNBOUND, controller("port p"), "p is nowhere", 3, {"a": "b"})
    each = Difference(finding, ("h1",), True, ("p",), (EndpointId("c", 0),))
    record = records.Differed(differences=(each, Difference(finding)), now_ns=9)
    assert records.unpack(records.pack(record)) == record


def test_what_jobs_say_is_what_it_was():
    culprit = Culprit(Who.RANK, (3,), 0.9, "slow", "h1")
    told = OfOperators(Holdup.SLOW_RANK, "t0 is slow", (culprit,), evidence=("12 iterations",))
    job = JobVerdict("t0", told, 5, {3: (EndpointId("c", 0),)})
    record = records.HeldUp(jobs=(job,), now_ns=9)
    assert records.unpack(records.pack(record)) == record


def test_a_body_as_large_as_any_is_read_again():
    record = records.Ingested(payload=bytes(MAX_BODY_BYTES), now_ns=1)
    assert records.unpack(records.pack(record)) == record
