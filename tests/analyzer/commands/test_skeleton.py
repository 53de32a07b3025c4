# SPDX-License-Identifier: Apache-2.0
import io
import json
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer import cli
from analyzer.commands.skeleton import _followed
from analyzer.simulate.workload import generate
from analyzer.skeleton import recording
from netagent.model.errors import ConfigError
from netagent.model.task import Parallelism

WORK = generate(Parallelism(4, 4), seed=2)


def arrays(**changes):
    series = WORK.series
    whole = {
        "rate": series.rate, "tick_s": 1.0, "host": series.host, "rail": series.rail,
        "endpoint": np.asarray([f"c{row // 8}/rail{row % 8}" for row in range(len(series))]),
    }  # fmt: skip
    return {name: value for name, value in (whole | changes).items() if value is not None}


@pytest.fixture
def recorded(tmp_path):
    def made(**changes):
        path = tmp_path / "series.npz"
        np.savez(path, **arrays(**changes))
        return str(path)

    return made


def test_the_json_has_all_that_is_promised(recorded, capsys):
    assert cli.main(["skeleton", recorded(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["dp"], told["pp"], told["tp"], told["ep"]) == (4, 4, 8, 1)
    assert told["confident"]
    assert told["confidence"] > 0.8
    assert told["edges"] == WORK.truth.edges.tolist()
    assert sorted(told["groups"]["pp"]) == sorted(WORK.truth.groups["pp"])
    assert {each["size"] for each in told["candidates"]} == {1, 2, 4, 8, 16}
    assert told["reason"] == ""


def test_people_see_names_and_how_much_is_saved(recorded, capsys):
    assert cli.main(["skeleton", recorded()]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "128 endpoints on 16 hosts, 8 rails, 1200 s of traffic"
    assert lines[1].startswith("DP 4  PP 4  TP 8  EP 1  (confidence ")
    assert "288 pairs, 30.0 % of the basic list's 960" in lines[2]
    assert "  dp  c0/rail0, c4/rail0, c8/rail0, c12/rail0" in lines
    assert max(map(len, lines)) < 80


def test_hosts_in_no_order_have_a_superset_that_people_are_told_as_one(recorded, capsys):
    work = generate(Parallelism(4, 8), seed=2)
    series = work.series
    changes = {
        "rate": series.rate, "host": series.host * 7 % 32, "rail": series.rail, "endpoint": None,
        "ordered": False,
    }  # fmt: skip
    assert cli.main(["skeleton", recorded(**changes)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("a superset: 8 stages of 4 positions  (confidence ")
    assert "but all pairs between stages that follow each other: nobody says in which" in lines[3]
    assert sum(line.startswith("  stage  ") for line in lines) == 5
    assert max(map(len, lines)) < 80
    cli.main(["skeleton", recorded(**changes), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["superset"]
    assert set(told["groups"]) == {"stage"}


def test_two_containers_of_a_host_are_recorded_and_read_again(recorded):
    changes = {"host": WORK.series.host // 2, "container": WORK.series.host}
    series = recording.load(recorded(**changes))
    assert series.ordered
    again = recording.unpack(recording.pack(replace(series, ordered=False)))
    assert not again.ordered
    assert np.array_equal(again.container, WORK.series.host)
    assert recording.unpack(recording.pack(WORK.series)).container.size == 0


def test_names_are_optional(recorded, capsys):
    cli.main(["skeleton", recorded(endpoint=None)])
    assert "  dp  h0/rail0, h4/rail0" in capsys.readouterr().out


def test_what_is_not_certain_is_the_basic_list_with_status_1(recorded, capsys):
    path = recorded(rate=WORK.series.rate[:, :100])
    assert cli.main(["skeleton", path]) == 1
    said = capsys.readouterr().out
    assert "no skeleton: 100 ticks are too few" in said
    assert "by this alone the basic list would be probed: 960 pairs" in said
    assert cli.main(["skeleton", path, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["confident"]
    assert len(told["edges"]) == 960


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate": None, "rail": None}, "it lacks rate, rail"),
        ({"host": WORK.series.host + 0.5}, "host holds more than whole numbers"),
        ({"host": WORK.series.host + np.nan}, "host holds more than whole numbers"),
        ({"host": np.asarray(["a"] * 128)}, "host holds no numbers"),
        ({"rate": np.asarray([["x"]])}, "rate holds no numbers"),
        ({"rate": WORK.series.rate + 1j}, "rate holds no numbers"),
        ({"rate": np.empty((0, 1200))}, "rate is empty"),
        ({"rate": np.empty((128, 0))}, "rate is empty"),
        ({"tick_s": np.ones(3)}, "tick_s is not one number"),
        ({"tick_s": 0.0}, "tick_s is 0.0"),
        ({"endpoint": np.asarray(["a"])}, "1 names for 128 endpoints"),
        ({"rail": WORK.series.rail[:5]}, "rail is not one number for each"),
        ({"endpoint": np.asarray([{}] * 128, dtype=object)}, "allow_pickle=False"),
    ],
)
def test_a_recording_that_cannot_be_used_is_an_error_with_status_2(recorded, capsys, changes, said):
    path = recorded(**changes)
    assert cli.main(["skeleton", path]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"netagent-analyzer: {path}: ")
    assert said in error


def test_a_file_that_is_not_there_is_an_error(capsys):
    assert cli.main(["skeleton", "/nowhere/series.npz"]) == 2
    assert "No such file" in capsys.readouterr().err


def whole_file():
    file = io.BytesIO()
    small = generate(Parallelism(2, 1), seed=1, ticks=20).series
    np.savez(file, rate=small.rate, tick_s=1.0, host=small.host, rail=small.rail)
    return file.getvalue()


@settings(max_examples=200)
@given(st.data())
def test_damaged_files_are_errors_or_recordings(tmp_path_factory, data):
    whole = bytearray(whole_file())
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    try:
        series = recording.load(str(path))
    except ConfigError:
        return
    assert len(series) == 16


# --- of a task ------------------------------------------------------------------------------------

FOLLOWED = {
    "task": "train/a", "list": "skeleton", "version": 3, "since_ns": 1795154400 * 10**9,
    "reason": "", "pairs": 288,
}  # fmt: skip


@pytest.fixture
def analyzer():
    """Yield the URL of a stand-in that knows one task, and what it is asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            known = {
                "/v1/tasks/train%2Fa": b'{"id": "train/a", "parallelism": null}',
                "/v1/tasks/train%2Fa/skeleton": json.dumps(FOLLOWED).encode(),
                "/v1/tasks/train%2Fa/traffic": recording.pack(WORK.series),
                "/v1/tasks/train%2Fa/traffic?tick_ms=1000": recording.pack(WORK.series),
            }
            body = known.get(self.path)
            self.send_response(200 if body else 404)
            self.end_headers()
            self.wfile.write(body or b'{"error": "no task", "remedy": "see tasks"}')

        def log_message(self, *_):
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    serving.join()
    server.server_close()


def test_it_is_told_whether_operators_state_what_is_probed():
    (line,) = _followed(FOLLOWED | {"source": "operators"})
    assert line.endswith("288 pairs, as its operators state")


def test_a_task_is_asked_of_the_analyzer(analyzer, capsys, tmp_path):
    url, asked = analyzer
    saved = str(tmp_path / "kept.npz")
    argv = ["skeleton", "train/a", "--url", url, "--save", saved, "--tick-ms", "1000"]
    assert cli.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "probed along its skeleton since 06:00:00 UTC, 288 pairs"
    assert lines[1] == "what its traffic shows now:"
    assert lines[3].startswith("DP 4  PP 4  TP 8  EP 1")
    assert asked[-1].endswith("?tick_ms=1000")
    assert cli.main(["skeleton", saved]) == 0
    assert capsys.readouterr().out.splitlines() == lines[2:]


def test_the_json_of_a_task_says_what_is_probed(analyzer, capsys):
    assert cli.main(["skeleton", "train/a", "--url", analyzer[0], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["list"] == FOLLOWED | {"parallelism": None}
    assert told["edges"] == WORK.truth.edges.tolist()


def test_a_task_that_nobody_knows_and_an_analyzer_that_is_away(analyzer, capsys):
    assert cli.main(["skeleton", "train-x", "--url", analyzer[0]]) == 1
    assert "no task; see tasks" in capsys.readouterr().err
    assert cli.main(["skeleton", "train-x", "--url", "http://127.0.0.1:1"]) == 3


# --- pictures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ticks", [1200, 100])
def test_a_picture_is_drawn_also_without_a_skeleton(recorded, tmp_path, ticks):
    path = tmp_path / "picture.png"
    cli.main(["skeleton", recorded(rate=WORK.series.rate[:, :ticks]), "--plot", str(path)])
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 10_000


def test_a_picture_that_cannot_be_written_is_an_error(recorded, capsys):
    assert cli.main(["skeleton", recorded(), "--plot", "/nowhere/picture.png"]) == 2
    assert "/nowhere/picture.png: cannot be written" in capsys.readouterr().err


def test_without_matplotlib_the_remedy_is_named(recorded, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["skeleton", recorded(), "--plot", "picture.png"]) == 2
    assert "pip install" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [["--save", "kept.npz"], ["--tick-ms", "100"]],
)
def test_what_is_for_tasks_is_refused_for_a_recording(recorded, argv, capsys):
    assert cli.main(["skeleton", recorded(), *argv]) == 2
    assert "for a task" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[""], ["train-a", "--tick-ms", "-100"]])
def test_a_task_that_can_be_none_is_not_asked_for(argv, capsys):
    assert cli.main(["skeleton", *argv, "--url", "http://127.0.0.1:1"]) == 2


def test_names_cannot_write_to_the_terminal(recorded, capsys):
    names = np.asarray([f"\x1b[31mred{row}\n" for row in range(128)])
    cli.main(["skeleton", recorded(endpoint=names)])
    assert "\x1b" not in capsys.readouterr().out
