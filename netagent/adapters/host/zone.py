# SPDX-License-Identifier: Apache-2.0
"""The controller's databases that this host has itself: a door that reads them, and never writes.

What it can send is a question for a schema, and selects of the columns that `netagent.wire.zone`
lists; whoever asks the agent chooses between two lists, and no more. Each look is one transaction
for each database over a connection of its own: nothing is held in between, so that an agent costs
its host no replica. Who has what was read already is told so by a digest.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from netagent.adapters.clock import now_ns
from netagent.adapters.host.vswitchd import NoAnswer, exchange
from netagent.concurrency import timeout
from netagent.config import NO_DATABASES
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, TooSoon
from netagent.model.unixctl import Call
from netagent.wire.codec import deflated
from netagent.wire.zone import (
    EXPLAINING,
    FOLLOWED,
    NORTHBOUND,
    PLUGGED,
    SCHEMAS,
    SOUTHBOUND,
    Tables,
    ZoneReply,
    ZoneRequest,
    ZoneRows,
)

SOCKETS: Mapping[str, str] = {NORTHBOUND: "ovnnb_db.sock", SOUTHBOUND: "ovnsb_db.sock"}
"""Their names in a folder (ovn-ctl(8))."""
INTERCONNECT = "/var/run/ovn-ic"
"""Folder in which ovn-kubernetes' zones have theirs, where it is not ovn-controller's."""
ANSWER_S = 5.0
"""Seconds that a database has to answer. Chosen: thousands of rows take a tenth of one."""
EVERY_NS = 1_000_000_000
"""Nanoseconds from one look to the next of its kind. Chosen: whoever asks is content with every
ten seconds, and asks anew once it was started again."""
MOST_FOLLOWED, MOST_EXPLAINING = 4 << 20, 12 << 20
"""Bytes of a database's answer. Chosen: a thousand other hosts and as many ports are one MiB, ten
thousand logical flows five. Parsing an answer takes the agent's loop 10 ms for each MiB."""
_SCHEMA_BYTES = 1 << 20
"""Bytes of a schema. Chosen: those of OVN 23.03 have 35 KiB at most."""


def folders_of(databases: str, rundir: str) -> tuple[Path, ...]:
    """Return where the databases may be: the folder that is configured, or those that are usual."""
    if databases:
        return () if databases == NO_DATABASES else (Path(databases),)
    return Path(rundir), Path(INTERCONNECT)


def folder_of(folders: Sequence[Path]) -> Path | None:
    """Return the first folder with both sockets; None where there is none, or nobody may look."""
    for folder in folders:
        with suppress(OSError):
            if all((folder / name).is_socket() for name in SOCKETS.values()):
                return folder
    return None


class ZoneDoor:
    """Reads the databases of the first folder that has sockets of both."""

    def __init__(self, host: str, folders: Sequence[Path], *, answer_s: float = ANSWER_S) -> None:
        self._host, self._folders, self._answer_s = host, folders, answer_s
        self._has: dict[str, tuple[object, Mapping[str, frozenset[str]]]] = {}
        """Database -> which socket it was, and the columns of its tables."""
        self._busy = asyncio.Lock()
        self._from_ns: dict[bool, int] = {}

    async def read(self, request: ZoneRequest) -> ZoneReply:
        """Return the rows that are asked for.

        Raises CapabilityMissing where this host has no databases, TooSoon where it was just asked.
        A database that cannot be read is away in the reply.
        """
        folder = folder_of(self._folders)
        if folder is None:
            remedy = "set ovs.ovn_databases to the folder of ovnnb_db.sock and ovnsb_db.sock"
            raise CapabilityMissing("reading OVN's databases", remedy)
        kind = request.explaining
        if self._busy.locked() or now_ns() < self._from_ns.get(kind, 0):
            raise TooSoon(self._host, "its databases are being read, or were just now")
        self._from_ns[kind] = now_ns() + EVERY_NS
        async with self._busy:
            lists = EXPLAINING if kind else FOLLOWED
            found = {
                database: await self._rows(
                    database, folder / SOCKETS[database], tables, request, whole=kind
                )
                for database, tables in lists.items()
            }
        return ZoneReply(host=self._host, databases=found)

    async def _rows(
        self, database: str, socket: Path, tables: Tables, request: ZoneRequest, *, whole: bool
    ) -> ZoneRows:
        try:
            async with timeout(self._answer_s):
                has = await self._columns(database, socket)
                asked = {
                    name: [column for column in columns if column in has.get(name, ())]
                    for name, columns in tables.items()
                    if name in has
                }
                most = MOST_EXPLAINING if whole else MOST_FOLLOWED
                where = {} if whole else PLUGGED
                found = await _select(socket, database, asked, where, most)
        except TimeoutError:
            return ZoneRows(away=f"it does not answer within {self._answer_s:g} s")
        except (OSError, NoAnswer, RemoteProtocolError) as error:
            self._has.pop(database, None)  # maybe its schema is another one by now
            return ZoneRows(away=str(error))
        body = json.dumps(found, separators=(",", ":")).encode()
        digest = blake2b(body, digest_size=16).hexdigest()
        lacks = tuple(_lacking(tables, has))
        if request.known.get(database) == digest:
            return ZoneRows(digest=digest, lacks=lacks)
        return ZoneRows(digest=digest, rows=deflated(body), lacks=lacks)

    async def _columns(self, database: str, socket: Path) -> Mapping[str, frozenset[str]]:
        """Return the columns of a database's tables; they stay as long as its server does."""
        mark = _mark(socket)
        known = self._has.get(database)
        if known is None or known[0] != mark:
            call = Call("get_schema", [SCHEMAS[database]], max_bytes=_SCHEMA_BYTES)
            known = self._has[database] = mark, _columns_of(await exchange(socket, call))
        return known[1]


def _mark(socket: Path) -> object:
    status = socket.stat()
    return status.st_ino, status.st_ctime_ns


def _columns_of(schema: Any) -> dict[str, frozenset[str]]:
    try:
        return {name: frozenset(said["columns"]) for name, said in schema["tables"].items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise RemoteProtocolError(f"its schema is none: {error!r}") from error


def _lacking(tables: Tables, has: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for table, columns in tables.items():
        yield from (f"{table}.{each}" for each in columns if each not in has.get(table, ()))


async def _select(
    socket: Path, database: str, tables: Tables, where: Mapping[str, Any], most: int
) -> dict[str, list[Any]]:
    """Return the rows of all tables as they are at one instant."""
    selects = [
        {
            "op": "select", "table": name, "where": where.get(name, []),
            "columns": ["_uuid", *columns],
        }
        for name, columns in tables.items()
    ]  # fmt: skip
    call = Call("transact", [SCHEMAS[database], *selects], max_bytes=most)
    results = await exchange(socket, call)
    if not isinstance(results, list) or len(results) != len(selects):
        raise RemoteProtocolError(f"no rows: {results!r:.200}")
    for each in results:
        if not isinstance(each, dict) or not isinstance(each.get("rows"), list):
            raise RemoteProtocolError(f"no rows: {each!r:.200}")
    return {name: each["rows"] for name, each in zip(tables, results, strict=True)}
