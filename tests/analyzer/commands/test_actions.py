# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from analyzer import cli
from analyzer.commands import actions, show
from analyzer.commands.actions import offers, report
from analyzer.commands.text import COLUMNS

ACTION = {
    "id": "i6b0005c6-c96d-3f2a91c0",
    "incident": "i6b0005c6-c96d",
    "verb": "cordon",
    "host": "gpu-" + "0" * 40,
    "object": "h1",
    "command": "/opt/hook cordon " + "h" * 30,
    "undo": "/opt/hook uncordon " + "h" * 30,
    "why": "rnic h1/rnic0 loses",
}
OFFERED = {**ACTION, "became": "advised", "problem": "no command is configured " * 5, "read": ["x"]}
ENTRY = {"wall_ns": 1_700_000_000 * 10**9, "step": "did-not-help", "by": "anna", "text": "y" * 200}
TOLD = {
    "mode": "act", "verbs": ["cordon", "recompute"], "breaker": "z " * 90, "stored": False,
    "entries": [
        {**ENTRY, "action": ACTION}, {**ENTRY, "step": "closed", "text": "", "action": None},
    ],
}  # fmt: skip


class Connection:
    """Remembers what is asked."""

    answer: object = None
    asked: list[object] = []  # noqa: RUF012

    def __init__(self, _args):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get(self, path, **query):
        self.asked.append((path, query))
        return self.answer

    def post(self, path, body, *, timeout_s):
        assert timeout_s > 60
        self.asked.append((path, body))
        return self.answer


@pytest.fixture
def asks(monkeypatch):
    def run(answer, *words):
        monkeypatch.setattr(Connection, "answer", answer)
        monkeypatch.setattr(Connection, "asked", [])
        monkeypatch.setattr(actions, "Connection", Connection)
        status = cli.main(["actions", *words])
        return status, Connection.asked

    return run


def test_the_trail_fits_the_screen_and_an_id_is_never_cut():
    lines = list(report(TOLD))
    assert max(map(len, lines)) <= COLUMNS
    text = "\n".join(lines)
    assert "mode act: cordon, recompute" in text
    assert "breaker open: z" in text
    assert "the disk refuses the trail" in text
    assert f"  id {ACTION['id']}" in lines
    assert "2023-11-14 22:13:20Z  did-not-help  cordon on gpu-" in text
    assert "closed        breaker" in text
    assert "by anna" in text
    empty = {"mode": "observe", "verbs": [], "breaker": None, "stored": True, "entries": []}
    assert list(report(empty)) == ["mode observe", "nothing was done or proposed"]


def test_an_offer_has_its_commands_and_why_it_may_not_be_done():
    lines = list(offers([OFFERED]))
    assert max(map(len, lines)) <= COLUMNS
    assert lines[1] == f"  id       {ACTION['id']}"
    assert any(line.startswith("  undo     /opt/hook uncordon") for line in lines)
    assert any(line.startswith("  may not  no command") for line in lines)
    assert list(offers([])) == ["nothing that netagent could do"]


def test_an_incident_shows_what_could_be_done():
    pair = {"source": "a/rail0", "target": "b/rail0", "lost": 1, "sent": 2}
    incident = {
        "id": "i1", "state": "confirmed", "symptom": "loss", "component": "rnic h1/rnic0",
        "layer": "rnic", "confidence": 0.9, "summary": "it loses", "tasks": [], "detected_ns": 1,
        "localized_ns": 2, "updated_ns": 3, "recovered_ns": None, "failing": [pair], "healthy": [],
        "alternatives": [], "evidence": [], "missing": [], "notes": [],
    }  # fmt: skip
    without = list(show.report(incident, pairs=8))
    shown = list(show.report({**incident, "actions": [OFFERED]}, pairs=8))
    assert any(line.startswith("what could be done") for line in shown)
    assert not any(line.startswith("what could be done") for line in without)
    assert max(map(len, shown)) <= COLUMNS


@pytest.mark.parametrize(
    ("words", "answer", "asked", "said"),
    [
        ((), TOLD, ("/v1/actions", {"limit": 100}), "mode act"),
        (("dry-run", "i1"), {"incident": "i1", "actions": [OFFERED]},
         ("/v1/actions/dry-run", {"incident": "i1"}), "cordon on gpu-"),
        (("do", "i1-0"), {"id": "i1-0", "done": True},
         ("/v1/actions/do", {"id": "i1-0"}), "i1-0: done"),
        (("undo", "i1-0"), {"id": "i1-0", "undone": True},
         ("/v1/actions/undo", {"id": "i1-0"}), "i1-0: undone"),
        (("close",), {"was": None}, ("/v1/actions/close", {"why": ""}), "it was not open"),
        (("close", "all is well"), {"was": "x failed"},
         ("/v1/actions/close", {"why": "all is well"}), "closed; it was open: x failed"),
    ],
)  # fmt: skip
def test_each_word_asks_for_one_thing(asks, capsys, words, answer, asked, said):
    assert asks(answer, *words) == (0, [asked])
    assert said in capsys.readouterr().out
    assert asks(answer, *words, "--json")[0] == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_nothing_to_do_is_no_success(asks):
    assert asks({"incident": "i1", "actions": []}, "dry-run", "i1")[0] == 1


@pytest.mark.parametrize("what", ["do", "undo", "dry-run"])
def test_a_word_that_lacks_its_object_is_refused(asks, capsys, what):
    with pytest.raises(SystemExit) as ended:
        asks({}, what)
    assert ended.value.code == 2
    assert f"write {what} I" in capsys.readouterr().err
