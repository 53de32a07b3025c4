# SPDX-License-Identifier: Apache-2.0
"""Opens DuckDB: all of ours goes through here."""

import duckdb

Setting = str | bool | int | float | list[str]


def connected(
    database: str, *, read_only: bool = False, **settings: Setting
) -> duckdb.DuckDBPyConnection:
    """Return a connection to a database, with DuckDB's `settings`. Raises duckdb.Error.

    DuckDB fetches and loads nothing by itself, and prints nothing.
    """
    settings |= {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    connection = duckdb.connect(database, read_only=read_only, config=settings)
    # It takes a process that was not started from a file for a person at a prompt.
    connection.execute("SET enable_progress_bar = false")
    return connection
