# SPDX-License-Identifier: Apache-2.0
"""The HTTP routes of webhooks: how it stands with each receiver, and an event to try one."""

import time

from litestar import Response, get, post
from litestar.params import FromPath

from analyzer.server import views
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_admin, require_reader
from analyzer.server.problems import Problem
from analyzer.webhooks.answers import Outcome


@get("/v1/webhooks", responses={200: gives("Receivers."), 403: PROBLEM}, tags=["incidents"])
async def webhooks(request: Call) -> Response[bytes]:
    """Return each receiver of events, what waits for it, and what it answered last."""
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    wall_ns = analyzer.clock()
    known = analyzer.mail.receivers.values()
    return as_json({"webhooks": [views.receiver(each, wall_ns=wall_ns) for each in known]})


@post(
    "/v1/webhooks/{webhook:str}/test",
    status_code=200,
    responses={200: gives("It was sent."), 403: PROBLEM, 404: PROBLEM},
    tags=["incidents"],
)
async def test(webhook: FromPath[str], request: Call) -> Response[bytes]:
    """Send a receiver an event of the type `netagent.test`, once, and return what came back."""
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    if webhook not in analyzer.mail.receivers:
        raise Problem(404, f"no webhook {webhook!r}", "GET /v1/webhooks lists those configured")
    began_s = time.monotonic()
    answer = await analyzer.mail.test(webhook)
    return as_json(
        {
            "webhook": webhook,
            "taken": answer.outcome is Outcome.TAKEN,
            "status": answer.status,
            "answer": answer.text,
            "said": answer.said,
            "took_s": round(time.monotonic() - began_s, 3),
        }
    )


ROUTES = (webhooks, test)
