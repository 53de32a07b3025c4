# SPDX-License-Identifier: Apache-2.0
import asyncio
from pathlib import Path

from analyzer.store.tables import Store
from tests.bench.backing_up import ROUNDS, _measured


def test_each_backup_is_timed_while_summaries_come_and_as_many_wait_without_it(
    tmp_path: Path,
) -> None:
    told = asyncio.run(_measured(tmp_path / "a.duckdb", 1_000))
    took_s, puts, its_puts = told["backups_s"], told["puts"], told["its_puts"]
    assert isinstance(took_s, list)
    assert isinstance(puts, int)
    assert isinstance(its_puts, int)
    assert len(took_s) == ROUNDS
    assert puts >= ROUNDS
    # All that came was stored: during each copy, and as many without it.
    assert told["summaries"] == 1_000 + 2 * puts
    store = Store(str(tmp_path / "a.duckdb"))
    assert asyncio.run(_stored(store)) == 1_000 + 2 * (puts + its_puts)


async def _stored(store: Store) -> int:
    summaries, _ = await store.usage()
    await store.close()
    return summaries
