# SPDX-License-Identifier: Apache-2.0
import copy

import pytest

from analyzer.actions.ports import MARK, disabling, enabling

UNSET, EMPTY = ["set", []], ["map", []]
ROW = {
    "_uuid": ["uuid", "6b0005c6-0000-0000-0000-000000000000"],
    "name": "p1-0",
    "type": "",
    "addresses": ["set", ["02:00:00:00:00:01 10.0.0.1", "unknown"]],
    "port_security": UNSET,
    "options": EMPTY,
    "parent_name": UNSET,
    "tag": UNSET,
    "enabled": UNSET,
    "external_ids": EMPTY,
}


def disabled(row=ROW, action="i0-1"):
    """Return the row as a disabled one is."""
    changed = disabling(row, action)[1]["row"]
    return {**copy.deepcopy(row), **changed}


@pytest.mark.parametrize("enabled", [UNSET, True])
def test_it_is_enabled_again_as_it_was(enabled):
    row = {**ROW, "enabled": enabled}
    (wait, update) = enabling(disabled(row), "i0-1")
    assert update["row"] == {"enabled": enabled, "external_ids": EMPTY}
    assert wait["rows"][0]["enabled"] is False


def test_nothing_is_changed_that_somebody_changes_meanwhile():
    (wait, update) = disabling(ROW, "i0-1")
    assert (wait["op"], wait["timeout"], wait["until"]) == ("wait", 0, "==")
    assert wait["rows"] == [{each: ROW[each] for each in wait["columns"]}]
    assert wait["where"] == update["where"] == [["_uuid", "==", ROW["_uuid"]]]
    assert set(update["row"]) == {"enabled", "external_ids"}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"external_ids": ["map", [["pod", "true"]]]}, "belongs to"),
        ({"external_ids": ["map", [["anything", ""]]]}, "belongs to"),
        ({"enabled": False}, "disabled already"),
    ],
)
def test_what_is_somebodys_or_disabled_is_left(changed, why):
    assert why in disabling({**ROW, **changed}, "i0-1")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"enabled": True}, "enabled it since"),
        ({"enabled": UNSET}, "enabled it since"),
        ({"addresses": UNSET}, "changed it since"),
        ({"_uuid": ["uuid", "6b0005c6-0000-0000-0000-000000000001"]}, "changed it since"),
        ({"external_ids": EMPTY}, "not disabled by this action"),
        ({"external_ids": ["map", [[MARK, "i0-1"]]]}, "not disabled by this action"),
    ],
)
def test_what_changed_since_is_left(changed, why):
    assert why in enabling({**disabled(), **changed}, "i0-1")


def test_what_another_action_disabled_or_somebody_took_over_is_left():
    assert "not disabled by this action" in enabling(disabled(), "i0-2")
    row = disabled()
    row["external_ids"][1].append(["pod", "true"])
    assert "changed it since" in enabling(row, "i0-1")


def test_the_order_in_which_a_server_tells_is_no_change():
    row = disabled()
    row["addresses"] = ["set", row["addresses"][1][::-1]]
    assert not isinstance(enabling(row, "i0-1"), str)
