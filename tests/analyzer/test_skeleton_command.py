# SPDX-License-Identifier: Apache-2.0
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer import cli
from analyzer.commands import skeleton
from analyzer.simulate.workload import Parallelism, generate
from netagent.model.errors import ConfigError

WORK = generate(Parallelism(4, 4), seed=2)


def arrays(**changes):
    series = WORK.series
    whole = {
        "rate": series.rate, "tick_s": 1.0, "host": series.host, "rail": series.rail,
        "endpoint": np.asarray([f"c{row // 8}/rail{row % 8}" for row in range(len(series))]),
    }  # fmt: skip
    return {name: value for name, value in (whole | changes).items() if value is not None}


@pytest.fixture
def recording(tmp_path):
    def made(**changes):
        path = tmp_path / "series.npz"
        np.savez(path, **arrays(**changes))
        return str(path)

    return made


def test_the_json_has_all_that_is_promised(recording, capsys):
    assert cli.main(["skeleton", recording(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["dp"], told["pp"], told["tp"], told["ep"]) == (4, 4, 8, 1)
    assert told["confident"]
    assert told["confidence"] > 0.8
    assert told["edges"] == WORK.truth.edges.tolist()
    assert sorted(told["groups"]["pp"]) == sorted(WORK.truth.groups["pp"])
    assert {each["size"] for each in told["candidates"]} == {1, 2, 4, 8, 16}
    assert told["reason"] == ""


def test_people_see_names_and_how_much_is_saved(recording, capsys):
    assert cli.main(["skeleton", recording()]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "128 endpoints on 16 hosts, 8 rails, 1200 s of traffic"
    assert lines[1].startswith("DP 4  PP 4  TP 8  EP 1  (confidence ")
    assert "288 pairs, 30.0 % of the basic list's 960" in lines[2]
    assert "  dp  c0/rail0, c4/rail0, c8/rail0, c12/rail0" in lines
    assert max(map(len, lines)) < 80


def test_names_are_optional(recording, capsys):
    cli.main(["skeleton", recording(endpoint=None)])
    assert "  dp  h0/rail0, h4/rail0" in capsys.readouterr().out


def test_what_is_not_certain_is_the_basic_list_with_status_1(recording, capsys):
    path = recording(rate=WORK.series.rate[:, :100])
    assert cli.main(["skeleton", path]) == 1
    said = capsys.readouterr().out
    assert "no skeleton: 100 ticks are too few" in said
    assert "the basic list stays: 960 pairs" in said
    assert cli.main(["skeleton", path, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["confident"]
    assert len(told["edges"]) == 960


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate": None, "rail": None}, "it lacks rate, rail"),
        ({"host": WORK.series.host + 0.5}, "whole numbers"),
        ({"host": np.asarray(["a"] * 128)}, "invalid literal"),
        ({"rate": np.asarray([["x"]])}, "could not convert"),
        ({"tick_s": np.ones(3)}, "only"),
        ({"tick_s": 0.0}, "tick_s is 0.0"),
        ({"endpoint": np.asarray(["a"])}, "1 names for 128 endpoints"),
        ({"rail": WORK.series.rail[:5]}, "rail is not one number for each"),
        ({"endpoint": np.asarray([{}] * 128, dtype=object)}, "allow_pickle=False"),
    ],
)
def test_a_recording_that_cannot_be_used_is_an_error_with_status_2(
    recording, capsys, changes, said
):
    path = recording(**changes)
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
        series = skeleton.load(str(path))
    except ConfigError:
        return
    assert len(series) == 16
