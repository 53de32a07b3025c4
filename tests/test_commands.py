# SPDX-License-Identifier: Apache-2.0
"""All verbs of both programs are alike: statuses, errors, help (docs/cli.md)."""

import argparse
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

import analyzer.cli
import netagent.cli
from netagent.model.errors import (
    CapabilityMissing,
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    TooSoon,
    Unreachable,
)

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "cli.md").read_text()
PROGRAMS = {"netagent": netagent.cli, "netagent-analyzer": analyzer.cli}
EVERY = [(program, verb) for program, cli in PROGRAMS.items() for verb in cli.VERBS]
NEEDED = {
    ("netagent", "enroll"): ["--analyzer", "https://a:1", "--token", "a.b"],
    ("netagent", "path"): ["a/rail0", "b/rail0"],
    ("netagent", "probe"): ["a/rail0", "b/rail0"],
    ("netagent", "trace"): ["drops", "udp"],
    ("netagent-analyzer", "show"): ["i1"],
    ("netagent-analyzer", "feedback"): ["i1", "right"],
    ("netagent-analyzer", "declare"): ["t"],
    ("netagent-analyzer", "diagnose"): ["a/rail0", "b/rail0"],
    ("netagent-analyzer", "innocent"): ["t"],
    ("netagent-analyzer", "slurm"): ["prolog"],
    ("netagent-analyzer", "export"): ["--since", "1h", "-o", "folder"],
    ("netagent-analyzer", "record"): ["-o", "file"],
    ("netagent-analyzer", "replay"): ["file"],
    ("netagent-analyzer", "localize"): ["file"],
    ("netagent-analyzer", "skeleton"): ["t"],
    ("netagent-analyzer", "operators"): ["f"],
    ("netagent-analyzer", "restore"): ["folder", "--config", "file"],
    ("netagent-analyzer", "ca"): ["list", "--state", "folder"],
    ("netagent-analyzer", "invite"): ["h0"],
    ("netagent-analyzer", "serve"): ["--config", "file"],
    ("netagent-analyzer", "completion"): ["bash"],
}
ERRORS = [
    (ConfigError("a.toml", "odd", 3), 2),
    (Unreachable("h1", "refused"), 3),
    (CapabilityMissing("eBPF", "use another kernel"), 3),
    (TooSoon("h1", "ask again"), 3),
    (RemoteProtocolError("no answer of ours"), 3),
    (LocalProtocolError("a bug"), 3),
]


def words_of(program, verb):
    return [verb, *NEEDED.get((program, verb), ())]


def verb_parser(program, verb):
    top = PROGRAMS[program].parser([verb])
    (choices,) = (a.choices for a in top._actions if isinstance(a, argparse._SubParsersAction))
    return choices[verb]


def statuses(program, verb):
    """Return what a verb's help says of its exit statuses."""
    epilog = verb_parser(program, verb).epilog or ""
    [told] = re.findall(r"^exit status: ((?:.|\n)+?)(?:\n\n|\Z)", epilog, re.MULTILINE)
    return told


@pytest.mark.parametrize(("program", "verb"), EVERY)
def test_a_verb_says_in_its_help_what_its_statuses_mean(program, verb):
    told = statuses(program, verb)
    numbers = {int(each) for each in re.findall(r"(?:^|[ ;,])([0-9])(?=[ ;,\n.]|$)", told)}
    assert 0 in numbers, told
    assert numbers <= {0, 1, 2, 3, 4}
    assert all(len(line) < 80 for line in told.splitlines())


@pytest.mark.parametrize(("program", "verb"), EVERY)
def test_errors_end_a_verb_alike_and_are_json_where_that_is_asked_for(
    program, verb, monkeypatch, capsys
):
    cli = PROGRAMS[program]
    where = {"netagent": "netagent.commands", "netagent-analyzer": "analyzer.commands"}[program]
    renamed = getattr(cli, "MODULES", {}).get(verb, verb.replace("-", "_"))
    module = import_module(f"{where}.{renamed}")
    for error, status in ERRORS:

        def run(_, error=error):
            raise error

        monkeypatch.setattr(module, "run", run)
        words = words_of(program, verb)
        assert cli.main(words) == status
        out, err = capsys.readouterr()
        assert (out, err) == ("", f"{program}: {error}\n")
        assert cli.main([*words, "--json"]) == status
        out, err = capsys.readouterr()
        assert err == f"{program}: {error}\n"
        told = json.loads(out)
        assert set(told) == {"error", "remedy"}
        assert told["error"] == str(error)


@pytest.mark.parametrize(("program", "verb"), EVERY)
def test_what_cannot_be_parsed_is_misuse_and_json_where_that_is_asked_for(program, verb, capsys):
    for words in ([verb, "--no-such-option"], [verb, "--no-such-option", "--json"]):
        with pytest.raises(SystemExit) as caught:
            PROGRAMS[program].main(words)
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        nested = verb_parser(program, verb)._subparsers is not None
        assert nested or f"{program} {verb}: error: " in err
        assert (set(json.loads(out)) if out else None) == (
            {"error", "remedy"} if "--json" in words else None
        )


def test_the_page_lists_every_verb_with_all_of_its_statuses():
    for program, verb in EVERY:
        told = " ".join(statuses(program, verb).split())
        assert f"\n| `{program} {verb}` | {PROGRAMS[program].VERBS[verb]} | {told} |\n" in PAGE
    listed = re.findall(r"^\| `(netagent[a-z-]*) ([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(EVERY)


@pytest.mark.parametrize(("program", "verb"), EVERY)
def test_a_verb_has_only_options_that_mean_the_same_everywhere(program, verb):
    actions = {o: a for a in verb_parser(program, verb)._actions for o in a.option_strings}
    assert isinstance(actions["--json"], argparse._StoreTrueAction)
    if "--color" in actions:
        assert actions["--color"].choices == ("auto", "always", "never")


def test_both_programs_check_a_file_alike(tmp_path, capsys):
    good = {
        "netagent": 'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:8420"\n',
        "netagent-analyzer": 'listen = "127.0.0.1:8420"\n',
    }
    for program, cli in PROGRAMS.items():
        file = tmp_path / f"{program}.toml"
        file.write_text(good[program])
        assert cli.main(["check-config", str(file)]) == 0
        assert capsys.readouterr().out.startswith(f"{file}: ok")
        assert cli.main(["check-config", "--config", str(file), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["ok"], told["file"]) == (True, str(file))
        file.write_text("\nodd = 1\n")
        assert cli.main(["check-config", str(file)]) == 2
        assert f"{program}: {file}:2: " in capsys.readouterr().err
        assert cli.main(["check-config", str(file), "--json"]) == 2
        told = json.loads(capsys.readouterr().out)
        assert set(told) == {"ok", "file", "line", "error", "remedy"}
        assert (told["ok"], told["file"], told["line"]) == (False, str(file), 2)
