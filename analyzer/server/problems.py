# SPDX-License-Identifier: Apache-2.0
"""Errors as callers see them: JSON with what is wrong and what to do about it."""

from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException

from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable

log = structlog.get_logger()

REMEDIES = {
    400: "see /schema/openapi.json for what this route takes, with examples",
    404: "see /schema/openapi.json for the routes there are",
    405: "see /schema/openapi.json for the methods of this route",
    413: "send less in one request",
}


class Problem(HTTPException):
    """A request that cannot be served, with its remedy."""

    def __init__(self, status_code: int, detail: str, remedy: str) -> None:
        super().__init__(detail, status_code=status_code)
        self.remedy = remedy


def answer(
    status: int, error: str, remedy: str, headers: dict[str, str] | None = None
) -> Response[bytes]:
    """Return the answer to a request that failed."""
    body = msgspec.json.encode({"error": error, "remedy": remedy})
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def on_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer for what a handler or Litestar refused."""
    remedy = getattr(error, "remedy", None) or REMEDIES.get(error.status_code, "see the log")
    detail = error.detail
    if isinstance(error.extra, list):  # which parameter Litestar could not read, and why
        detail += "".join(f"; {e.get('key')}: {e.get('message')}" for e in error.extra)
    headers = error.headers if isinstance(error.headers, dict) else None
    return answer(error.status_code, detail, remedy, headers)


def on_bad_message(_: Request[Any, Any, Any], error: RemoteProtocolError) -> Response[bytes]:
    """Answer for a message that breaks the rules."""
    return answer(400, str(error), REMEDIES[400])


def on_missing(_: Request[Any, Any, Any], error: CapabilityMissing) -> Response[bytes]:
    """Answer for what this analyzer cannot do now."""
    return answer(503, f"{error.capability} unavailable", error.remedy)


def on_unreachable(_: Request[Any, Any, Any], error: Unreachable) -> Response[bytes]:
    """Answer for an agent that did not."""
    remedy = f"see whether the agent of {error.peer} runs, and the incidents about it"
    return answer(502, f"agent of {error}", remedy)


def on_bug(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer for our own bug."""
    log.error("request_failed", path=request.url.path, exc_info=error)
    return answer(500, "internal error", "see the analyzer's log, event request_failed")


HANDLERS: dict[int | type[Exception], Any] = {
    HTTPException: on_http,
    RemoteProtocolError: on_bad_message,
    CapabilityMissing: on_missing,
    Unreachable: on_unreachable,
    Exception: on_bug,
}
