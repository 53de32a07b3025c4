# SPDX-License-Identifier: Apache-2.0
"""netagent itself in the lab: configuration files, processes, and its control API."""

import ssl
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.lab import config, pods
from tests.lab.certs import ADMIN, Certificates
from tests.lab.commands import in_parallel, wait_for
from tests.lab.errors import LabError
from tests.lab.processes import Processes
from tests.lab.shape import Controller, Shape, namespace, rnic
from tests.lab.workload import Container

READY_TIMEOUT_S = 300
"""Chosen: an emulated machine on which all starts anew takes some minutes."""
_REQUEST_TIMEOUT_S = 5
ANALYZER = "analyzer/analyzer"


class Services:
    """The analyzer and the agents of a lab."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self._directory, self._shape = directory, shape
        self.certificates = Certificates(directory / "tls")
        self._processes = Processes(directory)

    def configure(self) -> None:
        """Write all certificates and configuration files."""
        self.certificates.make(self._shape)
        (self._directory / "analyzer").mkdir(exist_ok=True)
        topology = config.topology_toml(self._shape)
        (self._directory / "topology.toml").write_text(topology)
        on_ovn = self._shape.controller is Controller.OVN
        analyzer = config.analyzer_toml(self._directory, self.certificates, on_ovn=on_ovn)
        (self._directory / "analyzer.toml").write_text(analyzer)
        rnics = [rnic(rail) for rail in range(self._shape.rails)] if on_ovn else []
        for host in range(self._shape.hosts):
            self._agent_config(host).parent.mkdir(exist_ok=True)
            text = config.agent_toml(
                self._directory, self.certificates, host, self._shape.transport,
                traced=self._shape.traced, rnics=rnics,
            )  # fmt: skip
            self._agent_config(host).write_text(text)

    def start(self) -> None:
        """Start the analyzer and all agents; return once each answers."""
        self.start_analyzer()
        in_parallel(self.start_agent, range(self._shape.hosts))

    def start_analyzer(self) -> None:
        """Start the analyzer and wait until it answers."""
        settings = str(self._directory / "analyzer.toml")
        self._processes.start(ANALYZER, program("netagent-analyzer"), "serve", "--config", settings)
        self._wait_ready(ANALYZER, config.ANALYZER_URL)

    def start_agent(self, host: int) -> None:
        """Start the agent of a host and wait until it answers."""
        name = f"h{host}/agent"
        command = (program("netagent"), "run", "--config", str(self._agent_config(host)))
        self._processes.start(name, *command, namespace=namespace(f"h{host}"))
        self._wait_ready(name, config.agent_url(host))

    def restart_agent(self, host: int) -> None:
        """Kill the agent of a host if it lives, and start it."""
        self._processes.kill(f"h{host}/agent")
        self.start_agent(host)

    def restart_analyzer(self) -> None:
        """Kill the analyzer if it lives, and start it."""
        self._processes.kill(ANALYZER)
        self.start_analyzer()

    def submit_task(self, task: str, containers: tuple[Container, ...]) -> None:
        """Tell the analyzer about a task before its containers exist, as a scheduler would.

        Of pods as soon as their sandboxes do, since nobody knows their ids before.
        """
        document = {
            "containers": [pods.sandbox(container.id) for container in containers],
            "rnics_per_container": self._shape.rails,
            "rails": list(range(self._shape.rails)),
        }
        try:
            with self.client() as client:
                client.put(f"/v1/tasks/{task}", json=document).raise_for_status()
        except httpx.HTTPError as error:
            remedy = f"see {self._processes.log_file(ANALYZER)}"
            raise LabError(f"the analyzer did not take task {task}: {error}", remedy) from error

    def client(self, url: str = config.ANALYZER_URL) -> httpx.Client:
        """Return an HTTP client with the admin's certificate, the caller closes it."""
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        certificates = self.certificates
        context.load_cert_chain(str(certificates.cert(ADMIN)), str(certificates.key(ADMIN)))
        return httpx.Client(base_url=url, verify=context, timeout=_REQUEST_TIMEOUT_S)

    def environment(self) -> dict[str, str]:
        """Return what the command-line tools need to find the analyzer."""
        return {
            "NETAGENT_ANALYZER_URL": config.ANALYZER_URL,
            "NETAGENT_CA": str(self.certificates.ca),
            "NETAGENT_CERT": str(self.certificates.cert(ADMIN)),
            "NETAGENT_KEY": str(self.certificates.key(ADMIN)),
        }

    def status(self, url: str) -> Any:
        """Return what ``GET /v1/status`` says, or None if nobody answers."""
        try:
            with self.client(url) as client:
                answer = client.get("/v1/status")
                return answer.json() if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None

    def _agent_config(self, host: int) -> Path:
        return self._directory / f"h{host}" / "agent.toml"

    def _wait_ready(self, name: str, url: str) -> None:
        def settled() -> bool:
            return self._processes.pid(name) is None or self.status(url) is not None

        log = self._processes.log_file(name)
        try:
            wait_for(f"{name} at {url}", settled, timeout_s=READY_TIMEOUT_S)
        except LabError as error:
            raise LabError(f"{error.problem}: {_end(log)}", f"see {log}") from error
        if self._processes.pid(name) is None:
            raise LabError(f"{name} ended at once: {_end(log)}", f"see {log}")


def _end(log: Path) -> str:
    # Who brought the lab up may take it down, and the log with it.
    return log.read_text().strip()[-2000:] if log.exists() else "it wrote nothing"


def program(name: str) -> str:
    """Return a program of the same virtual environment."""
    return str(Path(sys.executable).parent / name)
