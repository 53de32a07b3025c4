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


def refused(error: Exception, path: str) -> tuple[int, bytes]:
    """Return status and JSON that answer a request for `path` that raised `error`.

    Our own bugs are logged.
    """
    match error:
        case HTTPException():
            remedy = getattr(error, "remedy", None) or REMEDIES.get(error.status_code)
            status, said = error.status_code, (_detail(error), remedy or "see the log")
        case RemoteProtocolError():
            status, said = 400, (str(error), REMEDIES[400])
        case CapabilityMissing():
            status, said = 503, (f"{error.capability} unavailable", error.remedy)
        case Unreachable():
            remedy = f"see whether the agent of {error.peer} runs, and the incidents about it"
            status, said = 502, (f"agent of {error}", remedy)
        case _:
            log.error("request_failed", path=path, exc_info=error)
            status, said = 500, ("internal error", "see the analyzer's log, event request_failed")
    return status, msgspec.json.encode(dict(zip(("error", "remedy"), said, strict=True)))


def _detail(error: HTTPException) -> str:
    if not isinstance(error.extra, list):
        return error.detail
    # Which parameter Litestar could not read, and why.
    return error.detail + "".join(f"; {e.get('key')}: {e.get('message')}" for e in error.extra)


def _handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    status, body = refused(error, request.url.path)
    headers = getattr(error, "headers", None)
    return Response(
        body, status_code=status, media_type="application/json",
        headers=headers if isinstance(headers, dict) else None,
    )  # fmt: skip


HANDLERS: dict[int | type[Exception], Any] = {HTTPException: _handle, Exception: _handle}
