# SPDX-License-Identifier: Apache-2.0
"""What hosts had of their logical flows when nothing else was asked of them. Pure.

Of one logical flow several flows are made, how many nobody but the host's controller computes. But
where the rows are those of before, so are the flows; so one that is gone since is missing.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from analyzer.intent.logical import Host
from analyzer.intent.selected import Selected

SETTLED_S = 30.0
"""Seconds for which a host had the same flows of the same rows, until it should have these. Chosen:
many times what an instance takes to install what was asked."""
MOST_HOSTS = 16
"""Most hosts that are remembered. Chosen: a host of 10,000 flows takes a megabyte."""


@dataclass(frozen=True, slots=True)
class _Look:
    state: str
    flows: Mapping[int, int]
    since_s: float
    is_settled: bool = False


@dataclass(slots=True)
class Earlier:
    """Remembers hosts, those that were looked at last."""

    _looks: dict[str, _Look] = field(default_factory=dict)

    def gone(
        self, chassis: str, state: str, flows: Mapping[int, int], now_s: float
    ) -> dict[int, tuple[int, int]]:
        """Return cookies of which flows are gone -> how many there were, and are.

        `flows` has the cookie of each flow that the host has of a logical one, by a number that
        stands for its table, priority and match; `state` stands for the rows that ask for them.
        Where there are new ones as well, the controller makes them in another way than it did.
        """
        known = self._looks.pop(chassis, None)
        is_same = known is not None and known.state == state
        if known is not None and is_same and known.is_settled and flows.keys() < known.flows.keys():
            self._looks[chassis] = known
            then, now = Counter(known.flows.values()), Counter(flows.values())
            lost = {known.flows[each] for each in known.flows.keys() - flows.keys()}
            return {each: (then[each], now[each]) for each in lost}
        if known is not None and is_same and known.flows.keys() == flows.keys():
            settled = known.is_settled or now_s - known.since_s >= SETTLED_S
            self._looks[chassis] = _Look(state, flows, known.since_s, settled)
        else:
            self._looks[chassis] = _Look(state, flows, now_s)
        while len(self._looks) > MOST_HOSTS:
            del self._looks[next(iter(self._looks))]
        return {}

    def remembers(self, chassis: str) -> bool:
        """Return whether it would be told if a flow of a host was gone."""
        known = self._looks.get(chassis)
        return known is not None and known.is_settled


def state_of(rows: Selected, host: Host) -> str:
    """Return what stands for all rows that logical flows of a host are made of."""
    flows = sorted(
        (each.uuid, each.priority, each.match, each.actions, sorted(each.datapaths))
        for each in rows.flows
    )
    bindings = sorted(
        (each.port, each.datapath, each.kind, each.chassis, each.peer, each.cookie)
        for each in rows.bindings
        if each.datapath in host.datapaths
    )
    sets = [
        sorted((name, sorted(of)) for name, of in named.items())
        for named in (rows.groups, rows.addresses)
    ]
    said = repr((flows, bindings, sets, sorted(rows.keys.items())))
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
