# SPDX-License-Identifier: Apache-2.0
"""What the lab's commands print for people, under 80 columns. Pure."""

from typing import Any

from tests.lab.catalogue import CATALOGUE, Spec
from tests.lab.shape import Controller
from tests.lab.state import Fault


def welcome(status: dict[str, Any]) -> str:
    """Return where everything is, after `up`."""
    environment = status["environment"]
    curl = [
        f"curl --cacert {environment['NETAGENT_CA']} \\",
        f"  --cert {environment['NETAGENT_CERT']} \\",
        f"  --key {environment['NETAGENT_KEY']} \\",
        f"  {status['analyzer']}/v1/status",
    ]
    other = "fd00:10::11" if status["shape"]["ip"]["overlay"] == 6 else "10.0.0.11"
    lines = [
        status_line(status),
        *_agents(status),
        "",
        "the page: `netagent-analyzer open --print`, with this environment",
        "for the netagent-analyzer commands:",
        *(f"  export {name}={value}" for name, value in environment.items()),
        "for curl:",
        *(f"  {line}" for line in curl),
        "next:",
        "  .venv/bin/python -m tests.lab inject --list",
        "  .venv/bin/python -m tests.lab exec train-a-0 -- \\",
        f"    sh -c 'ping -c3 -I $LAB_RAIL0_INTERFACE {other}'",
    ]
    return "\n".join(lines)


def status(values: dict[str, Any]) -> str:
    """Return what is up, what is injected, and what died."""
    lines = [status_line(values), *_agents(values)]
    lines += [f"{name} {where}" for name, where in values.get("databases", {}).items()]
    tasks: dict[str, list[str]] = {}
    for name in values["containers"]:
        tasks.setdefault(name.rpartition("-")[0], []).append(name)
    lines += [f"task {task}: {' '.join(names)}" for task, names in tasks.items()]
    for task, count in values["traffic"].items():
        lines.append(f"traffic of {task}: {count['sent']} sent, {count['received']} received")
    lines += [f"dead: {name}" for name, pid in values["processes"].items() if pid is None]
    for fault in values["faults"]:
        truth = fault["truth"]
        lines.append(f"fault {fault['key']}: {_truth(truth['layer'], truth['component'])}")
    return "\n".join(lines)


def status_line(values: dict[str, Any]) -> str:
    """Return the sizes in one line."""
    shape = values["shape"]
    other = {"traced", "encapsulation", "ip", "controller", "containers"}
    sizes = ", ".join(f"{count} {name}" for name, count in shape.items() if name not in other)
    untraced = "" if shape["traced"] else ", untraced"
    four = {"overlay": 4, "underlay": 4}
    ip = "" if shape["ip"] == four else ", IPv{overlay} in IPv{underlay}".format(**shape["ip"])
    ovn = f", {shape['encapsulation']} by OVN" if "databases" in values else ""
    count = len(values["containers"])
    made = (
        f"containers by {shape['containers']}" if shape["containers"] != "netns" else "containers"
    )
    return f"lab is up: {sizes}{untraced}{ip}{ovn}, {count} {made}"


def injected(fault: Fault) -> str:
    """Return what was injected and what a verdict should say."""
    numbers = "".join(f" {name}={value:g}" for name, value in fault.parameters.items())
    truth = _truth(fault.truth.layer, fault.truth.component)
    return f"injected {fault.key}{numbers}\ntruth    {truth}"


def _truth(layer: str, component: str) -> str:
    return f"{layer}, {component}" if component else "nobody is at fault"


def catalogue() -> str:
    """Return all faults with their targets and parameters."""
    lines = []
    for spec in CATALOGUE.values():
        options = "".join(
            f" --{name.replace('_', '-')} {value:g}" for name, value in spec.parameters.items()
        )
        lines += [
            f"{spec.name:<20} {spec.summary}",
            f"{'':<20} --target {spec.kind.value}{options}{_where(spec)}",
        ]
    return "\n".join(lines)


def _where(spec: Spec) -> str:
    if spec.is_possible(Controller.NONE):
        return "" if spec.is_possible(Controller.OVN) else "  (not on OVN)"
    return "  (on OVN)"


def catalogue_values() -> list[dict[str, Any]]:
    """Return the catalogue as plain JSON values."""
    return [
        {
            "name": spec.name,
            "summary": spec.summary,
            "target": spec.kind.value,
            "parameters": spec.parameters,
            "controllers": [each for each in Controller if spec.is_possible(each)],
        }
        for spec in CATALOGUE.values()
    ]


def _agents(values: dict[str, Any]) -> list[str]:
    if not values["agents"]:
        return ["no agents, no analyzer (up --no-agents)"]
    agents = ", ".join(f"{host} {url}" for host, url in values["agent_urls"].items())
    shown = agents if len(agents) < 70 else f"{len(values['agent_urls'])} hosts, port 8421"
    return [f"analyzer {values['analyzer']}", f"agents   {shown}"]
