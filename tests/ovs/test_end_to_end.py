# SPDX-License-Identifier: Apache-2.0
"""The whole loop on a real overlay: the lab, its agents, its analyzer, and a few of its faults.

The demo shows more of them; here are one per way to a verdict: vote, tie broken by counting, host's
finding, overlay walk, silence.
"""

import signal
import threading
import time

import pytest

from tests.lab import drill
from tests.lab.demo import PATIENT_S, Observer, _try

pytestmark = pytest.mark.lab
WINDOW_NS = 5_000_000_000
SEED = 2
"""Of a pair of faults that are both seen at once."""
STOP_S, RUN_S = 0.2, 0.02
"""An agent tells that it stood still from 250 ms on."""


def test_a_ragged_start_raises_no_alarm_and_every_endpoint_is_probed(lab, observer):
    endpoints = observer.client.get("/v1/endpoints").json()["endpoints"]
    assert len(endpoints) == 16
    assert {each["state"] for each in endpoints} == {"up"}
    status = lab.services().status("https://198.18.0.10:8421")
    assert status["targets"] == 12
    assert status["health"]["sent"] > 0
    assert observer.client.get("/v1/topology").json()["undeclared_links"] == []


INQUIRY_S = 30


def inquiry(observer, since_ns):
    # It walks sixteen pairs, by workers that may have to start first.
    answer = observer.client.get(
        "/v1/tasks/train-a/inquiry", params={"since": since_ns}, timeout=INQUIRY_S
    )
    return answer.json() if answer.is_success else {"answer": answer.text, "innocent": False}


def test_a_task_that_is_well_is_innocent_and_its_tables_are_walked(observer):
    since_ns = time.time_ns() - 3 * WINDOW_NS  # two whole windows at least

    def is_walked():
        seen = inquiry(observer, since_ns)  # a busy machine's hosts answer the second time
        return seen["innocent"] and seen["walks"] == {"delivered": 12} and seen

    found = observer.wait(is_walked, timeout_s=PATIENT_S)
    assert found, inquiry(observer, since_ns)
    assert found["sent"] > 500
    assert set(found["hosts"]) == {"h0", "h1", "h2", "h3"}


def test_a_host_that_gets_no_cpu_is_named_as_what_it_is_and_accuses_nobody(lab, observer):
    """Its agent stands still for less than would be told, over and over."""
    observer.remember()
    hurried = Observer(observer.client)  # sees who is late, too
    hurried.remember()
    began_ns, over = time.time_ns(), threading.Event()

    def starve():
        while not over.wait(RUN_S):
            lab.processes.signal("h1/agent", signal.SIGSTOP)
            over.wait(STOP_S)
            lab.processes.signal("h1/agent", signal.SIGCONT)

    def late():
        seen = hurried.new()
        return "host h1" in {each["component"] for each in seen} and seen

    starving = threading.Thread(target=starve)
    starving.start()
    try:
        found = hurried.wait(late, timeout_s=PATIENT_S)
    finally:
        over.set()
        starving.join()
    assert found
    assert {each["symptom"] for each in found} == {"delay"}
    assert not inquiry(observer, began_ns)["innocent"]
    assert hurried.wait(
        lambda: all(each["state"] == "recovered" for each in hurried.new()), timeout_s=PATIENT_S
    )
    assert observer.new() == []


@pytest.mark.parametrize(
    ("fault", "parameters"),
    [
        # Agents without CPU probe less: of a few in a hundred, nothing would be seen for minutes.
        ("link-loss", {"percent": 20}),
        ("spine-down", {}),
        ("rnic-down", {}),
        ("wrong-vni", {}),
        ("agent-frozen", {}),
    ],
)
def test_a_fault_is_found_named_and_over_when_healed(lab, observer, fault, parameters):
    found = _try(lab, observer, fault, lambda text: None, later_s=PATIENT_S, parameters=parameters)
    assert found.verdict is not None
    assert found.verdict[:2] == found.truth
    assert found.others == ()
    assert found.recovered_s is not None, found


def test_two_faults_at_once_are_named_and_nobody_else(lab, observer):
    """One pair of `make drill`; its campaign has thirty."""
    drill.quiet(observer)
    tried = drill.attempt(lab, observer, SEED, drill.draw(lab.state(), SEED))
    assert tried.right, tried
    assert tried.recovered_s is not None, tried


def test_a_graceful_stop_and_start_raise_no_alarm(lab, observer):
    observer.remember()
    lab.stop_container("train-b-3")

    def known():
        return len(observer.client.get("/v1/endpoints").json()["endpoints"])

    def probed():
        # Peers hear of it from its own agent, once the analyzer has it on disk: which may take
        # seconds.
        return lab.services().status("https://198.18.0.10:8421")["targets"]

    assert observer.wait(lambda: known() == 14, timeout_s=PATIENT_S)
    assert observer.wait(lambda: probed() == 10, timeout_s=PATIENT_S)
    lab.start_container("train-b-3")
    assert observer.wait(lambda: known() == 16, timeout_s=PATIENT_S)
    assert observer.wait(lambda: probed() == 12, timeout_s=PATIENT_S)
    assert observer.wait(observer.new, timeout_s=12) == []


def test_a_bogus_summary_is_refused_and_breaks_nothing(lab, observer):
    answer = observer.client.post(
        "/v1/summaries", content=b"\xc1nonsense", headers={"content-type": "application/msgpack"}
    )
    assert answer.status_code in {400, 403}
    assert observer.client.get("/v1/status").is_success


def test_an_analyzer_that_was_away_gets_every_window(lab, observer):
    """Agents spool; nothing is lost, and history opens no incident."""
    observer.remember()
    lab.processes.kill("analyzer/analyzer")
    began = time.time_ns()
    url = "https://198.18.0.10:8421"
    services = lab.services()

    def window_passed():
        return services.status(url)["last_window_ns"] > began

    assert observer.wait(window_passed, timeout_s=PATIENT_S)
    lab.restart("analyzer")

    def caught_up():
        status = services.status(url)
        return status["acknowledged_ns"] >= status["last_window_ns"] > began

    assert observer.wait(caught_up, timeout_s=PATIENT_S)
    assert observer.wait(observer.new, timeout_s=8) == []
