# SPDX-License-Identifier: Apache-2.0
import asyncio
import ctypes
import socket
import struct

import pytest

from netagent.adapters import capabilities
from netagent.adapters.capabilities import (
    analyzer_answers,
    certificate,
    clock_synchronised,
    missing_privileges,
    packet_socket,
    rings,
    timestamps,
    uprobes,
    writable,
)
from netagent.config import AgentConfig, AnalyzerConfig, TlsConfig
from netagent.model.errors import CapabilityMissing
from netagent.trust import validity
from tests.analyzer.certificates import Authority
from tests.netagent.adapters.peers.analyzer import FakeAnalyzer


def test_privileges_are_bits_of_the_process_status():
    assert missing_privileges("CapEff:\t000001ffffffffff\n") == []
    without = missing_privileges("Name:\tx\nCapEff:\t0000000000003000\n")
    assert without == ["CAP_NET_BROADCAST", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE"]
    assert set(missing_privileges()) <= set(capabilities.CAPABILITIES)


def test_the_kernel_stamps_what_goes_over_loopback():
    assert timestamps().startswith("software, TX and RX")


def test_stamps_that_do_not_come_are_named(monkeypatch):
    monkeypatch.setattr(capabilities, "_STAMPS", 0)
    with pytest.raises(CapabilityMissing, match="TX and RX timestamps"):
        timestamps(wait_s=0.01)


def test_a_refused_packet_socket_names_the_privilege(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(CapabilityMissing, match="CAP_NET_RAW"):
        packet_socket()


class Libc:
    """A C library whose clock is as a test says."""

    def __init__(self, status: int) -> None:
        self._status = status

    def adjtimex(self, reference) -> None:
        timex = reference._obj
        timex[3] = 1500
        timex[5] = self._status


@pytest.mark.parametrize("status", [0, 0x40])
def test_an_undisciplined_clock_is_told(monkeypatch, status):
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc(status))
    if status:
        with pytest.raises(CapabilityMissing, match="chrony"):
            clock_synchronised()
    else:
        assert clock_synchronised() == "synchronised, at most 1.5 ms off"


def test_the_real_clock_can_be_asked():
    assert struct.calcsize("l") == 8
    try:
        assert "ms off" in clock_synchronised()
    except CapabilityMissing as missing:
        assert missing.capability == "clock synchronisation"  # noqa: PT017 - either is fine


def test_a_folder_is_made_and_tried(tmp_path):
    assert "MiB free" in writable(str(tmp_path / "made"))
    (tmp_path / "file").touch()
    with pytest.raises(CapabilityMissing, match="writable"):
        writable(str(tmp_path / "file" / "below"))


def config(url: str, tls: TlsConfig | None = None) -> AgentConfig:
    return AgentConfig(host="h0", analyzer=AnalyzerConfig(url=url), tls=tls)


def knock(analyzer: FakeAnalyzer, tls: TlsConfig | None = None) -> str:
    async def main() -> str:
        async with analyzer:
            return await analyzer_answers(config(analyzer.url, tls))

    return asyncio.run(main())


def test_a_certificate_is_told_with_its_end(tmp_path):
    authority = Authority(tmp_path)
    cert, key = authority.sign("h0")
    key.chmod(0o600)
    tls = TlsConfig(ca=str(authority.ca), cert=str(cert), key=str(key))
    config = AgentConfig(host="h0", analyzer=AnalyzerConfig(url="https://127.0.0.1:1"), tls=tls)
    began_s, expires_s = validity(cert)
    assert "renewed by you; 0 others revoked" in certificate(config, began_s + 1)
    for then_s in (began_s - 1, expires_s):
        with pytest.raises(CapabilityMissing, match="enrol again"):
            certificate(config, then_s)
    key.chmod(0o644)
    with pytest.raises(CapabilityMissing, match=r"chmod 600 .*h0\.key"):
        certificate(config, began_s + 1)


def test_an_analyzer_that_answers_is_fine_with_and_without_tls(tmp_path):
    assert knock(FakeAnalyzer()).endswith("answers over plain HTTP")
    authority = Authority(tmp_path)
    cert, key = authority.sign("h0")
    tls = TlsConfig(ca=str(authority.ca), cert=str(cert), key=str(key))
    analyzer = FakeAnalyzer(tls=authority.server("analyzer"))
    assert knock(analyzer, tls).endswith("answers over mutual TLS")


def test_a_certificate_of_strangers_is_an_analyzer_tls_problem(tmp_path):
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    cert, key = stranger.sign("h0")
    tls = TlsConfig(ca=str(stranger.ca), cert=str(cert), key=str(key))
    with pytest.raises(CapabilityMissing, match=r"check \[tls\]"):
        knock(FakeAnalyzer(tls=authority.server("analyzer")), tls)


def test_an_analyzer_that_is_not_there_or_says_nothing_is_told(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(CapabilityMissing, match="start it"):
        asyncio.run(analyzer_answers(config(f"http://127.0.0.1:{port}")))
    monkeypatch.setattr(capabilities, "_REPLY_S", 0.05)
    with pytest.raises(CapabilityMissing, match="no answer from"):
        knock(FakeAnalyzer(answer=lambda _: None))


def test_rings_are_counted_where_their_folder_is(tmp_path):
    (tmp_path / "1-a.ring").touch()
    (tmp_path / "else").touch()
    assert rings(str(tmp_path)).startswith("1 processes")
    with pytest.raises(CapabilityMissing, match="mode 1777"):
        rings(str(tmp_path / "none"))


@pytest.mark.parametrize(("there", "user"), [(False, 0), (True, 1000)])
def test_uprobes_need_tracefs_and_root(monkeypatch, there, user):
    monkeypatch.setattr("netagent.adapters.capabilities.Path.exists", lambda _path: there)
    monkeypatch.setattr("netagent.adapters.capabilities.os.access", lambda *_: True)
    monkeypatch.setattr("netagent.adapters.capabilities.os.geteuid", lambda: user)
    with pytest.raises(CapabilityMissing, match="root" if there else "tracefs"):
        uprobes()


def test_uprobes_that_can_be_had_are_told(monkeypatch):
    monkeypatch.setattr("netagent.adapters.capabilities.Path.exists", lambda _path: True)
    monkeypatch.setattr("netagent.adapters.capabilities.os.access", lambda *_: True)
    monkeypatch.setattr("netagent.adapters.capabilities.os.geteuid", lambda: 0)
    assert "gloo" in uprobes()
