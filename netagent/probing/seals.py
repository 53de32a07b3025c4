# SPDX-License-Identifier: Apache-2.0
"""Which probes come from whom the analyzer gave the group's key. Reads no clock.

Whoever is in a container can send probes to its endpoint, and what its agent cannot answer all of
it answers in part. Probes with a seal come first: they have a cap of their own. One without is
answered all the same, as long as there is room: an older agent's has none, and agents hear of
another key at different times.
"""

from collections.abc import Mapping

from netagent.model.ids import EndpointId
from netagent.probing.recent import Recent
from netagent.wire import frame

MAX_FLOWS = 16_384
"""Flows whose newest probe is remembered; the oldest give way. Chosen: four times those that a host
of 8 endpoints answers, each to 127 others by 4 ports."""
KEPT_NS = 3 * frame.EPOCH_NS
"""Nanoseconds for which a flow's newest probe is remembered at least. A seal is of the epoch beside
the present one at most, and holds until the epoch after its own: later, all that could come again
has no seal any more."""
_HALF = 1 << 31
"""Sequence numbers of 32 bits that count as later ones (as RFC 1982 has it)."""


class Seals:
    """The keys of this host's endpoints, and the newest sealed probe of each flow."""

    def __init__(self) -> None:
        self.keys: Mapping[EndpointId, bytes] = {}
        self._newest = Recent[tuple[EndpointId, int, int], tuple[int, int]](
            span_ns=KEPT_NS, most=MAX_FLOWS
        )
        """Flow -> epoch and sequence number."""

    def holds(
        self, endpoint: EndpointId, payload: bytes, probe: frame.Frame, *, wall_ns: int
    ) -> bool:
        """Whether a probe to a local endpoint has its seal, and is later than those before it.

        Who listens in the container can send what it heard once more, from any address: that is not
        later. Who has the key can number probes of others' flows far ahead: these then are answered
        as if they had no seal, but only until the next epoch, in which numbers begin anew.
        """
        if not probe.flags & frame.SEALED:
            return False
        key = self.keys.get(endpoint)
        if key is None:
            return False
        epoch = frame.sealed_at(payload, key, str(endpoint), wall_ns=wall_ns)
        if epoch is None:
            return False
        flow = endpoint, probe.session, probe.port
        newest = self._newest.get(flow)
        if newest is not None and newest[0] > wall_ns // frame.EPOCH_NS + 1:
            newest = None  # of a clock that was ahead: it would hold all off until it is as late
        is_later = newest is None or _is_later(epoch, probe.seq, *newest)
        said = (epoch, probe.seq) if is_later or newest is None else newest
        self._newest.put(flow, said, now_ns=wall_ns)
        return is_later


def _is_later(epoch: int, seq: int, newest_epoch: int, newest_seq: int) -> bool:
    if epoch != newest_epoch:
        return epoch > newest_epoch
    return 0 < (seq - newest_seq & 0xFFFFFFFF) < _HALF
