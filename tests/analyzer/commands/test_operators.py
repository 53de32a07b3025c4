# SPDX-License-Identifier: Apache-2.0
import json
import shutil
import sys
from pathlib import Path

import pytest

from analyzer import cli
from analyzer.commands import operators, plot
from analyzer.commands.connection import Connection, Refused
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who, as_json
from analyzer.operators.log import Group, log_of
from netagent.model.errors import CapabilityMissing
from tests.analyzer.operators.sources.jobs import Job
from tests.analyzer.store.test_operations import TEXT

CHAIN = Path(__file__).parents[1] / "operators" / "sources" / "dumps" / "gloo-chain"


def folder(tmp_path, job):
    for name, dump in job.run().dumps().items():
        (tmp_path / name).write_text(json.dumps(dump))
    return str(tmp_path)


def test_a_folder_of_dumps_names_who_holds_the_job_up(capsys):
    assert cli.main(["operators", str(CHAIN)]) == operators.SOMEBODY
    out = capsys.readouterr().out
    assert out.startswith("non-communication hang: rank 3 never came to what 3 ranks wait in\n")
    assert "\nrank 3  0.95        -\n" in out
    assert "\nthe network: innocent, as far as the log shows\n" in out
    assert all(len(line) < 80 for line in out.splitlines())


def test_the_json_is_the_verdict_and_what_it_rests_on(capsys):
    assert cli.main(["operators", str(CHAIN), "--json"]) == operators.SOMEBODY
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == Holdup.HANG_RANK.value
    assert [each["ranks"] for each in said["culprits"]] == [[3]]
    assert (said["source"], said["ranks"], said["operators"]) == ("flight-recorder", 4, 65)
    assert said["innocent"] is True


def test_a_job_that_is_over_is_nobodys_fault(tmp_path, capsys):
    assert cli.main(["operators", folder(tmp_path, Job(2, 1, 1))]) == operators.NOBODY
    assert capsys.readouterr().out.startswith("nothing: ")


def test_where_the_logs_are_missing_it_cannot_tell(tmp_path, capsys):
    path = folder(tmp_path, Job(4, 1, 1, cpu_stops={2: 3}))
    for rank in (1, 2):
        (tmp_path / f"nccl_trace_rank_{rank}").unlink()
    assert cli.main(["operators", path]) == operators.UNCLEAR
    assert "missing: ranks 1, 2: no log" in capsys.readouterr().out


def test_who_writes_in_a_folder_has_no_other_file_read(tmp_path, capsys):
    """As the kernel's log, for whose next line a read waits."""
    made = tmp_path / "dumps"
    made.mkdir()
    path = folder(made, Job(4, 1, 1, cpu_stops={2: 3}))
    assert cli.main(["operators", path]) == operators.SOMEBODY
    before = capsys.readouterr().out
    (made / "nccl_trace_rank_9").symlink_to(made / "nccl_trace_rank_2")
    (made / "more").symlink_to(made)
    assert cli.main(["operators", path]) == operators.SOMEBODY
    assert capsys.readouterr().out == before + "note: 2 links were not followed\n"


def test_folders_in_folders_are_read_however_deep(tmp_path, capsys):
    path, deep = folder(tmp_path, Job(2, 1, 1)), tmp_path
    for _ in range(1100):  # a path has 4096 bytes
        deep /= "d"
        deep.mkdir()
    last = deep / "nccl_trace_rank_2"
    last.write_text("?")
    try:
        assert cli.main(["operators", path]) == operators.NOBODY
        assert "nccl_trace_rank_2 was left out" in " ".join(capsys.readouterr().out.split())
    finally:  # pytest removes nothing that is deeper than Python's stack
        last.unlink()
        while deep != tmp_path:
            deep.rmdir()
            deep = deep.parent


def test_one_file_and_hidden_ones_and_tables(tmp_path, capsys):
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "rank_9").write_text("?")
    (tmp_path / "a.csv").write_text(TEXT)
    for source in (tmp_path, tmp_path / "a.csv"):
        cli.main(["operators", str(source), "--json"])
        said = json.loads(capsys.readouterr().out)
        assert (said["source"], said["operators"]) == ("import", 3)
    assert cli.main(["operators", str(CHAIN / "nccl_trace_rank_3"), "--json"]) == operators.NOBODY
    assert json.loads(capsys.readouterr().out)["ranks"] == 4


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("none", None, "no such file or folder"),
        ("x", b"?", "a file, not of a format that is known (see --help); x: neither a pickle"),
        ("x.csv", b"rank,kind,op,start_us,end_us\n", "no row in it but the columns' names"),
        ("x.parquet", b"rank,kind", "x.parquet is not Parquet: it does not begin with PAR1"),
        ("x.csv", b"a,b\n1,2\n", "no column rank, kind, op, start_us, end_us; there are a, b"),
    ],
)
def test_what_cannot_be_read_is_misuse_and_named(tmp_path, capsys, name, content, reason):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert cli.main(["operators", str(path)]) == 2
    assert f"netagent-analyzer: {path}: {reason}" in capsys.readouterr().err


def test_what_else_is_in_a_folder_is_left_out_and_told(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "hosts.csv").write_text("host,rack\nh1,r2\n")
    (tmp_path / "README").write_text("how it was made")
    (tmp_path / "link").symlink_to(tmp_path / "README")
    log = operators.read(str(tmp_path))
    assert (log.source, len(log)) == ("import", 3)
    assert log.notes[-2:] == (
        "hosts.csv was left out: no column rank, kind, op, start_us, end_us; there are host, rack",
        "1 links were not followed",
    )
    (tmp_path / "hosts.csv").unlink()
    assert "1 files that are no tables were left out: README" in operators.read(str(tmp_path)).notes


def test_a_table_of_something_else_beside_dumps_keeps_none_from_being_read(tmp_path, capsys):
    shutil.copytree(CHAIN, tmp_path / "dumps")
    stray = tmp_path / "dumps" / "hosts.csv"
    stray.write_text("host,rack\nh1,r2\n")
    log = operators.read(str(tmp_path / "dumps"))
    assert (log.source, log.world) == ("flight-recorder", 4)
    assert any(note.startswith("hosts.csv was left out: no column rank") for note in log.notes)
    for dump in stray.parent.glob("nccl_trace_rank_*"):
        dump.write_text("?")
    assert cli.main(["operators", str(stray.parent)]) == 2
    assert "no column rank, kind, op" in capsys.readouterr().err


def test_a_folder_of_links_alone_says_that_they_are_not_followed(tmp_path, capsys):
    (tmp_path / "x_0").symlink_to(CHAIN / "nccl_trace_rank_0")
    assert cli.main(["operators", str(tmp_path)]) == 2
    assert "no file in it but 1 links, which are not followed" in capsys.readouterr().err


def test_an_analyzer_that_refuses_for_now_is_no_task_that_nobody_knows(monkeypatch, capsys):
    class Refusing(Answers):
        def get(self, path, **_):
            raise Refused(503, "busy", "ask again")

    monkeypatch.setattr(operators, "Connection", Refusing)
    assert cli.main(["operators", "train-a"]) == 3
    assert "no such file" not in capsys.readouterr().err


def test_what_an_error_quotes_of_files_is_obeyed_by_no_terminal(tmp_path, capsys):
    (tmp_path / "rank\x1b[31m_0").write_bytes(b"\x1b]0;x")
    assert cli.main(["operators", str(tmp_path)]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_folder_has_not_too_many_files(monkeypatch, capsys):
    monkeypatch.setattr(operators, "MAX_FILES", 3)
    assert cli.main(["operators", str(CHAIN)]) == 2
    assert "more than 3 files" in capsys.readouterr().err


def test_many_files_show_how_far_it_is_at_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(operators, "MANY", 2)
    operators.read(str(CHAIN))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    operators.read(str(CHAIN))
    assert capsys.readouterr().err == (
        "netagent-analyzer: read 2 of 4 files\rnetagent-analyzer: read 4 of 4 files\n"
    )


def test_a_picture_is_drawn(tmp_path, capsys):
    path = tmp_path / "a.png"
    assert cli.main(["operators", str(CHAIN), "--plot", str(path)]) == operators.SOMEBODY
    assert path.read_bytes().startswith(b"\x89PNG")
    table = tmp_path / "a.csv"
    table.write_text(TEXT)
    cli.main(["operators", str(table), "--plot", str(path)])
    assert path.read_bytes().startswith(b"\x89PNG")
    plot.draw_operators(str(path), log_of({"rank": []}), (), "x" * 200)


class Answers(Connection):
    """An analyzer that says one thing."""

    said: dict

    def __init__(self, args):
        self.asked = []

    def get(self, path, **_):
        assert path == "/v1/operators/train-a"
        return self.said

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(
    ("culprits", "status"), [((), operators.NOBODY), (((5,),), operators.SOMEBODY)]
)
def test_of_a_task_the_analyzer_is_asked(monkeypatch, capsys, culprits, status):
    named = tuple(Culprit(Who.RANK, ranks, 0.9, "slow", "h2") for ranks in culprits)
    verdict = Verdict(Holdup.SLOW_RANK, "train-a waits", named)
    Answers.said = {
        "job": "train-a",
        "ranks": [{}] * 8,
        "verdict": {"at_ns": 1, **as_json(verdict)},
    }
    monkeypatch.setattr(operators, "Connection", Answers)
    assert cli.main(["operators", "train-a"]) == status
    out = capsys.readouterr().out
    assert out.startswith("non-communication slow: train-a waits\n  8 ranks, as of ")
    assert ("rank 5" in out) == bool(culprits)
    assert cli.main(["operators", "train-a", "--json"]) == status
    assert json.loads(capsys.readouterr().out) == Answers.said


def test_of_a_task_of_which_nothing_was_found_yet_it_cannot_tell(monkeypatch, capsys):
    Answers.said = {"job": "train-a", "ranks": [{}], "verdict": None}
    monkeypatch.setattr(operators, "Connection", Answers)
    assert cli.main(["operators", "train-a"]) == operators.UNCLEAR
    assert capsys.readouterr().out == "1 ranks are heard of, and nothing was found yet\n"
    assert cli.main(["operators", "train-a", "--plot", "x.png"]) == 2


def test_of_each_rank_the_last_operators_are_drawn(monkeypatch):
    monkeypatch.setattr(plot, "OPERATORS_SHOWN", 4)
    rank = [1, 0, 1, 1, 0, 0, 0]
    log = log_of({"rank": rank, "started_ns": range(7), "ended_ns": range(1, 8)})
    assert plot._last_of_each(log).tolist() == [5, 6, 2, 3]


def test_without_matplotlib_a_picture_is_misuse(monkeypatch, capsys):
    def draw(*_):
        raise CapabilityMissing("drawing", plot.REMEDY)

    monkeypatch.setattr(operators, "draw_operators", draw)
    assert cli.main(["operators", str(CHAIN), "--plot", "x.png"]) == 2
    assert plot.REMEDY in capsys.readouterr().err


def test_the_report_is_bounded_and_obeys_no_file(capsys):
    kinds = (Who.RANK, Who.EDGE, Who.GROUP, Who.HOST)
    culprits = tuple(
        Culprit(kinds[n % 4], (n, n + 1, 2, 3, 4, 5), 0.5, f"why {n}") for n in range(12)
    )
    verdict = Verdict(
        Holdup.HANG_COMMUNICATION, "s" * 100, culprits, innocent=False, iterations=3,
        evidence=tuple(f"e{n}" for n in range(7)),
    )  # fmt: skip
    log = log_of({"rank": [0]}, groups=(Group("\x1b[2J"),), silent=(1,), unseen=(2,), world=3)
    lines = list(operators.report(log, verdict))
    assert all(len(line) < 80 for line in lines)
    assert "and 2 more, in --json" in lines
    assert "evidence: 2 more, in --json" in lines
    assert "the network: it may be the cause" in lines
    text = " ".join(" ".join(lines).split())
    assert "1 operators of 3 ranks, 1 without a log, 1 with an empty log over 3" in text
    assert "from rank 1 to 2" in text
    assert "the group of 2, 3, 2, 3 and 2 more" in text
