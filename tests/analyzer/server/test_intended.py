# SPDX-License-Identifier: Apache-2.0
"""Walks as the judge tells them, with what a controller says beside them."""

import asyncio
from dataclasses import asdict

import pytest

from analyzer.intent.ends import End
from analyzer.intent.model import Intent, Port
from analyzer.localize.observations import Action, Observation, Policy
from analyzer.server.intended import Intended
from netagent.model.ids import EndpointId
from tests.analyzer.cluster import endpoint

A, B = endpoint("h0", "a0"), endpoint("h1", "a1")
TABLE = "flow h0/br-int/table=44"
DROP = Observation("there", TABLE, Action.DROPPED, "dropped: drop", "h0", cookie="0x2a")
WALK = {
    "source": str(A.id), "target": str(B.id), "outcome": "dropped", "component": TABLE,
    "text": "drop", "observations": [asdict(DROP)],
}  # fmt: skip


def intent(*, is_enabled=True):
    port = Port("p-a", container="a0", is_enabled=is_enabled)
    return lambda: [Intent("ovn", 1, ports={"p-a": port})]


async def policies(cookies):
    return {(host, 0x2A): Policy("quarantine") for host, each in cookies.items() if 0x2A in each}


def explained(known, *walks):
    return asyncio.run(known.explained(list(walks), [A, B]))


@pytest.mark.parametrize(
    ("known", "by"),
    [
        (Intended(intent(is_enabled=False)), "logical port p-a, which is disabled"),
        (Intended(policies=policies), "quarantine"),
        (Intended(intent(is_enabled=False), policies=policies), "quarantine"),
    ],
)
def test_what_a_controller_intends_is_refused_and_no_fault(known, by):
    [told] = explained(known, WALK)
    assert (told["outcome"], told["text"]) == ("refused", f"refused by {by}: drop")
    [hop] = told["observations"]
    assert (hop["action"], hop["by"]) == ("refused", by)


@pytest.mark.parametrize("known", [Intended(), Intended(intent())])
def test_what_nobody_intends_is_as_it_was(known):
    old = {"source": str(A.id), "target": str(B.id), "outcome": "delivered"}
    assert explained(known, WALK, old) == [WALK, old]


def test_a_refusal_elsewhere_leaves_the_conclusion():
    walk = {**WALK, "component": "link x -- y", "outcome": "incident"}
    [told] = explained(Intended(policies=policies), walk)
    assert (told["outcome"], told["text"]) == ("incident", "drop")
    assert told["observations"][0]["by"] == "quarantine"


def test_that_one_way_is_refused_decides_where_the_other_one_is_not_known():
    walk = {**WALK, "component": None, "outcome": "cannot_tell", "text": "no answer"}
    [told] = explained(Intended(policies=policies), walk)
    assert (told["outcome"], told["component"]) == ("refused", TABLE)
    assert (told["layer"], told["text"]) == ("overlay", "refused by quarantine")


def test_ends_are_found_by_what_controllers_and_hosts_say():
    known = Intended(intent(), plugged=lambda: {"h1": {B.port: "p-b"}})
    directory = asyncio.run(known.directory([A, B]))
    assert directory.resolve(End(port="p-a")) == EndpointId("a0", 0)
    assert directory.resolve(End(port="p-b")) == EndpointId("a1", 0)
