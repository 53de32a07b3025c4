# SPDX-License-Identifier: Apache-2.0
"""Closes a window when it is over, and ships its summary with the agent's own health."""

import asyncio
from collections import Counter

import structlog

from netagent.adapters.clock import StepDetector, now_ns, wall_ns
from netagent.adapters.host.cgroup import Limits
from netagent.adapters.host.usage import cpu_s, rss_kb
from netagent.adapters.rdma.host import Queueing
from netagent.agent.adapters import Adapters
from netagent.agent.membership import Membership
from netagent.collect.news import News
from netagent.collect.paths import PathNews
from netagent.config import AgentConfig
from netagent.host.announcing import foremost
from netagent.host.counters import CounterRows
from netagent.host.flooded import flooded
from netagent.host.shedding import Shed, Shedding
from netagent.model.window import Window
from netagent.wire.codec import deflated, encode
from netagent.wire.controller import ControllerState
from netagent.wire.inventory import Inventory
from netagent.wire.messages import Health
from netagent.wire.unprobed import Unprobed

SUMMED = (
    "sent", "answered", "unanswered", "delayed", "capped", "pending", "send_errors", "bad_frames",
    "cpu_ms",
)  # fmt: skip
"""Fields of `Health` that count one window."""

log = structlog.get_logger()


class Windows:
    """Follows the wall clock from window to window."""

    def __init__(
        self, config: AgentConfig, instance: str, adapters: Adapters, membership: Membership
    ) -> None:
        self._config = config
        self._instance = self._counted_as = instance
        self._lives = 1
        """Times that windows began to be counted: at the start, and where the clock went back."""
        self._adapters = adapters
        self._membership = membership
        self._steps = StepDetector()
        self._paths = PathNews(config.host)
        self._inventory = News[Inventory](config.host)
        self._controller = News[ControllerState](config.host)
        self._unprobed = News[Unprobed](config.host)
        self._cpu_s = cpu_s()
        self._limits, self._shedding = Limits(), Shedding()
        self._unanswered = Counter[str]()
        """Probes of the newest window that endpoints did not answer for the cap on replies."""
        self.health = Health()
        """Health of the window that was closed last."""
        self.totals = Counter[str]()
        """Sums of `SUMMED` over all windows."""
        self.last_ns = 0
        """When the window that was closed last began (wall clock)."""

    async def run(self) -> None:
        """Close windows until cancelled."""
        width_ns = self._config.probe.window_s * 1_000_000_000
        window = Window.covering(wall_ns(), width_ns=width_ns)
        while True:
            if self._steps.observe(wall_ns=wall_ns(), now_ns=now_ns()):
                self._adapters.uplink.clock.forget()
            left_ns = window.end_ns - wall_ns()
            if 0 < left_ns <= 2 * width_ns:
                await asyncio.sleep(min(left_ns / 1e9, 1.0))
                continue
            # Read and settle first: what is in the sockets is of this window.
            self._adapters.probes.step()
            if self._membership.complete and left_ns <= 0:
                self._ship(window)
            # A clock that is corrected by little must not yield a window twice: counters simply go
            # on into the next one.
            fresh = Window.covering(wall_ns(), width_ns=width_ns)
            window = fresh if fresh > window or left_ns > 0 else Window(window.end_ns, width_ns)

    def _ship(self, window: Window) -> None:
        if window.start_ns <= self.last_ns:
            # The clock went back, by minutes or years. What is counted now would be a duplicate of
            # what was, and nobody would hear of this host until its clock is as late again.
            self._lives += 1
            self._counted_as = f"{self._instance}.{self._lives}"
            log.warning("windows_begin_anew", start_ns=window.start_ns, before_ns=self.last_ns)
        self.last_ns = window.start_ns
        self.health = self._take_health(until_ns=now_ns() - (wall_ns() - window.end_ns))
        self.totals.update({name: getattr(self.health, name) for name in SUMMED})
        adapters = self._adapters
        summary = adapters.tally.close(
            window,
            host=self._config.host,
            instance=self._counted_as,
            paths=self._paths.of(adapters.tracer.traced(), start_ns=window.start_ns),
            findings=foremost((*self._membership.take_held(), *flooded(self._unanswered, window))),
            health=self.health,
            stamps=adapters.prober.stamps(),
            counters=adapters.rdma.close_window(window) if adapters.rdma else CounterRows(),
            traffic=adapters.traffic.take(),
            clock=adapters.uplink.clock.best(now_ns=now_ns()),
            inventory=self._inventory.of(self._membership.inventory, start_ns=window.start_ns),
            controller=self._controller.of(self._membership.controller, start_ns=window.start_ns),
            unprobed=self._unprobed.of(self._membership.unprobed, start_ns=window.start_ns),
            operators=adapters.rings.close_window(),
        )
        adapters.shipper.submit(window.start_ns, deflated(encode(summary)))

    def _take_health(self, *, until_ns: int) -> Health:
        adapters = self._adapters
        counters = adapters.prober.take_counters()
        queueing = adapters.rdma.take_queueing() if adapters.rdma else Queueing(0, 0, 0, {})
        answered, unanswered = adapters.answering.take()
        self._unanswered = Counter(unanswered) + Counter(queueing.capped)
        self._shed()
        before_s, self._cpu_s = self._cpu_s, cpu_s()
        return Health(
            sent=counters.sent,
            answered=answered + queueing.answered,
            unanswered=self._unanswered.total(),
            delayed=counters.delayed,
            capped=counters.capped,
            pending=counters.pending,
            send_errors=adapters.tally.take_send_errors(),
            bad_frames=counters.bad_frames + queueing.bad_frames,
            queue_us=queueing.queue_us,
            spool_dropped=adapters.shipper.dropped,
            cpu_ms=round(1000 * max(0.0, self._cpu_s - before_s)),
            rss_kb=rss_kb(),
            stalled_ms=adapters.pace.take_stalled_ns(until_ns=until_ns) // 1_000_000,
            clock_steps=self._steps.steps,
            shed=self.shed,
        )

    @property
    def shed(self) -> Shed:
        """What is left undone now, near the limits that this process was given."""
        return self._shedding.level

    def _shed(self) -> None:
        before, load = self.shed, self._limits.load()
        after = self._shedding.observe(load)
        if after is not before:
            log.warning(
                "load_shed", left_undone=after.name.lower(), memory=load.memory,
                throttled=load.throttled,
            )  # fmt: skip
            self._adapters.prober.skip_rare(skips=after >= Shed.RARE)
