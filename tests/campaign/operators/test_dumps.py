# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.operators.sources.dump import decoded, dump_of
from tests.campaign.operators.dumps import KINDS, VERSIONS, case, tried, written

UNTOLD = {"at work", "the network"}


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("version", VERSIONS[2:])
@pytest.mark.parametrize("kind", sorted(set(KINDS) - UNTOLD))
def test_exactly_who_is_to_blame_is_named(kind, version, as_json):
    each = case(3, kind)
    said = tried(each, version, as_json=as_json, name="_dump_{}")
    assert [frozenset(one["ranks"]) for one in said["culprits"]] == [each.truth]


def test_a_network_that_stands_still_is_named_by_what_a_watchdog_wrote():
    each = case(3, "the network")
    said = tried(each, "2.6", as_json=False, name="nccl_trace_rank_{}")
    assert [frozenset(one["ranks"]) for one in said["culprits"]] == [each.truth]
    assert not said["innocent"]
    assert tried(each, "2.6", as_json=True, name="_dump_{}")["culprits"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_all_versions_are_read(version):
    value = case(3, "cut rings").dumps[0]
    made = dump_of(decoded(written(value, version, as_json=False)))
    assert len(made.entries) == len(value["entries"])
