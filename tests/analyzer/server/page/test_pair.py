# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.server.page.page import Page
from analyzer.server.page.pair import pair
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.errors import CapabilityMissing
from tests.analyzer.picture.scenes import PORTS
from tests.analyzer.server.page.looking import incident, on

ENDS = "c0/rail0", "c1/rail0"


def test_a_pair_tells_what_its_probes_do_now_and_whose_it_is(tmp_path):
    async def work(looked):
        await looked.tell(incident("i1", "t0"), incident("i2", "t1"))
        told = await pair(Page(looked.analyzer), Sight(("t0",)), *ENDS)
        assert (told["source_host"], told["target_host"], told["task"]) == ("h0", "h1", "t0")
        assert (told["now"]["sent"], told["now"]["lost"]) == (6, 2)
        assert "ports" not in told["now"]
        assert [each["port"] for each in told["ports"]] == list(PORTS)
        assert [each["id"] for each in told["incidents"]] == ["i1"]
        back = await pair(Page(looked.analyzer), Sight(), *ENDS[::-1])
        assert (back["now"]["lost"], [e["id"] for e in back["incidents"]]) == (0, ["i1"])

    on(tmp_path, work)


def test_without_a_window_the_rest_is_told_all_the_same(tmp_path):
    async def work(looked):
        async def draw(_asked):
            raise CapabilityMissing("the judge", "later")

        looked.analyzer.judge.draw = draw
        told = await pair(Page(looked.analyzer), Sight(), *ENDS)
        assert (told["now"], told["ports"], told["source_host"]) == (None, [], "h0")

    on(tmp_path, work)


@pytest.mark.parametrize(
    ("sees", "ends", "status"),
    [
        (Sight(), ("c0", "c1/rail0"), 400),
        (Sight(), ("c0/rail0", "c9/rail0"), 404),
        (Sight(("t0",)), ("c0/rail0", "c2/rail0"), 404),
        (Sight(("t0",)), ("c2/rail0", "c3/rail0"), 404),
    ],
)
def test_who_may_not_see_both_ends_is_told_nothing(tmp_path, sees, ends, status):
    async def work(looked):
        with pytest.raises(Problem) as caught:
            await pair(Page(looked.analyzer), sees, *ends)
        assert caught.value.status_code == status

    on(tmp_path, work)
