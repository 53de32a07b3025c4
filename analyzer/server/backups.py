# SPDX-License-Identifier: Apache-2.0
"""The HTTP route of backups: all that is stored, copied while the analyzer runs."""

import re
import time

import msgspec
import structlog
from litestar import Response, post

from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives, takes
from analyzer.server.http import Call, analyzer_of, as_json, read
from analyzer.server.identity import require_admin
from analyzer.server.problems import Problem
from netagent.model.errors import CapabilityMissing
from netagent.wire.codec import ContentType

NAME = re.compile(r"(?!.*\.half$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Form of a backup's name: that of a folder, and of none that is being made."""

log = structlog.get_logger()


class BackupBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A backup that is wanted."""

    name: str = ""
    """Of its folder; without one, when it is made."""


EXAMPLE = {"name": "before-update"}


@post(
    "/v1/backup",
    status_code=200,
    operation_class=takes(BackupBody, EXAMPLE, forms=(ContentType.JSON,)),
    responses={
        200: gives("It is on disk."),
        400: PROBLEM,
        403: PROBLEM,
        409: PROBLEM,
        503: PROBLEM,
    },
    tags=["analyzer"],
)
async def backup(request: Call) -> Response[bytes]:
    """Copy all that is stored, but recordings, to a folder beside the database.

    Answered once it is on disk. The newest backups are kept.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    name = (await read(request, BackupBody))[0].name if await request.body() else ""
    if name and not NAME.fullmatch(name):
        raise Problem(400, f"{name[:80]!r} can name no backup", "use letters, digits, . _ -")
    if analyzer.backing_up.locked():
        raise Problem(409, "a backup is being made", "wait until it is there")
    async with analyzer.backing_up:
        return as_json(await _made(analyzer, name))


async def _made(analyzer: Analyzer, name: str) -> dict[str, object]:
    began_s = time.monotonic()
    try:
        folder, manifest = await analyzer.store.back_up(name)
        dropped = await analyzer.store.drop_old_backups()
    except OSError as error:
        raise CapabilityMissing("older backups", f"{error}; delete them by hand") from error
    took_s = round(time.monotonic() - began_s, 3)
    made = {"folder": str(folder), "summaries": manifest.summaries, "bytes": manifest.bytes}
    log.info("backed_up", took_s=took_s, dropped=dropped, **made)
    return {**made, "made_ns": manifest.made_ns, "took_s": took_s, "dropped": dropped}


ROUTES = (backup,)
