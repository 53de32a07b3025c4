# SPDX-License-Identifier: Apache-2.0
import argparse

import pytest

from analyzer.commands import again
from netagent.model.errors import Unreachable


def repeated(monkeypatch, *rounds, **fields):
    """Let a verb print, or raise, one after the other; then it is interrupted."""
    args = argparse.Namespace(**{"watch": 0.5, "json": False, "verb": "tasks", **fields})
    left = [*rounds, KeyboardInterrupt()]
    monkeypatch.setattr(again.threading.Event, "wait", lambda *_: True)

    def run(_):
        now = left.pop(0)
        if isinstance(now, BaseException):
            raise now
        print(now)
        return 1

    return again.repeated(run, args)


def test_lists_follow_each_other_until_interrupted(monkeypatch, capsys):
    assert repeated(monkeypatch, "one", "two") == 0
    assert capsys.readouterr().out == "one\n\ntwo\n"
    assert repeated(monkeypatch, "{}", "{}", json=True) == 0
    assert capsys.readouterr().out == "{}\n{}\n"


def test_at_a_terminal_the_screen_is_cleared(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    repeated(monkeypatch, "one")
    out = capsys.readouterr().out
    assert out.startswith(f"{again.CLEAR}every 0.5 s: tasks, ")
    assert out.endswith("\n\none\n")


def test_an_analyzer_that_goes_away_is_waited_for_and_one_that_never_was_is_an_error(
    monkeypatch, capsys
):
    gone = Unreachable("http://a", "refused")
    assert repeated(monkeypatch, "one", gone, "two") == 0
    out, err = capsys.readouterr()
    assert out == "one\n\ntwo\n"
    assert "refused; trying again" in err
    with pytest.raises(Unreachable):
        repeated(monkeypatch, gone)


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "1e9"])
def test_odd_periods_are_refused(text):
    parser = argparse.ArgumentParser()
    again.add_arguments(parser)
    assert parser.parse_args(["--watch", "0.5"]).watch == 0.5
    with pytest.raises(SystemExit):
        parser.parse_args([f"--watch={text}"])
