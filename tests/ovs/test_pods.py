# SPDX-License-Identifier: Apache-2.0
"""A lab whose containers are real ones: pods of podman, found by their sandboxes."""

from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab, Shape, pods
from tests.lab.commands import wait_for
from tests.lab.demo import PATIENT_S, WINDOW_S, Observer, _try
from tests.lab.shape import Runtime
from tests.waiting import NotInTime, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.podman]

SHAPE = Shape(hosts=3, segments=1, containers=Runtime.PODMAN)
ENDPOINTS = 12
POD = "train-a-1"


def up(observer: Observer) -> set[str]:
    """Return the containers whose endpoints are up."""
    told = observer.client.get("/v1/endpoints").json()["endpoints"]
    return {each["container"] for each in told if each["state"] == "up"}


def sandboxes(lab: Lab) -> set[str]:
    return {pods.sandbox(each.id) for each in lab.state().containers}


def test_endpoints_are_those_of_sandboxes_and_no_namespace_has_a_name(
    lab: Lab, observer: Observer
) -> None:
    wait_for("all endpoints", lambda: observer.endpoints_up() == ENDPOINTS, timeout_s=30)
    found = sandboxes(lab)
    assert all(len(each) == 64 for each in found)
    assert up(observer) == found
    assert not any("train" in each.name for each in Path("/run/netns").iterdir())
    assert lab.reaches("train-a-0", "10.0.0.11") == 3


def test_an_application_that_crashes_alone_is_nobodys_fault(lab: Lab, observer: Observer) -> None:
    observer.remember()
    pods.kill_application(POD)
    found: list[dict[str, Any]] = observer.wait(observer.new, timeout_s=4 * WINDOW_S)
    assert found == []
    assert observer.endpoints_up() == ENDPOINTS


def test_a_pod_that_is_killed_is_named_by_its_sandbox_and_its_successor_is_another(
    lab: Lab, observer: Observer
) -> None:
    was = pods.sandbox(POD)
    found = _try(lab, observer, "container-crash", lambda _: None, later_s=PATIENT_S)
    assert found.truth == ("container", f"container {was}")
    assert found.verdict is not None
    assert found.verdict[:2] == found.truth
    assert found.others == ()
    assert found.recovered_s is not None, found
    assert pods.sandbox(POD) != was
    wait_for("all endpoints", lambda: up(observer) == sandboxes(lab), timeout_s=30)


def test_a_pod_that_is_stopped_is_no_fault(lab: Lab, observer: Observer) -> None:
    observer.remember()
    lab.stop_container(POD)
    wait_for("its end", lambda: up(observer) == sandboxes(lab), timeout_s=30)
    lab.start_container(POD)
    wait_for("all endpoints", lambda: up(observer) == sandboxes(lab), timeout_s=30)
    with pytest.raises(NotInTime):
        wait_until(observer.new, "an incident", 2 * WINDOW_S)
