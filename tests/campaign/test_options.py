# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.simulate.clos import Clos
from analyzer.simulate.failures import TABLE
from tests.campaign.options import Options, judges, read


def test_nothing_said_is_the_default():
    options, manner = read([])
    assert options == Options()
    assert (options.among, options.noise.loss) == (TABLE, Options().loss)
    assert (manner.output, manner.resume) == (None, False)


def test_what_is_said_is_kept():
    options, manner = read(["--types", "1,20", "--same", "8", "--hosts", "64", "--jobs", "3"])
    assert (options.among, options.same, options.rnics, manner.jobs) == ((1, 20), 8, 512, 3)


def test_larger_fabrics_have_more_spines_and_three_tiers_have_pods():
    assert Options(hosts=256).shape.spines > Options().shape.spines


@pytest.mark.parametrize("hosts", [32, 64, 256])
def test_a_core_is_above_more_than_two_pods(hosts):
    clos = Clos(Options(hosts=hosts, tiers=3).shape)
    below = {a for a, b in clos.links if b == "core-0-0"} | {
        b for a, b in clos.links if a == "core-0-0"
    }
    assert below == {f"agg-p{pod}-0" for pod in range(4)}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--types", "1,99"], "no type 99"),
        (["--types", "crc"], "numbers, as 1,2,4"),
        (["--hosts", "33"], "a multiple of 8"),
        (["--hosts", "8"], "twice at least"),
        (["--resume"], "--resume needs --output"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as stopped:
        read(arguments)
    assert stopped.value.code == 2
    assert complaint in capsys.readouterr().err


def test_options_that_differ_are_named_with_both_values():
    assert Options(hosts=64).unlike(Options()) == ["hosts: 32 there, 64 here"]
    assert Options().unlike(Options()) == []


@pytest.mark.parametrize(
    ("seed", "is_judging"),
    [(999_999, False), (1_000_000, True), (1_999_999, True), (2_000_000, False),
     (8_999_999, False), (9_000_000, True), (90_000_000, True)],
)  # fmt: skip
def test_seeds_that_rules_were_made_of_judge_nothing(seed, is_judging):
    assert judges(seed) is is_judging
    assert judges(Options().seed)
