# SPDX-License-Identifier: Apache-2.0
from bpf.trace.collectives import BY_SYMBOL, FUNCTIONS, Hit, Pairing, arguments, call_of

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
