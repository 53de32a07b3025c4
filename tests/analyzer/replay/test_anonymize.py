# SPDX-License-Identifier: Apache-2.0
import io
import re

from analyzer.replay import records
from analyzer.replay.anonymize import anonymized
from analyzer.replay.frames import frame
from analyzer.replay.player import play, read
from tests.analyzer.replay.test_player import recorded


def anonymous(data):
    made = anonymized(lambda: read(io.BytesIO(data)))
    return b"".join(frame(records.pack(record)) for record in made)


def everything(data):
    return b"".join(
        record.payload if isinstance(record, records.Ingested) else records.pack(record)
        for record in read(io.BytesIO(data))
    )


def test_names_and_addresses_are_gone_and_the_incidents_are_the_same():
    data, told = recorded()
    made = anonymous(data)
    inside = everything(made)
    for secret in (b"t0-c1", b"172.30.", b"https://x", b"h2"):
        assert secret in everything(data)
        assert not re.search(rb"(?<![\w.-])" + re.escape(secret), inside)
    again = play(read(io.BytesIO(made)))
    assert again.differences == []
    assert not again.whole
    assert list(again.incidents) == list(told)
    tasks = {task for incident in again.incidents.values() for task in incident.tasks}
    assert all(task.startswith("task-") for task in tasks)


def test_the_same_name_becomes_the_same_everywhere_and_order_is_kept():
    data, told = recorded()
    again = play(read(io.BytesIO(anonymous(data))))
    ways = {}
    for then, now in zip(told.values(), again.incidents.values(), strict=True):
        for pair, other in zip(then.verdict.failing, now.verdict.failing, strict=True):
            assert ways.setdefault(pair.source.container, other.source.container) == (
                other.source.container
            )
    names = sorted(ways)
    assert [ways[name] for name in names] == sorted(ways.values())
