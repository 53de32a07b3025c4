# SPDX-License-Identifier: Apache-2.0
from tests.bench.agent_cost import ROUNDS, in_turn


def test_what_drifts_while_versions_are_measured_favours_neither() -> None:
    order = in_turn(["this", "before"])
    assert order[:4] == ["this", "before", "before", "this"]
    when = {name: [at for at, each in enumerate(order) if each == name] for name in set(order)}
    assert sum(when["this"]) == sum(when["before"])
    assert len(when["this"]) == len(when["before"]) == ROUNDS


def test_a_version_alone_is_measured_as_often() -> None:
    assert in_turn(["this"]) == ROUNDS * ["this"]
