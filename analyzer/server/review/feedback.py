# SPDX-License-Identifier: Apache-2.0
"""The route by which people say whether a verdict was right."""

from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from litestar import Response, post
from litestar.params import FromPath

from analyzer.review.words import MAX_COMPONENT, MAX_NOTE, Accuracy, Tally, Word
from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives, takes
from analyzer.server.http import Call, analyzer_of, as_json, read
from analyzer.server.identity import PEER, require_admin
from analyzer.server.problems import Problem
from netagent.model.errors import RemoteProtocolError
from netagent.model.path import Component
from netagent.wire.codec import ContentType

MAX_BYTES = 16 << 10
"""Most bytes of a body. Chosen: the longest note in any script, and some."""


class FeedbackBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody thinks of a verdict."""

    right: bool
    component: Annotated[str, msgspec.Meta(max_length=MAX_COMPONENT)] = ""
    """What was at fault, ``KIND NAME``, where that is known."""
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)] = ""


EXAMPLE = {"right": False, "component": "link leaf-1 -- spine-2", "note": "the optic was dirty"}


@post(
    "/v1/incidents/{incident:str}/feedback",
    status_code=200,
    operation_class=takes(FeedbackBody, EXAMPLE, forms=(ContentType.JSON,)),
    responses={
        200: gives("What was said of it."),
        **dict.fromkeys((400, 403, 404, 503), PROBLEM),
    },
    tags=["incidents"],
)
async def feedback(incident: FromPath[str], request: Call) -> Response[bytes]:
    """Keep what an administrator says of a verdict beside it, in place of an earlier word.

    Who and when is what the certificate and the analyzer's clock say.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    body, _ = await read(request, FeedbackBody, max_bytes=MAX_BYTES)
    if analyzer.journal.get(incident) is None:
        remedy = "`netagent-analyzer incidents` lists what is kept"
        raise Problem(404, f"no incident {incident!r}", remedy)
    if body.component:
        try:
            Component.parse(body.component)
        except ValueError as error:
            raise RemoteProtocolError(f"component: {error}") from error
    by = request.scope["state"].get(PEER) or ""
    word = Word(by, analyzer.clock(), body.right, body.component, body.note)
    async with analyzer.reviewing:
        words = analyzer.words.of(incident).add(word)
        await analyzer.store.put_words(words)
        analyzer.words.take(words)
    return as_json({"incident": incident, "feedback": said(analyzer, incident)})


def said(analyzer: Analyzer, incident: str) -> list[dict[str, Any]]:
    """Return what was said of an incident, the oldest first."""
    return [asdict(word) for word in analyzer.words.of(incident).words]


def told(known: Accuracy) -> dict[str, Any]:
    """Return accuracy as people and scripts read it."""

    def plain(tally: Tally) -> dict[str, Any]:
        share = None if tally.share is None else round(tally.share, 4)
        return {**asdict(tally), "share": share}

    return {
        **plain(known.whole),
        "by_layer": {layer or "undecided": plain(tally) for layer, tally in known.layers.items()},
    }


ROUTES = (feedback,)
