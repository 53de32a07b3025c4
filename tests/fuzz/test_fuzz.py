# SPDX-License-Identifier: Apache-2.0
"""The fuzzer itself, and a second of it."""

import json
import random
import sys

import pytest

from netagent.model.errors import RemoteProtocolError
from tests.fuzz import __main__ as fuzz


def test_only_what_nobody_documents_is_a_crash():
    def refuses(text):
        raise RemoteProtocolError(text)

    assert fuzz.crashed(len, "x") is None
    assert fuzz.crashed(refuses, "x") is None
    where = fuzz.crashed(lambda text: {}[text], "x")
    assert where.startswith("test_fuzz.py:")
    assert where.endswith("KeyError('x')")


def test_the_same_seed_does_the_same_damage():
    corpus = fuzz.seeds()
    first, again = ([fuzz.damaged(random.Random(7), corpus) for _ in range(20)] for _ in range(2))
    assert first == again
    assert max(map(len, first)) <= fuzz.MAX_CHARACTERS


@pytest.mark.parametrize(("reader", "code"), [(len, 0), (lambda text: {}[text], 1)])
def test_a_crash_is_kept_and_is_the_exit_status(reader, code, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fuzz, "READERS", {"one": reader})
    monkeypatch.setattr(fuzz, "CRASHES", tmp_path)
    monkeypatch.setattr(fuzz, "MAX_CRASHES", 2)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--minutes", "0.002"])
    assert fuzz.main() == code
    told = capsys.readouterr()
    assert json.loads(told.out)["fuzz"]["one"] > 0
    assert len(list(tmp_path.iterdir())) == len(told.err.splitlines()) // 2 == 2 * code


def test_a_second_of_fuzzing_finds_no_crash(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fuzz", "--minutes", "0.017", "--seed", "11"])
    assert fuzz.main() == 0
    assert set(json.loads(capsys.readouterr().out)["fuzz"]) == set(fuzz.READERS)
