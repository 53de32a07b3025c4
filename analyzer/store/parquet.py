# SPDX-License-Identifier: Apache-2.0
"""Parquet files, which other tools read, too: columns into a file, files into one, rows out.

DuckDB does it in memory of its own, with one thread, so that it takes no more than a core from
whoever judges. A file is written under another name, synced, and then gets its own: it is there
whole or not at all.
"""

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import duckdb
from numpy.typing import NDArray

from analyzer.store.connecting import connected
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

MEMORY_LIMIT = "256MB"
"""Most memory for DuckDB's buffers. Chosen: an hour of 8,192 RNICs is merged in less; what needs
more is spilled to the disk."""
SPILL_LIMIT = "4GB"
"""Most bytes that it spills. Chosen: an hour of pairs that were each probed once a minute by 40,000
RNICs; a full disk must not be its doing."""
HALF = ".half"
"""Suffix of a file that is being written."""
CODEC = "zstd"
"""Measured on a minute of 8,192 RNICs: three quarters of the bytes of snappy, in the same time."""
GROUP_ROWS = 8192
"""Rows of which the least and largest value of each column are known, so that they are not read in
vain. Chosen: one pair is read in half of the time that DuckDB's 122,880 take; files hardly grow."""
MANY_GROUP_ROWS = 32_768
"""The same of files with many rows: of many minutes or hours, or of a large fleet. Measured on an
hour of minutes of 2,048 RNICs in one file: with 8,192 a question takes twice as long, since what is
known of groups is read first, with 122,880 the pairs of an endpoint. So it is with 54 minutes of
39,936 RNICs, each in a file: one pair is read in half of the time."""

Values = Mapping[str, Any]
Columns = Mapping[str, NDArray[Any]]
Tables = Mapping[str, Columns]
"""By the names that a query has for them."""
NO_TABLES: Tables = {}
NO_LABELS: Mapping[str, str] = {}


class Parquet:
    """Reads and writes for one thread at a time."""

    def __init__(self, spill: Path) -> None:
        """Spill to the folder `spill`, which is made when it is needed."""
        self._connection = connected(
            ":memory:",
            threads=1,
            memory_limit=MEMORY_LIMIT,
            temp_directory=str(spill),
            max_temp_directory_size=SPILL_LIMIT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def write(
        self,
        path: Path,
        query: str,
        values: Values,
        tables: Tables = NO_TABLES,
        labels: Mapping[str, str] = NO_LABELS,
        group_rows: int = GROUP_ROWS,
    ) -> int:
        """Write what `query` returns to the file at `path`; return its bytes.

        The query's parameters are `values`, and it may read `tables`. `labels` become the file's
        key-value metadata: names are identifiers, and values plain. Raises CapabilityMissing where
        the disk refuses, RemoteProtocolError where it reads damage.
        """
        half = path.with_name(path.name + HALF)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = f"COPY ({query}) TO {_to(half, labels, group_rows)}"
            return self._write(path, half, copy, values, tables)
        except OSError as error:
            raise _refused(path, error) from error

    def _write(self, path: Path, half: Path, copy: str, values: Values, tables: Tables) -> int:
        try:
            with _refusals(half), self._tables(tables):
                self._connection.execute(copy, dict(values))
            size = _synced(half)
            half.replace(path)
        finally:
            half.unlink(missing_ok=True)
        _sync_folder(path.parent)
        return size

    @contextmanager
    def _tables(self, tables: Tables) -> Iterator[None]:
        for name, columns in tables.items():
            self._connection.register(name, dict(columns))
        try:
            yield
        finally:
            for name in tables:
                self._connection.unregister(name)

    def rows(self, query: str, values: Values) -> list[tuple[Any, ...]]:
        """Return the rows of a query; RemoteProtocolError where a file that it reads is damaged."""
        with _refusals(None):
            return self._connection.execute(query, dict(values)).fetchall()

    def is_whole(self, path: Path) -> bool:
        """Return whether all of a file can be read."""
        query = "SELECT max(hash(t)) FROM read_parquet($files) t"
        try:
            self.rows(query, {"files": names_of([path])})
        except RemoteProtocolError:
            return False
        return True

    def interrupt(self) -> None:
        """Let what another thread does end now, with an error."""
        self._connection.interrupt()


def _to(path: Path, labels: Mapping[str, str], rows: int) -> str:
    """Return where a COPY writes to, and how."""
    said = ", ".join(f"{name}: '{value}'" for name, value in labels.items())
    metadata = f", KV_METADATA {{{said}}}" if said else ""
    name = str(path).replace("'", "''")
    return f"'{name}' (FORMAT parquet, COMPRESSION {CODEC}, ROW_GROUP_SIZE {rows}{metadata})"


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return paths as `read_parquet` takes them: it would expand them as patterns."""
    return [glob.escape(str(path)) for path in paths]


@contextmanager
def _refusals(written: Path | None) -> Iterator[None]:
    """Raise what DuckDB says as an error of ours; `written` is the file that it writes."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:  # of the spill's limit, too
        raise CapabilityMissing("Parquet", f"{_first_line(error)}; ask for less") from error
    except duckdb.InterruptException as error:
        raise CapabilityMissing("Parquet", "the analyzer is stopping; try again") from error
    except duckdb.Error as error:
        if written is not None and written.name in str(error):
            raise _refused(written, error) from error
        raise RemoteProtocolError(_first_line(error)) from error


def _refused(path: Path, error: Exception) -> CapabilityMissing:
    remedy = f"{_first_line(error)}; free disk space under {path.parent}"
    return CapabilityMissing(f"writing {path.name}", remedy)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _synced(path: Path) -> int:
    with path.open("rb") as file:
        os.fchmod(file.fileno(), 0o600)  # names of the cluster's containers are in it
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
