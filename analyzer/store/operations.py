# SPDX-License-Identifier: Apache-2.0
"""Tables of operators, as others write them: CSV and Parquet, read by DuckDB.

A file is read twice: for the words that are in it, then as numbers, so that no word becomes an
object a row.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from analyzer.operators.sources.table import COLUMNS, NEEDED, TEXTS, TIMES, Table, Texts
from analyzer.store.connecting import connected
from analyzer.store.parquet import names_of
from netagent.model.errors import RemoteProtocolError

MAX_ROWS = 50_000_000
"""Most rows. Chosen: 10,000 ranks with 5,000 operators each; some 5 GB of columns."""
MAX_WORDS = 200_000
"""Most different words in a column. Chosen: more than groups and operations of any job."""
MAX_LETTERS = 200
"""Longest word. Chosen: longer ones are no names."""
MEMORY_LIMIT = "1GB"
"""Most memory for DuckDB's buffers. Chosen: both passes stream, so it needs little."""
THREADS = 2
"""Chosen: it is a command of one person on a host that may be at work."""
MAGIC = b"PAR1"
SUFFIXES = (".csv", ".csv.gz", ".csv.zst", ".parquet")


def is_table(path: Path, head: bytes) -> bool:
    """Return whether a file of this name and beginning is read here."""
    first = head.partition(b"\n")[0].lower()
    titled = b"start_us" in first and b"rank" in first and b"{" not in first
    return head.startswith(MAGIC) or path.name.lower().endswith(SUFFIXES) or titled


def read_table(paths: Sequence[Path]) -> Table:
    """Return the columns of CSV or Parquet files, one after the other.

    Raises RemoteProtocolError where a column is missing, or a value is not what its column holds;
    where the file is damaged, or beyond the limits above; OSError where it cannot be read.
    """
    kinds = {_is_parquet(path) for path in paths}
    odd = [path.name for path in paths if path.suffix == ".parquet" and not _is_parquet(path)]
    if odd:
        raise RemoteProtocolError(f"{odd[0]} is not Parquet: it does not begin with PAR1")
    if len(kinds) != 1:
        raise RemoteProtocolError("CSV and Parquet side by side: give one of them")
    try:
        with connected(":memory:", threads=THREADS, memory_limit=MEMORY_LIMIT) as connection:
            return _Reader(connection, paths, parquet=kinds.pop()).table()
    except duckdb.Error as error:
        raise RemoteProtocolError(_said(error)) from error


def without_columns(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the files that lack a column that is needed, and which.

    Raises RemoteProtocolError where one is damaged, OSError where it cannot be read.
    """
    found = {}
    try:
        with connected(":memory:", threads=THREADS, memory_limit=MEMORY_LIMIT) as connection:
            for path in paths:
                reader = _Reader(connection, [path], parquet=_is_parquet(path))
                if why := reader.lack():
                    found[path] = why
    except duckdb.Error as error:
        raise RemoteProtocolError(_said(error)) from error
    return found


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class _Reader:
    def __init__(
        self, connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], *, parquet: bool
    ) -> None:
        self._connection = connection
        self._values = {"files": names_of(paths)}
        self._from = f"(FROM {_SOURCES[parquet]} LIMIT {MAX_ROWS + 1})"
        self._name: dict[str, str] = {}
        self._type: dict[str, str] = {}

    def table(self) -> Table:
        """Return the columns. Raises duckdb.Error, RemoteProtocolError."""
        if lack := self.lack():
            raise RemoteProtocolError(lack)
        words = self._words()
        for name, each in words.items():
            self._name_words(name, each)
        columns = self._fetched()
        return Table(
            numbers={
                name: columns[name].astype(np.int64)
                for name in self._name
                if name not in TEXTS and name not in TIMES
            },
            times={name: columns[name].astype(np.float64) for name in TIMES},
            texts={
                name: Texts(columns[name].astype(np.int64), tuple(each))
                for name, each in words.items()
            },
        )

    def lack(self) -> str:
        """Find what each column that means something is called, and its type; say what is missing.

        Raises duckdb.Error.
        """
        told = self._ask(f"DESCRIBE FROM {self._from}").fetchall()
        found = {str(row[0]).strip().lower().lstrip("\ufeff"): row for row in told}
        missing = [name for name in NEEDED if name not in found]
        if missing:
            there = ", ".join(list(found)[:20])
            return f"no column {', '.join(missing)}; there are {there}"[:300]
        for name in COLUMNS:
            if name in found:
                self._name[name], self._type[name] = map(str, found[name][:2])
        return ""

    def _words(self) -> dict[str, list[str]]:
        """Return the words of each column of words, sorted."""
        names = [name for name in TEXTS if name in self._name]
        lists = ", ".join(f"list(DISTINCT {self._word(name)})" for name in names)
        rows, *answers = self._ask(f"FROM {self._from} SELECT count(*), {lists}").fetchone() or (0,)
        if rows > MAX_ROWS:
            raise RemoteProtocolError(f"more than {MAX_ROWS} rows")
        words = {
            name: sorted(each for each in answer or () if each is not None)
            for name, answer in zip(names, answers, strict=True)
        }
        for name, each in words.items():
            if len(each) > MAX_WORDS:
                raise RemoteProtocolError(f"column {name}: more than {MAX_WORDS} names")
        return words

    def _name_words(self, name: str, words: list[str]) -> None:
        """Make a type of words, so that they are read as numbers."""
        table = f"CREATE TEMP TABLE words_{name} AS SELECT unnest($words::VARCHAR[]) AS word"
        self._connection.execute(table, {"words": words})
        self._ask(f"CREATE TYPE type_{name} AS ENUM (FROM words_{name})", {})

    def _fetched(self) -> Mapping[str, NDArray[Any]]:
        asked = ", ".join(f"{self._value(name)} AS {_quoted(name)}" for name in self._name)
        read = self._ask(f"FROM {self._from} SELECT {asked}").fetchnumpy()
        return {name: np.ma.getdata(each) for name, each in read.items()}

    def _ask(self, query: str, values: Mapping[str, Any] | None = None) -> Any:
        return self._connection.execute(query, self._values if values is None else values)

    def _value(self, name: str) -> str:
        if name in TEXTS:
            return f"coalesce(enum_code(CAST({self._word(name)} AS type_{name})), -1)"
        column = _quoted(self._name[name])
        if self._type[name] in ("DOUBLE", "FLOAT"):
            column = f"CASE WHEN isfinite({column}) THEN {column} END"
        kind, nothing = ("DOUBLE", "'nan'") if name in TIMES else ("BIGINT", "-1")
        return f"coalesce(CAST({column} AS {kind}), CAST({nothing} AS {kind}))"

    def _word(self, name: str) -> str:
        word = f"CAST({_quoted(self._name[name])} AS VARCHAR)"
        return f"nullif(left(trim({word}), {MAX_LETTERS}), '')"


_SOURCES = {
    True: "read_parquet($files, union_by_name=true)",
    False: "read_csv($files, header=true, skip=0, all_varchar=true, delim=',', quote='\"',"
    " escape='\"', nullstr=['', 'nan', 'NaN', 'None', 'null'], union_by_name=true)",
}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _said(error: duckdb.Error) -> str:
    """Return what DuckDB says of a file, without its advice."""
    text = str(error)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    what = re.search(r"(Error when converting column.*|Could not convert.*)", text)
    if what:
        return f"{f'line {line[1]}: ' if line else ''}{what[1]}"[:200]
    if "sniffing" in text:
        return "no table: rows of unequal length, or a quote that never ends"
    return text.partition("\n")[0][:200]
