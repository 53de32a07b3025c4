# SPDX-License-Identifier: Apache-2.0
"""Several inquiries at once: each host is asked once for all of them."""

from collections.abc import Sequence
from typing import TypeVar

from analyzer.questions import Ask, Asking, Reply
from netagent.model.errors import NetAgentError
from netagent.wire.messages import CheckReply, CheckRequest, EgressQuestion, IngressQuestion

T = TypeVar("T")


def together(askings: Sequence[Asking[T]]) -> Asking[list[T | NetAgentError]]:
    """Run `askings` in step; return what each returned, or why it could not.

    Questions about flow tables that go to one host become one request, over one dump of them.
    """
    found: dict[int, T | NetAgentError] = {}
    pending: dict[int, Sequence[Ask]] = {}

    def go_on(number: int, replies: Sequence[Reply] | None) -> None:
        asking = askings[number]
        try:
            pending[number] = next(asking) if replies is None else asking.send(replies)
        except StopIteration as done:
            found[number] = done.value
        except NetAgentError as error:
            found[number] = error

    for number in range(len(askings)):
        go_on(number, None)
    while pending:
        asked, pending = pending, {}
        own = [(number, ask) for number, asks in asked.items() for ask in asks]
        joined = _Joined([ask for _, ask in own])
        given = joined.split((yield joined.asks))
        for number in asked:
            mine = [reply for (of, _), reply in zip(own, given, strict=True) if of == number]
            go_on(number, mine)
    return [found[number] for number in range(len(askings))]


class _Joined:
    """Questions of many, with those about one host's flow tables as one."""

    def __init__(self, asks: Sequence[Ask]) -> None:
        self._questions: dict[str, list[EgressQuestion | IngressQuestion]] = {}
        self._alone: list[Ask] = []
        self._places: list[tuple[str, slice] | int] = []
        """Of each question: whose walks, and which of them, are the answer; or its place among
        those that stay alone."""
        for ask in asks:
            if isinstance(ask.request, CheckRequest):
                all_ = self._questions.setdefault(ask.host, [])
                first = len(all_)
                all_ += ask.request.questions
                self._places.append((ask.host, slice(first, len(all_))))
            else:
                self._places.append(len(self._alone))
                self._alone.append(ask)

    @property
    def asks(self) -> list[Ask]:
        """Return what is to be asked."""
        checks = self._questions.items()
        return [
            *(Ask(host, CheckRequest(questions=tuple(each))) for host, each in checks),
            *self._alone,
        ]

    def split(self, replies: Sequence[Reply]) -> list[Reply]:
        """Return the reply to each question; who answers too few walks lacks some."""
        of_host = dict(zip(self._questions, replies, strict=False))
        alone = replies[len(of_host) :]
        return [
            alone[place] if isinstance(place, int) else _part(of_host[place[0]], place[1])
            for place in self._places
        ]


def _part(reply: Reply, walks: slice) -> Reply:
    if not isinstance(reply, CheckReply):
        return reply
    return CheckReply(walks=reply.walks[walks], wall_ns=reply.wall_ns)
