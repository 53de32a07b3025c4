# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus and Alertmanager on a lab that is broken and mended: who is alerted of what.

Prometheus scrapes the analyzer as an operator's does, by TLS and with a reader's certificate; its
rules are those that the command prints. Alertmanager tells a webhook, which is asked here.
"""

import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.analyzer.receiver import Receiver, free_port, status
from tests.lab import config
from tests.lab.certs import READER
from tests.lab.commands import wait_for
from tests.lab.demo import SETTLE_S, Observer, Say, find_within_s, recover_within_s
from tests.lab.errors import LabError
from tests.lab.lab import Lab
from tests.lab.processes import Processes
from tests.lab.services import program
from tests.lab.shape import Shape, Transport
from tests.lab.state import Fault

FAULTS = (
    "spine-down", "rnic-down", "flow-deleted", "container-crash", "agent-killed", "narrow-port"
)  # fmt: skip
"""Of each layer, and one by which large packets alone are lost. Chosen: quick to be named."""
HEALTHY_S = 60.0
SCRAPE_S = 2
"""Seconds between two scrapes, and between two looks at the rules. Chosen: faults are minutes
apart; in production it would be 15 or 30."""
LATER_S = 20.0
"""Seconds from an incident to its alert, and from its end to the alert's, at most. Chosen: two
scrapes, two looks at the rules, and as much for a machine that has other work."""
RULES = "netagent.rules.yml"
PROMETHEUS, ALERTMANAGER = "prometheus/prometheus", "prometheus/alertmanager"
READY_S = 60.0
OF_INCIDENTS = frozenset({"NetagentIncident", "NetagentIncidentCritical"})
BESIDE = {"agent-killed": frozenset({"NetagentAgentsSilent"})}
"""What a fault raises besides its incident, where it lasts."""


@dataclass(frozen=True, slots=True)
class Alerted:
    """What became of one fault. Times are seconds from the injection, or from the healing."""

    fault: str
    truth: tuple[str, str]
    """Layer and component."""
    name: str = ""
    """Of the alert that named it; "" where none did."""
    severity: str = ""
    arrived_s: float | None = None
    resolved_s: float | None = None
    """When no alert fired any more."""
    others: tuple[str, ...] = ()
    """Alerts of something else."""

    @property
    def right(self) -> bool:
        """Whether the right one came, in time and alone, and was over in time."""
        arrives_s = find_within_s(self.fault, Transport.UDP) + LATER_S
        ends_s = recover_within_s(self.fault, Transport.UDP) + LATER_S
        return (
            self.arrived_s is not None
            and self.arrived_s <= arrives_s
            and self.resolved_s is not None
            and self.resolved_s <= ends_s
            and not self.others
        )

    def line(self) -> str:
        """Return it for people."""
        arrived = "never" if self.arrived_s is None else f"{self.arrived_s:.1f} s"
        resolved = "never" if self.resolved_s is None else f"{self.resolved_s:.1f} s"
        named = f"{self.name} ({self.severity})" if self.name else "no alert"
        more = f"; besides: {', '.join(self.others)}" if self.others else ""
        return f"{self.fault}: {named} after {arrived}, over after {resolved}{more}"


@dataclass(slots=True)
class Report:
    """What was seen."""

    faults: list[Alerted] = field(default_factory=list)
    healthy: list[str] = field(default_factory=list)
    """Alerts in health."""
    series: int = 0
    """Of a real scrape."""
    linted: str = ""
    """What `promtool check metrics` says of that; "" is nothing."""
    unanswered: list[str] = field(default_factory=list)
    """Expressions of the dashboard that Prometheus refuses."""

    @property
    def good(self) -> bool:
        """Whether the right alerts came and went, and nothing else."""
        right = bool(self.faults) and all(each.right for each in self.faults)
        return right and not (self.healthy or self.linted or self.unanswered) and self.series > 0

    def lines(self) -> list[str]:
        """Return the sums, for people."""
        right = sum(each.right for each in self.faults)
        return [
            *(each.line() for each in self.faults),
            f"{right} of {len(self.faults)} faults: the right alert came, alone, and went",
            f"in health: {', '.join(self.healthy) or 'no alert'}",
            f"a scrape: {self.series} series; promtool check metrics: {self.linted or 'nothing'}",
            f"expressions of the dashboard refused: {len(self.unanswered)}",
            *self.unanswered,
        ]


def run(
    lab: Lab, say: Say, *, faults: Sequence[str] = FAULTS, healthy_s: float = HEALTHY_S,
    shape: Shape | None = None,
) -> Report:  # fmt: skip
    """Run on a fresh lab, which is taken down after. Raises LabError."""
    if missing := [
        n for n in ("prometheus", "prometheus-alertmanager", "promtool") if not shutil.which(n)
    ]:
        raise LabError(f"there is no {', '.join(missing)}", "make setup-prometheus")
    report = Report()
    lab.up(shape or Shape())
    try:
        with Receiver(status(200)) as receiver, lab.services().client() as client:
            watch = Watch(lab, receiver)
            watch.start()
            observer = Observer(client)
            say(f"letting endpoints settle, then watching {healthy_s:.0f} s of health")
            observer.wait(lambda: False, timeout_s=SETTLE_S[Transport.UDP])
            receiver.taken.clear()
            observer.wait(watch.told, timeout_s=healthy_s)
            report.healthy = [_named(each) for each in watch.told().values()]
            report.series, report.linted = watch.linted()
            report.unanswered = watch.unanswered()
            for name in faults:
                report.faults.append(_try(lab, watch, observer, name))
                say(report.faults[-1].line())
    finally:
        lab.down()
    return report


class Watch:
    """Prometheus and Alertmanager of one lab, and what the receiver was told."""

    def __init__(self, lab: Lab, receiver: Receiver) -> None:
        self._lab, self._receiver = lab, receiver
        self._folder = lab.directory / "prometheus"
        self._processes = Processes(lab.directory)
        self._ports = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self._ports[0]}"

    def start(self) -> None:
        """Start both, and wait until a scrape succeeded. Raises LabError."""
        self._folder.mkdir(exist_ok=True)
        (self._folder / RULES).write_text(_printed("alerts"))
        prometheus, alertmanager = self._folder / "prometheus.yml", self._folder / "alerts.yml"
        prometheus.write_text(json.dumps(self._prometheus()))
        alertmanager.write_text(json.dumps(self._alertmanager()))
        self._processes.start(
            ALERTMANAGER, "prometheus-alertmanager", f"--config.file={alertmanager}",
            f"--storage.path={self._folder / 'alertmanager'}", "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{self._ports[1]}",
        )  # fmt: skip
        self._processes.start(
            PROMETHEUS, "prometheus", f"--config.file={prometheus}",
            f"--storage.tsdb.path={self._folder / 'data'}", "--rules.alert.resend-delay=5s",
            f"--web.listen-address=127.0.0.1:{self._ports[0]}",
        )  # fmt: skip
        wait_for("Prometheus to scrape the analyzer", self._scrapes, timeout_s=READY_S)

    def _prometheus(self) -> dict[str, Any]:
        certificates = self._lab.services().certificates
        return {
            "global": {
                "scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s",
                "evaluation_interval": f"{SCRAPE_S}s",
            },
            "rule_files": [str(self._folder / RULES)],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [f"127.0.0.1:{self._ports[1]}"]}]}
                ]
            },
            "scrape_configs": [
                {
                    "job_name": "netagent",
                    "scheme": "https",
                    "tls_config": {
                        "ca_file": str(certificates.ca),
                        "cert_file": str(certificates.cert(READER)),
                        "key_file": str(certificates.key(READER)),
                    },
                    "static_configs": [{"targets": [config.ANALYZER_URL.partition("//")[2]]}],
                }
            ],
        }  # fmt: skip

    def _alertmanager(self) -> dict[str, Any]:
        return {
            "route": {
                "receiver": "test", "group_by": ["..."], "group_wait": "0s",
                "group_interval": "1s", "repeat_interval": "1h",
            },
            "receivers": [
                {
                    "name": "test",
                    "webhook_configs": [{"url": self._receiver.url, "send_resolved": True}],
                }
            ],
        }  # fmt: skip

    def _scrapes(self) -> bool:
        try:
            return [each["value"][1] for each in self.query("up")] == ["1"]
        except httpx.HTTPError:
            return False

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return what an expression comes to. Raises httpx.HTTPError."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expr}, trust_env=False)
        answer.raise_for_status()
        return list(answer.json()["data"]["result"])

    def told(self) -> dict[str, dict[str, Any]]:
        """Return the newest word on each alert, by its fingerprint."""
        found: dict[str, dict[str, Any]] = {}
        for each in list(self._receiver.taken):
            for alert in each.event["alerts"]:
                found[alert["fingerprint"]] = alert
        return found

    def forget(self) -> None:
        """Forget what was told."""
        self._receiver.taken.clear()

    def linted(self) -> tuple[int, str]:
        """Return the series of a real scrape, and what `promtool check metrics` says of it."""
        certificates = self._lab.services().certificates
        context = ssl.create_default_context(cafile=str(certificates.ca))
        context.load_cert_chain(str(certificates.cert(READER)), str(certificates.key(READER)))
        answer = httpx.get(f"{config.ANALYZER_URL}/metrics", verify=context, trust_env=False)
        answer.raise_for_status()
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=answer.content, capture_output=True, check=False
        )
        said = (done.stdout + done.stderr).decode().strip()
        lines = answer.text.splitlines()
        return sum(not line.startswith("#") for line in lines), said

    def unanswered(self) -> list[str]:
        """Return the expressions of the dashboard that Prometheus refuses."""
        model = json.loads(_printed("dashboard"))
        exprs = [target["expr"] for panel in model["panels"] for target in panel["targets"]]
        return [expr for expr in exprs if not self._answers(expr)]

    def _answers(self, expr: str) -> bool:
        try:
            self.query(expr.replace("$__rate_interval", "1m"))
        except httpx.HTTPError:
            return False
        return True


def _try(lab: Lab, watch: Watch, observer: Observer, name: str) -> Alerted:
    watch.forget()
    began_s = time.monotonic()
    fault = lab.inject(name)
    truth = (fault.truth.layer, fault.truth.component)
    limit_s = find_within_s(name, Transport.UDP) + LATER_S
    observer.wait(lambda: _named_by(watch, fault), timeout_s=limit_s + LATER_S)
    alert = _named_by(watch, fault)
    arrived_s = time.monotonic() - began_s if alert else None
    lab.heal(fault.key)
    healed_s = time.monotonic()

    def is_over() -> bool:
        return all(each["status"] == "resolved" for each in watch.told().values())

    limit_s = recover_within_s(name, Transport.UDP) + LATER_S
    over = observer.wait(is_over, timeout_s=limit_s + LATER_S)
    resolved_s = time.monotonic() - healed_s if over and alert else None
    labels = alert["labels"] if alert else {}
    others = tuple(
        _named(each) for each in watch.told().values() if not _is_of(each, fault)
    )  # fmt: skip
    severity = labels.get("severity", "")
    return Alerted(
        name, truth, labels.get("alertname", ""), severity, arrived_s, resolved_s, others
    )


def _named_by(watch: Watch, fault: Fault) -> dict[str, Any] | None:
    for alert in watch.told().values():
        labels = alert["labels"]
        who = labels.get("layer"), labels.get("component")
        if labels["alertname"] in OF_INCIDENTS and who == (
            fault.truth.layer,
            fault.truth.component,
        ):
            return alert
    return None


def _is_of(alert: dict[str, Any], fault: Fault) -> bool:
    labels = alert["labels"]
    if labels["alertname"] in OF_INCIDENTS:
        return bool(labels.get("component") == fault.truth.component)
    return labels["alertname"] in BESIDE.get(fault.name, ())


def _named(alert: dict[str, Any]) -> str:
    labels = alert["labels"]
    return f"{labels['alertname']} {labels.get('component', '')}".strip()


def _printed(verb: str) -> str:
    done = subprocess.run(
        [program("netagent-analyzer"), verb], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"netagent-analyzer {verb}: {done.stderr.strip()}")
    return done.stdout
