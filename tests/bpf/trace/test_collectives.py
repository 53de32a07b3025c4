# SPDX-License-Identifier: Apache-2.0
import pytest

from bpf.trace import collectives
from bpf.trace.collectives import (
    BY_SYMBOL,
    FUNCTIONS,
    STALLED_NS,
    Hit,
    Pairing,
    arguments,
    call_of,
    has_transfers,
)

NCCL = BY_SYMBOL["ncclAllReduce"]
GLOO = BY_SYMBOL["_ZN4gloo9allreduceERKNS_16AllreduceOptionsE"]
SEND = BY_SYMBOL["ncclSend"]


def hit(time_ns, tid, *, enters=True, function=NCCL, values=(0xC0, 100, 7)):
    return Hit(time_ns, 40, tid, function, enters, values if enters else ())


def test_each_function_is_named_once():
    assert len(BY_SYMBOL) == len(FUNCTIONS)


def test_arguments_are_fetched_from_where_the_machine_has_them():
    assert arguments(NCCL, "x86_64") == "group=%r9:u64 count=%dx:u64 datatype=%cx:u64"
    assert arguments(NCCL, "aarch64") == "group=%x5:u64 count=%x2:u64 datatype=%x3:u64"
    assert arguments(GLOO, "x86_64") == (
        "group=+0(%di):u64 place=+8(+0(%di)):u64 later=+0(+0(%di)):u64 "
        "count=+80(%di):u64 size=+88(%di):u64"
    )


def test_bytes_follow_from_count_and_type():
    call = call_of(hit(1, 1))
    assert (call.group, call.bytes, call.peer) == (0xC0, 400, -1)
    assert call_of(hit(1, 1, values=(0xC0, 100, 99))).bytes == 0
    sent = call_of(hit(1, 1, function=SEND, values=(0xC0, 10, 2, 3)))
    assert (sent.bytes, sent.peer) == (40, 3)


def test_a_context_says_rank_and_size_and_another_version_nothing():
    call = call_of(hit(1, 1, function=GLOO, values=(0xA0, 3 | 8 << 32, 0x7F00_1234_5678, 1000, 4)))
    assert (call.place, call.size, call.bytes) == (3, 8, 4000)
    odd = call_of(hit(1, 1, function=GLOO, values=(0xA0, 9 | 8 << 32, 0x7F00_1234_5678, 1000, 77)))
    assert (odd.place, odd.size, odd.bytes) == (-1, 0, 0)
    newer = call_of(hit(1, 1, function=GLOO, values=(0xA0, 1 << 33, 2 | 4 << 32, 1000, 4)))
    assert (newer.place, newer.size) == (2, 4)


def test_a_thread_that_leaves_ends_its_call():
    pairing = Pairing()
    (begun,) = pairing.take([hit(10, 1)])
    (ended,) = pairing.take([hit(30, 2, enters=False), hit(25, 1, enters=False)])
    assert ended is begun
    assert (begun.begun_ns, begun.ended_ns) == (10, 25)


def test_an_end_that_was_not_seen_is_no_hang():
    pairing = Pairing()
    first, unseen, second = pairing.take([hit(10, 1), hit(50, 1)])
    assert first is unseen
    assert first.lost
    assert not second.lost
    assert pairing.lose() == [second]
    assert second.lost
    assert pairing.take([hit(60, 1, enters=False)]) == []


def torch(kind, role):
    return next(each for each in FUNCTIONS if (each.kind, each.role) == (kind, role))


def transfer(time_ns, kind="send", *, tid=1, work=0x70, peer=1, bytes_=4000, tag=5):
    """Return the hits of a transfer that is asked for and made."""
    return [
        Hit(time_ns, 40, tid, torch(kind, "asks"), enters=True, values=(0xF0, peer, tag)),
        Hit(time_ns + 1, 40, tid, torch(kind, "makes"), enters=True, values=(work, bytes_, 0xC7)),
    ]


def waits(time_ns, kind="send", *, tid=1, work=0x70, enters=True):
    values = (work,) if enters else ()
    return Hit(time_ns, 40, tid, torch(kind, "waits"), enters, values)


def test_what_returns_an_object_has_its_arguments_one_further_where_that_is_passed_as_one():
    asks = torch("send", "asks")
    assert arguments(asks, "x86_64") == "owner=%si:u64 peer=%cx:u64 tag=%r8:u64"
    assert arguments(asks, "aarch64") == "owner=%x0:u64 peer=%x2:u64 tag=%x3:u64"
    assert arguments(torch("recv", "makes"), "x86_64") == (
        "work=%di:u64 bytes=+16(+0(%dx)):u64 context=+24(+0(%dx)):u64"
    )
    assert [torch("send", role).leaves for role in ("asks", "makes", "waits")] == [0, 0, 1]


@pytest.mark.parametrize("kind", ["send", "recv"])
def test_a_transfer_begins_where_it_is_asked_for_and_ends_with_the_wait(kind):
    pairing = Pairing()
    (begun,) = pairing.take(transfer(10, kind))
    assert (begun.function.kind, begun.function.op, begun.group) == (kind, kind, 0xC7)
    assert (begun.begun_ns, begun.waited_ns, begun.bytes) == (10, 0, 4000)
    assert (begun.peer, begun.tag) == (1, 5)
    (waited,) = pairing.take([waits(20, kind)])
    assert waited is begun
    assert (waited.waited_ns, waited.ended_ns) == (20, 0)
    assert pairing.take([waits(25, kind, tid=2, enters=False)]) == []
    (ended,) = pairing.take([waits(30, kind, enters=False)])
    assert (ended is begun, ended.ended_ns) == (True, 30)
    assert pairing.works == {}


def test_others_are_asked_for_before_one_is_waited_for():
    pairing = Pairing()
    first, second = pairing.take([*transfer(10), *transfer(20, "recv", work=0x71, peer=2)])
    inside = hit(22, 1)
    pairing.take([waits(30, "recv", work=0x71), waits(31, "recv", enters=False), inside])
    assert (first.ended_ns, second.ended_ns) == (0, 31)
    pairing.take([hit(40, 1, enters=False), waits(50), waits(51, enters=False)])
    assert (first.waited_ns, first.ended_ns) == (50, 51)


def test_a_transfer_from_anybody_has_no_peer():
    anybody = BY_SYMBOL[
        "_ZN4c10d16ProcessGroupGloo13recvAnysourceERSt6vectorIN2at6TensorESaIS3_EEi"
    ]
    _, made = transfer(10, "recv")
    (call,) = Pairing().take([Hit(10, 40, 1, anybody, enters=True, values=(0xF0, 7)), made])
    assert (call.peer, call.tag, call.function.kind) == (-1, 7, "recv")


def test_what_a_register_holds_above_an_int_is_none_of_a_peer():
    (call,) = Pairing().take(transfer(10, peer=0xABCD_0000_0002))
    assert call.peer == 2
    (odd,) = Pairing().take(transfer(10, peer=-1 & (1 << 64) - 1, bytes_=1 << 50))
    assert (odd.peer, odd.bytes) == (-1, 0)


def test_of_a_wait_for_what_was_asked_for_unseen_it_is_known_that_it_waits():
    pairing = Pairing()
    begun, ended = pairing.take([waits(10, "recv"), waits(20, "recv", enters=False)])
    assert begun is ended
    assert (ended.function.kind, ended.begun_ns, ended.waited_ns) == ("recv", 10, 10)
    assert (ended.ended_ns, ended.group, ended.peer) == (20, 0, -1)


def test_what_nobody_asked_for_on_that_thread_is_no_transfer():
    pairing = Pairing()
    asks, makes = transfer(10)
    assert pairing.take([makes]) == []
    assert pairing.take([asks, transfer(10, "recv")[1]]) == []
    assert pairing.take([asks, transfer(10, tid=2)[1]]) == []


def test_what_nobody_waited_for_is_over_once_another_one_has_its_place():
    pairing = Pairing()
    first, gone, second = pairing.take([*transfer(10), *transfer(90)])
    assert (gone is first, first.lost) == (True, False)
    assert (first.waited_ns, first.ended_ns) == (91, 91)
    assert second.ended_ns == 0


def test_of_very_many_that_nobody_waits_for_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(collectives, "MOST_WORKS", 2)
    pairing = Pairing()
    first, *_ = pairing.take([each for n in range(3) for each in transfer(10 * n, work=n)])
    assert first.ended_ns == 21
    assert len(pairing.works) == 2


def test_who_asks_has_left_what_it_was_in_unseen():
    pairing = Pairing()
    pairing.take([*transfer(10), waits(20)])
    left, _ = pairing.take(transfer(30, work=0x71))
    assert left.lost


def test_where_hits_were_shed_nobody_knows_what_became_of_transfers():
    pairing = Pairing()
    (begun,) = pairing.take([*transfer(10), transfer(20)[0]])
    assert pairing.lose() == [begun]
    assert begun.lost
    assert pairing.take(transfer(20)[1:]) == []


def test_a_library_has_transfers_where_all_about_them_is_exported():
    wanted = [each.symbol for each in FUNCTIONS if each.role != "call"]
    assert has_transfers(wanted)
    assert has_transfers([*wanted, "another"])
    assert not has_transfers(each for each in wanted if "8RecvWork4wait" not in each)
    assert not has_transfers(each for each in wanted if "8SendWorkC1" not in each)


def test_who_asked_and_got_no_further_waits_for_its_peer():
    """The peer is gone, and the process died of it, or waits until it takes what it is sent."""
    pairing = Pairing()
    pairing.take([*transfer(10), waits(12), waits(13, enters=False)])
    asks, makes = transfer(100, peer=3, work=0x71)
    assert pairing.take([asks]) == []
    assert pairing.stall(99 + STALLED_NS) == []
    (stalled,) = pairing.stall(100 + STALLED_NS)
    assert (stalled.group, stalled.peer, stalled.tag) == (0xC7, 3, 5)
    assert (stalled.begun_ns, stalled.waited_ns, stalled.ended_ns) == (100, 100, 0)
    assert pairing.stall(10**12) == []
    assert pairing.take([makes]) == [stalled]
    assert pairing.take([waits(10**9, work=0x71), waits(10**9 + 5, enters=False)])[1] is stalled
    assert stalled.ended_ns == 10**9 + 5


def test_who_goes_on_after_it_got_no_further_has_left_that():
    pairing = Pairing()
    pairing.take(transfer(100)[:1])
    (stalled,) = pairing.stall(10**12)
    assert stalled.group == 0  # nobody saw a transfer of that group before
    assert pairing.take([hit(10**12, 1)])[0] is stalled
    assert stalled.lost
    pairing.take(transfer(10**12 + 5, tid=7)[:1])
    (other,) = pairing.stall(10**13)
    assert pairing.lose()[1:] == [other]


def test_contexts_of_very_many_groups_are_forgotten(monkeypatch):
    monkeypatch.setattr(collectives, "MOST_WORKS", 1)
    pairing = Pairing()
    for owner in (1, 2):
        asks, makes = transfer(10 * owner)
        pairing.take([asks._replace(values=(owner, 1, 1)), makes])
    assert pairing.contexts == {(40, 2): 0xC7}
