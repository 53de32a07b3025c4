# SPDX-License-Identifier: Apache-2.0
from netagent.commands.unprobed import unprobed_count, unprobed_lines
from netagent.wire.unprobed import Unprobed, UnprobedPort, Why

PORTS = tuple(
    UnprobedPort(port=f"v{n}", why=why, text="because " * 20, bridge="br-int")
    for n, why in enumerate((Why.NO_TASK, Why.NO_RAIL, Why.NO_TASK))
)


def test_all_are_counted_by_why_and_listed_in_lines_of_a_terminal():
    said = Unprobed(ports=PORTS, count=7)
    assert unprobed_count(said) == "ports that are no endpoint: 7 (1 no-rail, 2 no-task)"
    lines = list(unprobed_lines(said))
    assert lines[0].startswith("v0 on br-int: no-task: because")
    assert lines[-1] == "and 4 more"
    assert max(map(len, lines)) < 80


def test_none_is_said_to_be_none():
    assert list(unprobed_lines(Unprobed())) == ["each port that may be an endpoint is one"]
    declared = UnprobedPort(port="file a.json", why=Why.ODD, text="x", task="t")
    (line,) = unprobed_lines(Unprobed(ports=(declared,), count=1))
    assert line == "file a.json of t: odd: x"
