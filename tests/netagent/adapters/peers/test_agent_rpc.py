# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from netagent.adapters.peers.agent_rpc import AgentRpc, RefusedByAgent
from netagent.model.errors import RemoteProtocolError, Unreachable
from netagent.model.ids import EndpointId
from netagent.wire.codec import encode
from netagent.wire.messages import FlowsReply, PathReply, PathRequest
from tests.netagent.adapters.peers.analyzer import FakeAnalyzer


def ask(analyzer: FakeAnalyzer, *words: object) -> object:
    """Ask from another thread, as the command line does from a process of its own."""

    async def main() -> object:
        async with analyzer:
            return await asyncio.to_thread(AgentRpc(analyzer.url, None).ask, *words)

    return asyncio.run(main())


def says(status: int, body: bytes) -> FakeAnalyzer:
    return FakeAnalyzer(answer=lambda _: (status, body))


def test_a_question_brings_its_answer():
    reply = PathReply(paths=())
    analyzer = says(200, encode(reply))
    request = PathRequest(source=EndpointId("a", 0), target=EndpointId("b", 0))
    assert ask(analyzer, "POST", "/v1/path", PathReply, request) == reply
    assert analyzer.asked[0].body == encode(request)


def test_a_refusal_comes_with_its_remedy():
    problem = encode({"error": "no such endpoint", "remedy": "see status"})
    with pytest.raises(RefusedByAgent, match="no such endpoint; see status"):
        ask(says(404, problem), "GET", "/v1/flows", FlowsReply)
    with pytest.raises(RefusedByAgent, match=r"^bare$"):
        ask(says(400, encode({"error": "bare"})), "GET", "/", FlowsReply)


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_that_is_none_is_a_protocol_error(status):
    with pytest.raises(RemoteProtocolError):
        ask(says(status, b"<html>"), "GET", "/v1/flows", FlowsReply)


def test_nobody_there_is_unreachable():
    with pytest.raises(Unreachable, match="does the agent run there"):
        AgentRpc("http://127.0.0.1:1", None).ask("GET", "/", FlowsReply)
