# SPDX-License-Identifier: Apache-2.0
"""What the command says of RNICs and hosts, made of what the analyzer's room says of some."""

import argparse

import pytest

from analyzer.commands import uniformity
from analyzer.intake.inventory import parts_of
from analyzer.roster.uniformity import Uniformity
from analyzer.server.views import compared
from netagent.wire.inventory import Inventory, RnicInventory
from tests.analyzer.test_cli import fits

NOW_NS = 1_800_000_000 * 10**9
OLD, NEW = "28.36.1010", "28.39.1002"


def host(firmware=OLD, mtu=9000, mbps=400_000, model="15b3:1021", kernel="6.1.0-56-amd64"):
    rnics = (
        RnicInventory(netdev=f"rnic{n}", model=model, firmware=firmware, mtu=mtu, mbps=mbps)
        for n in range(2)
    )
    return Inventory(rnics=tuple(rnics), kernel=kernel)


def answer_of(*rounds):
    """Return the answer after hosts said what they have, one time after the other."""
    book = Uniformity()
    for number, hosts in enumerate(rounds):
        now_ns = NOW_NS + number * 10**9
        for name, inventory in hosts.items():
            book.take(name, now_ns, parts_of(name, inventory), now_ns)
    told = [compared(each) for each in book.compared()]
    return {"hosts": book.hosts, "agents": book.hosts + 2, "properties": told}


def cluster(number=20, **fields):
    return {f"h{n:03d}": host(**fields) for n in range(number)}


def test_where_all_are_alike_that_is_all_that_is_said():
    text = fits(uniformity.report(answer_of(cluster())))
    assert text.splitlines() == [
        "20 of 22 agents say what their hosts have",
        "4 properties compared: 4 alike everywhere",
        "",
        "RNICs 15b3:1021: 40 in 20 hosts",
        "  alike: MTU 9000, firmware 28.36.1010, speed 400 Gb/s",
        "",
        "hosts with 15b3:1021: 20",
        "  alike: kernel 6.1.0-56-amd64",
    ]


def test_who_differs_and_a_rollout_and_what_cannot_be_told_are_told_apart():
    hosts = cluster(100)
    hosts |= {f"h{n:03d}": host(mbps=200_000) for n in range(50)}
    hosts |= {"h007": host(mtu=1500, mbps=200_000), "x": host(model="m", kernel="")}
    later = {f"h{n:03d}": host(firmware=NEW, mbps=200_000) for n in range(8, 45)}
    text = fits(uniformity.report(answer_of(hosts, later)))
    assert "1 alike everywhere, 1 not, 1 in a rollout, " in text
    for words in (
        "RNICs 15b3:1021: 200 in 100 hosts\n",
        "  MTU: 198 have 9000, but 2 not\n    h007 (2 RNICs)  1500\n",
        "  firmware: 126 have 28.36.1010, 74 have 28.39.1002: a rollout, 37 hosts turned\n",
        "  speed: cannot tell: 100 have 200 Gb/s, 100 have 400 Gb/s\n",
        "cannot tell of models that too few hosts have: m",
    ):
        assert words in text, text


def test_an_rnic_that_differs_alone_is_named():
    odd = (RnicInventory(netdev=f"rnic{n}", model="15b3:1021", mtu=9000 - n) for n in range(2))
    hosts = cluster() | {"h007": Inventory(rnics=tuple(odd))}
    text = fits(uniformity.report(answer_of(hosts)))
    assert "  MTU: 39 have 9000, but 1 not\n    h007/rnic1  8999\n" in text


def test_many_that_differ_and_long_names_fit_on_a_screen():
    odd = {"a" * 60 + str(n): host(firmware=f"{n:02d}" * 32) for n in range(12)}
    few = {f"f{n}": host(model=f"{n}" * 60) for n in range(9)}
    text = fits(uniformity.report(answer_of(cluster(200) | odd | few)))
    assert "    and 8 more; --json lists 24\n" in text
    assert "and 5 more" in text
    assert fits(uniformity.report(answer_of({}))) == "0 of 2 agents say what their hosts have"


@pytest.mark.parametrize(
    ("hosts", "status"),
    [(cluster(), 0), (cluster() | {"odd": host(mtu=1500)}, 1), (cluster(5), 0), ({}, 0)],
)
def test_the_status_says_whether_anybody_differs(monkeypatch, capsys, hosts, status):
    class Canned:
        def __init__(self, _):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def all(self, path, name):
            assert (path, name) == ("/v1/uniformity", "properties")
            return answer_of(hosts)

    monkeypatch.setattr(uniformity, "Connection", Canned)
    assert uniformity.run(argparse.Namespace(json=False)) == status
    assert capsys.readouterr().out
