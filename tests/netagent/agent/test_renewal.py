# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from analyzer.authority import Authority
from netagent.agent import renewal
from netagent.agent.renewal import Renewal
from netagent.config import AgentConfig, AnalyzerConfig, TlsConfig
from netagent.model.errors import Unreachable
from netagent.trust import Revoked, Trust, new_request, validity, write_whole
from netagent.wire.enrolment import Certified
from tests.waiting import until


@dataclass
class Analyzer:
    """Stands in for an uplink, with a real authority behind it."""

    authority: Authority
    crl_version: str = ""
    asked: list[str] = field(default_factory=list)
    away: bool = False
    crl: str | None = None

    async def renewed(self, request):
        self.asked.append("renewed")
        if self.away:
            raise Unreachable("analyzer", "refused")
        signed = self.authority.sign(request, "h0", ["127.0.0.1"])
        return Certified(certificate=signed, ca=self.authority.ca.read_text(), host="h0")

    async def reconnect(self):
        self.asked.append("reconnect")

    async def revoked(self):
        self.asked.append("revoked")
        return self.crl or self.authority.crl.read_text()


@dataclass
class Adapters:
    uplink: Analyzer
    trust: Trust | None


@pytest.fixture
def analyzer(tmp_path):
    return Analyzer(Authority.create(tmp_path / "ca", "test authority"))


def host(analyzer, folder, *, days, key="host.pem"):
    """Return the renewal of a host whose certificate holds that many days, and its files."""
    made, request = new_request("h0")
    signed = analyzer.authority.sign(request, "h0", ["127.0.0.1"], days=days)
    write_whole(folder / "host.pem", made + signed)
    write_whole(folder / "host.key", made)
    tls = TlsConfig(
        ca=str(analyzer.authority.ca), cert=str(folder / "host.pem"), key=str(folder / key),
        crl=str(folder / "crl.pem"),
    )  # fmt: skip
    config = AgentConfig(host="h0", analyzer=AnalyzerConfig(url="https://127.0.0.1:1"), tls=tls)
    return Renewal(config, Adapters(analyzer, Trust(tls))), folder / "host.pem"


def run(renewal_, condition):
    async def main():
        work = asyncio.create_task(renewal_.run())
        await until(condition)
        work.cancel()
        await asyncio.wait({work})

    asyncio.run(main())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(renewal, "LOOK_S", 0.01)


def looks(renewal_, count):
    """Return whether it looked that often."""
    seen = []
    renewal_.on_look = lambda: seen.append(None)
    return lambda: len(seen) >= count


def test_a_certificate_is_renewed_before_it_ends_and_taken(analyzer, tmp_path, monkeypatch):
    made, path = host(analyzer, tmp_path, days=90)
    _, before_s = validity(path)
    now_ns = int((before_s - 20 * 86_400) * 1e9)
    monkeypatch.setattr(renewal, "wall_ns", lambda: now_ns)
    run(made, lambda: "reconnect" in analyzer.asked)
    assert analyzer.asked == ["renewed", "reconnect"]
    assert sum(each.state == "valid" for each in analyzer.authority.issued()) == 2


def test_one_that_holds_for_long_is_left(analyzer, tmp_path):
    made, _ = host(analyzer, tmp_path, days=90)
    run(made, looks(made, 5))
    assert analyzer.asked == []


def test_one_whose_key_is_in_another_file_is_somebody_else_s(analyzer, tmp_path, monkeypatch):
    made, path = host(analyzer, tmp_path, days=90, key="host.key")
    monkeypatch.setattr(renewal, "wall_ns", lambda: int(validity(path)[1] * 1e9))
    run(made, looks(made, 5))
    assert analyzer.asked == []


def test_an_analyzer_that_is_away_is_asked_seldom_and_nothing_is_lost(
    analyzer, tmp_path, monkeypatch
):
    made, path = host(analyzer, tmp_path, days=90)
    analyzer.away, before = True, path.read_text()
    now = [(validity(path)[1] - 86_400) * 1e9]
    monkeypatch.setattr(renewal, "wall_ns", lambda: int(now[0]))
    run(made, looks(made, 10))
    assert analyzer.asked == ["renewed"]
    assert path.read_text() == before
    now[0] += 2 * renewal.AGAIN_S * 1e9
    run(made, looks(made, 10))
    assert analyzer.asked == ["renewed"] * 2


def test_who_was_revoked_is_fetched_once_for_each_list(analyzer, tmp_path):
    made, _ = host(analyzer, tmp_path, days=90)
    analyzer.authority.sign(new_request("x")[1], "h1", [])
    for serial in (1, 2):
        analyzer.authority.revoke("h1")
        analyzer.crl_version = f"{analyzer.authority.crl_version}{serial}"
        run(made, lambda: len(made.trust.revoked) == 1)
        run(made, looks(made, 5))
    assert analyzer.asked == ["revoked", "reconnect"] * 2


def test_a_list_that_is_older_than_the_one_that_is_there_is_not_kept(
    analyzer, tmp_path, monkeypatch
):
    made, _ = host(analyzer, tmp_path, days=90)
    now = (tmp_path / "crl.pem", analyzer.authority.crl.read_text())
    now[0].write_text(now[1])
    monkeypatch.setattr(
        renewal, "revoked_in", lambda text, _: Revoked(frozenset(), float(text == now[1]))
    )
    analyzer.crl, analyzer.crl_version = "an older one", "1"
    run(made, lambda: len(analyzer.asked) > 2)
    assert now[0].read_text() == now[1]


def test_a_list_that_the_authority_did_not_sign_is_not_kept(analyzer, tmp_path):
    made, _ = host(analyzer, tmp_path, days=90)
    analyzer.crl = Authority.create(tmp_path / "other", "another").crl.read_text()
    analyzer.crl_version = "1"
    run(made, lambda: len(analyzer.asked) > 2)
    assert not (tmp_path / "crl.pem").exists()


def test_without_tls_there_is_nothing_to_do(analyzer):
    config = AgentConfig(host="h0", analyzer=AnalyzerConfig(url="http://127.0.0.1:1"))
    asyncio.run(asyncio.wait_for(Renewal(config, Adapters(analyzer, None)).run(), 5))


def test_certificates_that_cannot_be_taken_are_told_of(analyzer, tmp_path, capsys):
    made, path = host(analyzer, tmp_path, days=90)
    Path(path).write_text("damaged")
    run(made, looks(made, 3))
    assert "TLS files cannot be used" in made.trust.problem
    assert msgspec.to_builtins(made._config.tls)["crl"].endswith("crl.pem")


def test_a_certificate_that_does_not_fit_its_key_replaces_none(analyzer, tmp_path, monkeypatch):
    made, path = host(analyzer, tmp_path, days=90)
    before = path.read_text()
    monkeypatch.setattr(renewal, "wall_ns", lambda: int((validity(path)[1] - 86_400) * 1e9))
    other = new_request("h0")[1]
    monkeypatch.setattr(renewal, "new_request", lambda name: (new_request(name)[0], other))
    run(made, looks(made, 5))
    assert analyzer.asked == ["renewed"]
    assert path.read_text() == before
    assert [each.name for each in tmp_path.glob("*.new")] == []
