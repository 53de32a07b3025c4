# SPDX-License-Identifier: Apache-2.0
import argparse
import io
import json
import logging
import subprocess
import sys
from importlib import import_module

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from netagent import __version__
from netagent.cli import MODULES, VERBS, RateLimit, configure_logging, main
from netagent.model.errors import CapabilityMissing, ConfigError, Unreachable


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_an_example_in_80_columns(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "example" in text
    assert f"netagent {verb}" in text
    assert all(len(line) < 80 for line in text.splitlines())


def test_the_whole_help_lists_all_verbs(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(verb in text for verb in VERBS)


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"netagent {__version__}\n"


def test_an_unknown_verb_is_misuse(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["fly"])
    assert ended.value.code == 2
    assert "fly" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ConfigError("f", "bad", 3), 2),
        (Unreachable("h1", "refused"), 3),
        (KeyboardInterrupt(), 130),
        (None, 0),
    ],
)
def test_what_ends_a_verb_becomes_an_exit_code(monkeypatch, capsys, raised, code):
    def run(_: argparse.Namespace) -> int:
        if raised is not None:
            raise raised
        return 0

    monkeypatch.setattr(import_module("netagent.commands.check_config"), "run", run)
    assert main(["check-config", "x"]) == code
    if isinstance(raised, Exception):
        assert str(raised) in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["status", "trace", "check", "endpoints", "flows"])
def test_with_json_an_error_is_json_as_well(monkeypatch, capsys, verb):
    def run(_: argparse.Namespace) -> int:
        raise CapabilityMissing("OVSDB", "start it")

    module = import_module(f"netagent.commands.{MODULES.get(verb, verb)}")
    monkeypatch.setattr(module, "run", run)
    words = [verb, *(("drops", "udp") if verb == "trace" else ())]
    text = "OVSDB unavailable: start it"
    assert main([*words, "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": text, "remedy": "start it"}
    assert err == f"netagent: {text}\n"
    assert main(words) == 3
    assert capsys.readouterr() == ("", err)


def test_with_json_an_error_of_a_process_of_its_own_is_json_as_well(tmp_path, capfd):
    packets = tmp_path / "packets"
    packets.touch()
    place = ["--rundir", str(tmp_path)]
    assert main(["flows", "sweep", "br0", str(packets), *place, "--json"]) == 3
    out, err = capfd.readouterr()
    assert "start ovsdb-server" in json.loads(out)["remedy"]
    assert err == f"netagent: {json.loads(out)['error']}\n"


def test_a_reader_that_had_enough_is_no_traceback(tmp_path):
    file = tmp_path / "agent.toml"
    file.write_text('host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:1"\n')
    command = f"{sys.executable} -m netagent check-config {file} | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_a_light_verb_imports_nothing_heavy():
    code = (
        "import sys; from netagent.cli import main; main(['check-config', '/nowhere']);"
        "print([m for m in ('httpx', 'uvicorn', 'pyroute2', 'numpy', 'rich.text')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_agent_s_modules_stay_clear_of_what_is_large():
    code = (
        "import sys; from netagent.cli import main\n"
        "try: main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'scipy', 'rich.text', 'pygments', 'litestar', 'ovs_checks',"
        " 'click', 'uvicorn.supervisors')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_events_are_json_lines_and_libraries_speak_through_them(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(verbose=True)
    structlog.get_logger().info("endpoint_appeared", endpoint="c0/rail0")
    structlog.get_logger().debug("never_seen")
    logging.getLogger("uvicorn.error").warning("Invalid %s", "request")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["endpoint"]) == (
        "endpoint_appeared",
        "info",
        "c0/rail0",
    )
    assert (second["event"], second["text"]) == ("library_logged", "Invalid request")


def test_a_quiet_verb_logs_warnings_only(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(verbose=False)
    structlog.get_logger().info("not_this")
    structlog.get_logger().warning("but_this", path=object())
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["but_this"]


def attempt(limit: RateLimit, event: dict[str, object], now_s: float) -> dict[str, object] | None:
    try:
        return dict(limit.limit(event, now_s=now_s))
    except structlog.DropEvent:
        return None


def test_a_flood_is_cut_and_what_was_dropped_is_told():
    limit = RateLimit()
    flood = [attempt(limit, {"event": "lost"}, 0) for _ in range(50)]
    assert [each for each in flood if each] == [{"event": "lost"}] * limit.BURST
    assert attempt(limit, {"event": "other"}, 0) == {"event": "other"}
    after = attempt(limit, {"event": "lost"}, limit.PERIOD_S)
    assert after == {"event": "lost", "suppressed": 50 - limit.BURST}


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 400)), max_size=300))
def test_log_volume_is_bounded_whatever_the_events_are_called(events):
    limit, now_s, logged = RateLimit(), 0.0, 0
    for after_s, number in events:
        now_s += after_s
        logged += attempt(limit, {"event": f"e{number}"}, now_s) is not None
    assert len(limit._seen) <= limit.EVENTS + 1
    periods = now_s / limit.PERIOD_S + 1
    assert logged <= len(limit._seen) * limit.BURST * (periods + 1)


def test_the_verbs_summaries_are_short_enough_for_the_list():
    assert all(len(summary) < 60 and summary[0].islower() for summary in VERBS.values())
