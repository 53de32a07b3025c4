# SPDX-License-Identifier: Apache-2.0
"""The lab as an object: bring up, run tasks, break, heal, take down."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from tests.lab import (
    breakage,
    config,
    containers,
    fabric,
    faults,
    namespaces,
    ovn,
    pods,
    rdma,
    surroundings,
    targets,
)
from tests.lab.catalogue import CATALOGUE
from tests.lab.commands import in_parallel, run
from tests.lab.errors import LabError
from tests.lab.ovs import VirtualSwitch, load_kernel_datapath
from tests.lab.pipeline import host_flows
from tests.lab.processes import Processes
from tests.lab.rim import Rim
from tests.lab.services import Services
from tests.lab.shape import PREFIX, Controller, Runtime, Shape, Transport, namespace
from tests.lab.state import DIRECTORY, Fault, State, Store
from tests.lab.workload import (
    CONTAINER_PATTERN,
    DEFAULT_TASKS,
    Container,
    container_of,
    task_containers,
)

TRAFFIC = "traffic"
Progress = Callable[[str], None]


def silent(_message: str) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """Rhythm of the training-like traffic."""

    period_s: float = 4
    duty: float = 0.25


class Lab:
    """The one lab of this machine. Needs root; methods raise `LabError` with a remedy."""

    def __init__(self, *, progress: Progress = silent) -> None:
        self.directory: Path = DIRECTORY
        self.store = Store(self.directory)
        self.processes = Processes(self.directory)
        self._say = progress

    # --- up and down -----------------------------------------------------------------------

    def up(
        self,
        shape: Shape | None = None,
        *,
        agents: bool = True,
        tasks: Iterable[str] = DEFAULT_TASKS,
        traffic: Bursts | None = Bursts(),
    ) -> None:
        """Bring a lab up: network, then agents and analyzer, then tasks, then traffic.

        What fails half-way stays as it is, for a look; `down` removes it.
        """
        self._refuse_if_up()
        shape = shape or Shape()
        if shape.controller is Controller.OVN:
            ovn.require()
        if shape.containers is Runtime.PODMAN:
            pods.require()
        self.directory.mkdir()
        if shape.containers is Runtime.PODMAN:
            pods.set_up()
        state = State(shape, agents=agents)
        self.store.write(state)
        self._build_network(state)
        if agents:
            surroundings.mount_disk(self.directory / "analyzer")
        services = self.services()
        services.configure()
        if agents:
            self._say("starting the analyzer and an agent per host")
            services.start()
        for task in tasks:
            self.start_task(task)
        if traffic is not None:
            self.start_traffic(traffic)

    def down(self) -> list[str]:
        """Remove everything of a lab, whatever is left of it; return what resisted."""
        self._say("ending the lab's processes")
        self.processes.stop_all()
        self._say("deleting namespaces")
        pods.remove_all()
        rdma.restore(self.directory)  # first: devices go asynchronously once their links are gone
        for name in namespaces.ours():
            namespaces.delete(name)
        namespaces.delete_root_links()
        surroundings.unmount_disk(self.directory / "analyzer")
        shutil.rmtree(self.directory, ignore_errors=True)
        return self.leftovers()

    def leftovers(self) -> list[str]:
        """Return what of a lab is on this machine: links, routing, files, processes and so on."""
        with IPRoute() as ip:
            links = [f"link {name}" for name in namespaces.root_links(ip)]
        found = [f"namespace {name}" for name in namespaces.ours()] + links + rdma.leftovers()
        found += [f"process {name}" for name in self.processes.alive()]
        if self.directory.exists():
            found.append(f"directory {self.directory}")
        return found

    def _refuse_if_up(self) -> None:
        if os.geteuid() != 0:
            raise LabError("the lab makes network namespaces", "run as root")
        found = self.leftovers()
        if found:
            problem = f"a lab, or what is left of one, is up ({found[0]}, ...)"
            raise LabError(problem, "run: .venv/bin/python -m tests.lab down")

    def _build_network(self, state: State) -> None:
        shape = state.shape
        self._say(f"building a fabric of {len(shape.router_names)} routers, {shape.hosts} hosts")
        load_kernel_datapath()
        if shape.transport is Transport.RDMA:
            rdma.prepare(self.directory)
        fabric.build(shape)
        if shape.controller is Controller.OVN:
            self._say("starting OVN's databases")
            self._ovn(state).start()
        self._say(f"starting Open vSwitch on {shape.hosts} hosts")

        def bring_up(host: int) -> None:
            self._switch(state, host).start()
            self._dress(state, host)
            if shape.controller is Controller.OVN:
                self._ovn(state).start_controller(host)

        in_parallel(bring_up, range(shape.hosts))
        if shape.controller is Controller.OVN:
            # First: ovs-vswitchd learns no neighbours before it has a tunnel.
            self._ovn(state).sync()
        in_parallel(lambda host: fabric.warm_up(shape, host), range(shape.hosts))

    # --- tasks and containers --------------------------------------------------------------

    def start_task(
        self,
        task: str,
        *,
        hosts: Iterable[int] | None = None,
        seed: int = 0,
        spread_s: float = 0.5,
    ) -> tuple[Container, ...]:
        """Start a task's containers one after the other, in random order with random pauses.

        The analyzer, if there is one, is told first. `spread_s` bounds the pauses together.
        """
        state = self.state()
        chosen = tuple(range(state.shape.hosts)) if hosts is None else tuple(hosts)
        members = task_containers(task, chosen, state.shape.transport, state.shape.ip)
        for container in members:
            _refuse_to_start(state, container)
        self._declare(state, task, members)
        chance = random.Random(f"{seed} {task}")
        for container in chance.sample(members, len(members)):
            time.sleep(chance.uniform(0, spread_s / len(members)))
            self._say(f"starting container {container.id}")
            self._start(container.id)
        return members

    def _declare(self, state: State, task: str, members: tuple[Container, ...]) -> None:
        """Tell the analyzer, if there is one, about a task; of pods there are sandboxes then."""
        if state.shape.containers is Runtime.PODMAN:
            in_parallel(lambda container: pods.create(container.id), members)
        if state.agents:
            self.services().submit_task(task, members)

    def _declare_again(self, state: State, container: Container) -> None:
        """Tell the analyzer that a container has another sandbox than before."""
        if state.shape.containers is Runtime.PODMAN:
            others = (each for each in state.containers if each.task == container.task)
            self._declare(state, container.task, tuple(sorted({*others, container})))

    def start_container(self, container_id: str) -> None:
        """Start one container; its ports appear once all hosts have its flows."""
        state = self.state()
        container = container_of(container_id, state.shape.transport, state.shape.ip)
        _refuse_to_start(state, container)
        self._declare_again(state, container)
        self._start(container_id)

    def _start(self, container_id: str) -> None:
        with self.store.locked() as state:
            container = container_of(container_id, state.shape.transport, state.shape.ip)
            _refuse_to_start(state, container)
            containers.create(container, state.shape)
            fuller = state.with_container(container)
            self._sync(fuller)
            self._switch(state, container.host).add_ports(container)
            self._await_ports(state, [container])
            self.store.write(fuller)

    def stop_container(self, container_id: str) -> None:
        """Stop one container gracefully: ports first, then the namespace, then its flows."""
        with self.store.locked() as state:
            container = targets.running(container_id, state)
            healed = [fault for fault in state.faults if faults.of_container(fault, container.id)]
            whole = state.without_faults(healed)
            for fault in healed:
                if fault.target != container.id:  # a crash is over with its container
                    breakage.undo(self._rim(whole), fault)
            self._switch(state, container.host).delete_ports(container)
            emptier = whole.without_container(container)
            self.store.write(emptier)
            containers.delete(container)
            self._sync(emptier)

    # --- faults ----------------------------------------------------------------------------

    def inject(self, name: str, target: str | None = None, **parameters: float) -> Fault:
        """Inject a fault of the catalogue; return it with its truth."""
        with self.store.locked() as state:
            fault = faults.plan(name, target, parameters, state)
            broken = state.with_fault(fault)
            self.store.write(broken)  # first: what is half done can be healed
            try:
                breakage.apply(self._rim(broken), fault)
                self._sync_disturbed(broken, (fault,))
            except LabError:
                breakage.undo(self._rim(state), fault)
                self.store.write(state)
                raise
        return fault

    def heal(self, name: str | None = None) -> tuple[Fault, ...]:
        """Undo the faults called `name`, the one whose key it is, or all; return them."""
        with self.store.locked() as state:
            healed = tuple(f for f in state.faults if name in {None, f.name, f.key})
            if name is not None and not healed:
                raise LabError(f"no fault {name} is injected", "run: status")
            whole = state.without_faults(healed)
            for fault in healed:
                breakage.undo(self._rim(whole), fault)
                if fault.name == "container-crash":
                    self._declare_again(whole, targets.running(fault.target, whole))
            self._sync_disturbed(whole, healed)
            self.store.write(whole)
            self._await_ports(whole, whole.containers)
        return healed

    # --- processes -------------------------------------------------------------------------

    def end_central(self) -> None:
        """End OVN's databases and northd at once, as where their machine dies."""
        for name in ovn.CENTRAL_PROCESSES:
            self.processes.kill(name)

    def begin_central(self) -> None:
        """Start them again, from what is on disk."""
        self._ovn(self.state()).serve()

    def restart(self, what: str, host: str | None = None) -> None:
        """Start ``agent``, ``vswitchd``, ``ovsdb`` of a host, ``analyzer`` or ``traffic`` again."""
        state = self.state()
        match what, host:
            case "agent", str():
                self.services().restart_agent(targets.host_of(host, state.shape))
            case "vswitchd", str():
                with self.store.locked() as state:
                    self._revive_switch(state, targets.host_of(host, state.shape))
            case "ovsdb", str():
                self.processes.kill(f"{host}/ovsdb-server")
                self._switch(state, targets.host_of(host, state.shape)).start_database()
            case "analyzer", None:
                self.services().restart_analyzer()
            case "traffic", None:
                self.processes.kill(TRAFFIC)
                self.start_traffic(Bursts())
            case _:
                raise LabError(f"cannot restart {what} {host or ''}", "see: restart --help")

    def start_traffic(self, bursts: Bursts) -> None:
        """Start the traffic generator."""
        self._say("starting training-like traffic")
        options = ("--period-s", str(bursts.period_s), "--duty", str(bursts.duty))
        program = (sys.executable, "-m", "tests.lab.traffic", "--lab", str(self.directory))
        self.processes.start(TRAFFIC, *program, *options)

    # --- looking ---------------------------------------------------------------------------

    def state(self) -> State:
        """Return the desired state; raise `LabError` if no lab is up."""
        return self.store.read()

    def services(self) -> Services:
        """Return the analyzer and agents of the lab that is up."""
        return Services(self.directory, self.state().shape)

    def status(self) -> dict[str, Any]:
        """Return what is up, as plain JSON values."""
        state = self.state()
        alive = {name: self.processes.pid(name) for name in self.processes.names()}
        counts = self.directory / "traffic.json"
        return {
            **state.encode(),
            "faults": [asdict(fault) | {"key": fault.key} for fault in state.faults],
            "namespaces": namespaces.ours(),
            "processes": alive,
            "traffic": json.loads(counts.read_text()) if counts.exists() else {},
            "analyzer": config.ANALYZER_URL,
            "agent_urls": {f"h{host}": config.agent_url(host) for host in range(state.shape.hosts)},
            "environment": self.services().environment(),
        }

    def exec(self, where: str, *argv: str) -> int:
        """Run a command in a namespace, on this terminal; return its exit code.

        In a host's namespace the Open vSwitch commands find that host's daemons. A container's
        interfaces, addresses and RDMA devices are in the environment: ``LAB_RAIL0_INTERFACE`` and
        so on. Where it has no namespace, the command has to be told to use them.
        """
        self._check(where)
        return subprocess.run(self._entered(where, argv), check=False).returncode

    def run(self, where: str, *argv: str, timeout_s: float = 30) -> str:
        """Return the output of a command in a namespace; raise `LabError` if it fails."""
        self._check(where)
        return run(*self._entered(where, argv), timeout_s=timeout_s)

    def reaches(self, source: str, address: str, *, count: int = 3, timeout_s: float = 1) -> int:
        """Return how many of `count` pings from a container or host were answered."""
        options = ["-n", "-q", "-i", "0.05", "-c", str(count), "-W", str(timeout_s)]
        container = self._container(source)
        if container is not None and container.shares_namespace:
            rail = int(address.split(".")[2])
            options += ["-I", container.endpoint(rail).interface]
        argv = self._entered(source, ("ping", *options, address))
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        fields = done.stdout.partition(" packets transmitted, ")[2].split(maxsplit=1)
        return int(fields[0]) if fields else 0

    def _container(self, where: str) -> Container | None:
        if CONTAINER_PATTERN.fullmatch(where.removeprefix(PREFIX)) is None:
            return None
        shape = self.state().shape
        return container_of(where, shape.transport, shape.ip)

    def _entered(self, where: str, argv: Iterable[str]) -> list[str]:
        container = self._container(where)
        inside = namespace(where) if container is None else container.namespace
        return [*namespaces.entering(inside), "env", *self._variables(where, container), *argv]

    def _check(self, where: str) -> None:
        container = self._container(where)
        found = namespace(where) in namespaces.ours()
        if not (found if container is None else containers.exists(container)):
            raise LabError(
                f"no namespace {namespace(where)}", "see: .venv/bin/python -m tests.lab status"
            )

    def _variables(self, where: str, container: Container | None) -> Iterable[str]:
        rundir = self.directory / where.removeprefix(PREFIX)
        if container is None:
            return [f"{of}_RUNDIR={rundir}" for of in ("OVS", "OVN") if rundir.is_dir()]
        rails = range(self.state().shape.rails)
        return [
            f"LAB_RAIL{rail}_{name}={value}"
            for rail in rails
            for name, value in container.endpoint(rail).environment().items()
        ]

    # --- the controller --------------------------------------------------------------------

    def _switch(self, state: State, host: int) -> VirtualSwitch:
        return VirtualSwitch(self.directory, state.shape, host)

    def _rim(self, state: State) -> Rim:
        return Rim(
            self.directory,
            state.shape,
            state.faults,
            self.processes,
            self.services(),
            switch=lambda host: self._switch(state, host),
            revive_switch=lambda host: self._revive_switch(state, host),
        )

    def _ovn(self, state: State) -> ovn.Ovn:
        return ovn.Ovn(self.directory, state.shape)

    def _await_ports(self, state: State, containers: Iterable[Container]) -> None:
        """Where OVN is to do it, wait until it has, unless something may keep it from that."""
        on_ovn = state.shape.controller is Controller.OVN
        if on_ovn and not state.faults and self.processes.pid(ovn.NORTHD) is not None:
            self._ovn(state).wait_until_bound(containers)

    def _sync(self, state: State) -> None:
        """Give every living switch the flows of the desired state, or have OVN do it."""
        if state.shape.controller is Controller.OVN:
            self._ovn(state).write(state.containers)
            return
        in_parallel(lambda host: self._sync_host(state, host), range(state.shape.hosts))

    def _sync_host(self, state: State, host: int) -> None:
        switch = self._switch(state, host)
        if not switch.lives() or state.shape.controller is Controller.OVN:
            return  # gets its flows when it is restarted, or from ovn-controller
        flows = host_flows(state.shape, host, state.containers)
        groups = faults.groups(state.faults, state.shape, host)
        switch.add_groups(groups)
        switch.replace_flows(faults.disturbed(flows, state.faults, state.shape, host))
        if not groups:
            switch.remove_groups()

    def _sync_disturbed(self, state: State, changed: Iterable[Fault]) -> None:
        """Synchronise the hosts in whose flows the faults `changed` are."""
        for fault in changed:
            if CATALOGUE[fault.name].is_own_flow:
                self._sync_host(state, faults.disturbed_host(fault, state.shape))

    def _revive_switch(self, state: State, host: int) -> None:
        switch = self._switch(state, host)
        switch.kill_daemon()
        switch.start_daemon()
        self._dress(state, host)
        with suppress(LabError):  # some other fault may keep a rail dead
            fabric.warm_up(state.shape, host, limit_s=2)

    def _dress(self, state: State, host: int) -> None:
        """Give a freshly started switch what it does not remember: flows, addresses, routes."""
        self._sync_host(state, host)
        fabric.configure_host(state.shape, host)


def _refuse_to_start(state: State, container: Container) -> None:
    if container.host >= state.shape.hosts:
        raise LabError(f"{container.id} has no host", f"the lab has {state.shape.hosts} hosts")
    for other in state.containers:
        if other == container:
            raise LabError(f"{container.id} runs already", f"run: stop-container {container.id}")
        if other.tenant == container.tenant and other.task != container.task:
            problem = f"tenant {container.tenant} has the task {other.task} already"
            raise LabError(problem, "give the task another last letter")
