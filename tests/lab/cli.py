# SPDX-License-Identifier: Apache-2.0
"""The lab's command line: arguments in, a `Lab` method, a line or JSON out.

Exit codes: 0 done, 1 the lab could not (the reason and a remedy on stderr), 2 wrong usage;
`exec` exits as its command does.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab import (
    alerting,
    away,
    chaos,
    demo,
    drill,
    health,
    healthy_job,
    learning,
    operators,
    rdma,
    report,
    soak,
    starts,
    webhooks,
)  # fmt: skip
from tests.lab.catalogue import CATALOGUE
from tests.lab.errors import LabError
from tests.lab.faults import LISTED
from tests.lab.lab import Bursts, Lab
from tests.lab.shape import (
    IPV4,
    Controller,
    Runtime,
    Shape,
    Transport,
    Tunnel,
    Versions,
    host_number,
)
from tests.lab.state import Fault
from tests.lab.workload import DEFAULT_TASKS

_EXAMPLES = """\
examples:
  .venv/bin/python -m tests.lab up            4 hosts, 2 rails, agents, 2 tasks
  .venv/bin/python -m tests.lab up --no-agents --hosts 2 --rails 1 --segments 1
  .venv/bin/python -m tests.lab inject link-loss --percent 10
  .venv/bin/python -m tests.lab exec h0 -- ovs-ofctl dump-flows br-int
  .venv/bin/python -m tests.lab exec train-a-0 -- \\
    sh -c 'ping -I $LAB_RAIL0_INTERFACE 10.0.0.12'
  .venv/bin/python -m tests.lab heal
  .venv/bin/python -m tests.lab down
"""

Answer = tuple[Any, str]
"""What a command has to say: as JSON values, and for people."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    options = _parser().parse_args(argv)
    lab = Lab(progress=_progress)
    try:
        if options.verb == "exec":
            return lab.exec(options.namespace, *_command(options))
        values, text = options.answer(lab, options)
    except LabError as error:
        _complain(error, as_json=options.json)
        return 1
    print(json.dumps(values, indent=1) if options.json else text)
    return 1 if options.verb == "down" and values["left"] else 0


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _complain(error: LabError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": error.problem, "remedy": error.remedy}))
    print(f"error: {error.problem}", file=sys.stderr)
    if error.remedy:
        print(f"remedy: {error.remedy}", file=sys.stderr)


# --- commands ----------------------------------------------------------------------------------


def _up(lab: Lab, options: argparse.Namespace) -> Answer:
    ip, controller = Versions(options.overlay, options.underlay), Controller(options.controller)
    containers = Runtime(options.containers)
    without = ip != IPV4 or controller is Controller.OVN or containers is Runtime.PODMAN
    unasked = options.transport == rdma.AUTO and without
    transport = Transport.UDP if unasked else rdma.choose(options.transport)
    sizes = options.hosts, options.rails, options.segments, options.spines
    shape = Shape(
        *sizes, transport, traced=not options.untraced,
        encapsulation=Tunnel(options.encapsulation or controller.encapsulation), ip=ip,
        controller=controller, containers=containers,
    )  # fmt: skip
    traffic = None if options.no_traffic else Bursts(options.period_s, options.duty)
    tasks = [task for task in options.tasks.split(",") if task]
    lab.up(shape, agents=not options.no_agents, tasks=tasks, traffic=traffic)
    status = lab.status()
    return status, report.welcome(status)


def _status(lab: Lab, _options: argparse.Namespace) -> Answer:
    status = lab.status()
    return status, report.status(status)


def _start_task(lab: Lab, options: argparse.Namespace) -> Answer:
    hosts = options.hosts and [host_number(name) for name in options.hosts.split(",")]
    started = lab.start_task(
        options.task, hosts=hosts, seed=options.seed, spread_s=options.spread_s
    )
    names = [container.id for container in started]
    return {"task": options.task, "containers": names}, f"started {' '.join(names)}"


def _stop_container(lab: Lab, options: argparse.Namespace) -> Answer:
    lab.stop_container(options.container)
    return {"stopped": options.container}, f"stopped {options.container}"


def _start_container(lab: Lab, options: argparse.Namespace) -> Answer:
    lab.start_container(options.container)
    return {"started": options.container}, f"started {options.container}"


def _restart(lab: Lab, options: argparse.Namespace) -> Answer:
    lab.restart(options.what, options.host)
    name = " ".join(filter(None, (options.what, options.host)))
    return {"restarted": name}, f"restarted {name}"


def _inject(lab: Lab, options: argparse.Namespace) -> Answer:
    if options.list:
        return report.catalogue_values(), report.catalogue()
    if options.fault is None:
        raise LabError("no fault given", LISTED)
    given = {name: getattr(options, name) for name in _parameters()}
    parameters = {name: value for name, value in given.items() if value is not None}
    fault = lab.inject(options.fault, options.target, **parameters)
    return _fault_values(fault), report.injected(fault)


def _heal(lab: Lab, options: argparse.Namespace) -> Answer:
    healed = lab.heal(options.fault)
    text = "\n".join(f"healed {fault.key}" for fault in healed) or "nothing to heal"
    return {"healed": [_fault_values(fault) for fault in healed]}, text


def _down(lab: Lab, _options: argparse.Namespace) -> Answer:
    left = lab.down()
    return {"left": left}, f"left: {', '.join(left)}" if left else "nothing is left"


def _demo(lab: Lab, options: argparse.Namespace) -> Answer:
    on_ovn = Controller(options.controller) is Controller.OVN
    transport = Transport.UDP if on_ovn else rdma.choose(options.transport)
    names = options.faults.split(",") if options.faults else ()
    output = Path(options.output or (demo.OUTPUT_OVN if on_ovn else demo.OUTPUT[transport]))
    good = demo.run(
        lab,
        partial(print, flush=True),
        transport=transport,
        faults=names,
        healthy_s=options.healthy_s,
        output=output,
        on_ovn=on_ovn,
    )
    if not good:
        raise LabError("not everything was right", f"see {output}")
    return json.loads(output.read_text()), f"the same is in {output}"


def _chaos(lab: Lab, options: argparse.Namespace) -> Answer:
    report = chaos.run(
        lab,
        _progress,
        kills=options.kills,
        minutes=options.minutes,
        together=options.together,
        seed=options.seed,
        sets_clock=options.set_clock,
        hosts=options.hosts,
        recover_s=options.recover_s,
    )
    text = "\n".join(report.lines())
    if not report.good:
        raise LabError(text, "see the failures above")
    return {"lines": report.lines()}, text


def _starts(lab: Lab, options: argparse.Namespace) -> Answer:
    delays_s = [float(delay) for delay in options.delays_s.split(",")]
    made = starts.run(
        lab, _progress, fault=options.fault, after=options.after, delays_s=delays_s,
        runs=options.runs,
    )  # fmt: skip
    text = "\n".join(starts.lines(made))
    if not all(start.right for start in made):
        raise LabError(text, "not everything was right: see above")
    return [asdict(start) for start in made], text


def _drill(lab: Lab, options: argparse.Namespace) -> Answer:
    only = options.only.split(",") if options.only else ()
    tried = drill.run(
        lab, _progress, pairs=options.pairs, seed=options.seed, each=options.each or bool(only),
        only=only, controller=Controller(options.controller),
    )  # fmt: skip
    text = "\n".join(drill.lines(tried))
    if not all(one.right for one in tried):
        raise LabError(text, "not everything was right: see above")
    return [asdict(one) for one in tried], text


def _health(lab: Lab, options: argparse.Namespace) -> Answer:
    controller = Controller(options.controller)
    seen = (
        healthy_job.run(lab, _progress, minutes=options.minutes, controller=controller)
        if options.job
        else health.run(
            lab, _progress, minutes=options.minutes, seed=options.seed, controller=controller
        )
    )
    return _sums(
        seen.lines(), "see what failed, or was named in a lab that is well", good=seen.good
    )


def _soak(lab: Lab, options: argparse.Namespace) -> Answer:
    transport = rdma.choose(options.transport)
    seen = soak.run(
        lab,
        _progress,
        minutes=options.minutes,
        seed=options.seed,
        transport=transport,
        hosts=options.hosts,
    )
    text = "\n".join(seen.lines())
    if not seen.good:
        raise LabError(text, "see what failed, grew, or was named")
    return seen.values(), text


def _away(lab: Lab, options: argparse.Namespace) -> Answer:
    seen = away.run(lab, _progress, minutes=options.minutes, seed=options.seed)
    return _sums(
        seen.lines(), "see what was not seen, or was said of the controller", good=seen.good
    )


def _webhooks(lab: Lab, options: argparse.Namespace) -> Answer:
    seen = webhooks.run(lab, _progress, minutes=options.minutes)
    return _sums(seen.lines(), "see what failed", good=seen.good)


def _alerts(lab: Lab, options: argparse.Namespace) -> Answer:
    faults = options.faults or alerting.FAULTS
    seen = alerting.run(lab, _progress, faults=faults, healthy_s=60 * options.minutes)
    return _sums(seen.lines(), "see which alert did not come or go", good=seen.good)


def _demo_skeleton(lab: Lab, options: argparse.Namespace) -> Answer:
    report = learning.run(lab, _progress, rounds=options.rounds)
    return _sums(report.lines(), "not everything was right: see above", good=report.good)


def _demo_operators(lab: Lab, options: argparse.Namespace) -> Answer:
    names = tuple(options.faults.split(",")) if options.faults else ()
    made = operators.run(lab, _progress, faults=names, output=Path(options.output))
    text = "\n".join(operators.lines(made))
    if any(each.right is False for each in made):
        raise LabError(text, f"what was recorded, and told: {options.output}")
    return [asdict(each) for each in made], text


def _sums(lines: list[str], remedy: str, *, good: bool) -> Answer:
    """Return what a run came to; raise LabError with it where that is not good."""
    text = "\n".join(lines)
    if not good:
        raise LabError(text, remedy)
    return {"lines": lines}, text


def _fault_values(fault: Fault) -> dict[str, Any]:
    return asdict(fault) | {"key": fault.key}


def _command(options: argparse.Namespace) -> list[str]:
    command: list[str] = options.command
    stripped = command[1:] if command[:1] == ["--"] else command
    if not stripped:
        raise LabError("no command given", "example: exec h0 -- ip address")
    return stripped


# --- arguments ---------------------------------------------------------------------------------


def _parameters() -> list[str]:
    return sorted({name for spec in CATALOGUE.values() for name in spec.parameters})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m tests.lab",
        description="A leaf-spine fabric, hosts and tenants in network namespaces.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def add(
        verb: str, text: str, example: str, answer: Callable[..., Answer] | None
    ) -> argparse.ArgumentParser:
        added = verbs.add_parser(
            verb,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example:\n  .venv/bin/python -m tests.lab {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(answer=answer)
        added.add_argument("--json", action="store_true", help="print JSON instead of text")
        return added

    _up_arguments(add("up", "bring a lab up", "up --hosts 2 --rails 1", _up))
    add("status", "show what is up", "status --json", _status)
    _container_arguments(add)
    _fault_arguments(add)
    into = add("exec", "run a command in a namespace", "exec h0 -- ip route", None)
    into.add_argument("namespace", help="a host, router or container, with or without na-")
    into.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    _show_arguments(add)
    add("down", "remove the lab, whatever is left of it", "down", _down)
    return parser


def _show_arguments(add: Callable[..., argparse.ArgumentParser]) -> None:
    show = add(
        "demo", "break a fresh lab, see what netagent says", "demo --faults rnic-down", _demo
    )
    show.add_argument("--faults", help="comma-separated (default: the transport's)")
    _transport_argument(show)
    _controller_argument(show)
    show.add_argument("--healthy-s", type=float, default=demo.HEALTHY_S, metavar="S",
                      help="healthy traffic before the first (default: %(default)s)")  # fmt: skip
    outputs = " or ".join([*demo.OUTPUT.values(), demo.OUTPUT_OVN])
    show.add_argument("--output", help=f"(default: {outputs})")
    learn = add(
        "demo-skeleton", "a real job, and what is made of its traffic", "demo-skeleton",
        _demo_skeleton,
    )  # fmt: skip
    learn.add_argument("--rounds", type=int, default=3, help="faults by each list (default: 3)")
    told = add(
        "demo-operators", "a real job that is broken, and who holds it up", "demo-operators",
        _demo_operators,
    )  # fmt: skip
    told.add_argument("--faults", help=f"comma-separated (default: all): {operators.NAMES}")
    told.add_argument("--output", default=str(operators.OUTPUT), help="(default: %(default)s)")
    fresh = add(
        "starts", "break labs that have only just come up", "starts --delays-s 0 --runs 1", _starts
    )
    fresh.add_argument("--fault", default="spine-down", help="(default: %(default)s)")
    fresh.add_argument("--after", help="fault to inject and heal before (default: none)")
    fresh.add_argument("--delays-s", default="0,5,10,20", metavar="S,S,...",
                       help="from the end of up (default: %(default)s)")  # fmt: skip
    fresh.add_argument("--runs", type=int, default=20, help="for each delay (default: 20)")
    pairs = add(
        "drill", "break a lab in two places at once, at random", "drill --pairs 3 --seed 7", _drill
    )
    pairs.add_argument("--pairs", type=int, default=30, help="(default: %(default)s)")
    pairs.add_argument("--each", action="store_true", help="every fault alone instead")
    pairs.add_argument("--only", metavar="FAULT,...", help="these faults alone")
    pairs.add_argument("--seed", type=int, default=1, help="of what is drawn (default: 1)")
    _controller_argument(pairs)
    well = add(
        "health", "tasks come and go, and nobody may be named", "health --minutes 30", _health
    )
    well.add_argument("--minutes", type=float, default=30, help="(default: %(default)s)")
    well.add_argument("--seed", type=int, default=1, help="of what comes and goes (default: 1)")
    well.add_argument("--job", action="store_true",
                      help="a training job instead, which is well, too")  # fmt: skip
    _controller_argument(well)
    without = add("away", "faults while OVN's databases are dead", "away --minutes 60", _away)
    without.add_argument("--minutes", type=float, default=60, help="(default: %(default)s)")
    without.add_argument("--seed", type=int, default=1, help="of the targets (default: 1)")
    long = add("soak", "an hour, and nothing may grow", "soak --minutes 60", _soak)
    long.add_argument("--minutes", type=float, default=60, help="(default: %(default)s)")
    long.add_argument("--seed", type=int, default=1, help="of what comes and goes (default: 1)")
    hosts = Shape().hosts
    long.add_argument("--hosts", type=int, default=hosts, help="of the lab (default: %(default)s)")
    _transport_argument(long)
    deaf = add(
        "webhooks", "who is told of incidents is down, slow, failing", "webhooks --minutes 3",
        _webhooks,
    )  # fmt: skip
    deaf.add_argument("--minutes", type=float, default=10, help="(default: %(default)s)")
    alarmed = add("alerts", "Prometheus alerts of faults, and of nothing else", "alerts", _alerts)
    alarmed.add_argument("faults", nargs="*", metavar="FAULT", help="(default: one of each layer)")
    alarmed.add_argument("--minutes", type=float, default=1, help="of health (default: 1)")
    chaotic = add(
        "chaos", "kill -9 parts of a fresh lab, again and again", "chaos --kills 5", _chaos
    )
    chaotic.add_argument("--kills", type=int, default=50, help="(default: %(default)s)")
    chaotic.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    chaotic.add_argument("--minutes", type=float, default=math.inf, help="at most")
    chaotic.add_argument("--together", type=int, default=1, metavar="N",
                         help="so many at once (default: %(default)s)")  # fmt: skip
    chaotic.add_argument("--hosts", type=int, default=hosts, help=f"of the lab (default: {hosts})")
    chaotic.add_argument("--recover-s", type=float, default=chaos.RECOVER_S, metavar="S",
                         help="in which all is well again (default: %(default)s)")  # fmt: skip
    chaotic.add_argument("--set-clock", action="store_true",
                         help="by minutes, too: this machine's, so in a guest alone")  # fmt: skip


def _up_arguments(up: argparse.ArgumentParser) -> None:
    default = Shape()
    for name in ("hosts", "rails", "segments", "spines"):
        value = getattr(default, name)
        up.add_argument(f"--{name}", type=int, default=value, help=f"(default: {value})")
    _transport_argument(up)
    _controller_argument(up)
    up.add_argument("--containers", choices=list(Runtime), default=Runtime.NETNS,
                    help="what makes them (default: %(default)s)")  # fmt: skip
    up.add_argument("--untraced", action="store_true", help="agents see no flow's way")
    up.add_argument("--encapsulation", choices=list(Tunnel),
                    help="of the overlay (default: vxlan; on OVN geneve)")  # fmt: skip
    for name in ("overlay", "underlay"):
        up.add_argument(f"--{name}", type=int, choices=(4, 6), default=4,
                        help="version of IP (default: %(default)s)")  # fmt: skip
    up.add_argument("--no-agents", action="store_true", help="network and tasks only")
    tasks = ",".join(DEFAULT_TASKS)
    up.add_argument("--tasks", default=tasks, help=f"to start; '' for none (default: {tasks})")
    up.add_argument("--no-traffic", action="store_true", help="leave the network idle")
    up.add_argument("--period-s", type=float, default=4, help="of the traffic bursts (default: 4)")
    up.add_argument("--duty", type=float, default=0.25, help="share of it (default: 0.25)")


def _transport_argument(command: argparse.ArgumentParser) -> None:
    transports = (rdma.AUTO, *Transport)
    text = "auto: RDMA where the kernel has Soft-RoCE and openvswitch.ko (default)"
    command.add_argument("--transport", choices=transports, default=rdma.AUTO, help=text)


def _controller_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("--controller", choices=list(Controller), default=Controller.NONE,
                         help="of the virtual switches (default: %(default)s)")  # fmt: skip


def _container_arguments(add: Callable[..., argparse.ArgumentParser]) -> None:
    task = add(
        "start-task", "start a task's containers raggedly", "start-task train-a", _start_task
    )
    task.add_argument("task", help="its last letter is the tenant")
    task.add_argument("--hosts", help="comma-separated (default: all)")
    task.add_argument("--seed", type=int, default=0, help="of order and pauses (default: 0)")
    task.add_argument("--spread-s", type=float, default=0.5, help="all pauses (default: 0.5)")
    for verb, answer in (
        ("stop-container", _stop_container),
        ("start-container", _start_container),
    ):
        container = add(verb, f"{verb[:-10]} one container", f"{verb} train-a-1", answer)
        container.add_argument("container")
    again = add("restart", "start again what died", "restart vswitchd h0", _restart)
    again.add_argument("what", choices=("agent", "analyzer", "vswitchd", "ovsdb", "traffic"))
    again.add_argument("host", nargs="?", help="for agent, vswitchd and ovsdb")


def _fault_arguments(add: Callable[..., argparse.ArgumentParser]) -> None:
    inject = add("inject", "inject a fault", "inject rnic-down --target h1/rnic0", _inject)
    inject.add_argument("fault", nargs="?")
    inject.add_argument("--list", action="store_true", help="show all faults and their targets")
    inject.add_argument("--target", help="written as --list shows it")
    for name in _parameters():
        users = [spec.name for spec in CATALOGUE.values() if name in spec.parameters]
        option = f"--{name.replace('_', '-')}"
        inject.add_argument(option, dest=name, type=float, help=f"of {', '.join(users)}")
    heal = add("heal", "undo faults", "heal link-loss", _heal)
    heal.add_argument("fault", nargs="?", help="its name or key (default: all)")
