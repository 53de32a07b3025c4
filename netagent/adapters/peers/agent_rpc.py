# SPDX-License-Identifier: Apache-2.0
"""The command line's client of a running agent's RPC."""

from dataclasses import dataclass
from typing import TypeVar

import httpx

from netagent.adapters.peers.uplink import client_tls
from netagent.config import TlsConfig
from netagent.model.errors import NetAgentError, RemoteProtocolError, Unreachable
from netagent.wire.codec import ContentType, decode, encode

T = TypeVar("T")

DEADLINE_S = 40.0
"""Seconds a question may take. Chosen: ten more than the agent gives itself (`server.ANSWER_S`), so
that its own refusal arrives."""


class RefusedByAgent(NetAgentError):
    """The agent understood, and will not or cannot."""

    def __init__(self, error: str, remedy: str) -> None:
        super().__init__(f"{error}; {remedy}" if remedy else error)
        self.error, self.remedy = error, remedy


@dataclass(frozen=True, slots=True)
class AgentRpc:
    """The agent at `url`; `tls` is the caller's certificate."""

    url: str
    tls: TlsConfig | None

    def ask(self, method: str, path: str, kind: type[T], message: object = None) -> T:
        """Return the agent's answer.

        Raises Unreachable, RefusedByAgent, or RemoteProtocolError for an answer that is none.
        """
        body = encode(message) if message is not None else None
        headers = {"content-type": ContentType.MSGPACK, "accept": ContentType.MSGPACK}
        try:
            with httpx.Client(verify=client_tls(self.tls), trust_env=False) as client:
                response = client.request(
                    method,
                    self.url.rstrip("/") + path,
                    content=body,
                    headers=headers,
                    timeout=DEADLINE_S,
                )
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = str(error) or type(error).__name__
            if "refused" in reason:
                reason += " (does the agent run there? systemctl status netagent)"
            raise Unreachable(self.url, reason) from error
        if not response.is_success:
            raise _refusal(response)
        return decode(response.content, kind, ContentType.of(response.headers.get("content-type")))


def _refusal(response: httpx.Response) -> NetAgentError:
    form = ContentType.of(response.headers.get("content-type"))
    try:
        problem = decode(response.content, dict[str, object], form)
        return RefusedByAgent(str(problem["error"]), str(problem.get("remedy", "")))
    except (RemoteProtocolError, KeyError):
        return RemoteProtocolError(f"status {response.status_code}: {response.text[:200]}")
