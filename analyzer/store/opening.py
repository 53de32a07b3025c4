# SPDX-License-Identifier: Apache-2.0
"""Opens the database: a new one, or one of this version or of an older one, which is moved on."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import duckdb
import structlog

from analyzer.store.connecting import connected
from analyzer.store.segments import Place, Segments
from analyzer.store.windows import insert, slices
from analyzer.store.writer import Row
from netagent.model.errors import ConfigError, RemoteProtocolError
from netagent.wire.codec import decode
from netagent.wire.messages import SummaryHead

log = structlog.get_logger()

SCHEMA = 4
"""Version of the tables. Files of older versions are moved on; those of newer ones are refused."""

MEMORY_LIMIT = "512MB"
"""Most memory for DuckDB's buffers, which by default take most of the machine's. Chosen: the
analyzer's own data needs the rest."""

MOVE_BYTES = 16_000_000
"""Bytes of summaries moved at once out of a database of version 1. Chosen: bounds memory."""

RESTORING = ".restoring"
"""Suffix of the folder from which a backup is being put in place, beside the database."""
RESTORE = "move it away to start empty, or restore a copy"

WINDOWS = """
CREATE TABLE IF NOT EXISTS windows (
    host VARCHAR NOT NULL, start_ns BIGINT NOT NULL, life BIGINT NOT NULL,
    received_ns BIGINT NOT NULL, segment BIGINT NOT NULL, place BIGINT NOT NULL,
    bytes BIGINT NOT NULL, PRIMARY KEY (host, start_ns, life));
"""
TABLES = f"""
CREATE TABLE IF NOT EXISTS meta (schema INTEGER NOT NULL);
{WINDOWS}
CREATE TABLE IF NOT EXISTS hosts (host VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (id VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS incidents (
    id VARCHAR PRIMARY KEY, state VARCHAR NOT NULL, updated_ns BIGINT NOT NULL,
    body VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS words (incident VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS letters (key VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS aside (
    tbl VARCHAR NOT NULL, key VARCHAR NOT NULL, body VARCHAR NOT NULL, why VARCHAR NOT NULL,
    set_aside_ns BIGINT NOT NULL);
"""

OLD_BYTES = (
    "SELECT received_ns, sum(bytes) FROM summaries GROUP BY received_ns ORDER BY received_ns"
)
OLD = """
SELECT host, start_ns, received_ns, payload FROM summaries
WHERE received_ns >= ? AND received_ns <= ? ORDER BY received_ns
"""

UNANSWERED_NS = 60_000_000_000
"""Nanoseconds before the end within which agents may have got no answer of what was stored: they
send it again after the move. Chosen: they wait five seconds for an answer, and then ten."""
UNANSWERED = """
SELECT host, start_ns, segment, place, bytes FROM windows_3
WHERE received_ns > (SELECT max(received_ns) FROM windows_3) - ?
"""
WITH_LIVES = """
INSERT INTO windows
SELECT host, start_ns, coalesce(life, 0), received_ns, segment, place, bytes FROM windows_3
LEFT JOIN (SELECT unnest(?::VARCHAR[]) AS host, unnest(?::BIGINT[]) AS start_ns,
    unnest(?::BIGINT[]) AS life) USING (host, start_ns)
"""


def open_(path: str, segments: Segments) -> duckdb.DuckDBPyConnection:
    """Open or create the file at `path`. Raises ConfigError that says what to do."""
    connection = _connected(path)
    try:
        _bring(connection, _version(connection), path, segments)
    except duckdb.Error as error:
        connection.close()
        raise ConfigError(path, _diagnosis(str(error))) from error
    except ConfigError:
        connection.close()
        raise
    return connection


def _connected(path: str) -> duckdb.DuckDBPyConnection:
    if Path(path + RESTORING).exists():
        raise ConfigError(path, "a restore of it was not finished; run that again")
    try:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = connected(path, memory_limit=MEMORY_LIMIT, threads=2)
        if path != ":memory:":
            Path(path).chmod(0o600)  # an earlier version let everybody read it
    except OSError as error:
        raise ConfigError(path, f"cannot be created: {error.strerror}") from None
    except duckdb.Error as error:
        raise ConfigError(path, _diagnosis(str(error))) from error
    return connection


def _version(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the version of the tables; a file without any is of this version."""
    known = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'meta'"
    if connection.execute(known).fetchone() == (0,):
        return SCHEMA
    row = connection.execute("SELECT max(schema) FROM meta").fetchone()
    return SCHEMA if row is None or row[0] is None else int(row[0])


def _bring(
    connection: duckdb.DuckDBPyConnection, found: int, path: str, segments: Segments
) -> None:
    """Make what tables are missing, and move those of an older version on, one by one."""
    if not 1 <= found <= SCHEMA:
        raise ConfigError(path, f"has schema {found}, this version speaks {SCHEMA}; {RESTORE}")
    connection.execute(TABLES)
    connection.execute("INSERT INTO meta SELECT ? WHERE NOT EXISTS (SELECT * FROM meta)", [SCHEMA])
    for version in range(found, SCHEMA):
        log.info("database_moves_on", database=path, schema=version + 1)
        try:
            _moved_on(connection, version, segments)
        except (duckdb.Error, OSError) as error:
            remedy = f"free disk space or memory, or {RESTORE}"
            why = f"cannot be moved to schema {version + 1} ({error}); {remedy}"
            raise ConfigError(path, why) from error


def _moved_on(connection: duckdb.DuckDBPyConnection, version: int, segments: Segments) -> None:
    connection.execute("RESET memory_limit")  # an index of millions of rows is made in memory
    connection.execute("BEGIN")
    MOVES[version](connection, segments)
    connection.execute("UPDATE meta SET schema = ?", [version + 1])
    connection.execute("COMMIT")
    connection.execute("CHECKPOINT")
    connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")


def _move_payloads(connection: duckdb.DuckDBPyConnection, segments: Segments) -> None:
    """From version 1: write the payloads, which were in a table, to files."""
    sizes = connection.execute(OLD_BYTES).fetchall()
    for first, last in slices(sizes, MOVE_BYTES):
        rows = connection.execute(OLD, [first, last]).fetchall()
        made = [Row(host, start, _life_of(body), at, body) for host, start, at, body in rows]
        insert(connection, made, segments)
    connection.execute("DROP TABLE summaries")


def _drop_versions(connection: duckdb.DuckDBPyConnection, _segments: Segments) -> None:
    """From version 2: drop what no version reads. The table `aside` is new, and made before."""
    connection.execute("DROP TABLE IF EXISTS versions")


def _know_lives(connection: duckdb.DuckDBPyConnection, segments: Segments) -> None:
    """From version 3: windows were known by host and start alone."""
    columns = connection.execute("DESCRIBE windows").fetchall()
    if "life" in {name for name, *_ in columns}:
        return  # from version 1, in which there was no such table
    connection.execute(f"ALTER TABLE windows RENAME TO windows_3; {WINDOWS}")
    hosts, starts, lives = [], [], []
    for host, start_ns, *place in connection.execute(UNANSWERED, [UNANSWERED_NS]).fetchall():
        with contextlib.suppress(OSError, RemoteProtocolError):
            lives.append(_life_of(segments.read(Place(*place))))
            hosts.append(host)
            starts.append(start_ns)
    connection.execute(WITH_LIVES, [hosts, starts, lives])
    connection.execute("DROP TABLE windows_3")


def _life_of(payload: bytes) -> int:
    """Return what tells a summary from another one of its host and start; 0 where it is odd."""
    try:
        return decode(payload, SummaryHead).key[2]
    except RemoteProtocolError:
        return 0


MOVES: dict[int, Callable[[duckdb.DuckDBPyConnection, Segments], None]] = {
    1: _move_payloads,
    2: _drop_versions,
    3: _know_lives,
}
"""Version -> what makes the next one of it, in a transaction."""


def _diagnosis(complaint: str) -> str:
    first = complaint.splitlines()[0]
    if "lock" in first:
        _, _, holder = first.partition("Conflicting lock is held in ")
        who = holder.partition(". See")[0] or "another process"
        return f"is in use by {who}; stop that one, or set another database file"
    if "No such file" in first or "Permission denied" in first:
        return f"cannot be opened: {first}; check the folder and its permissions"
    return f"is damaged or no DuckDB file ({first}); {RESTORE}"
