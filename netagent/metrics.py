# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of an agent. Imported only where `[metrics] listen` is set."""

from collections.abc import Iterator
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from netagent.config import AgentConfig, split_listen
from netagent.host.figures import Reads, counters_of
from netagent.server import HttpServer, Receive, Scope, Send
from netagent.trust import Trust
from netagent.wire.messages import Status

log = structlog.get_logger()

MAX_CONNECTIONS = 8
"""Open connections beyond which requests are answered 503. Chosen: two Prometheus and a person."""
PATH = "/metrics"
IMPAIRED = ("capped", "delayed", "pending", "send_errors", "unanswered", "bad_frames")
"""Totals on probes that are none, or prove less, by the agent's own making."""
TEXT = b"text/plain; charset=utf-8"


def metrics_server(config: AgentConfig, reads: Reads, trust: Trust | None) -> HttpServer:
    """Return the server that `[metrics]` wants; only beyond loopback it asks for certificates."""
    of = config.metrics
    peers = None if of.loopback or trust is None else frozenset((*of.peers, config.host))
    return HttpServer(
        MetricsApp(reads, peers=peers),
        split_listen(of.listen),
        None if of.loopback else trust,
        most=MAX_CONNECTIONS,
    )


class MetricsApp:
    """The ASGI application. `peers` are the common names that may read; None: anybody may."""

    def __init__(self, reads: Reads, *, peers: frozenset[str] | None) -> None:
        self._reads, self._peers = reads, peers

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        status, form, body = await self._answer(scope)
        head = [(b"content-type", form), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": head})
        body = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope) -> tuple[int, bytes, bytes]:
        peer = scope.get("state", {}).get("peer")
        if self._peers is not None and peer not in self._peers:
            return 403, TEXT, b"add this certificate's name to metrics.peers\n"
        if scope["path"] != PATH:
            return 404, TEXT, b"metrics are at /metrics\n"
        if scope["method"] not in {"GET", "HEAD"}:
            return 405, TEXT, b"use GET\n"
        accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
        encode, form = exposition.choose_encoder(accept)
        try:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(Told(list(families(await self._reads.status(), self._reads))))
            return 200, form.encode(), encode(registry)
        except Exception:  # a bug must not end the agent
            log.exception("metrics_failed")
            return 500, TEXT, b"see the agent's log\n"


class Told(Collector):
    """What was read once."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        """Return it."""
        return self._metrics


def families(status: Status, reads: Reads) -> Iterator[Metric]:
    """Yield what there is to say; `docs/metrics.md` lists it."""
    totals, health = reads.totals(), status.health
    yield InfoMetricFamily(
        "netagent_host_build", "The version that runs.", {"version": status.version}
    )
    for name, text in (
        ("sent", "Probes sent."),
        ("answered", "Others' probes answered."),
    ):
        yield CounterMetricFamily(f"netagent_host_probes_{name}", text, totals.get(name, 0))
    impaired = CounterMetricFamily(
        "netagent_host_probes_impaired",
        "Probes that are none, or prove less, by the agent's own making.",
        labels=("reason",),
    )
    for name in IMPAIRED:
        impaired.add_metric((name,), totals.get(name, 0))
    yield impaired
    yield CounterMetricFamily(
        "netagent_host_cpu_seconds", "CPU of the agent and of what it started.",
        totals.get("cpu_ms", 0) / 1e3,
    )  # fmt: skip
    yield CounterMetricFamily(
        "netagent_host_spool_dropped", "Summaries thrown away, as the spool was full.",
        health.spool_dropped,
    )  # fmt: skip
    yield CounterMetricFamily(
        "netagent_host_clock_steps", "Times that the wall clock jumped.", health.clock_steps
    )
    for name, text, value in zip(
        ("read", "missed"),
        ("Records of jobs' operators read.", "Such records overwritten before they were read."),
        reads.rings(),
        strict=True,
    ):
        yield CounterMetricFamily(f"netagent_host_operators_{name}", text, value)
    for name, text, value in _gauges(status):
        yield GaugeMetricFamily(f"netagent_host_{name}", text, value)
    findings = GaugeMetricFamily(
        "netagent_host_findings", "What the host states about its own parts.", labels=("kind",)
    )
    kinds = [finding.kind.value for finding in status.findings]
    for kind in sorted(set(kinds)):
        findings.add_metric((kind,), kinds.count(kind))
    yield findings
    if (ends_s := reads.certificate_ends_s()) is not None:
        yield GaugeMetricFamily(
            "netagent_host_certificate_end_timestamp_seconds",
            "When the host's certificate ends, in Unix time.",
            ends_s,
        )
    rnics = CounterMetricFamily(
        "netagent_host_rnic_hw", "RNICs' own counters, in the driver's unit.",
        labels=("device", "port", "counter"),
    )  # fmt: skip
    for device, port, name, value in counters_of(reads.devices()):
        rnics.add_metric((device, port, name), value)
    yield rnics


def _gauges(status: Status) -> Iterator[tuple[str, str, Any]]:
    health = status.health
    yield "endpoints", "Endpoints that it announces.", len(status.endpoints)
    yield "targets", "Pairs on its ping list.", status.targets
    yield "resident_memory_bytes", "Of the agent's own process.", health.rss_kb * 1024
    yield "stalled_seconds", "Longest that its loop stood still, newest window.", (
        health.stalled_ms / 1e3
    )  # fmt: skip
    yield "shed_level", "What it leaves undone near its limits; 0: nothing.", health.shed
    yield (
        "window_start_timestamp_seconds", "Start of the newest window closed.",
        status.last_window_ns / 1e9,
    )  # fmt: skip
    yield (
        "acknowledged_timestamp_seconds",
        "Start of the newest window that the analyzer has on disk.", status.acknowledged_ns / 1e9,
    )  # fmt: skip
    if status.clock is not None:
        yield (
            "clock_offset_seconds", "What to add to its clock for the analyzer's.",
            status.clock.offset_ns / 1e9,
        )  # fmt: skip
