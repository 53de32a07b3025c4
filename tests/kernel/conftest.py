# SPDX-License-Identifier: Apache-2.0
"""Programs compiled once for all tests here (fifteen seconds under emulation), and two hosts."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bpf.kernel.host import Symbols, read_facts
from bpf.kernel.loader import Sizes, Tracer, load
from bpf.trace.abi import Event, Totals
from bpf.trace.flowspec import parse_flow
from bpf.trace.programs import KernelFacts, choose
from bpf.trace.request import Caps, Request
from bpf.trace.result import to_result
from netagent.model.encapsulation import VXLAN, Encapsulation
from tests.conftest import KERNEL, require
from tests.kernel.overlay import Overlay, Switch
from tests.waiting import wait_until


class Lens:
    """The attached programs, pointed at one host and one flow at a time."""

    def __init__(self, tracer: Tracer, facts: KernelFacts, tunnel: Encapsulation = VXLAN) -> None:
        self._tracer, self._facts, self._tunnel = tracer, facts, tunnel
        self._events: list[Event] = []

    def look(
        self, host: Switch, flow: str, traffic: Callable[[], object], **caps: int
    ) -> dict[str, Any]:
        """Return what `host` counts of `flow` during `traffic()`."""
        self._tracer.clear()
        self._events.clear()
        request = Request(
            "path", parse_flow(flow), host.netns, 10**9, caps=Caps(**caps), tunnel=self._tunnel
        )
        self._tracer.start(request.filter(), self._events.append)
        try:
            traffic()
            self._settle()
        finally:
            self._tracer.stop()
        self._tracer.consume()
        assert self._facts.layout is not None
        return to_result(
            request,
            self._tracer.read(),
            self._events,
            lasted_ns=1,
            attached=self._tracer.attached,
            refusals=[],
            reasons=self._facts.layout.reasons,
            symbol=Symbols(),
        )

    def _settle(self) -> None:
        """Wait until nothing is counted any more: what was sent is on its way for a while."""
        last: list[dict[str, Totals]] = []

        def still() -> bool:
            last.append(self._tracer.read().stages)
            return len(last) > 3 and last[-1] == last[-2] == last[-3]

        wait_until(still, "the end of the traffic", 30)


@pytest.fixture(scope="session")
def overlay() -> Iterator[Overlay]:
    """Two hosts and two tenants."""
    require(KERNEL)
    made = Overlay()
    yield made
    made.close()


@pytest.fixture(scope="module")
def bridged() -> Iterator[Overlay]:
    """Two hosts of which each has its uplink in a bridge of Open vSwitch."""
    require(KERNEL)
    made = Overlay(bridged=True)
    yield made
    made.close()


@pytest.fixture(scope="session")
def lens(overlay: Overlay) -> Iterator[Lens]:
    """Every program that runs here; the modules are loaded by then, for there is an overlay."""
    facts = read_facts()
    programs, _ = choose("path", facts)
    assert facts.layout is not None
    with load(programs, facts, facts.layout, Sizes(4096, 1024, 64)) as tracer:
        assert tracer.refusals == []
        yield Lens(tracer, facts)


def packets(result: dict[str, Any]) -> dict[str, int]:
    """Return packets by stage."""
    return {row["stage"]: row["packets"] for row in result["stages"]}
