# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.declared import MAX_BYTES, DeclaredPorts
from netagent.host.facts import DeclaredFile
from netagent.host.ports import ContainerPort
from netagent.host.sources import Found, Given
from netagent.model.ids import EndpointId

GOOD = {
    "container": "train-a-0",
    "task": "train-a",
    "netns": "/run/netns/train-a-0",
    "rails": {"0": "net1", "1": "net2"},
}


def read(*files: DeclaredFile) -> Found:
    return DeclaredPorts().endpoints(Given(files=files))


def file(name: str = "a.json", **changes: object) -> DeclaredFile:
    return DeclaredFile(name, json.dumps({**GOOD, **changes}).encode())


def port(rail: int, netdev: str) -> ContainerPort:
    return ContainerPort(
        EndpointId("train-a-0", rail), "train-a", netdev, "", "",
        netns="/run/netns/train-a-0", netdev=netdev, bridged=False,
    )  # fmt: skip


def test_a_file_declares_an_interface_on_each_rail():
    assert read(file()) == Found((port(0, "net1"), port(1, "net2")))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "Expecting value"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{\xff", "'utf-8' codec can't decode"),
        (b" " * (MAX_BYTES + 1), f"longer than {MAX_BYTES} bytes"),
        (b"[" * MAX_BYTES, "recursion"),
        (b'{"task": "a", "task": "b"}', "a key is there twice"),
        (b'{"task": "a"}', "missing required field `container`"),
    ],
)
def test_a_file_that_is_none_is_named(text, problem):
    (unusable,) = read(DeclaredFile("b.json", text)).unusable
    assert (unusable.port, unusable.what) == ("b.json", "file")
    assert problem in unusable.text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pod": "x"}, "unknown field `pod`"),
        ({"container": "a b"}, "cannot use container 'a b'"),
        ({"container": 7}, "Expected `str`, got `int`"),
        ({"task": ""}, "cannot use task ''"),
        ({"task": "\ud800"}, "cannot use task '\\ud800'"),
        ({"netns": "run/netns/x"}, "netns 'run/netns/x' is no absolute path"),
        ({"netns": "/run/\ud800"}, "is no absolute path"),
        ({"rails": {}}, "rails name no interface"),
        ({"rails": {"x": "net1"}}, "'x' is no rail"),
        ({"rails": {"256": "net1"}}, "'256' is no rail"),
        ({"rails": {"0": ""}}, "rails name no interface"),
        ({"rails": {"0": "../x"}}, "'../x' is no name of an interface"),
        ({"rails": {"0": "a234567890123456"}}, "is no name of an interface"),
        ({"rails": {"0": "\ud800"}}, "\\ud800"),
        ({"rails": {"0": "net1", "00": "net2"}}, "rail 0 is there twice"),
        ({"\ud800": "x"}, "\\ud800"),
    ],
)
def test_what_is_odd_about_a_file_is_named_and_none_of_it_used(change, problem):
    found = read(file("c.json", **change))
    assert found.ports == ()
    (unusable,) = found.unusable
    assert problem in unusable.text
    unusable.text.encode()


def test_a_file_that_may_not_be_read_says_why():
    found = read(DeclaredFile("a.json", problem="belongs to user 1000, not 0"), file("b.json"))
    assert len(found.ports) == 2
    assert [each.text for each in found.unusable] == ["belongs to user 1000, not 0"]


def test_the_first_of_two_files_that_declare_one_endpoint_holds():
    found = read(file("b.json", rails={"1": "x", "2": "y"}), file("a.json"))
    assert found.ports == (port(0, "net1"), port(1, "net2"))
    ((name, text),) = ((each.port, each.text) for each in found.unusable)
    assert (name, text) == ("b.json", "train-a-0/rail1 is already declared in a.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "x"]), JSON) | JSON)
def test_whatever_json_a_file_holds_it_is_endpoints_or_one_problem(data):
    whole = {**GOOD, **data} if isinstance(data, dict) else data
    for each in (data, whole):
        found = read(DeclaredFile("f.json", json.dumps(each).encode()))
        assert bool(found.ports) != bool(found.unusable)


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [
        ("\udcff.json", "x", "\\udcff.json"),
        ("a\x1b.json", "\x1b[31m", "unknown field `\\x1b[31m`"),
        ("a.json", "k" * 3_000, "..."),
    ],
)
def test_what_is_told_of_a_file_is_text_and_short(name, key, shown):
    (unusable,) = read(file(name, **{key: 1})).unusable
    told = unusable.port + unusable.text
    assert shown in told
    assert told.isprintable()
    assert len(told) < 300


@given(st.binary(max_size=64))
def test_no_bytes_raise(text):
    assert len(read(DeclaredFile("f.json", text)).unusable) == 1
