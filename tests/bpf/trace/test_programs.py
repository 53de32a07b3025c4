# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

import bpf
from bpf.trace.abi import STAGES
from bpf.trace.layout import Layout
from bpf.trace.programs import (
    KINDS,
    PROGRAMS,
    STAGE_PROGRAMS,
    Hook,
    KernelFacts,
    can_run,
    choose,
    counted_stages,
    symbol_of,
    wanted_symbols,
)

FOLDER = Path(bpf.__file__).parent
ABLE = KernelFacts("6.1", wanted_symbols(), True, True, True, Layout({}, has_switch=True))


def test_every_program_has_its_file_and_every_file_its_program():
    assert {path.name for path in FOLDER.glob("*.bpf.c")} == {f"{n}.bpf.c" for n in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_file_says_what_it_is_and_has_the_functions_that_are_hooked(program):
    text = (FOLDER / f"{program.name}.bpf.c").read_text()
    assert text.startswith("/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */")
    for word in ("Hook: ", "Answers: ", "Overhead: ", "Caveats: "):
        assert f" * {word}" in text
    for hook in program.hooks:
        assert f"int {hook.function}(" in text
        assert hook.symbols[0] in text.split("*/")[1]


def test_every_stage_is_counted_by_one_program():
    assert set(STAGE_PROGRAMS) == set(STAGES) - {"dropped"}
    assert set(STAGE_PROGRAMS.values()) <= set(PROGRAMS)
    assert counted_stages(["device_receive", "port_receive"]) == (
        "uplink_receive",
        "port_receive",
        "tunnel_receive",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tunnels_of_geneve_have_hooks_of_their_own(kind):
    programs, refusals = choose(kind, ABLE, "geneve")
    assert [p.name for p in programs] == list(KINDS[kind])
    assert refusals == []
    symbols = {p.name: p.hooks[0].symbols for p in programs}
    if "encapsulate" in symbols:
        assert symbols["encapsulate"] == ("geneve_xmit",)
        assert symbols["decapsulate"] == ("geneve_udp_encap_recv",)
    others = set(symbols) - {"encapsulate", "decapsulate"}
    assert all(symbols[name] == PROGRAMS[name].hooks[0].symbols for name in others)


def test_a_kernel_without_geneve_is_told_how_to_get_it():
    facts = replace(ABLE, symbols=wanted_symbols() - {"geneve_xmit", "geneve_udp_encap_recv"})
    assert choose("path", facts)[1] == []
    _, refusals = choose("path", facts, "geneve")
    assert {each.program for each in refusals} == {"encapsulate", "decapsulate"}
    assert all("modprobe geneve" in each.remedy for each in refusals)


@pytest.mark.parametrize("kind", KINDS)
def test_an_able_kernel_runs_all(kind):
    programs, refusals = choose(kind, ABLE)
    assert [p.name for p in programs] == list(KINDS[kind])
    assert refusals == []


TABLE = {
    "not root": ({"is_privileged": False}, set(PROGRAMS), "CAP_BPF"),
    "no bcc": ({"has_bcc": False}, set(PROGRAMS), "python3-bpfcc"),
    "no BTF": ({"layout": None, "layout_problem": "the kernel has no BTF"}, set(PROGRAMS), "BTF"),
    "no kprobes": (
        {"has_kprobes": False},
        set(PROGRAMS) - {"device_transmit", "device_receive", "drop"},
        "CONFIG_KPROBE_EVENTS",
    ),
    "no VXLAN": (
        {"symbols": wanted_symbols() - {"vxlan_xmit", "vxlan_rcv"}},
        {"encapsulate", "decapsulate"},
        "modprobe vxlan",
    ),
    "no Soft-RoCE": (
        {"symbols": wanted_symbols() - {"rxe_xmit_packet", "rxe_rcv"}},
        {"rxe_transmit", "rxe_receive"},
        "modprobe rdma_rxe",
    ),
    "no module BTF": (
        {"layout": Layout({})},
        {"port_receive", "lookup", "upcall", "execute", "actions", "output"},
        "CONFIG_DEBUG_INFO_BTF_MODULES",
    ),
    "old tracepoints": (
        {"symbols": wanted_symbols() - {"__traceiter_kfree_skb"}},
        {"drop"},
        "kernel 5.10",
    ),
}


@pytest.mark.parametrize(("lack", "refused", "remedy"), TABLE.values(), ids=TABLE)
def test_what_a_kernel_lacks_refuses_just_what_needs_it(lack, refused, remedy):
    facts = replace(ABLE, **lack)
    refusals = {name: can_run(program, facts) for name, program in PROGRAMS.items()}
    assert {name for name, refusal in refusals.items() if refusal} == refused
    for name in refused:
        assert refusals[name].program == name
        assert refusals[name].reason
        assert remedy in refusals[name].remedy


def test_the_newest_name_that_exists_is_taken():
    hook = Hook("kprobe", ("newer", "older"), "on_it")
    assert symbol_of(hook, replace(ABLE, symbols=frozenset({"older"}))) == "older"
    assert symbol_of(hook, replace(ABLE, symbols=frozenset({"older", "newer"}))) == "newer"
    assert symbol_of(hook, replace(ABLE, symbols=frozenset())) is None
    point = Hook("raw_tracepoint", ("kfree_skb",), "on_drop")
    assert symbol_of(point, ABLE) == "kfree_skb"
