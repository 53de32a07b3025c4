# SPDX-License-Identifier: Apache-2.0
"""The analyzer's door to python-ovs: a live replica of what we need of an OVSDB, as plain values.

It reads. There is no code here that changes a row, nor any that could: what is sent to a server is
the question for its schema, monitors of chosen columns, and echoes. (`flows.py` sends selects.)

Theory of operation. The server is asked for its schema first, so that a column which an older or
newer OVN lacks is left out, and said, instead of ending it all. Then the IDL follows it, at any
member of a cluster that is part of it (`leader_only=False`). Where the IDL cannot go on, all of it
begins again; also where a connection is lost and all would be read again anyway, so that nobody
holds both the old rows and the new. What went meanwhile is found by comparing the rows that are
there with those known.
"""

import errno
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import ovs.db.error
import ovs.db.idl
import ovs.json
import ovs.jsonrpc
import ovs.poller
import ovs.stream
import ovs.timeval

from analyzer.controllers.parsing import MessageParser
from analyzer.intent.ovn import TABLES, Change

BACKOFF_MS = 1000
"""Milliseconds between two attempts, once each member was tried. Chosen: the least that python-ovs
takes, so that a server that is back is read again within five seconds."""
PROBE_MS = 5000
"""Milliseconds of silence after which a server is sent an echo request. Chosen: the interval that
Open vSwitch's own clients use by default."""
STUCK_MS = 30_000
"""Milliseconds without a byte after which a server that does not answer is left. Chosen: one of a
large database takes seconds before it begins to."""
AGAIN_MS = 1000
"""Milliseconds after which all begins again where a server said what cannot be understood. Chosen:
as the agent's."""
MOST_CHANGES = 1000
"""Rows that are handed on together. Chosen: bounds the memory for copies of them."""

Broken = (ovs.db.error.Error, ArithmeticError, AssertionError, LookupError, OSError, TypeError,
          ValueError)  # fmt: skip
"""What python-ovs raises for what it cannot digest: certificates that are no files, too."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What is read of a table."""

    needed: tuple[str, ...]
    also: tuple[str, ...] = ()
    """What some versions lack."""
    where: tuple[Any, ...] | None = None
    """Condition by which the server leaves rows out."""


_PLUGGED = (("type", "==", ""),)
COLUMNS: Mapping[str, Columns] = {
    "NB_Global": Columns(("nb_cfg",)),
    "Logical_Switch": Columns(("name", "ports")),
    "Logical_Switch_Port": Columns(
        ("name", "type", "addresses", "options", "external_ids"),
        ("dynamic_addresses", "port_security", "enabled", "parent_name"),
        _PLUGGED,
    ),
    "SB_Global": Columns(("nb_cfg",)),
    "Chassis": Columns(("name", "hostname", "encaps")),
    "Chassis_Private": Columns(("name", "nb_cfg"), ("nb_cfg_timestamp",)),
    "Encap": Columns(("type", "ip")),
    "Port_Binding": Columns(
        ("logical_port", "type", "chassis"), ("encap", "up", "parent_port"), _PLUGGED
    ),
}
SCHEMAS = {"northbound": "OVN_Northbound", "southbound": "OVN_Southbound"}


def parse_fast() -> None:
    """Let python-ovs read messages by a faster parser than its own in Python; in this process."""
    if ovs.json.PARSER != ovs.json.PARSER_C:
        ovs.json.Parser = MessageParser


def use_certificates(ca: str, cert: str, key: str) -> None:
    """Say which files to use for remotes that begin with ``ssl:``; in this whole process."""
    ovs.stream.Stream.ssl_set_ca_cert_file(ca)
    ovs.stream.Stream.ssl_set_certificate_file(cert)
    ovs.stream.Stream.ssl_set_private_key_file(key)


def schema_of(database: str, said: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return of a server's schema what is read, and the columns that it lacks.

    References are plain uuids in it: who is meant is looked up elsewhere. Raises ValueError where a
    table or column is missing without which nothing can be said.
    """
    tables: dict[str, Any] = {}
    lacks = list[str]()
    for table in TABLES[database]:
        wanted, has = COLUMNS[table], said["tables"].get(table, {}).get("columns", {})
        for column in wanted.needed:
            if column not in has:
                raise ValueError(f"its schema {said.get('version')} has no {table}.{column}")
        lacks += [f"{table}.{column}" for column in wanted.also if column not in has]
        names = [column for column in (*wanted.needed, *wanted.also) if column in has]
        tables[table] = {"columns": {name: {"type": _plain(has[name]["type"])} for name in names}}
    return {"name": said["name"], "version": said["version"], "tables": tables}, tuple(lacks)


def _plain(kind: Any) -> Any:
    """Return a column's type without what a reader need not hold it to."""
    if isinstance(kind, str):
        return kind
    return {
        name: part["type"] if isinstance(part, dict) else part
        for name, part in kind.items()
    }  # fmt: skip


class _Idl(ovs.db.idl.Idl):  # type: ignore[misc] # untyped
    """Notes which rows changed."""

    def __init__(self, remotes: str, helper: Any) -> None:
        self.changed: dict[tuple[str, UUID], None] = {}
        super().__init__(remotes, helper, probe_interval=PROBE_MS, leader_only=False)

    @property
    def can_resume(self) -> bool:
        """Return whether a server may tell it what it missed, instead of all: one of a cluster."""
        return UUID(self.last_id).int != 0

    def notify(self, event: str, row: Any, updates: Any = None) -> None:  # noqa: ARG002
        self.changed[row._table.name, row.uuid] = None  # noqa: SLF001 - no public way


class Database:
    """One database, wherever it can be read: run it, take what changed, wait for more."""

    def __init__(self, name: str, remotes: Collection[str]) -> None:
        self.name = name
        self.why: str | None = "it was not reached so far"
        """Why it cannot be read now; None where it is read."""
        self.lacks: tuple[str, ...] = ()
        self._remotes = list(remotes)
        self._asking: _Asking | None = None
        self._idl: _Idl | None = None
        self._seqno = 0
        """Connection whose rows were compared with those known."""
        self._again_ms = 0
        self._progress = (0, 0, 0)
        """Connection, bytes received by it, and when there were fewer, in milliseconds."""

    @property
    def remote(self) -> str:
        """Return where it is read from; "" where it is not."""
        return self._idl.session_name() if self._idl is not None and self.why is None else ""

    def run(self, known: Callable[[str], Collection[str]]) -> Iterator[list[Change]]:
        """Do what can be done at once; yield rows that changed, in the order to be taken in.

        `known` returns the uuids of a table that were taken before.
        """
        if ovs.timeval.msec() < self._again_ms:
            return
        try:
            if self._idl is None:
                self._ask()
            if self._idl is not None:
                self._idl.run()
                yield from self._read(self._idl, known)
        except Broken as error:
            self._begin_again(f"it cannot be understood: {error!r}")

    def wait(self, poller: Any) -> None:
        """Let a poller end once there is something to do."""
        if ovs.timeval.msec() < self._again_ms:
            poller.timer_wait_until(self._again_ms)
        elif self._idl is not None:
            self._idl.wait(poller)
        elif self._asking is not None:
            self._asking.wait(poller)

    def close(self) -> None:
        """End its connections."""
        if self._asking is not None:
            self._asking.close()
        if self._idl is not None:
            self._idl.close()
            for table in self._idl.tables.values():
                table.rows.clear()  # else they stay until somebody looks for cycles
        self._asking = self._idl = None

    def _begin_again(self, why: str, pause_ms: int = AGAIN_MS) -> None:
        self.close()
        self.why, self._seqno = why, 0
        self._again_ms = ovs.timeval.msec() + pause_ms

    def _ask(self) -> None:
        if self._asking is None:
            self._asking = _Asking(self._remotes, SCHEMAS[self.name], self._failed)
        said = self._asking.run()
        if said is None:
            return
        schema, self.lacks = schema_of(self.name, said)
        self._asking.close()
        self._asking = None
        helper = ovs.db.idl.SchemaHelper(schema_json=schema)
        helper.register_all()
        self._idl = _Idl(",".join(self._remotes), helper)
        for table in TABLES[self.name]:
            where = COLUMNS[table].where
            if where is not None:
                self._idl.cond_change(table, [list(clause) for clause in where])
        _prepare(self._idl._session, self._failed)  # noqa: SLF001 - no public way
        self._progress = (0, 0, ovs.timeval.msec())

    def _failed(self, remote: str, why: str) -> None:
        self.why = f"{remote}: {why}"

    def _read(self, idl: _Idl, known: Callable[[str], Collection[str]]) -> Iterator[list[Change]]:
        session = idl._session  # noqa: SLF001 - no public way
        if not session.is_connected() or idl.state != idl.IDL_S_MONITORING:
            self.why = self.why or "the connection was lost"
            if self._seqno and (self.lacks or not idl.can_resume):
                self._begin_again(self.why, pause_ms=0)
            else:
                self._watch(idl, session)
            return
        gone = list[Change]()
        if session.get_seqno() != self._seqno:
            gone = list(_gone(idl, TABLES[self.name], known))
            self._seqno = session.get_seqno()
        self.why = None
        changed, idl.changed = idl.changed, {}
        yield from _batches(idl, gone, changed, TABLES[self.name])

    def _watch(self, idl: _Idl, session: Any) -> None:
        """Leave a server that answers nothing, or what the IDL passes over."""
        now_ms, received = (
            ovs.timeval.msec(),
            session.rpc.get_received_bytes() if session.rpc else 0,
        )
        if (session.get_seqno(), received) != self._progress[:2] or not session.rpc:
            self._progress = (session.get_seqno(), received, now_ms)
        elif now_ms - self._progress[2] > STUCK_MS:
            self._begin_again(f"{idl.session_name()}: it does not answer")


class _Asking:
    """Asks servers, one after the other, for a schema."""

    def __init__(self, remotes: list[str], schema: str, failed: Callable[[str, str], None]) -> None:
        self._schema, self._failed = schema, failed
        self._session = ovs.jsonrpc.Session.open_multiple(list(remotes), probe_interval=PROBE_MS)
        _prepare(self._session, failed)
        self._seqno: int | None = None
        self._id: object = None

    def run(self) -> Any:
        """Return the schema; None as long as there is none."""
        session = self._session
        session.run()
        if not session.is_connected():
            return None
        if session.get_seqno() != self._seqno:
            self._seqno = session.get_seqno()
            asked = ovs.jsonrpc.Message.create_request("get_schema", [self._schema])
            self._id = asked.id
            session.send(asked)
        while (said := session.recv()) is not None:
            if said.id != self._id:
                continue
            if said.type == ovs.jsonrpc.Message.T_REPLY:
                return said.result
            session.force_reconnect()
            session.run()
            self._failed(session.get_name(), f"it has no database {self._schema}")
        return None

    def wait(self, poller: Any) -> None:
        self._session.wait(poller)
        self._session.recv_wait(poller)

    def close(self) -> None:
        self._session.close()


def _prepare(session: Any, failed: Callable[[str, str], None]) -> None:
    """Bound a session's back-off, and let it say why a connection failed or was lost."""
    reconnect = session.reconnect
    reconnect.set_backoff(BACKOFF_MS, BACKOFF_MS)
    disconnected = reconnect.disconnected

    def note(now_ms: int, error: int) -> None:
        failed(reconnect.get_name(), _words(reconnect.get_name(), error))
        disconnected(now_ms, error)

    reconnect.disconnected = note  # python-ovs only logs it


def _words(remote: str, error: int) -> str:
    if not error:  # it was we who left
        return "it does not answer, or is cut off from its cluster"
    if error == ovs.jsonrpc.EOF:
        return "the connection was closed"
    if remote.startswith("ssl:") and error in {errno.EPERM, errno.EPROTO}:
        return "the TLS handshake failed: one side does not trust the other's certificate"
    return os.strerror(error).lower()


def _gone(
    idl: _Idl, tables: Collection[str], known: Callable[[str], Collection[str]]
) -> Iterator[Change]:
    for table in tables:
        rows = idl.tables[table].rows
        yield from (Change(table, each, None) for each in known(table) if UUID(each) not in rows)


def _batches(
    idl: _Idl, gone: list[Change], changed: Collection[tuple[str, UUID]], tables: tuple[str, ...]
) -> Iterator[list[Change]]:
    """Yield what changed: what went first, then table by table, what is referred to first."""
    order = {table: number for number, table in enumerate(tables)}
    there = list[tuple[str, UUID]]()
    batch = gone
    for table, uuid in changed:
        if uuid in idl.tables[table].rows:
            there.append((table, uuid))
        else:
            batch.append(Change(table, str(uuid), None))
    for table, uuid in sorted(there, key=lambda row: order[row[0]]):
        batch.append(Change(table, _text(uuid), _row(idl.tables[table], uuid)))
        if len(batch) >= MOST_CHANGES:
            yield batch
            batch = []
    if batch:
        yield batch


def _row(table: Any, uuid: UUID) -> dict[str, Any]:
    # By the door for attributes, each value is made into python-ovs' form and back: a third of all.
    held = table.rows[uuid]._data  # noqa: SLF001
    return {
        name: _value(dict.get(held, name), column.type) for name, column in table.columns.items()
    }


def _value(datum: Any, kind: Any) -> Any:
    """Return what a column holds, of a type; None of python-ovs stands for an empty set or map."""
    atoms = datum.values if datum is not None else {}
    if kind.is_map():
        return {key.value: value.value for key, value in atoms.items()}
    values = tuple(
        _text(each.value) if isinstance(each.value, UUID) else each.value for each in atoms
    )
    if kind.n_max == 1:
        return values[0] if values else None
    return values


def _text(uuid: UUID) -> str:
    return sys.intern(str(uuid))  # a port's is in its switch's row, too
