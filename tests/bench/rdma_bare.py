# SPDX-License-Identifier: Apache-2.0
"""The tightest UD ping-pong that pyverbs allows, with nothing of ours: what we compare with.

It checks nothing, times each round and knows one peer. Run as a program it is the side that
answers: `python -m tests.bench.rdma_bare DEVICE GID PEER-GID PEER-QPN busy|wait`.
"""

import ctypes
import mmap
import statistics
import sys
import time
from typing import Any

from netagent.adapters.rdma import verbs
from netagent.probing.rdma.gids import verbose_gid

QKEY = 0x11111111
SLOTS, SLOT_BYTES = 64, 128
SIGNAL_EVERY = 16


class Bare:
    """One queue pair, opened by hand."""

    def __init__(self, device: str, gid: str) -> None:
        v = self.v = verbs.load()
        enums = v.enums
        self.context = v.device.Context(name=device)
        wanted = verbose_gid(gid)
        table = self.context.query_gid_table(64)
        self.gid_index = next(e.gid_index for e in table if e.gid_str() == wanted)
        self.domain = v.pd.PD(self.context)
        self.handle: Any = None
        self.memory = mmap.mmap(-1, SLOT_BYTES * (SLOTS + 1))
        anchor = ctypes.c_char.from_buffer(self.memory)
        base = ctypes.addressof(anchor)
        size = SLOT_BYTES * (SLOTS + 1)
        self.region = v.mr.MR(self.domain, size, enums.IBV_ACCESS_LOCAL_WRITE, address=base)
        self.channel = v.cq.CompChannel(self.context)
        self.arrivals = v.cq.CQ(self.context, SLOTS, None, self.channel, 0)
        self.departures = v.cq.CQ(self.context, SLOTS, None, None, 0)
        capacity = v.qp.QPCap(max_send_wr=SLOTS, max_recv_wr=SLOTS, max_send_sge=1, max_recv_sge=1)
        initial = v.qp.QPInitAttr(
            qp_type=enums.IBV_QPT_UD, scq=self.departures, rcq=self.arrivals, cap=capacity
        )
        attributes = v.qp.QPAttr(port_num=1)
        attributes.qkey, attributes.pkey_index, attributes.sq_psn = QKEY, 0, 0
        self.pair = v.qp.QP(self.domain, initial, attributes)
        self.qpn = self.pair.qp_num
        key = self.region.lkey
        pieces = [v.wr.SGE(base + n * SLOT_BYTES, SLOT_BYTES, key) for n in range(SLOTS)]
        self.receives = [v.wr.RecvWR(wr_id=n, num_sge=1, sg=[p]) for n, p in enumerate(pieces)]
        for receive in self.receives:
            self.pair.post_recv(receive)
        out = v.wr.SGE(base + SLOTS * SLOT_BYTES, 64, key)
        self.quiet = v.wr.SendWR(num_sge=1, sg=[out], send_flags=0)
        self.loud = v.wr.SendWR(num_sge=1, sg=[out], send_flags=enums.IBV_SEND_SIGNALED)

    def aim(self, gid: str, qpn: int) -> None:
        """Send to this queue pair from now on."""
        addr = self.v.addr
        dgid = addr.GID(verbose_gid(gid))
        route = addr.GlobalRoute(dgid=dgid, sgid_index=self.gid_index, hop_limit=64)
        attributes = addr.AHAttr(gr=route, is_global=1, port_num=1)
        self.handle = addr.AH(self.domain, attr=attributes)
        for request in (self.quiet, self.loud):
            request.set_wr_ud(self.handle, qpn, QKEY)

    def send(self, number: int) -> None:
        """Send 64 bytes."""
        if number % SIGNAL_EVERY:
            self.pair.post_send(self.quiet)
        else:
            self.pair.post_send(self.loud)
            self.departures.poll(2)

    def take_busy(self) -> Any:
        """Return the next packet's completion, asking again and again."""
        poll = self.arrivals.poll
        while True:
            count, completions = poll(1)
            if count:
                return completions[0]

    def take_waiting(self) -> Any:
        """Return the next packet's completion, asleep until it comes."""
        arrivals, channel = self.arrivals, self.channel
        while True:
            count, completions = arrivals.poll(1)
            if count:
                return completions[0]
            arrivals.req_notify()
            count, completions = arrivals.poll(1)
            if count:
                return completions[0]
            channel.get_cq_event(arrivals)
            arrivals.ack_events(1)

    def rounds(self, count: int, *, busy: bool) -> list[int]:
        """Return the round trips of `count` pings, in nanoseconds."""
        take = self.take_busy if busy else self.take_waiting
        clock, receives, post_receive = time.perf_counter_ns, self.receives, self.pair.post_recv
        found = []
        for number in range(count):
            began_ns = clock()
            self.send(number)
            completion = take()
            found.append(clock() - began_ns)
            post_receive(receives[completion.wr_id])
        return found

    def close(self) -> None:
        """Give everything back to the kernel."""
        for request in (self.quiet, self.loud, *self.receives):
            request.close()
        for held in (self.handle, self.pair, self.arrivals, self.departures, self.channel):
            if held is not None:
                held.close()
        for held in (self.region, self.domain, self.context):
            held.close()

    def answer(self, *, busy: bool) -> None:
        """Send a packet back for each that comes, until killed."""
        take = self.take_busy if busy else self.take_waiting
        number = 0
        while True:
            completion = take()
            self.send(number)
            number += 1
            self.pair.post_recv(self.receives[completion.wr_id])


def median_us(found: list[int]) -> float:
    """Return the median in microseconds."""
    return statistics.median(found) / 1e3


def main() -> None:
    """Answer."""
    device, gid, peer, qpn, mode = sys.argv[1:]
    made = Bare(device, gid)
    made.aim(peer, int(qpn))
    print(made.qpn, flush=True)
    made.answer(busy=mode == "busy")


if __name__ == "__main__":
    main()
