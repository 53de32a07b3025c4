# SPDX-License-Identifier: Apache-2.0
"""Drives the probing of all local endpoints: transports in, transports out, decisions elsewhere."""

import secrets
from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

import structlog

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.probes.bell import GATHER_NS, Bell
from netagent.collect.windows import WindowTally
from netagent.config import ProbeConfig
from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.errors import CapabilityMissing
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList, Target
from netagent.probing.prober import Prober
from netagent.probing.transport import Transport
from netagent.wire.messages import ProbeAnswer

log = structlog.get_logger()

BEHIND_NS = 200_000_000
"""Nanoseconds for which losses are not told while more comes than is read. Chosen: a flood that
gathered between two steps is read by then; one that goes on must not hide losses."""
READ_NS = 50_000_000
"""Nanoseconds after which replies are read at the latest. Chosen: mostly something else is due
before; from there on a host counts as starved."""


class Transports(Protocol):
    """Opens transports; `netagent.adapters.probes.opener` in production."""

    def identity(self, endpoint: Endpoint) -> object:
        """Return what, if it changes, calls for a new transport; None: it cannot be opened now."""

    def open(self, endpoint: Endpoint) -> Transport:
        """Open an endpoint's transport; raises OSError or CapabilityMissing."""

    def asker(self, session: int, port: int) -> tuple[EndpointId, str] | None:
        """Return the local endpoint that a marked probe asked, and the asker's overlay address."""


class ProbeLoop:
    """The prober's clock, its open transports, and the bell that rings when packets came."""

    def __init__(self, config: ProbeConfig, tally: WindowTally, transports: Transports) -> None:
        self._transports = transports
        self._bell = Bell()
        self._due_ns = now_ns()
        """When the next step is to come at the latest."""
        self._emptied_ns = self._due_ns
        """When all was read that had come (monotonic)."""
        self.prober = Prober(
            config,
            tally,
            transports.asker,
            rng=Random(secrets.randbits(64)),
            wall_ns=wall_ns,
            now_ns=now_ns(),
            phase=secrets.randbits(32),
        )
        """What decides."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when somebody waits for the next step."""
        return self._bell.fileno()

    def close(self) -> None:
        """Close every socket."""
        for transport in self.prober.retain({}):
            self._close(transport)
        self._bell.close()

    # --- what to probe -----------------------------------------------------------------------

    def set_endpoints(
        self, endpoints: Iterable[Endpoint]
    ) -> list[tuple[EndpointId, OSError | CapabilityMissing]]:
        """Probe from exactly these endpoints; return those that could not be opened."""
        failed: list[tuple[EndpointId, OSError | CapabilityMissing]] = []
        wanted = {
            each.id: (each, identity)
            for each in endpoints
            if each.state is EndpointState.UP
            and (identity := self._transports.identity(each)) is not None
        }
        for transport in self.prober.retain(wanted):
            self._close(transport)
        for key, (endpoint, identity) in wanted.items():
            if key not in self.prober:
                try:
                    self._open(endpoint, identity)
                except (OSError, CapabilityMissing) as error:
                    failed.append((key, error))
        self.prober.apply(now_ns=now_ns())
        return failed

    def set_pinglist(self, pinglist: PingList) -> None:
        """Probe exactly these targets from now on."""
        self.prober.set_pinglist(pinglist, now_ns=now_ns())

    def begin_burst(self, target: Target, count: int) -> Callable[[], list[ProbeAnswer] | None]:
        """Probe `target` `count` times now, within the caps.

        Return a function that gives None while probes are open, then the answers. Raises KeyError
        where `target.source` is not local.
        """
        burst = self.prober.begin_burst(target, now_ns=now_ns())
        for _ in range(count):
            self.prober.send_of(burst, now_ns=now_ns())
        self._bell.ring()
        return lambda: self.prober.answers_of(burst)

    def _open(self, endpoint: Endpoint, identity: object) -> None:
        transport = self._transports.open(endpoint)
        self.prober.add(
            endpoint, identity, transport, session=secrets.randbits(32), now_ns=now_ns()
        )
        urgent = set(transport.urgent())
        for descriptor in transport.descriptors():
            self._bell.watch(descriptor, urgent=descriptor in urgent)

    def _close(self, transport: Transport) -> None:
        for descriptor in transport.descriptors():
            self._bell.forget(descriptor)
        transport.close()

    # --- the loop ----------------------------------------------------------------------------

    @property
    def gather_ns(self) -> int:
        """How long a packet may wait for others that the same wake-up serves."""
        return 0 if self.prober.eager else GATHER_NS

    def hush(self) -> None:
        """Keep the descriptor quiet until the next `step`: what arrived is known."""
        self._bell.hush(look=not self.gather_ns)

    def step(self) -> int:
        """Read, settle and send what is due; return when to come again (monotonic ns)."""
        before = self.prober.counters.bad_frames
        self.read()
        at_ns, gather_ns = now_ns(), self.gather_ns
        is_flooded = self.prober.counters.bad_frames > before or not self._bell.is_empty
        self._turn(at_ns)
        sent = self.prober.send_due(now_ns=at_ns, settles=self._may_settle(at_ns))
        self._due_ns = min(self.prober.wake_ns(now_ns=at_ns), self.prober.turn_ns)
        if is_flooded:
            self._due_ns = at_ns + GATHER_NS  # before it buries what is waited for
        elif self.prober.bursting(now_ns=at_ns):
            self._due_ns = min(self._due_ns, at_ns + GATHER_NS)
        elif sent:
            self._due_ns = min(self._due_ns, at_ns + READ_NS)
        if self._due_ns - at_ns > gather_ns:
            self._bell.set()
        return self._due_ns

    def _may_settle(self, at_ns: int) -> bool:
        """Whether what was not answered is lost: its answer does not wait behind a flood."""
        if self._bell.is_empty:
            self._emptied_ns = at_ns
        return self._bell.is_empty or at_ns - self._emptied_ns > BEHIND_NS

    def _turn(self, at_ns: int) -> None:
        """Exchange ports that roam, where it is their turn."""
        for transport, roamer in self.prober.turning(now_ns=at_ns):
            try:
                opened = roamer.renew()
            except OSError as error:  # its namespace is going away
                log.warning("port_not_renewed", error=str(error))
                continue
            self._bell.watch(opened, urgent=opened in transport.urgent())
            closed = roamer.drained()
            self.prober.turned(transport, opened, closed, now_ns=at_ns)
            if closed is not None:
                self._bell.forget(closed)
                roamer.drop()

    def read(self) -> None:
        """Read every socket that has something, one packet of each per round."""
        due_ns = wall_ns() - max(0, now_ns() - self._due_ns)
        for ready, woken_ns in self._bell.rounds():
            self.prober.read(ready, woken_ns=woken_ns, due_ns=due_ns, now_ns=now_ns())
