# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

from analyzer.store.connecting import connected

SHOWN = """
from analyzer.store.connecting import connected
asked = "SELECT current_setting('enable_progress_bar')"
assert connected(":memory:").execute(asked).fetchone() == (False,)
"""


def test_a_process_that_began_without_a_file_prints_no_progress():
    """As one of multiprocessing does; DuckDB would show slow queries' to a person."""
    subprocess.run([sys.executable, "-c", SHOWN], check=True, timeout=300)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_is_opened_with_its_settings_and_loads_nothing(tmp_path, read_only):
    path = str(tmp_path / "a.duckdb")
    connected(path).close()
    with connected(path, read_only=read_only, threads=1) as connection:
        names = ("threads", "autoload_known_extensions", "autoinstall_known_extensions")
        asked = ", ".join(f"current_setting('{each}')" for each in names)
        assert connection.execute(f"SELECT {asked}").fetchone() == (1, False, False)
