# SPDX-License-Identifier: Apache-2.0
from analyzer.server.page import shown as module
from analyzer.server.page.shown import active, recovered, short
from analyzer.server.sight import Sight
from netagent.model.verdict import IncidentState
from tests.analyzer.server.page.looking import incident, on


def test_who_may_see_one_of_an_incident_s_tasks_sees_its_part_of_it(tmp_path):
    async def work(looked):
        analyzer = looked.analyzer
        await looked.tell(
            incident("i1", "t0", "t1"), incident("i2", "t1"), incident("i3"),
            incident("r1", "t0", state=IncidentState.RECOVERED, recovered_ns=5),
        )  # fmt: skip
        assert {each.id for each in active(analyzer, Sight())} == {"i1", "i2", "i3"}
        [mine] = active(analyzer, Sight(("t0",)))
        told = short(analyzer, mine)
        assert (told["id"], told["tasks"], told["pairs_failing"]) == ("i1", ("t0",), 1)
        assert [each.id for each in recovered(analyzer, Sight(("t0",)))] == ["r1"]
        assert recovered(analyzer, Sight(("t1",))) == []

    on(tmp_path, work)


def test_what_is_not_known_is_null_and_not_left_out(tmp_path):
    async def work(looked):
        undecided = incident("i1", "t0", component=None, layer=None)
        told = short(looked.analyzer, undecided)
        assert all(told[name] is None for name in ("component", "kind", "layer", "recovered_ns"))

    on(tmp_path, work)


def test_what_is_over_is_looked_for_among_the_newest_and_what_is_open_among_all(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "MAX_LOOKED", 1)

    async def work(looked):
        await looked.tell(*(incident(f"i{n}", "t0") for n in range(3)))
        assert len(active(looked.analyzer, Sight())) == 3
        assert len(list(module.incidents(looked.analyzer, Sight()))) == 1

    on(tmp_path, work)
