# SPDX-License-Identifier: Apache-2.0
"""Which programs there are, what each hooks, and whether a kernel can run it: over facts."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from bpf.trace.layout import Layout

HookKind = Literal["kprobe", "kretprobe", "raw_tracepoint"]


@dataclass(frozen=True, slots=True)
class Hook:
    """A place in the kernel and the function of ours that runs there."""

    kind: HookKind
    symbols: tuple[str, ...]
    """Its kernel symbol's names over time, newest first; the first that exists is used."""

    function: str

    @property
    def evidence(self) -> tuple[str, ...]:
        """Kernel symbols one of which must exist, in the order of `symbols`."""
        if self.kind == "raw_tracepoint":  # the function each tracepoint is called by, since 5.10
            return tuple(f"__traceiter_{name}" for name in self.symbols)
        return self.symbols


@dataclass(frozen=True, slots=True)
class Program:
    """One file of C: `<name>.bpf.c`."""

    name: str
    answers: str
    """What the program shows, for people."""

    hooks: tuple[Hook, ...]
    module: str = ""
    """Kernel module that holds the symbols; empty: the kernel itself."""

    remedy: str = ""
    """How to get that module, in one line."""

    @property
    def needs_kprobes(self) -> bool:
        """Return whether any hook is not a tracepoint."""
        return any(hook.kind != "raw_tracepoint" for hook in self.hooks)


_SWITCH = ("openvswitch", "modprobe openvswitch, and use the kernel datapath")
_TUNNELS = {
    kind: (kind, f"add a {kind} port to the switch, or modprobe {kind}")
    for kind in ("vxlan", "geneve")
}
"""Kernel module and remedy of each kind of tunnel that is traced."""
_RXE = ("rdma_rxe", "modprobe rdma_rxe, if this host is to use Soft-RoCE")


def _kprobe(*symbols: str, function: str) -> tuple[Hook, ...]:
    return (Hook("kprobe", symbols, function),)


def _call(symbol: str, function: str) -> tuple[Hook, ...]:
    both = (("kprobe", function), ("kretprobe", f"{function}_return"))
    return tuple(Hook(kind, (symbol,), name) for kind, name in both)  # type: ignore[arg-type]  # literals above


def _tracepoint(name: str, function: str) -> tuple[Hook, ...]:
    return (Hook("raw_tracepoint", (name,), function),)


PROGRAMS = {
    program.name: program
    for program in (
        Program("port_receive", "packets the datapath gets",
                _kprobe("ovs_vport_receive", function="on_port_receive"), *_SWITCH),
        Program("lookup", "packets looked up in the flow table",
                _kprobe("ovs_dp_process_packet", function="on_lookup"), *_SWITCH),
        Program("upcall", "packets without a flow", _call("ovs_dp_upcall", "on_upcall"), *_SWITCH),
        Program("execute", "packets ovs-vswitchd sends back",
                _call("ovs_packet_cmd_execute", "on_execute"), *_SWITCH),
        Program("actions", "packets whose flow is executed, and flows that drop",
                _kprobe("ovs_execute_actions", function="on_actions"), *_SWITCH),
        Program("output", "packets sent to a port of the switch",
                _kprobe("ovs_vport_send", function="on_output"), *_SWITCH),
        Program("encapsulate", "packets about to be encapsulated",
                _kprobe("vxlan_xmit", function="on_encapsulate"), *_TUNNELS["vxlan"]),
        Program("decapsulate", "packets that reach the tunnel",
                _kprobe("vxlan_rcv", function="on_decapsulate"), *_TUNNELS["vxlan"]),
        Program("device_transmit", "what devices send, outer source ports, RoCE in software",
                _tracepoint("net_dev_start_xmit", "on_device_transmit")),
        Program("device_receive", "what devices receive, outer headers, RoCE in software",
                _tracepoint("netif_receive_skb", "on_device_receive")),
        Program("drop", "packets freed as dropped, where and why",
                _tracepoint("kfree_skb", "on_drop")),
        Program("rxe_transmit", "packets Soft-RoCE sends",
                _kprobe("rxe_xmit_packet", function="on_rxe_transmit"), *_RXE),
        Program("rxe_receive", "packets Soft-RoCE receives",
                _kprobe("rxe_rcv", function="on_rxe_receive"), *_RXE),
    )
}  # fmt: skip
"""Every program by name, for tunnels of VXLAN."""

GENEVE = {
    name: replace(PROGRAMS[name], hooks=_kprobe(symbol, function=function), module="geneve",
                  remedy=_TUNNELS["geneve"][1])
    for name, symbol, function in (
        ("encapsulate", "geneve_xmit", "on_encapsulate"),
        ("decapsulate", "geneve_udp_encap_recv", "on_decapsulate"),
    )
}  # fmt: skip
"""The programs that hook other symbols where the tunnels are Geneve's."""

_STAGE_PROGRAMS = tuple(name for name in PROGRAMS if name != "drop")

KINDS = {
    "path": (*_STAGE_PROGRAMS, "drop"),
    "latency": _STAGE_PROGRAMS,
    "drops": (*_STAGE_PROGRAMS, "drop"),
    "upcalls": ("port_receive", "lookup", "upcall", "execute", "actions"),
}
"""Programs by question. Drops want all stages too: the last one passed is half of the answer."""

STAGE_PROGRAMS = {
    "rxe_transmit": "rxe_transmit",
    "uplink_receive": "device_receive",
    "decapsulate": "decapsulate",
    "port_receive": "port_receive",
    "tunnel_receive": "port_receive",
    "lookup": "lookup",
    "upcall": "upcall",
    "execute": "execute",
    "actions": "actions",
    "output": "output",
    "port_transmit": "device_transmit",
    "encapsulate": "encapsulate",
    "uplink_transmit": "device_transmit",
    "rxe_receive": "rxe_receive",
}
"""The program that counts each stage."""


@dataclass(frozen=True)
class KernelFacts:
    """Facts about this kernel, read by the loader."""

    release: str
    symbols: frozenset[str]
    """Those of `wanted_symbols` that exist."""

    has_kprobes: bool
    has_bcc: bool
    is_privileged: bool
    layout: Layout | None
    layout_problem: str = ""
    """Why there is no layout."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a program cannot run here, and what would help."""

    program: str
    reason: str
    remedy: str


def wanted_symbols() -> frozenset[str]:
    """Return every kernel symbol a program may look for."""
    every = (*PROGRAMS.values(), *GENEVE.values())
    return frozenset(symbol for p in every for hook in p.hooks for symbol in hook.evidence)


def symbol_of(hook: Hook, facts: KernelFacts) -> str | None:
    """Return what `hook` is called on this kernel, or None."""
    named = zip(hook.symbols, hook.evidence, strict=True)
    return next((name for name, evidence in named if evidence in facts.symbols), None)


def can_run(program: Program, facts: KernelFacts) -> Refusal | None:
    """Return why this kernel cannot run `program`, or None if it can."""
    found = _of_host(facts) or _of_program(program, facts)
    return Refusal(program.name, *found) if found else None


def _of_host(facts: KernelFacts) -> tuple[str, str] | None:
    """Return reason and remedy of what no program can do without."""
    if not facts.is_privileged:
        return "no privilege to load programs", "run as root, or with CAP_BPF and CAP_PERFMON"
    if not facts.has_bcc:
        return (
            "bcc is not installed",
            "apt-get install python3-bpfcc, and the headers of this kernel",
        )
    if facts.layout is None:
        return facts.layout_problem, "use a kernel with CONFIG_DEBUG_INFO_BTF"
    return None


def _of_program(program: Program, facts: KernelFacts) -> tuple[str, str] | None:
    if program.needs_kprobes and not facts.has_kprobes:
        remedy = "use a kernel with CONFIG_KPROBE_EVENTS; drops and devices work without"
        return f"kernel {facts.release} has no kprobes", remedy
    for hook in program.hooks:
        if symbol_of(hook, facts) is None:
            remedy = program.remedy or "use kernel 5.10 or newer"
            return f"no {hook.symbols[0]} in kernel {facts.release}", remedy
    if program.module == "openvswitch" and not (facts.layout and facts.layout.has_switch):
        return "no BTF of openvswitch", "use a kernel with CONFIG_DEBUG_INFO_BTF_MODULES"
    return None


def choose(
    kind: str, facts: KernelFacts, tunnel: str = "vxlan"
) -> tuple[list[Program], list[Refusal]]:
    """Return the programs that answer `kind` and run here, and why the others do not."""
    known = PROGRAMS | GENEVE if tunnel == "geneve" else PROGRAMS
    programs = [known[name] for name in KINDS[kind]]
    refusals = {p.name: can_run(p, facts) for p in programs}
    runnable = [p for p in programs if refusals[p.name] is None]
    return runnable, [r for r in refusals.values() if r is not None]


def counted_stages(programs: Iterable[str]) -> tuple[str, ...]:
    """Return the stages that the programs of these names count, in a packet's order."""
    running = frozenset(programs)
    return tuple(stage for stage, program in STAGE_PROGRAMS.items() if program in running)
