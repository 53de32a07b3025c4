# SPDX-License-Identifier: Apache-2.0
"""``netagent doctor``: what this host can and cannot do, and the remedy for each."""

import argparse
import asyncio
import importlib.util
import json
import textwrap
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bpf.kernel.host import read_facts
from bpf.trace.programs import choose
from netagent.adapters import capabilities
from netagent.adapters.host.board import read_hardware
from netagent.adapters.host.ovn import working_of
from netagent.adapters.host.rnics import RnicReader
from netagent.adapters.host.sysfs import rdma_ports
from netagent.adapters.host.vswitchd import VswitchdError, appctl
from netagent.adapters.rdma.verbs import REMEDY as PYVERBS_REMEDY
from netagent.commands.asking import CONFIG
from netagent.commands.endpoints import first_view, untraced_of
from netagent.config import AgentConfig, load
from netagent.host.checks import inspect
from netagent.host.checks.contract import Checked, Inspected
from netagent.host.facts import HostView
from netagent.model.errors import CapabilityMissing, ConfigError
from netagent.wire.controller import ControllerState, Working

EPILOG = """\
examples:
  netagent doctor --config /etc/netagent/agent.toml
  netagent doctor --json | jq '.[] | select(.state == "missing")'
  netagent doctor --deep         also the board: PCIe, GPUs, MTUs, GIDs, ...

exit status: 0 well; 1 something that the basic job needs is missing, or, with
--deep, something is wrong. What is merely absent costs accuracy or a feature;
the remedy says which. Nothing on the host is changed.
"""

WIDTH = 79
"""Columns of the text. Chosen: a terminal of 80 columns."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the table."""

    capability: str
    state: str
    """`ok`; `missing` what the basic job needs; `absent` what it can do without; of the board also
    `wrong`, and `unknown` where it cannot be told."""
    detail: str
    """What was found, or the remedy."""


Check = Callable[[], str | Awaitable[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--config", default=CONFIG, help="the agent's file (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    deep = "look at the board as well: cards, PCIe, GPUs, memory, MTUs, GIDs"
    parser.add_argument("--deep", action="store_true", help=deep)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; return 1 if something needed is missing."""
    try:
        config, problem = load(arguments.config), ""
    except ConfigError as error:
        config, problem = None, str(error)
    table = asyncio.run(diagnose(config, problem, deep=arguments.deep))
    if arguments.json:
        print(json.dumps([asdict(each) for each in table], indent=2))
    else:
        for each in table:
            show(each)
    return 1 if any(each.state in {"missing", "wrong"} for each in table) else 0


def show(diagnosis: Diagnosis) -> None:
    """Print one line, wrapped below 80 columns."""
    head = f"{diagnosis.capability:18} {diagnosis.state:8} "
    arrow = "" if diagnosis.state == "ok" else "-> "
    text = head + arrow + diagnosis.detail
    indent = " " * len(head)
    print(textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False))


async def diagnose(
    config: AgentConfig | None, problem: str = "", *, deep: bool = False
) -> list[Diagnosis]:
    """Try everything, in the order in which one thing needs another.

    Without a configuration, for the reason `problem`, what needs none.
    """
    view: list[HostView] = []
    needed: dict[str, Check] = {
        "privileges": _privileges,
        "configuration": lambda: _configuration(problem),
        **(_configured(config, view) if config else {}),
        "timestamps": capabilities.timestamps,
        "packet capture": capabilities.packet_socket,
    }
    optional: dict[str, Check] = {
        **({"controller": lambda: _controller(config, view)} if config else {}),
        "clock": capabilities.clock_synchronised,
        "RDMA": _rdma,
    }
    if config is None or config.ovs.integration_bridge:
        optional |= {"eBPF": lambda: _ebpf(view), "kernel datapath": _kernel_datapath}
    if config is not None and config.operators.enabled:
        folder = config.operators.folder
        optional["operators"] = lambda: capabilities.rings(folder)
        if config.operators.uprobes:
            optional["uprobes"] = capabilities.uprobes
    table = [await _try(name, check, needed=True) for name, check in needed.items()]
    table += [await _try(name, check, needed=False) for name, check in optional.items()]
    return table + (_deep(config, view) if deep else [])


def _deep(config: AgentConfig | None, view: list[HostView]) -> list[Diagnosis]:
    """Look at the board, and at what the host states of itself at once."""
    seen = view[0] if view else HostView()
    rdma = RnicReader().read(dict.fromkeys(seen.namespaces.values()), whole=True)
    host = config.host if config else ""
    said = inspect(Inspected(host, seen, read_hardware(seen.rnics), rdma))
    stated = [Diagnosis(f.kind, "wrong", f.text) for f in seen.findings]
    return [*stated, *(Diagnosis(c.check, c.state, _with_remedy(c)) for c in said)]


def _with_remedy(checked: Checked) -> str:
    return f"{checked.text}; {checked.remedy}" if checked.remedy else checked.text


def _configured(config: AgentConfig, view: list[HostView]) -> dict[str, Check]:
    return {
        "state folder": lambda: capabilities.writable(config.state_dir),
        "Open vSwitch": lambda: _vswitchd(config),
        "OVSDB": lambda: _ovsdb(config, view),
        "rails": lambda: _rails(config, view),
        "namespaces": lambda: _namespaces(view),
        **(
            {"certificate": lambda: capabilities.certificate(config, time.time())}
            if config.tls
            else {}
        ),
        "analyzer": lambda: capabilities.analyzer_answers(config),
    }


def _configuration(problem: str) -> str:
    if problem:
        raise CapabilityMissing("configuration", problem)
    return "can be used"


async def _try(name: str, check: Check, *, needed: bool) -> Diagnosis:
    try:
        found = check()
        detail = found if isinstance(found, str) else await found
    except CapabilityMissing as error:
        return Diagnosis(name, "missing" if needed else "absent", error.remedy)
    except ConfigError as error:
        return Diagnosis(name, "missing" if needed else "absent", str(error))
    return Diagnosis(name, "ok", detail)


def _privileges() -> str:
    missing = capabilities.missing_privileges()
    if missing:
        raise CapabilityMissing("privileges", f"run as root, or grant {', '.join(missing)}")
    return ", ".join(capabilities.CAPABILITIES)


async def _vswitchd(config: AgentConfig) -> str:
    if not config.ovs.integration_bridge:
        return "none on this host: ovs.integration_bridge is empty"
    try:
        return (await appctl(Path(config.ovs.rundir), "version")).splitlines()[0]
    except VswitchdError as error:
        remedy = (
            "start ovs-vswitchd, or correct ovs.rundir; without Open vSwitch say "
            f'integration_bridge = "" in [ovs] ({error})'
        )
        raise CapabilityMissing("ovs-vswitchd", remedy) from error


async def _ovsdb(config: AgentConfig, view: list[HostView]) -> str:
    view.append(await first_view(config))
    place = f"{config.ovs.rundir}/db.sock" if config.ovs.integration_bridge else "not asked"
    return f"{place}, {len(view[0].endpoints)} endpoints"


def _seen(view: list[HostView]) -> HostView:
    if not view:
        raise CapabilityMissing("host view", "see OVSDB above")
    return view[0]


def _rails(config: AgentConfig, view: list[HostView]) -> str:
    seen = _seen(view)
    if not config.ovs.integration_bridge and not seen.rnics:
        return "none with a tunnel: ovs.integration_bridge is empty"
    if not seen.uplinks and seen.rnics:
        return f"none with a tunnel; {', '.join(seen.rnics)} carry endpoints; {untraced_of(seen)}"
    if not seen.uplinks:
        odd = "; ".join(finding.text for finding in seen.findings)
        remedy = "give each rail's tunnel port external_ids:rail and options:local_ip"
        raise CapabilityMissing("rails", f"{remedy} ({odd})" if odd else remedy)
    rails = ", ".join(f"{each.rail}: {each.device} {each.address}" for each in seen.uplinks)
    untraced = untraced_of(seen)
    return f"{rails}; {untraced}" if untraced else rails


def _namespaces(view: list[HostView]) -> str:
    seen = _seen(view)
    lost = [str(each.id) for each in seen.endpoints if each.id not in seen.namespaces]
    if lost:
        remedy = f"let the agent see /proc and /run/netns of the host; hidden: {', '.join(lost)}"
        raise CapabilityMissing("namespaces", remedy)
    return f"{len({each.inode for each in seen.namespaces.values()})} containers"


async def _controller(config: AgentConfig, view: list[HostView]) -> str:
    state = _seen(view).controller
    if state is None:
        return "none drives the integration bridge"
    if state.source == config.ovs.driven_by:
        return _pushed(state)
    working, why = await working_of(Path(config.ovs.ovn_rundir))
    if working is not Working.CONNECTED:
        remedy = "see that ovn-controller runs and reaches ovn-remote, or correct ovs.ovn_rundir"
        raise CapabilityMissing("controller", f"{state.source} is {working} ({why}): {remedy}")
    installed = "unknown" if state.generation is None else state.generation
    return f"{state.source} is connected to {state.central} and installed generation {installed}"


def _pushed(state: ControllerState) -> str:
    if state.working is not Working.CONNECTED:
        remedy = "see `ovs-vsctl list controller`, or correct ovs.driven_by"
        raise CapabilityMissing("controller", f"{state.source} is {state.working}: {remedy}")
    return f"{state.source} is connected, and {len(state.ports)} ports are plugged in"


def _rdma() -> str:
    ports = rdma_ports()
    if not ports:
        remedy = "probing uses UDP; load the RNIC's driver to probe by RDMA (docs/rdma.md)"
        raise CapabilityMissing("RDMA", remedy)
    if importlib.util.find_spec("pyverbs") is None:
        raise CapabilityMissing("RDMA", f"probing uses UDP; {PYVERBS_REMEDY}")
    return ", ".join(f"{each.device}/{each.port} {each.state}" for each in ports)


def _ebpf(view: list[HostView]) -> str:
    tunnels = {uplink.encapsulation.kind for seen in view for uplink in seen.uplinks}
    programs, refusals = choose(
        "path", read_facts(), "geneve" if tunnels == {"geneve"} else "vxlan"
    )
    if not programs:
        raise CapabilityMissing("eBPF", f"{refusals[0].remedy} ({refusals[0].reason})")
    lacking = "".join(f"; not {each.program}: {each.reason}" for each in refusals)
    return f"{len(programs)} programs can run{lacking}"


def _kernel_datapath() -> str:
    if not Path("/sys/module/openvswitch").exists():
        raise CapabilityMissing(
            "kernel datapath", "modprobe openvswitch; without it OVS uses its userspace datapath"
        )
    return "openvswitch.ko is loaded"
