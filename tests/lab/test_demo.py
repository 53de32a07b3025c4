# SPDX-License-Identifier: Apache-2.0
import time
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from tests.lab import demo
from tests.lab.catalogue import CATALOGUE
from tests.lab.shape import Transport

LINK = ("underlay", "link leaf-s0-r0 -- spine-0")


def found(fault: str, localized_s: float) -> demo.Found:
    return demo.Found(fault, LINK, (*LINK, 0.9), localized_s - 1, localized_s, recovered_s=9.0)


@pytest.mark.parametrize("transport", Transport)
def test_the_demo_of_each_transport_breaks_what_that_transport_has(transport: Transport) -> None:
    specs = [CATALOGUE[name] for name in demo.FAULTS[transport]]
    assert transport is Transport.RDMA or not any(spec.rdma for spec in specs)
    assert demo.OUTPUT[transport].startswith("build/")


def test_latency_has_more_time_to_be_found_than_loss() -> None:
    assert found("link-loss", 10.0).right
    assert not found("link-loss", 10.1).right
    assert found("link-delay", 20.0).right
    assert not found("link-delay", 20.1).right


def test_the_table_marks_what_was_found_too_late() -> None:
    lines = demo.table([found("link-loss", 9.0), found("link-delay", 21.0)])
    assert [line.endswith(" ok") for line in lines if "verdict" in line] == [True, False]
    assert max(map(len, lines)) <= 80


def test_an_incident_that_names_somebody_only_now_is_new() -> None:
    told: list[dict[str, str | None]] = [
        {"id": "i1", "component": None},
        {"id": "i2", "component": "link x"},
    ]
    answer = httpx.MockTransport(lambda _: httpx.Response(200, json={"incidents": told}))
    with httpx.Client(transport=answer, base_url="https://analyzer") as client:
        observer = demo.Observer(client)
        observer.remember()
        assert observer.new() == []
        told[0]["component"] = "switch y"
        told.append({"id": "i3", "component": None})
        assert [each["id"] for each in observer.new()] == ["i1", "i3"]
        assert [each["id"] for each in observer.remember()] == ["i1", "i3"]
        assert observer.new() == []


def incident(component: str | None, state: str = "open") -> dict[str, Any]:
    ns = time.time_ns()
    return {
        "id": "i1", "component": component, "layer": LINK[0], "confidence": 0.9, "state": state,
        "summary": "", "detected_ns": ns, "localized_ns": ns, "recovered_ns": ns,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "others"), [("switch spine-0", ("switch spine-0",)), (None, ()), (LINK[1], ())]
)
def test_who_was_named_before_the_truth_is_told(first: str | None, others: tuple[str, ...]) -> None:
    """That nobody could be named yet accuses nobody."""
    polled = chain([[], [], [incident(first)]], repeat([incident(LINK[1], "recovered")]))
    answer = httpx.MockTransport(lambda _: httpx.Response(200, json={"incidents": next(polled)}))
    truth = SimpleNamespace(layer=LINK[0], component=LINK[1])
    lab = Mock(
        inject=lambda _name, _target: SimpleNamespace(target="x", truth=truth, key="link-loss@x")
    )
    with httpx.Client(transport=answer, base_url="https://analyzer") as client:
        soon_s = time.time() + 0.01
        observer = demo.Observer(client)
        made = demo._try(lab, observer, "link-loss", lambda _: None, phase_s=soon_s)
    assert (made.verdict, made.over) == ((*LINK, 0.9), True)
    assert made.others == others
    assert made.right is not bool(others)
