# SPDX-License-Identifier: Apache-2.0
import httpx

from tests.lab.unhurried import Unhurried

TOLD = [
    {"id": "a", "symptom": "delay", "component": "host h0", "summary": "h0 takes 57 ms"},
    {"id": "b", "symptom": "held up", "component": "rank train-a/3", "summary": "..."},
]


def test_a_host_that_gets_too_little_cpu_is_counted_apart_and_nothing_else_is() -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"incidents": TOLD})

    with httpx.Client(transport=httpx.MockTransport(answer), base_url="https://a") as client:
        observer = Unhurried(client)
        assert [each["id"] for each in observer.new()] == ["b"]
        assert observer.late == {"a": "h0 takes 57 ms"}
