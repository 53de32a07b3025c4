# SPDX-License-Identifier: Apache-2.0
"""Records do to a roster and a diagnosis what was done when they were written."""

import contextlib
import io

import pytest

from analyzer.replay import records
from analyzer.replay.fed import Fed
from analyzer.replay.player import read
from analyzer.replay.tape import roster_of
from netagent.model.errors import RemoteProtocolError
from netagent.model.task import Task
from netagent.wire.codec import encode
from netagent.wire.messages import Health, PathColumns, Registration, Summary
from tests.analyzer.replay.worlds import eventful

HEADER = records.Header(netagent="test", window_s=5, probe_port=18515)


def registered(host, at_ns=1):
    message = Registration(host=host, instance="1", generation=1, rpc_url="https://x", endpoints=())
    return records.Registered(registration=message, now_ns=at_ns)


def test_a_roster_follows_what_became_of_it():
    fed = Fed(HEADER)
    for record in (
        registered("h0"),
        registered("h1"),
        records.Heard(host="h0", start_ns=5, now_ns=9),
        records.TaskPut(task=Task("t", ("a",), (0,), 1), now_ns=9),
        records.TaskPut(task=Task("u", ("b",), (0,), 1), now_ns=9),
        records.TaskPut(task=Task("v", ("b",), (0,), 1), now_ns=9),  # taken: it was refused, too
        records.TaskDeleted(task="t", now_ns=9),
        records.Forgotten(host="h1", now_ns=9),
        records.Expired(now_ns=9),
    ):
        assert fed.take(record) == []
    roster = roster_of(fed.roster)
    assert [state.agent.host for state in roster.hosts] == ["h0"]
    assert [task.id for task in roster.tasks] == ["u"]
    assert fed.roster.agent("h0").last_window_ns == 5
    again = Fed(HEADER)
    again.begin(roster)
    assert roster_of(again.roster) == roster


@pytest.mark.parametrize("heard", [True, False])
def test_a_host_is_heard_by_its_summary_also_where_the_rest_makes_no_sense(heard):
    fed = Fed(HEADER)
    fed.take(registered("h0"))
    head = {"host": "h0", "instance": "1", "start_ns": 5 * 10**9, "width_ns": 5 * 10**9}
    sound = encode(Summary(**head, health=Health()))
    broken = encode(Summary(**head, health=Health(), paths=PathColumns(whole_ns=-1)))
    for now_ns, payload in enumerate((sound, broken), 9):
        record = records.Ingested(payload=payload, now_ns=now_ns, heard=heard)
        with contextlib.suppress(RemoteProtocolError):
            fed.take(record)
        assert fed.roster.agent("h0").last_seen_ns == (now_ns if heard else 1)
        assert fed.roster.agent("h0").last_window_ns == (5 * 10**9 if heard else 0)
        [read] = fed.read([record])
        with pytest.raises(RemoteProtocolError) if payload is broken else contextlib.nullcontext():
            fed.take(record, read)


def test_steps_ask_what_was_asked_and_late_answers_count_where_they_were_put_late():
    made = list(read(io.BytesIO(eventful().recording())))
    fed, asked = Fed(HEADER), set()
    for record in made[1:-1]:
        if isinstance(record, records.Roster):
            fed.begin(record)
        elif isinstance(record, records.Stepped):
            asked |= {question.id for question in fed.take(record)}
            fed.take(records.PutLate(now_ns=record.now_ns))  # at once
        else:
            assert fed.take(record) == []
    assert asked == {each.question for each in made if isinstance(each, records.Answered)}


def test_an_odd_summary_is_refused():
    with pytest.raises(RemoteProtocolError):
        Fed(HEADER).take(records.Ingested(payload=b"odd", now_ns=1))
