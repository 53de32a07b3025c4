# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from ovs_checks.switch.database_log import rows_of

SCHEMA = {
    "name": "Open_vSwitch",
    "tables": {
        "Port": {
            "columns": {
                "name": {"type": "string"},
                "tag": {"type": {"key": {"type": "integer"}, "min": 0, "max": 1}},
                "trunks": {"type": {"key": {"type": "integer"}, "min": 0, "max": 4096}},
                "options": {
                    "type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}
                },
                "protected": {"type": "boolean"},
            }
        }
    },
}
WANTED = {"Port": ["_uuid", "name", "tag", "trunks", "options", "protected", "novel"]}


def log(*records):
    return "".join(f"OVSDB JSON 1 0\n{json.dumps(record)}\n" for record in (SCHEMA, *records))


def row(*records):
    (found,) = rows_of(log(*records), WANTED)["Port"]
    return found


def test_what_is_not_said_has_its_default():
    assert row({"Port": {"u1": {"name": "p1"}}, "_date": 1}) == {
        "_uuid": ["uuid", "u1"],
        "name": "p1",
        "tag": ["set", []],
        "trunks": ["set", []],
        "options": ["map", []],
        "protected": False,
        "novel": ["set", []],
    }


def test_rows_change_and_go():
    made = {"Port": {"u1": {"name": "p1"}, "u2": {"name": "p2"}}}
    changed = {"Port": {"u1": {"name": "q1"}, "u2": None}, "Novel": {"u9": {}}}
    assert row(made, changed)["name"] == "q1"


@pytest.mark.parametrize(
    ("column", "old", "change", "new"),
    [
        ("trunks", ["set", [1, 2]], ["set", [2, 3]], ["set", [1, 3]]),
        ("trunks", 1, 2, ["set", [1, 2]]),
        ("trunks", ["set", [1, 2]], 2, 1),
        ("tag", 5, 6, 6),
        ("tag", 5, ["set", []], ["set", []]),
        (
            "options",
            ["map", [["a", "1"], ["b", "2"], ["c", "3"]]],
            ["map", [["a", "9"], ["b", "2"], ["d", "4"]]],
            ["map", [["a", "9"], ["c", "3"], ["d", "4"]]],
        ),
    ],
)
def test_differences_are_applied(column, old, change, new):
    made = {"Port": {"u1": {column: old}}}
    assert row(made, {"Port": {"u1": {column: change}}, "_is_diff": True})[column] == new
    assert row(made, {"Port": {"u1": {column: change}}})[column] == change


def test_only_a_line_feed_ends_a_record():
    made = {"Port": {"u1": {"name": "p\u20281\u0085"}, "u2": {"name": "p2"}}}
    record = json.dumps(made, ensure_ascii=False)
    assert len(rows_of(f"{log()}OVSDB JSON 1 0\n{record}\n", WANTED)["Port"]) == 2


@given(st.integers(0, 80))
def test_a_file_that_was_cut_off_gives_what_it_holds(cut):
    text = log({"Port": {"u1": {"name": "p1"}}}, {"Port": {"u2": {"name": "p2"}}})
    kept = text[: len(text) - cut]
    names = [found["name"] for found in rows_of(kept, WANTED)["Port"]]
    assert names in ([], ["p1"], ["p1", "p2"])


@pytest.mark.parametrize(
    "text",
    ["", "OVSDB CLUSTER 9 0\n{}\n", "{\n", log({"Port": []}), log({"Port": {"u1": 5}})],
)
def test_what_is_no_database_is_a_protocol_error(text):
    with pytest.raises(RemoteProtocolError):
        rows_of(text, WANTED)
