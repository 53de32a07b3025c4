# SPDX-License-Identifier: Apache-2.0
from netagent.host.flooded import flooded
from netagent.model.finding import FindingKind
from netagent.model.path import Component, Kind
from netagent.model.window import Window

WINDOW = Window(5_000_000_000, 5_000_000_000)


def test_an_endpoint_that_leaves_many_probes_unanswered_is_stated():
    found = list(flooded({"c1/rail0": 5, "c0/rail0": 900}, WINDOW))
    assert [each.component for each in found] == [
        Component(Kind.ENDPOINT, "c0/rail0"), Component(Kind.ENDPOINT, "c1/rail0")
    ]  # fmt: skip
    assert {each.kind for each in found} == {FindingKind.FLOODED}
    assert found[0].evidence == {"unanswered": "900"}
    assert found[0].wall_ns == WINDOW.start_ns


def test_a_few_unanswered_probes_are_nothing():
    assert list(flooded({"c0/rail0": 4}, WINDOW)) == list(flooded({}, WINDOW)) == []
