# SPDX-License-Identifier: Apache-2.0
"""Which source ports the flows of a pair take, and when one of them is exchanged. Pure.

ECMP hashes source ports: the few that a pair has reach a few of the ways between its ends, and
never another one. So an endpoint has some ports more than a pair has flows, of which each target
takes others, and one port that roams: it is exchanged for a fresh one every few minutes. A pair's
other flows stay, for what is known of a flow is known of its way.
"""

from hashlib import blake2b

from netagent.model.ids import EndpointId

EXTRA_PORTS = 3
"""Ports of an endpoint beyond those of one of its pairs. Chosen: of six that stay, three can be
taken in twenty ways, and each costs a socket."""
SLACK_NS = 300_000_000
"""Nanoseconds from the latest instant at which a port can be exchanged, and all of its probes have
settled within the window, back to the earliest. Chosen: a host at work steps many times in it."""
SETTLED_NS = 100_000_000
"""Nanoseconds that are left then until the window ends. Chosen: a lost probe settles some
milliseconds after its timeout."""


def ports_of(target: EndpointId, *, ports: int, flows: int, roams: bool) -> tuple[int, ...]:
    """Return the ports, by index, that the flows to `target` take; always the same ones.

    The last of the `ports` is the one that roams, if any does: it is the last flow's.
    """
    staying = range(ports - roams)
    drawn = sorted(staying, key=lambda n: blake2b(f"{target}/{n}".encode(), digest_size=8).digest())
    return (*sorted(drawn[: flows - roams]), *range(ports - roams, ports))


class Turns:
    """When the ports that roam are exchanged: each host's in its own window, near its end.

    All of a host's endpoints exchange theirs together. Otherwise some path of nearly every host
    would be another one in nearly every window, and whoever learns paths has to look at each host
    that has such.

    A flow that ends, and was well, must not speak for a pair that breaks later in the window. So
    it ends just early enough for its probes to settle, and its losses are those of the others.
    """

    def __init__(self, *, rotate_s: float, window_s: int, timeout_ms: int, phase: int = 0) -> None:
        """`rotate_s` is counted in whole windows; 0 means never.

        Hosts of different `phase` have their turns in different windows.
        """
        self._phase = phase
        self._width_ns = window_s * 1_000_000_000
        self._every = max(1, round(rotate_s / window_s)) if rotate_s else 0
        self._before_ns = timeout_ms * 1_000_000 + SETTLED_NS + SLACK_NS

    def due(self, *, wall_ns: int) -> int | None:
        """Return the number of the window if the host's turn is now; None if it is not."""
        window, within_ns = divmod(wall_ns + self._before_ns, self._width_ns)
        if not self._every or within_ns >= SLACK_NS or (window + self._phase) % self._every:
            return None
        return window

    def wait_ns(self, *, wall_ns: int) -> int:
        """Return how long to wait until anybody's turn may come next."""
        return self._width_ns - (wall_ns + self._before_ns) % self._width_ns
