# SPDX-License-Identifier: Apache-2.0
"""From counters, read now and then, to what they grew by in each window. Reads no clock."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from netagent.model.window import Window

FLAPS = frozenset({"link_downed"})

PHYSICAL_ERRORS = frozenset({
    # InfiniBand's PortCounters, in ports/N/counters
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    # packets whose invariant CRC or encapsulation is wrong, in hw_counters of mlx5
    "rx_icrc_encapsulated",
    # of the netdev (Documentation/networking/statistics.rst)
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "tx_carrier_errors",
})  # fmt: skip
"""A healthy cable and transceiver never count these."""

RETRANSMITS = frozenset({
    # mlx5 (and, by the same names, bnxt_re and others)
    "local_ack_timeout_err",
    "packet_seq_err",
    "out_of_sequence",
    "implied_nak_seq_err",
    "duplicate_request",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    # rxe; `duplicate_request` has the same name
    "out_of_seq_request",
    "rcvd_seq_err",
    "completer_retry_err",
    "retry_exceeded_err",
    # others'
    "retransmits",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "rc_qp_retrans",
})  # fmt: skip
"""Reliable connections counted a packet as missing, and sent it again or gave up."""

NOT_READY = frozenset({
    "rnr_nak_retry_err",
    "out_of_buffer",
    "rcvd_rnr_err",
    "send_rnr_err",
    "retry_rnr_exceeded_err",
    "rnr_naks_rcvd",
})  # fmt: skip
"""The receiver had no buffer posted: the application, or its host, is behind."""

CONGESTION = frozenset({
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "port_xmit_wait",
    "port_xmit_discards",
})  # fmt: skip

OTHER_ERRORS = frozenset({
    "send_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rx_dct_connect_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "port_rcv_switch_relay_errors",
    "VL15_dropped",
})  # fmt: skip

TRAFFIC = frozenset({
    "port_rcv_data",
    "port_xmit_data",
    "port_rcv_packets",
    "port_xmit_packets",
    "rcvd_pkts",
    "sent_pkts",
    "rdma_sends",
    "rdma_recvs",
})  # fmt: skip
"""As the driver counts: ``port_*_data`` are in units of 4 bytes (IBTA)."""

_IMPORTANCE = (FLAPS, PHYSICAL_ERRORS, RETRANSMITS, NOT_READY, OTHER_ERRORS, CONGESTION, TRAFFIC)
_RANK = {name: place for place, names in enumerate(_IMPORTANCE) for name in names}


def rank(name: str) -> int | None:
    """Return how important a counter is, 0 the most; None where it is not known."""
    return _RANK.get(name)


MAX_ROWS = 512
"""Counters of one window that are reported; the least important ones beyond it are left out, and
counted. Chosen: it bounds the summary."""

MAX_SAMPLES = 4096
"""Samples kept for windows that are still to be closed; beyond it the two oldest become one.
Chosen: over an hour of samples, one a second."""


def advance(before: int, after: int) -> int | None:
    """Return by how much a counter grew that may have wrapped (at 32 or 64 bits); None: was reset.

    One that went back from the last quarter of its range to the first has wrapped. Any other that
    went back was reset.
    """
    if after >= before:
        return after - before
    span = 1 << (32 if before < 1 << 32 else 64)
    wrapped = before >= span // 4 * 3 and after < span // 4
    return after - before + span if wrapped else None


def growth(before: int, after: int) -> int:
    """Return by how much a counter grew; of one that was reset, how far it has come since."""
    grown = advance(before, after)
    return after if grown is None else grown


@dataclass(slots=True)
class Deltas:
    """Successive readings of one device's counters, and what each grew by since the last."""

    last: dict[str, int] = field(default_factory=dict)

    def add(self, counters: Mapping[str, int]) -> dict[str, int]:
        """Return what grew; a counter seen for the first time did not, as far as is known."""
        grown = {
            name: delta
            for name, value in counters.items()
            if name in self.last and (delta := growth(self.last[name], value))
        }
        self.last.update(counters)
        return grown


@dataclass(frozen=True, slots=True)
class CounterRow:
    """What one counter of one device grew by in a window."""

    device: str
    counter: str
    delta: int
    """Never 0."""


@dataclass(frozen=True, slots=True)
class CounterRows:
    """The rows of one window, sorted by device and counter."""

    rows: tuple[CounterRow, ...] = ()
    omitted: int = 0
    """Rows left out because they were too many."""


class CounterTally:
    """Counters in, rows per window out."""

    def __init__(self) -> None:
        self._devices: dict[str, Deltas] = {}
        self._samples: deque[tuple[int, dict[tuple[str, str], int]]] = deque()
        """What grew, by the wall time of the reading that showed it."""

    def add(self, device: str, counters: Mapping[str, int], *, wall_ns: int) -> None:
        """Take in the counters of `device` as read at `wall_ns`; unknown names are ignored."""
        known = {name: value for name, value in counters.items() if name in _RANK}
        grown = self._devices.setdefault(device, Deltas()).add(known)
        if grown:
            self._keep(wall_ns, {(device, name): delta for name, delta in grown.items()})

    def retain(self, devices: Collection[str]) -> None:
        """Forget all but `devices`: one that was gone counts anew when it comes back."""
        self._devices = {name: kept for name, kept in self._devices.items() if name in devices}

    def close(self, window: Window) -> CounterRows:
        """Return what was read before the end of `window` and not returned before."""
        total: dict[tuple[str, str], int] = {}
        later = [sample for sample in self._samples if sample[0] >= window.end_ns]
        for wall_ns, grown in self._samples:
            if wall_ns < window.end_ns:
                _merge(total, grown)
        self._samples = deque(later)
        keys = sorted(total, key=lambda key: (_RANK[key[1]], -total[key], key))
        rows = sorted(keys[:MAX_ROWS])
        return CounterRows(
            tuple(CounterRow(device, name, total[device, name]) for device, name in rows),
            omitted=len(keys) - len(rows),
        )

    def _keep(self, wall_ns: int, grown: dict[tuple[str, str], int]) -> None:
        if self._samples and self._samples[-1][0] == wall_ns:
            _merge(self._samples[-1][1], grown)
            return
        self._samples.append((wall_ns, grown))
        if len(self._samples) > MAX_SAMPLES:
            _, oldest = self._samples.popleft()
            _merge(self._samples[0][1], oldest)


def _merge(into: dict[tuple[str, str], int], grown: dict[tuple[str, str], int]) -> None:
    for key, delta in grown.items():
        into[key] = into.get(key, 0) + delta
