# SPDX-License-Identifier: Apache-2.0
import httpx
import pytest

from tests.bench.agent_attacked import named, tenths


@pytest.mark.parametrize(
    ("values", "by_tenth"),
    [
        (range(1, 21), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        (range(1, 24), [3, 5, 7, 10, 12, 14, 17, 19, 21, 23]),
        (range(1, 4), [1, 1, 1, 2, 2, 2, 3, 3, 3, 3]),
    ],
)
def test_each_tenth_ends_with_its_last_window(values: range, by_tenth: list[int]) -> None:
    assert tenths(values) == by_tenth


@pytest.mark.parametrize(("starts", "ills"), [(1, []), (2, ["the judge was started again"])])
def test_a_judge_that_was_away_is_told_beside_whom_it_named(starts: int, ills: list[str]) -> None:
    answers = {
        "/v1/incidents": {"incidents": []},
        "/v1/status": {
            "judge": {"pid": 7, "starts": starts, "late_ns": 0},
            "counters": {"worker_crashes": 0},
            "disk": {"takes": True},
        },
    }
    transport = httpx.MockTransport(lambda asked: httpx.Response(200, json=answers[asked.url.path]))
    with httpx.Client(transport=transport, base_url="http://analyzer") as client:
        assert named(client) == {"incidents": [], "judge_ills": ills}
