# SPDX-License-Identifier: Apache-2.0
"""Who is meant, held against a search that looks at every endpoint and every port for each end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent.ends import MOST_LISTED, Directory, Doubt, End, plugged_of
from analyzer.intent.model import Intent, Port
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.wire.controller import ControllerState, PluggedPort
from tests.analyzer.cluster import endpoint

NAMES = st.sampled_from(("a", "b", "c"))
HOSTS = st.sampled_from(("h0", "h1"))
TASKS = st.sampled_from(("t", "u", ""))
MACS = st.sampled_from(("02:00:00:00:00:0A", "02:00:00:00:00:0b"))
ADDRESSES = st.sampled_from(("10.0.0.1", "10.0.0.2", "fd00::1"))
LONG = {"fd00::1": "fd00:0:0::0001"}
PODS = st.sampled_from(("ns/a", "ns/b", ""))


@st.composite
def endpoints(draw):
    made = endpoint(draw(HOSTS), draw(NAMES), draw(st.integers(0, 1)), task=draw(TASKS))
    return replace(
        made, mac=draw(MACS).lower(), address=draw(ADDRESSES),
        port=draw(st.sampled_from(("if0", "if1"))),
    )  # fmt: skip


@st.composite
def ports(draw):
    addresses = draw(st.lists(ADDRESSES, max_size=1))
    return Port(
        draw(st.sampled_from(("p", "q", "r"))), pod=draw(PODS),
        container=draw(st.sampled_from(("a", "b", ""))),
        macs=tuple(draw(st.lists(MACS, max_size=1))),
        addresses=tuple(LONG.get(each, each) for each in addresses),
    )  # fmt: skip


worlds = st.tuples(
    st.lists(endpoints(), max_size=6, unique_by=lambda each: each.id),
    st.lists(st.lists(ports(), max_size=3, unique_by=lambda each: each.name), max_size=2),
    st.dictionaries(
        HOSTS, st.dictionaries(st.sampled_from(("if0", "if1")), st.sampled_from(("p", "q", "x")))
    ),
)
WORDS = {
    "endpoint": ("a/rail0", "b/rail1", "z/rail0"),
    "pod": ("ns/a", "ns/b", "ns/z"),
    "port": ("p", "q", "x", "z"),
    "address": ("10.0.0.1", "10.0.0.2", "fd00::1", "fd00:0:0::1"),
}
ENDS = [
    End(**{way: name}, task=task, rail=rail)
    for way, names in WORDS.items()
    for name in names
    for task, rail in (("", None), ("t", None), ("", 1), ("u", 0))
]


def directory(world):
    known, said, plugged = world
    intents = [Intent("ovn", 1, ports={p.name: p for p in each}) for each in said]
    return Directory(known, intents, plugged)


def naive(world, end):
    """Return the endpoints that an end may stand for."""
    known, said, plugged = world
    short = {long: short for short, long in LONG.items()}

    def is_close(port, each):
        mac, address = [port.macs, each.mac], [port.addresses, each.address]
        fits = all(
            not wanted or has in {short.get(one, one.lower()) for one in wanted}
            for wanted, has in (mac, address)
        )
        if port.container:
            return fits and port.container == each.id.container
        return fits and bool(port.macs)

    def ports_of(each):
        all_ports = [port for intent in said for port in intent]
        here = plugged.get(each.host, {}).get(each.port)
        if here is None:
            close = {
                port.name for port in all_ports
                if is_close(port, each)
            }  # fmt: skip
        else:
            close = {here}
        return close, [port for port in all_ports if port.name in close]

    def is_meant(each):
        names, mine = ports_of(each)
        addresses = {each.address, *(short.get(a, a) for p in mine for a in p.addresses)}
        return (
            (not end.endpoint or end.endpoint == str(each.id))
            and (not end.port or end.port in names)
            and (not end.pod or end.pod in {p.pod for p in mine})
            and (not end.address or {"fd00:0:0::1": "fd00::1"}.get(end.address, end.address)
                 in addresses)
            and end.task in {"", each.task}
            and end.rail in {None, each.id.rail}
        )  # fmt: skip

    return [each.id for each in known if is_meant(each)]


@given(worlds)
def test_an_end_is_the_one_endpoint_that_a_search_of_everything_finds(world):
    known = directory(world)
    for end in ENDS:
        found, meant = known.resolve(end), naive(world, end)
        if len(meant) == 1:
            assert found == meant[0]
        else:
            assert isinstance(found, Doubt)
            assert found.is_unknown == (not meant)
            assert all(f"{each} (" in found.text for each in meant)


@given(worlds)
def test_of_an_endpoint_that_a_doubt_names_the_doubt_is_none(world):
    """Whoever follows the remedy gets there: an id that is listed can be asked for."""
    known = directory(world)
    for found in map(known.resolve, ENDS):
        for each in world[0]:
            if isinstance(found, Doubt) and f"{each.id} (" in found.text:
                assert known.resolve(End(endpoint=str(each.id))) == each.id


# --- what it says ---------------------------------------------------------------------------------

WEB = [replace(endpoint("h0", "web", rail), port=f"web-{rail}") for rail in range(2)]
OTHER = endpoint("h0", "db", task="train-b")
INTENT = Intent("ovn", 1, ports={
    f"ns_web_{n}": Port(f"ns_web_{n}", pod="ns/web", container="web", macs=(each.mac.upper(),))
    for n, each in enumerate(WEB)
} | {"ns_gone": Port("ns_gone", pod="ns/gone")})  # fmt: skip
KNOWN = Directory([*WEB, OTHER], [INTENT])


def doubt(**end):
    found = KNOWN.resolve(End(**end))
    assert isinstance(found, Doubt)
    return found


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({}, "not by nothing"),
        ({"task": "t", "rail": 0}, "not by nothing"),
        ({"pod": "ns/web", "address": "10.0.0.1"}, "not by pod and address"),
        ({"endpoint": "web"}, "'web' is no endpoint"),
        ({"pod": "web"}, "'web' is no pod"),
        ({"pod": "ns/web/0"}, "is no pod"),
        ({"address": "ten"}, "is no address"),
    ],
)
def test_what_names_nothing_is_no_unknown_name(end, words):
    said = doubt(**end)
    assert words in said.text
    assert not said.is_unknown


def test_a_pod_with_several_rails_is_ambiguous_until_one_is_given():
    said = doubt(pod="ns/web")
    assert "is 2 endpoints: web/rail0 (task train-a, host h0), web/rail1" in said.text
    assert "add rail" in said.remedy
    assert KNOWN.resolve(End(pod="ns/web", rail=1)) == EndpointId("web", 1)
    assert KNOWN.resolve(End(port="ns_web_0")) == EndpointId("web", 0)


def test_an_address_that_repeats_needs_its_task():
    assert "is 2 endpoints" in doubt(address=OTHER.address).text
    assert KNOWN.resolve(End(address=OTHER.address, task="train-b")) == OTHER.id


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"pod": "other/web"}, "no pod other/web: known are ns/web"),
        ({"pod": "ns/web", "rail": 3}, "on rail 3: it is web/rail0 (task train-a, host h0), web/"),
        ({"endpoint": "web/rail7"}, "no endpoint web/rail7: known are web/rail0, web/rail1"),
        ({"address": "10.0.0.254"}, f"known are {OTHER.address}"),
        ({"port": "ns_gone"}, "its controller knows port ns_gone, and no host has an endpoint"),
        ({"pod": "ns/gone"}, "its controller knows port ns_gone"),
        ({"port": "zzz"}, "no logical port zzz: no logical port is known like it"),
    ],
)
def test_what_is_unknown_says_what_is_known_nearby(end, words):
    said = doubt(**end)
    assert said.is_unknown
    assert words in said.text


def test_where_no_controller_is_known_no_pod_is():
    said = Directory(WEB).resolve(End(pod="ns/web"))
    assert isinstance(said, Doubt)
    assert said.text == "no pod ns/web: no pod is known"


def test_lists_are_bounded():
    rails = [endpoint("h0", "web", rail) for rail in range(MOST_LISTED + 3)]
    many = Directory(rails, [Intent("ovn", 1, ports={"p": Port("p", "", "ns/web", "web")})])
    said = many.resolve(End(pod="ns/web"))
    assert isinstance(said, Doubt)
    assert said.text.count("(task") == MOST_LISTED
    assert said.text.endswith("and 3 more")


def test_what_a_host_plugged_in_counts_before_what_looks_alike():
    state = ControllerState(source="ovn", ports=(PluggedPort(name="ns_web_1", interface="web-0"),))
    known = Directory(WEB, [INTENT], plugged_of({"h0": state}))
    assert isinstance(known.resolve(End(port="ns_web_0")), Doubt)
    said = known.resolve(End(port="ns_web_1"))
    assert isinstance(said, Doubt)  # the host says so of one, the controller of the other
    assert "2 endpoints" in said.text


def test_the_port_of_an_endpoint_is_known_where_it_is_one():
    assert KNOWN.port_of(WEB[1]) == INTENT.ports["ns_web_1"]
    assert KNOWN.port_of(OTHER) is None
    assert Directory(WEB, [INTENT, INTENT]).port_of(WEB[1]) is None


def test_a_zone_speaks_of_the_endpoints_of_its_own_host():
    """Another one that has a port of that name says nothing of it: not that it is disabled."""
    here = Endpoint(EndpointId("x", 0), "t", "h1", "10.0.0.1", "02:", "u", "rnic0", "br-int", "v")
    mine = Intent("ovn", 1, ports={"p": Port("p", pod="ns/mine")}, zone="h1")
    lie = Intent("ovn", 1, ports={"p": Port("p", pod="ns/lie", is_enabled=False)}, zone="h2")
    known = Directory([here], [lie, mine], {"h1": {"v": "p"}})
    assert known.port_of(here) == mine.ports["p"]
    assert known.resolve(End(pod="ns/mine")) == here.id
    assert isinstance(known.resolve(End(pod="ns/lie")), Doubt)
    assert Directory([here], [lie], {"h1": {"v": "p"}}).port_of(here) is None
