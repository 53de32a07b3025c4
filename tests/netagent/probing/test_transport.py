# SPDX-License-Identifier: Apache-2.0
import pytest

from netagent.model.ids import EndpointId
from netagent.probing import transport
from netagent.probing.transport import ASKED_FOR_NS, Askers

A = EndpointId("a", 0)


def test_who_asked_is_known_by_session_and_port_and_the_last_word_counts() -> None:
    askers = Askers()
    assert askers.get(7, 9) is None
    askers.add(7, 9, A, "10.0.0.1", now_ns=0)
    askers.add(7, 9, A, "10.0.0.2", now_ns=1)
    assert askers.get(7, 9) == (A, "10.0.0.2")
    assert askers.get(7, 8) is askers.get(8, 9) is None


def test_askers_that_went_do_not_add_up() -> None:
    """A container that ends each minute for a day."""
    askers = Askers()
    for minute in range(24 * 60):
        for port in range(4):
            askers.add(minute, port, A, "10.0.0.1", now_ns=minute * ASKED_FOR_NS)
    assert len(askers._seen) <= 4 * 2
    assert askers.get(minute, 3)


def test_askers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_ASKERS", 4)
    askers = Askers()
    for port in range(10):
        askers.add(7, port, A, "10.0.0.1", now_ns=0)
    assert [bool(askers.get(7, port)) for port in (0, 8, 9)] == [False, True, True]
