# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from netagent import metrics
from netagent.config import AgentConfig, AnalyzerConfig, MetricsConfig, TlsConfig
from netagent.host.figures import Reads
from netagent.host.rdma_facts import RdmaDevice, RdmaPort
from netagent.metrics import MAX_CONNECTIONS, families, metrics_server
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, Kind
from netagent.trust import Trust
from netagent.wire.messages import ClockOffset, Health, Status
from tests.analyzer.certificates import Authority

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(netagent_host_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
PORT = RdmaPort("mlx5_0", 1, "ACTIVE", "Ethernet", counters={"out_of_sequence": 5})


async def status() -> Status:
    found = Finding(FindingKind.RNIC_DOWN, Component(Kind.RNIC, "h0/rnic0"), "down", 1)
    return Status(
        host="h0", instance="i", version="1", endpoints=(), pinglist_version=3, targets=2,
        last_window_ns=5_000_000_000, findings=(found, found),
        clock=ClockOffset(offset_ns=-2_000_000, error_ns=1),
        health=Health(rss_kb=50_000, stalled_ms=12, spool_dropped=3),
    )  # fmt: skip


READS = Reads(
    status,
    totals=lambda: {"sent": 40, "capped": 2, "cpu_ms": 1_500},
    devices=lambda: (RdmaDevice("mlx5_0", ports=(PORT,)),),
    certificate_ends_s=lambda: 1_800_000_000.0,
)


@contextlib.asynccontextmanager
async def serving(reads: Reads = READS, tls: TlsConfig | None = None, **of) -> AsyncIterator[int]:
    of = {"listen": "127.0.0.1:0"} | of
    scheme = "https" if tls else "http"
    config = AgentConfig(
        host="h0", analyzer=AnalyzerConfig(url=f"{scheme}://127.0.0.1:1"), tls=tls,
        metrics=MetricsConfig(**of),
    )  # fmt: skip
    server = metrics_server(config, reads, Trust(tls) if tls else None)
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop()


def get(path="/metrics", reads=READS, method="GET", **headers):
    async def inside():
        async with serving(reads) as port, httpx.AsyncClient(trust_env=False) as client:
            return await client.request(method, f"http://127.0.0.1:{port}{path}", headers=headers)

    return asyncio.run(inside())


def samples(text):
    return {
        (sample.name, *(sample.labels[each] for each in sorted(sample.labels))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_whoever_is_on_the_host_reads_without_a_certificate():
    found = samples(get().text)
    assert found["netagent_host_probes_sent_total",] == 40
    assert found["netagent_host_probes_impaired_total", "capped"] == 2
    assert found["netagent_host_cpu_seconds_total",] == 1.5
    assert found["netagent_host_resident_memory_bytes",] == 51_200_000
    assert found["netagent_host_findings", "rnic-down"] == 2
    assert found["netagent_host_clock_offset_seconds",] == -0.002
    assert found["netagent_host_rnic_hw_total", "out_of_sequence", "mlx5_0", "1"] == 5
    assert found["netagent_host_certificate_end_timestamp_seconds",] == 1_800_000_000


def test_openmetrics_is_answered_to_who_asks_for_it():
    answer = get(accept="application/openmetrics-text;version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert "netagent_host_probes_sent" in names


def test_there_is_nothing_else():
    assert get("/v1/status").status_code == 404
    assert get(method="POST").status_code == 405
    assert get(method="HEAD").text == ""


def test_a_bug_is_answered_and_logged():
    async def broken():
        raise KeyError("x")

    reads = Reads(broken, READS.totals, READS.devices, READS.certificate_ends_s)
    assert get(reads=reads).status_code == 500


def test_without_tls_and_clock_there_is_less_to_say():
    async def inside():
        reads = Reads(status, dict, tuple, lambda: None)
        return {family.name for family in families(await status(), reads)}

    assert "netagent_host_certificate_end_timestamp_seconds" not in asyncio.run(inside())


def test_the_document_lists_every_metric():
    async def inside():
        return list(families(await status(), READS))

    found = []
    for family in asyncio.run(inside()):
        end = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = ", ".join(f"`{name}`" for name in family.samples[0].labels)
        found.append((family.name + end, family.type, labels, family.documentation))
    assert ROW.findall(DOCUMENT.read_text()) == found


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return an authority, and the files of a host whose loopback is none."""
    monkeypatch.setattr("netagent.config.is_loopback", lambda _host: False)
    authority = Authority(tmp_path)
    cert, key = authority.sign("h0")
    return authority, TlsConfig(ca=str(authority.ca), cert=str(cert), key=str(key))


def test_beyond_loopback_a_certificate_is_asked_for_and_its_name(elsewhere):
    authority, tls = elsewhere

    async def read(name, port):
        context = authority.client(name)
        async with httpx.AsyncClient(verify=context, trust_env=False) as client:
            return (await client.get(f"https://127.0.0.1:{port}/metrics")).status_code

    async def inside():
        async with serving(tls=tls, peers=("prometheus",)) as port:
            known = [await read(name, port) for name in ("prometheus", "h0", "h1")]
            with pytest.raises((httpx.HTTPError, ssl.SSLError)):
                await read(None, port)
            return known

    assert asyncio.run(inside()) == [200, 200, 403]


def test_connections_are_few(monkeypatch):
    async def inside():
        async with serving() as port, contextlib.AsyncExitStack() as stack:
            for _ in range(MAX_CONNECTIONS):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
            async with httpx.AsyncClient(trust_env=False) as client:
                url = f"http://127.0.0.1:{port}/metrics"
                return (await client.get(url)).status_code

    assert asyncio.run(inside()) == 503


def test_an_agent_that_is_not_asked_for_metrics_does_not_import_the_library():
    code = "import sys, netagent.commands.run; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert metrics.PATH == "/metrics"
