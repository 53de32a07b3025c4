# SPDX-License-Identifier: Apache-2.0
import argparse
import json

import pytest

from analyzer.commands import diagnose
from analyzer.commands.connection import Refused
from netagent.model.errors import ConfigError

HOP = {
    "way": "there", "component": "flow h0/br-int/table=40", "action": "refused",
    "text": "dropped: drop", "host": "h0", "by": "quarantine", "incident": "", "cookie": "0x2a",
}  # fmt: skip
LONG = {**HOP, "component": f"endpoint {'0123456789abcdef' * 4}/rail7", "by": "", "text": "x" * 300}
WALK = {
    "source": "a0/rail0", "target": "a1/rail0", "outcome": "refused", "component": HOP["component"],
    "layer": "overlay", "text": "refused by quarantine: drop", "tree": [],
    "observations": [HOP, LONG],
}  # fmt: skip
WELL = {**WALK, "outcome": "delivered", "component": None, "text": "delivered"}
LOST = {**WELL, "outcome": "cannot_tell", "text": "flow tables of h1: timeout " * 9}


class Canned:
    """A connection that answers one thing after the other, and notes what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, _):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def post(self, path, body, **_):
        self.asked.append((path, body))
        return self.answers.pop(0)

    def get(self, path, **query):
        self.asked.append((path, query))
        return self.answers.pop(0)


def run(monkeypatch, argv, *answers):
    canned = Canned(*answers)
    monkeypatch.setattr(diagnose, "Connection", canned)
    parser = argparse.ArgumentParser()
    diagnose.add_arguments(parser)
    return diagnose.run(parser.parse_args(argv)), canned.asked


def far(phase, done, results, **more):
    return {
        "id": "5d", "phase": phase, "error": "", "done": done, "all": 3, "left_out": 0,
        "results": results, "next": done, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "source"),
    [
        (["a0/rail0"], "a0/rail0"),
        (["pod:ns/a0"], {"pod": "ns/a0"}),
        (["port:ab:12"], {"port": "ab:12"}),
        (["ip:fd00::1", "--task", "t"], {"address": "fd00::1", "task": "t"}),
        (["pod:ns/a0", "--rail", "0"], {"pod": "ns/a0", "rail": 0}),
        (["a0/rail0", "--rail", "1"], {"endpoint": "a0/rail0", "rail": 1}),
        (["x:y/rail0"], "x:y/rail0"),
    ],
)
def test_ends_are_asked_for_in_the_words_that_they_are_given_in(monkeypatch, argv, source):
    first, *more = argv
    status, [(path, body)] = run(monkeypatch, [first, "a1/rail0", *more], WALK)
    assert (status, path, body["source"]) == (1, "/v1/diagnose", source)
    assert body.keys() == {"source", "target"}  # an older analyzer knows no more


def test_what_is_asked_for_goes_with_two_ends(monkeypatch):
    words = ["--protocol", "tcp", "--port", "443", "--address", "10.96.0.1"]
    _, [(_, body)] = run(monkeypatch, ["a0/rail0", "a1/rail0", *words], WALK)
    assert body["service"] == {"protocol": "tcp", "port": 443, "address": "10.96.0.1"}
    with pytest.raises(ConfigError, match="two ends"):
        run(monkeypatch, ["--task", "t", *words])
    for odd in ("65536", "-1", "http"):
        with pytest.raises(SystemExit):
            run(monkeypatch, ["a0/rail0", "a1/rail0", f"--port={odd}"], WALK)


@pytest.mark.parametrize("argv", [[], ["a0/rail0"], ["a0/rail0", "--task", "t"]])
def test_one_end_alone_is_no_question(monkeypatch, argv):
    with pytest.raises(ConfigError, match="two ends"):
        run(monkeypatch, argv)


def test_hops_are_a_table_that_fits_a_screen_and_says_who_wants_it():
    lines = list(diagnose.report(WALK))
    assert all(len(line) < 80 for line in lines)
    header, hop, long = lines[2:5]
    assert header.split() == ["WAY", "HOP", "DOES", "WHAT", "IS", "KNOWN"]
    assert hop.startswith("there  flow h0/br-int/table=40 ")
    assert hop.endswith(" refused  by quarantine")
    assert long.startswith("there  endpoint 012345...789abcdef/rail7 ")
    assert long.endswith("...")
    assert lines[-2].startswith("refused at flow h0/br-int/table=40")


def node(text, *children):
    return {"text": text, "children": list(children)}


def test_tables_in_a_row_stand_below_each_other():
    """OVN has dozens of tables in a row: each a step deeper left one letter to a line."""
    tables = node("br-int/table=65: " + "match," * 20)
    for number in reversed(range(8, 65)):
        tables = node(f"br-int/table={number}: " + "match," * 20, tables)
    for number in reversed(range(3)):
        tables = node(f"br-int/table=7{number}: ", node("br-int/table=75: "), tables)
    tree = [node("a0 -> a1", node("h0: in by p", tables, node("-> output"))), node("underlay")]
    lines = list(diagnose.report({**WALK, "tree": tree}))
    assert all(len(line) < 80 for line in lines)
    [first, last] = [next(x for x in lines if f"table={n}:" in x) for n in (10, 65)]
    assert first.index("- br-int") == last.index("- br-int")
    assert len(lines) < 4 * 60
    assert [line for line in lines if "table=7" in line][:3] == [
        "|     |- br-int/table=70:",
        "|     |  |- br-int/table=75:",
        "|     |  `- br-int/table=71:",
    ]


def test_however_deep_a_tree_is_its_lines_have_room():
    tree = node("leaf")
    for number in range(40):
        tree = node(f"{number} " + "match," * 20, node("beside"), tree)
    lines = list(diagnose.report({**WALK, "tree": [tree]}))
    assert all(len(line) < 80 for line in lines)
    assert all(len(line.strip(" |")) > 1 for line in lines if line)
    assert len(lines) < 40 * 8


@pytest.mark.parametrize(
    ("more", "cookie", "outcome", "last"),
    [
        ({"incident": "i1", "text": "incident i1: a flow is missing"}, "0x2a", "dropped",
         "  incident i1: a flow is missing [flow h0/br-int/table=40]"),
        ({"incident": "i1", "text": "incident i1: a flow is missing"}, "0x2a", "incident",
         "  a flow is missing"),
        ({}, "0x2a", "dropped", "    netagent-analyzer intent diff h0"),
        ({"incident": "i1", "text": "incident i1: dropped: drop"}, "0x2a", "dropped",
         "    netagent-analyzer intent diff h0"),
        ({"component": "flow h1/br-int/table=9"}, "0x2a", "dropped", "  drop"),
        ({}, "0x2a", "loop", "  drop"),
        ({}, "0x0", "missed", "  drop"),
    ],
)  # fmt: skip
def test_a_conclusion_says_what_an_incident_knows_or_where_to_look(more, cookie, outcome, last):
    hop = {**HOP, "action": "dropped", "by": "", "cookie": cookie, **more}
    text = "a flow is missing" if outcome == "incident" else "drop"
    told = {**WALK, "outcome": outcome, "text": text, "observations": [hop]}
    assert list(diagnose.report(told))[-1] == last


def test_an_older_analyzer_tells_no_hops():
    older = {name: value for name, value in WALK.items() if name != "observations"}
    assert not any("HOP" in line for line in diagnose.report(older))


def test_a_task_is_followed_to_its_end(monkeypatch, capsys):
    status, asked = run(
        monkeypatch, ["--task", "train-a", "--budget", "9"],
        far("running", 0, []), far("running", 2, [WELL, LOST]), far("succeeded", 3, [WALK]),
    )  # fmt: skip
    assert status == 1
    assert asked == [
        ("/v1/diagnose", {"task": "train-a", "budget_s": 9.0}),
        ("/v1/diagnoses/5d", {"wait_s": diagnose.POLL_S, "after": 0}),
        ("/v1/diagnoses/5d", {"wait_s": diagnose.POLL_S, "after": 2}),
    ]
    said = capsys.readouterr()
    assert said.err.splitlines() == ["0 of 3 pairs", "2 of 3 pairs", "3 of 3 pairs"]
    lines = said.out.splitlines()
    assert all(len(line) < 80 for line in lines)
    assert [line.split()[2] for line in lines[1:4]] == ["cannot", "refused", "delivered"]
    assert lines[-1] == "3 of 3 pairs: 1 cannot_tell, 1 delivered, 1 refused"


@pytest.mark.parametrize(
    ("known", "status", "words"),
    [
        (far("succeeded", 1, [WELL]), 0, "1 delivered"),
        (far("succeeded", 1, [WALK]), 1, "1 refused"),
        (far("failed", 1, [WELL], error="its 9 s are over"), 1, "ended early: its 9 s are over"),
        (far("failed", 0, [], error="x"), 1, "0 of 3 pairs: nothing known"),
        (far("succeeded", 1, [WELL], left_out=7), 0, "7 more pairs of the task were not looked at"),
    ],
)
def test_what_became_of_a_task_is_told_and_the_status_says_whether_it_is_well(
    monkeypatch, capsys, known, status, words
):
    assert run(monkeypatch, ["--task", "train-a"], known)[0] == status
    assert words in capsys.readouterr().out


def test_json_has_all_results(monkeypatch, capsys):
    answers = far("running", 1, [WELL]), far("succeeded", 3, [LOST, WALK])
    run(monkeypatch, ["--task", "train-a", "--json"], *answers)
    told = json.loads(capsys.readouterr().out)
    assert (told["phase"], told["results"]) == ("succeeded", [WELL, LOST, WALK])


@pytest.mark.parametrize("argv", [["a0/rail0", "nosuch/rail0"], ["--task", "nosuch"]])
@pytest.mark.parametrize(("said", "status"), [(404, 2), (403, 2), (503, 3)])
def test_a_name_that_nobody_has_is_misuse_and_no_lost_packet(monkeypatch, argv, said, status):
    def post(*_, **__):
        raise Refused(said, "no", "ask otherwise")

    monkeypatch.setattr(Canned, "post", post)
    with pytest.raises(Refused) as refused:
        run(monkeypatch, argv)
    assert refused.value.exit_status == status
