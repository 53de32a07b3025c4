# SPDX-License-Identifier: Apache-2.0
import argparse
from typing import ClassVar

import pytest

from analyzer.commands import open as command

URL = "https://127.0.0.1:8443/session/secret"


class Connection:
    """Stands in for the analyzer."""

    posted: ClassVar[list] = []

    def __init__(self, _args):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def post(self, path, body):
        self.posted.append((path, body))
        return {"url": URL, "expires_ns": 7}


@pytest.fixture
def opened(monkeypatch):
    """Have no analyzer, and a browser that works; return what it was told to open."""
    found = []
    monkeypatch.setattr(command, "Connection", Connection)
    monkeypatch.setattr(Connection, "posted", [])
    monkeypatch.setattr(command.webbrowser, "open", lambda url: found.append(url) or True)
    return found


def run(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(words)))


def test_a_browser_is_opened_with_the_link_and_nothing_printed(opened, capsys):
    assert run() == 0
    assert (opened, capsys.readouterr().out) == ([URL], "")
    assert Connection.posted == [("/v1/sessions", {})]


def test_the_link_is_printed_for_a_browser_elsewhere(opened, capsys):
    assert run("--print", "--for", "tenant-a") == 0
    assert (opened, capsys.readouterr().out) == ([], f"{URL}\n")
    assert Connection.posted == [("/v1/sessions", {"for": "tenant-a"})]


def test_where_no_browser_starts_the_link_is_printed(opened, monkeypatch, capsys):
    monkeypatch.setattr(command.webbrowser, "open", lambda _url: False)
    assert run() == 1
    assert capsys.readouterr().out == f"{URL}\n"


def test_scripts_get_what_the_api_answered(opened, capsys):
    assert run("--json") == 0
    assert '"expires_ns": 7' in capsys.readouterr().out
    assert opened == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ssh://-oProxyCommand=x", "javascript:1", "-x\x1b"]
)
def test_what_is_no_page_is_not_opened(opened, monkeypatch, capsys, url):
    """Whatever else a desktop would start for it."""
    monkeypatch.setattr(Connection, "post", lambda *_: {"url": url, "expires_ns": 7})
    assert run() == 1
    assert (opened, capsys.readouterr().out) == ([], url.replace("\x1b", "?") + "\n")
