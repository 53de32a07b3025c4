# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from analyzer import cli
from analyzer.commands import webhooks
from tests.analyzer.receiver import Receiver, status
from tests.analyzer.server.within import Within
from tests.analyzer.test_cli import fits

ENTRY = {
    "name": "pager", "to": "https://pager.example", "state": "down", "signed": True,
    "waiting": 3, "waiting_bytes": 9000, "oldest_s": 61.4, "sent": 12, "retried": 9, "refused": 1,
    "dropped": 0, "last_answer": "no answer within 10 s", "last_ns": 1_795_154_400 * 10**9,
    "taken_ns": None,
}  # fmt: skip


def test_each_receiver_has_its_paragraph():
    quiet = ENTRY | {"name": "log", "state": "ok", "signed": False, "waiting": 0}
    text = fits(webhooks.report({"webhooks": [ENTRY, quiet | {"last_answer": None}]}))
    assert text.splitlines() == [
        "pager: down, to https://pager.example",
        "  sent 12, retried 9, refused 1, dropped 0",
        "  waiting 3 (8 KiB), the oldest for 61 s",
        "  2026-11-20 06:00:00.000Z: no answer within 10 s",
        "log: ok, to https://pager.example",
        "  sent 12, retried 9, refused 1, dropped 0",
        "  not signed: no secret",
    ]
    assert "no [[webhooks]]" in fits(webhooks.report({"webhooks": []}))


def test_what_came_back_of_a_test_fits_a_screen():
    answer = {"webhook": "pager", "taken": False, "took_s": 0.5, "said": "x" * 1000}
    text = fits(webhooks.tried(answer | {"answer": "HTTP 403 Forbidden"}))
    assert text.startswith("pager: not taken after 0.50 s: HTTP 403 Forbidden\n  it says: xxx")


def test_the_command_lists_and_tests_receivers_of_a_running_analyzer(tmp_path, capsys, monkeypatch):
    with Receiver(status(204)) as receiver:
        more = f'[[webhooks]]\nname = "pager"\nurl = "{receiver.url}"\n'
        with Within(tmp_path, more=more) as analyzer:
            monkeypatch.setenv("NETAGENT_ANALYZER_URL", analyzer.url)
            assert cli.main(["webhooks"]) == 0
            assert f"pager: ok, to http://127.0.0.1:{receiver.port}" in capsys.readouterr().out
            assert cli.main(["webhooks", "test", "pager"]) == 0
            assert "pager: taken after" in capsys.readouterr().out
            receiver.usual = status(503)
            assert cli.main(["webhooks", "test", "pager", "--json"]) == 1
            assert json.loads(capsys.readouterr().out)["status"] == 503
            assert cli.main(["webhooks", "--json"]) == 0
            [told] = json.loads(capsys.readouterr().out)["webhooks"]
            assert (told["name"], told["sent"]) == ("pager", 0)
            assert cli.main(["webhooks", "test", "other"]) == 1
            assert "no webhook 'other'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["test"], ["try", "pager"]])
def test_what_is_no_test_is_misuse(words, capsys):
    try:
        code = cli.main(["webhooks", *words])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
