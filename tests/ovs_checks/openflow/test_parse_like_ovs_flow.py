# SPDX-License-Identifier: Apache-2.0
"""The parser of the PyPI package `ovs` as an oracle, for the flows that it can read."""

import importlib.util
import re

import pytest
from hypothesis import given

from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.notation import encode
from ovs_checks.openflow.parse import parse_flow
from tests.conftest import Capability, require
from tests.ovs_checks.pipelines import pipelines

OVS_FLOW = Capability(
    "ovs.flow",
    "pip install 'ovs[flow]>=3.5'",
    lambda: all(map(importlib.util.find_spec, ("ovs", "netaddr", "pyparsing"))),
)


@pytest.fixture(scope="module")
def ofp():
    require(OVS_FLOW)
    return importlib.import_module("ovs.flow.ofp")


def test_our_fields_are_those_of_the_library(ofp):
    """Same names, same aliases, same widths where the library knows them."""
    module = importlib.import_module("ovs.flow.ofp_fields")
    ours_alone = {name for name in FIELDS if name not in module.field_decoders}
    assert len(ours_alone - {name for name in ours_alone if name.isupper()}) < 20
    for name, field in FIELDS.items():
        if name.isupper():
            alias = module.field_aliases.get(name)
            assert alias is None or FIELDS.get(alias, field) is field, name
        elif name not in ours_alone:
            size = getattr(module.field_decoders[name], "size", None)
            assert size in {None, field.width} or name in {"vlan_vid", "ipv6_label", "tcp_flags"}, (
                name
            )


_FLOW = r"(priority=\d+),(cookie=\w+),(table=\d+),?([^ ]*) (actions=.*)"


@given(pipelines())
def test_matches_and_counts_of_actions_agree(ofp, flows):
    for text in flows:
        priority, cookie, table, match, actions = re.fullmatch(_FLOW, text).groups()
        info, rest = f"{cookie}, {table}", f"{priority},{match} {actions}"
        ours, theirs = parse_flow(f"{info}, {rest}"), ofp.OFPFlow(f"{info}, {rest}")
        assert not ours.match.unknown
        assert len(ours.actions) == len(theirs.actions)
        for term in ours.match.terms:
            value = theirs.match.get(term.field)
            if hasattr(value, "value") and hasattr(value, "mask"):
                assert (value.value & value.mask, value.mask) == (term.value, term.mask)
            elif isinstance(value, int) and not isinstance(value, bool):
                field = FIELDS[term.field]
                assert encode(field, value & field.bits, field.bits) == encode(
                    field, term.value, term.mask
                )
