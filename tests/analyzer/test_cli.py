# SPDX-License-Identifier: Apache-2.0
"""The commands, against a stand-in that answers with canned JSON."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from analyzer import cli
from analyzer.commands import (
    connection,
    diagnose,
    endpoints,
    incidents,
    show,
    tasks,
    watch,
)
from netagent.terminal import PIPE

ROOT = Path(__file__).parents[2]

FLOW = (
    "cookie=0x2a, table=40, n_packets=1204, n_bytes=98110, priority=200,reg0=0x3e9,"
    "nw_dst=10.0.0.11 actions=drop"
)

INCIDENT = {
    "id": "i1a2b-77",
    "state": "confirmed",
    "component": "flow h0/br-int/table=40",
    "layer": "overlay",
    "symptom": "unconnectivity",
    "confidence": 0.97,
    "summary": "h0 drops what train-a-0 sends to train-a-1: a flow of table 40 says drop",
    "detected_ns": 1795154400_100_000_000,
    "localized_ns": 1795154402_600_000_000,
    "updated_ns": 1795154405_000_000_000,
    "recovered_ns": None,
    "tasks": ["train-a"],
    "failing": [
        {"source": f"train-a-{n}/rail0", "target": "train-a-1/rail0", "sent": 50, "lost": 50}
        for n in range(12)
    ],
    "healthy": [{"source": "train-a-0/rail1", "target": "train-a-1/rail1", "sent": 50, "lost": 0}],
    "alternatives": [
        {
            "component": "switch spine-0",
            "layer": "underlay",
            "score": 0.31,
            "lost": 50,
            "crossed": 400,
        }
    ],
    "evidence": [FLOW],
    "missing": ["the flow tables of h1: agent h1: timeout"],
    "notes": ["12:00:05 confirmed by a second window"],
}

DIAGNOSIS = {
    "source": "train-a-0/rail0",
    "target": "train-a-1/rail0",
    "outcome": "dropped",
    "component": "flow h0/br-int/table=40",
    "layer": "overlay",
    "text": "table 40 of br-int on h0 drops the packet",
    "tree": [
        {"text": "h0: train-a-0-r0 enters br-int", "children": [{"text": FLOW, "children": []}]},
        {"text": "h1: not reached"},
    ],
}


CAPACITY = {
    "rnics": 256, "takes": 2304, "by": "memory", "missing": "", "over_s": 290.0,
    "stored_bytes_per_s": 12_000, "history_s": 7200,
    "resources": [
        {"name": "memory", "used": 1 << 30, "limit": 9 << 30, "unit": "bytes", "takes": 2304},
        {"name": "judging", "used": 0.07, "limit": 0.7, "unit": "cores", "takes": 2560},
    ],
}  # fmt: skip


@pytest.fixture
def canned(monkeypatch):
    """Answers by path (a list: one after the other); the requests that came in."""
    answers, asked = {}, []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append((self.command, self.path, body))
            status, answer = answers.get(path, (404, {"error": "no such thing", "remedy": "look"}))
            if isinstance(answer, list):
                answer = answer.pop(0) if answer else None
            if answer is None:
                self.close_connection = True
                return
            text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815 - as http.server names it

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.asked = answers, asked
    for name in ("NETAGENT_CA", "NETAGENT_CERT", "NETAGENT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETAGENT_ANALYZER_URL", f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fits(lines):
    lines = list(lines)
    assert all(len(line) < 80 for line in lines), [line for line in lines if len(line) > 79]
    return "\n".join(lines)


# --- what people read -----------------------------------------------------------------------------


def test_an_incident_is_shown_with_verdict_evidence_and_what_else_it_might_be():
    text = fits(show.report(INCIDENT, pairs=8))
    for words in (
        "incident i1a2b-77: confirmed, unconnectivity",
        "flow h0/br-int/table=40  (layer overlay, confidence 0.970)",
        "detected   2026-11-20 06:00:00.100Z",
        "localized  2026-11-20 06:00:02.600Z  (+2.5 s)",
        "failing pairs (12)",
        "train-a-0/rail0 -> train-a-1/rail0  lost 50 of 50",
        "and 4 more; --pairs 12 prints them",
        "healthy pairs next to it (1)",
        "0.31  50/400  switch spine-0",
        "missing evidence",
        "timeout",
        "confirmed by a second window",
    ):
        assert words in text
    assert "recovered " not in text
    assert FLOW.replace(" ", "") in text.replace("\n", "").replace(" ", "")


def test_an_incident_without_a_component_says_insufficient_evidence():
    bare = {**INCIDENT, "component": None, "layer": None, "recovered_ns": 1795154409_100_000_000}
    bare |= {key: [] for key in ("failing", "healthy", "alternatives", "evidence", "missing")}
    text = fits(show.report(bare, pairs=8))
    assert "insufficient evidence  (layer unknown" in text
    assert "(+9.0 s)" in text
    assert "failing pairs" not in text


def test_an_incident_that_was_told_late_says_by_how_much():
    assert "late " not in fits(show.report(INCIDENT, pairs=8))
    deep = [" " * 2 * level + f"br-int/table={level}: actions=drop" for level in range(40)]
    walk = fits(show.report({**INCIDENT, "evidence": deep}, pairs=8)).splitlines()
    assert "  - br-int/table=0: actions=drop" in walk
    assert "  - " + " " * show.DEEP + "br-int/table=39: actions=drop" in walk
    late = fits(show.report(INCIDENT | {"late_ns": 4_200_000_000}, pairs=8))
    assert "told 4.2 s late: the judge was behind" in late


def test_an_incident_that_is_not_stored_says_so_everywhere():
    event = {"seq": 1, "event": "opened", "incident": INCIDENT}
    for stored in (True, False):
        incident = INCIDENT | {"stored": stored}
        for lines in (
            show.report(incident, pairs=8),
            watch.report(event | {"incident": incident}),
            incidents.report([incident]),
        ):
            assert ("the analyzer's disk refuses" in fits(lines)) is not stored


def test_what_is_wrong_with_the_analyzer_itself_is_told_with_its_incidents(
    canned, capsys, monkeypatch
):
    wrong = ["its disk refuses what it is given: No space left on device"]
    text = fits(incidents.report([], wrong))
    assert text.splitlines() == ["no incidents", f"the analyzer itself: {wrong[0]}"]
    canned.answers["/v1/incidents"] = (200, {"incidents": [], "warnings": wrong})
    assert cli.main(["incidents"]) == 0
    assert cli.main(["incidents", "--check"]) == 1
    monkeypatch.setattr(watch, "RETRY_S", 0.001)
    canned.answers["/v1/incidents/events"] = (
        200,
        [
            {"next": 5, "events": [], "warnings": []},
            {"next": 5, "events": [], "warnings": wrong},
            {"next": 5, "events": [], "warnings": wrong},
            {"next": 5, "events": [], "warnings": []},
            b"[]",
        ],
    )
    capsys.readouterr()
    assert cli.main(["watch"]) != 0  # the last answer is none: it ends
    said = capsys.readouterr().err
    assert said.count(wrong[0]) == said.count("well again") == 1


def test_incidents_endpoints_and_tasks_are_tables_that_fit():
    assert "i1a2b-77  confirmed  06:00:00   overlay  0.97" in fits(incidents.report([INCIDENT] * 2))
    later_ns = INCIDENT["detected_ns"] + 86400 * 10**9
    of_yesterday = fits(incidents.report([INCIDENT], now_ns=later_ns)).splitlines()[1]
    assert of_yesterday.split()[2:4] == ["11-20", "06:00"]
    masked = {**INCIDENT, "component": "rnic h0/rnic0", "symptom": "masked"}
    assert "rnic h0/rnic0 (masked)" in fits(incidents.report([masked]))
    assert fits(incidents.report([])) == "no incidents"
    port = "controller port train.a.rail0_train-a_train-a-1"  # its end is what tells it apart
    assert fits(incidents.report([{**INCIDENT, "component": port}])).splitlines()[-1] == f"  {port}"
    assert "no tasks" in fits(tasks.report([]))
    task = {"id": "train-a", "declared": True, "containers": ["a"] * 4, "rails": [0, 1]}
    task |= {"endpoints_expected": 8, "endpoints_registered": 7, "list": "basic"}
    assert "train-a  declared  4           0,1    7/8" in fits(tasks.report([task]))
    endpoint = {"id": "a0/rail0", "state": "gone", "host": "h0", "rnic": "rnic0", "task": ""}
    endpoint |= {
        "address": "10.0.0.10",
        "bridge": "br-int",
        "since_ns": 1,
        "deregistered_ns": INCIDENT["detected_ns"],
    }
    conflict = {"wall_ns": 1, "endpoint": "a0/rail0", "winner": "h1", "loser": "h0"}
    text = fits(endpoints.report({"endpoints": [endpoint], "conflicts": [conflict]}))
    assert "a0/rail0  gone   06:00:00   h0    rnic0  10.0.0.10  -" in text
    assert "claimed by h1 while h0 still had it" in text
    assert "not traced" not in text
    bare = [{**endpoint, "id": f"a{n}/rail0", "bridge": ""} for n in range(4)]
    text = fits(endpoints.report({"endpoints": [endpoint, *bare], "conflicts": []}))
    assert " ".join(text.split()).endswith(
        "a0/rail0, a1/rail0, a2/rail0 and 1 more: paths are not traced, since no virtual switch "
        "carries them"
    )
    assert fits(endpoints.report({"endpoints": [], "conflicts": []})) == "no endpoints registered"


def test_incidents_are_of_a_task_and_since_when_as_people_write_it(canned, capsys):
    mine = INCIDENT | {"tasks": ["train-a"]}
    canned.answers["/v1/incidents"] = (200, {"incidents": [mine]})
    assert cli.main(["incidents", "--task", "train-a", "--since", "2h"]) == 0
    assert "i1a2b-77" in capsys.readouterr().out
    (since,) = [path.partition("since=")[2] for _, path, _ in canned.asked]
    assert abs(int(since) + 2 * 3600 * 10**9 - time.time_ns()) < 60 * 10**9
    canned.answers["/v1/tasks/train-b"] = (200, {"id": "train-b"})
    assert cli.main(["incidents", "--task", "train-b"]) == 0
    assert capsys.readouterr().out == "no incidents\n"
    assert cli.main(["incidents", "--task", "trian-a"]) == 2
    assert "--task: no such thing" in capsys.readouterr().err
    assert cli.main(["incidents", "--since", "soon"]) == 2
    assert "'soon' is no instant; write 2h" in capsys.readouterr().err


def test_who_of_a_task_cannot_probe_each_other_is_told_once():
    one = {"state": "up", "host": "h0", "rnic": "rnic0", "task": "t", "rail": 0, "since_ns": 1}
    one |= {"id": "a0/rail0", "address": "10.0.0.10", "bridge": "br-int", "deregistered_ns": None}
    six = {**one, "address": "fd00::10"}
    alone = [{**six, "rail": 1}, {**six, "task": "u"}, {**six, "state": "gone"}]

    def report(*ends):
        return fits(endpoints.report({"endpoints": list(ends), "conflicts": []}))

    assert report(one, one, *alone).count("others IPv6") == 0
    text = report(one, one, *alone, six, six)
    assert text.count("others IPv6") == text.count("\nt rail 0: some endpoints have IPv4") == 1


def test_what_stands_beside_an_incident_is_shown_as_no_evidence():
    remark = "its firmware 28.36 differs from 511 of 512 RNICs of the same model, which have 28.39"
    text = fits(show.report({**INCIDENT, "remarks": [remark]}, pairs=8))
    assert "besides, now (no evidence)\n  - its firmware 28.36 differs" in text
    for older in ({**INCIDENT, "remarks": []}, INCIDENT):
        assert "besides" not in fits(show.report(older, pairs=8))


def test_an_incident_says_where_its_runbook_is_and_what_people_say_of_it():
    said = {"by": "", "wall_ns": INCIDENT["detected_ns"], "right": False, "note": "x" * 90}
    words = [said | {"component": "host h1"}, said | {"by": "ada", "right": True, "component": ""}]
    pages = "https://wiki.example/" + "n" * 80 + "/flow-loses.md"
    text = fits(show.report({**INCIDENT, "runbook": pages, "feedback": words}, pairs=8))
    assert pages in "".join(text.split())
    assert "  - wrong, somebody said 2026-11-20 06:00:00Z; at fault was host h1:" in text
    assert "  - right, ada said 2026-11-20 06:00:00Z:" in text
    assert "runbook" not in fits(show.report(INCIDENT, pairs=8))  # of an earlier analyzer


def test_states_are_coloured_where_that_is_asked_for(canned, capsys):
    canned.answers["/v1/incidents"] = (200, {"incidents": [INCIDENT]})
    canned.answers["/v1/incidents/i1a2b-77"] = (200, INCIDENT)
    for words in (["incidents"], ["show", "i1a2b-77"]):
        assert cli.main(words) == 0
        assert "\x1b" not in capsys.readouterr().out
        assert cli.main([*words, "--color", "always"]) == 0
        assert "\x1b[31mconfirmed\x1b[0m" in capsys.readouterr().out


def test_capacity_fails_where_no_more_fits(canned, capsys):
    for takes, status in ((2304, 0), (256, 1), (None, 1)):
        canned.answers["/v1/capacity"] = (200, {**CAPACITY, "takes": takes})
        assert cli.main(["capacity"]) == status


def test_a_diagnosis_is_a_tree():
    lines = list(diagnose.report(DIAGNOSIS))
    fits(lines)
    assert lines[:3] == [
        "train-a-0/rail0 -> train-a-1/rail0",
        "|- h0: train-a-0-r0 enters br-int",
        "|  `- cookie=0x2a, table=40, n_packets=1204, n_bytes=98110, priority=200,",
    ]
    assert "`- h1: not reached" in lines
    assert "dropped at flow h0/br-int/table=40 (overlay)" in lines


def test_events_are_one_line_and_what_it_means():
    text = fits(watch.report({"event": "opened", "incident": INCIDENT}))
    assert text.startswith("06:00:05Z opened     flow h0/br-int/table=40  (overlay, 0.970)\n")
    over = {**INCIDENT, "recovered_ns": INCIDENT["detected_ns"] + 21 * 10**9}
    assert "after 21.0 s" in fits(watch.report({"event": "recovered", "incident": over}))


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "path", "answer"),
    [
        (["tasks"], "/v1/tasks", {"tasks": []}),
        (["endpoints"], "/v1/endpoints", {"endpoints": [], "conflicts": []}),
        (["incidents"], "/v1/incidents", {"incidents": [INCIDENT]}),
        (["capacity"], "/v1/capacity", CAPACITY),
        (["uniformity"], "/v1/uniformity", {"hosts": 0, "agents": 2, "properties": []}),
        (["show", "i1a2b-77"], "/v1/incidents/i1a2b-77", INCIDENT),
        (["diagnose", "a/rail0", "b/rail0"], "/v1/diagnose", DIAGNOSIS),
    ],
)
def test_json_is_what_the_api_answered(canned, capsys, argv, path, answer):
    canned.answers[path] = (200, answer)
    cli.main([*argv, "--json"])
    assert json.loads(capsys.readouterr().out) == answer
    cli.main(argv)
    assert capsys.readouterr().out
    assert [request[1] for request in canned.asked] == [path] * 2


def test_filters_are_passed_on(canned, capsys):
    canned.answers["/v1/endpoints"] = (200, {"endpoints": [], "conflicts": []})
    canned.answers["/v1/incidents"] = (200, {"incidents": []})
    cli.main(["endpoints", "--task", "t", "--host", "h", "--all"])
    cli.main(["incidents", "--state", "active", "--since", "5"])
    assert [request[1] for request in canned.asked] == [
        "/v1/endpoints?task=t&host=h&vanished=true",
        "/v1/incidents?state=active&since=5",
    ]


def test_a_list_is_read_to_its_last_page(canned, capsys):
    second = {**INCIDENT, "id": "i2"}
    canned.answers["/v1/incidents"] = (200, [
        {"incidents": [INCIDENT], "next": "i1a2b-77"},
        {"incidents": [second], "next": None},
    ])  # fmt: skip
    cli.main(["incidents", "--json"])
    assert json.loads(capsys.readouterr().out) == {"incidents": [INCIDENT, second]}
    assert canned.asked[1][1] == "/v1/incidents?after=i1a2b-77"


def test_exit_statuses_tell_what_the_answer_was(canned, capsys):
    canned.answers["/v1/incidents"] = (200, {"incidents": [INCIDENT]})
    assert cli.main(["incidents"]) == 0
    assert cli.main(["incidents", "--check"]) == 1
    over, masked = {**INCIDENT, "state": "recovered"}, {**INCIDENT, "symptom": "masked"}
    canned.answers["/v1/incidents"] = (200, {"incidents": [over, masked]})
    assert cli.main(["incidents", "--check"]) == 0
    canned.answers["/v1/diagnose"] = (200, DIAGNOSIS)
    assert cli.main(["diagnose", "a/rail0", "b/rail0"]) == 1
    canned.answers["/v1/diagnose"] = (200, {**DIAGNOSIS, "outcome": "delivered"})
    assert cli.main(["diagnose", "a/rail0", "b/rail0"]) == 0
    pair = {"source": "a/rail0", "target": "b/rail0"}
    assert json.loads(canned.asked[-1][2]) == pair  # an older analyzer knows no more
    assert cli.main(["diagnose", "a/rail0", "b/rail0", "--layers"]) == 0
    assert json.loads(canned.asked[-1][2]) == {**pair, "layers": True}
    assert cli.main(["show", "nothing"]) == 1
    assert "no such thing; look" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [
        (403, {"error": "no", "remedy": "ask"}, 2),
        (500, {"error": "bug", "remedy": "log"}, 3),
        (200, b"<html>", 2),
        (502, b"bad gateway", 3),
    ],
)
def test_refusals_and_strangers_are_told_apart(canned, capsys, status, answer, expected):
    canned.answers["/v1/tasks"] = (status, answer)
    assert cli.main(["tasks"]) == expected
    assert capsys.readouterr().err.startswith("netagent-analyzer: ")


def test_an_analyzer_that_is_not_there_is_status_3(capsys, monkeypatch):
    monkeypatch.delenv("NETAGENT_CA", raising=False)
    assert cli.main(["tasks", "--url", "http://127.0.0.1:1"]) == 3
    assert "Connection refused" in capsys.readouterr().err
    assert cli.main(["watch", "--url", "http://127.0.0.1:1"]) == 3


def test_whoever_names_no_analyzer_is_told_which_was_asked_and_how_to_name_one(capsys, monkeypatch):
    monkeypatch.delenv("NETAGENT_ANALYZER_URL", raising=False)
    monkeypatch.setattr(connection, "DEFAULT_URL", "http://127.0.0.1:1")
    for verb in ("tasks", "watch"):
        assert cli.main([verb]) == 3
        said = capsys.readouterr().err
        assert "http://127.0.0.1:1: " in said
        assert "Connection refused" in said
        assert "--url or NETAGENT_ANALYZER_URL names another analyzer" in said
    assert cli.main(["tasks", "--url", "http://127.0.0.1:1"]) == 3
    assert "NETAGENT_ANALYZER_URL" not in capsys.readouterr().err


def test_tls_files_come_together_and_exist(capsys):
    argv = ["tasks", "--url", "https://127.0.0.1:1", "--ca", "/none.pem"]
    assert cli.main(argv) == 2
    assert "--ca needs --cert, --key too" in capsys.readouterr().err
    assert cli.main([*argv, "--cert", "/none.pem", "--key", "/none.key"]) == 2
    assert "/none.pem" in capsys.readouterr().err


def test_watch_prints_what_is_open_then_each_event_until_interrupted(canned, capsys, monkeypatch):
    monkeypatch.setattr(watch, "RETRY_S", 0.001)

    def recover():
        raise KeyboardInterrupt

    opened = {"seq": 7, "event": "opened", "incident": INCIDENT}
    canned.answers["/v1/incidents"] = (200, {"incidents": [INCIDENT]})
    canned.answers["/v1/incidents/events"] = (
        200,
        [
            {"next": 5, "events": []},
            {"next": 6, "events": []},
            None,  # the analyzer restarts
            {"next": 7, "events": [opened]},
            {"next": 8, "events": [{**opened, "event": "stop"}]},
        ],
    )
    report = watch.report
    monkeypatch.setattr(
        watch, "report", lambda event: report(event) if event["event"] != "stop" else recover()
    )
    assert cli.main(["watch"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines() if line[0] != " "] == [
        "confirmed",
        "opened",
    ]
    assert "trying again" in printed.err
    after = [
        path.rpartition("after=")[2].partition("&")[0]
        for _, path, _ in canned.asked
        if "after=" in path
    ]
    assert after == ["5", "6", "6", "7"]


@pytest.mark.parametrize(
    ("words", "status", "error", "remedy"),
    [
        (["show", "i1"], 1, "no such thing; look", "look"),
        (["ca", "revoke", "h0"], 1, "no such thing; look", "look"),
        (["incidents", "--url", "odd"], 2, "--url: 'odd' is no URL such as", ""),
        (["check-config", "/nowhere"], 2, "", ""),
        (["replay", "/nowhere"], 2, "/nowhere: cannot be read", ""),
        (["ca", "list", "--state", "/nowhere"], 2, "no authority is here", ""),
    ],
)
@pytest.mark.usefixtures("canned")
def test_with_json_an_error_is_json_as_well(capsys, words, status, error, remedy):
    assert cli.main([*words, "--json"]) == status
    said = json.loads(capsys.readouterr().out)
    assert error in said["error"]
    assert said.get("remedy") == remedy


def test_watch_as_json_is_one_line_per_event(canned, capsys, monkeypatch):
    canned.answers["/v1/incidents"] = (200, {"incidents": [INCIDENT]})
    canned.answers["/v1/incidents/events"] = (200, [{"next": 5, "events": []}, b"[]"])
    assert cli.main(["watch", "--json"]) != 0  # the second answer is none: it ends
    line, error = map(json.loads, capsys.readouterr().out.splitlines())
    assert line["incident"] == INCIDENT
    assert error["remedy"] == "is this an analyzer's URL?"


# --- the program ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [[], *([name] for name in cli.VERBS)])
def test_help_has_examples_and_exit_statuses_and_fits(capsys, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        cli.main([*verb, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    fits(text.splitlines())
    assert "examples:" in text
    assert "exit status: 0" in text


def test_usage_errors_are_status_2(capsys):
    for argv in ([], ["nothing"], ["show"], ["incidents", "--state", "odd"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(argv)
        assert caught.value.code == 2


def test_a_reader_that_goes_away_ends_a_command_quietly(canned):
    canned.answers["/v1/incidents"] = (200, {"incidents": [INCIDENT] * 5000})
    command = subprocess.Popen(
        [sys.executable, "-m", "analyzer.cli", "incidents"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with command:
        command.stdout.readline()
        command.stdout.close()
        errors = command.stderr.read()
    assert command.returncode == PIPE
    assert errors == b""


@pytest.mark.parametrize(
    ("verb", "lacks", "words"),
    [
        ("serve", "duckdb", ["serve", "--config", "x"]),
        ("replay", "numpy", ["replay", "x"]),
        ("skeleton", "scipy", ["skeleton", "x.npz"]),
    ],
)
def test_a_verb_whose_needs_are_not_installed_says_so_and_how_to_mend_it(verb, lacks, words):
    code = (
        f"import sys; sys.modules[{lacks!r}] = None; from analyzer import cli; sys.exit(cli.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"netagent-analyzer: {verb} (it needs {lacks}")
    assert "pip install 'netagent[analyzer]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["bogus", "http://", "ftp://a", "https:// a"])
def test_what_is_no_url_is_misuse(url, capsys):
    assert cli.main(["incidents", "--url", url]) == 2
    assert "is no URL such as" in capsys.readouterr().err
