# SPDX-License-Identifier: Apache-2.0
from contextlib import contextmanager

import msgspec
import pytest

from analyzer.controllers import rows as room
from analyzer.controllers.messages import AskDifference
from analyzer.controllers.rows import KEPT_S, Rows
from analyzer.controllers.selecting import NORTHBOUND, SOUTHBOUND
from netagent.model.errors import RemoteProtocolError, Unreachable
from tests.analyzer.controllers.test_meaning import L2, asked, end, flow_of
from tests.analyzer.intent.recorded import told


def test_a_controller_that_nobody_reaches_is_an_error(tmp_path):
    with pytest.raises(Unreachable):
        Rows((), (f"unix:{tmp_path / 'nobody'}",)).meanings(asked())


def test_rows_are_read_once_for_all_hosts_that_are_asked_about_together(monkeypatch):
    selects, now_s = [], [0.0]

    @contextmanager
    def connected(database, _remotes):
        def select(*operations):
            selects.append(database)
            tables = told()[{SOUTHBOUND: "southbound", NORTHBOUND: "northbound"}[database]]
            if any(each["table"] not in tables for each in operations):
                raise RemoteProtocolError("no such table")  # as of a server that is older
            return [matching(tables[each["table"]], each["where"]) for each in operations]

        yield select

    def matching(rows, where):
        return [row for row in rows if all(row[name] == value for name, _, value in where)]

    monkeypatch.setattr(room, "connected", connected)
    made = Rows((), (), lambda: now_s[0])
    gone = flow_of(*L2).cookie
    default = flow_of("ls_in_l2_unknown", '"none"').cookie
    question = asked(end(default), without=gone)
    (meant,) = made.meanings(question).meant
    assert (meant.meaning, meant.by) == ("missing", "port p3-0")
    assert selects == [SOUTHBOUND, SOUTHBOUND, NORTHBOUND, SOUTHBOUND]
    differing = AskDifference(query=8, chassis="h2", installed=question.installed)
    assert made.differences(differing).query == 8
    made.meanings(msgspec.structs.replace(question, chassis="h2"))
    assert len(selects) == 4
    now_s[0] += KEPT_S
    made.meanings(question)
    assert len(selects) == 8
