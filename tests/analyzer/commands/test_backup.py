# SPDX-License-Identifier: Apache-2.0
from analyzer.commands import backup

ANSWER = {
    "folder": "/var/lib/netagent/analyzer.duckdb.backups/before-update",
    "summaries": 1200, "bytes": 5 << 20, "made_ns": 1, "took_s": 0.1, "dropped": [],
}  # fmt: skip


def test_it_says_where_the_backup_is_what_is_in_it_and_what_had_to_go():
    lines = list(backup.report(ANSWER | {"dropped": ["20261120T060000Z"]}))
    assert lines == [
        "/var/lib/netagent/analyzer.duckdb.backups/before-update",
        "  1200 summaries, 5 MiB",
        "  20261120T060000Z was deleted: it was older than those kept",
    ]
    assert len(list(backup.report(ANSWER))) == 2
