# SPDX-License-Identifier: Apache-2.0
"""Against a stand-in for the analyzer; `tests/analyzer/server/test_enrolling.py` has a real one."""

import hashlib
import io
import ssl

import pytest

from analyzer.authority import Authority, fingerprint
from netagent import cli
from netagent.commands import enroll
from netagent.config import load
from netagent.trust import Trust
from netagent.wire.enrolment import Certified


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "ca", "test authority")


@pytest.fixture
def asked(authority, monkeypatch):
    """Return what was asked of the door, whose answers are for 10.1.4.17 unless changed."""
    asked = {"address": "10.1.4.17"}

    class Door:
        def __init__(self, url):
            asked["url"] = url

        def authority(self):
            return authority.ca.read_text()

        def enrol(self, known, secret, request):
            asked["secret"] = secret
            signed = authority.sign(request, "gpu-0417", [asked["address"]])
            return Certified(
                certificate=signed, ca=known, host="gpu-0417", address=asked["address"]
            )

    monkeypatch.setattr(enroll, "Door", Door)
    return asked


def enrolled(folder, authority, *more, token=None, url="https://analyzer.example:8420"):
    token = token or f"secret.{fingerprint(authority.ca.read_text())}"
    return cli.main(
        ["enroll", "--analyzer", url, "--token", token, "--state", str(folder / "state"),
         "--config", str(folder / "agent.toml"), *more]
    )  # fmt: skip


def test_the_configuration_is_one_that_an_agent_takes(authority, asked, tmp_path):
    assert enrolled(tmp_path, authority) == 0
    config = load(tmp_path / "agent.toml")
    assert config.host == "gpu-0417"
    assert config.rpc.listen == "10.1.4.17:8421"
    assert config.tls is not None
    assert config.tls.cert == config.tls.key
    assert asked["url"] == "https://analyzer.example:8422"
    assert asked["secret"] == "secret"  # noqa: S105


def test_an_address_of_ipv6_stands_in_brackets(authority, asked, tmp_path):
    asked["address"] = "fd00::17"
    assert enrolled(tmp_path, authority) == 0
    assert load(tmp_path / "agent.toml").rpc.address == ("fd00::17", 8421)


def test_a_configuration_that_is_there_is_left(authority, asked, tmp_path, capsys):
    (tmp_path / "agent.toml").write_text("mine")
    assert enrolled(tmp_path, authority) == 0
    assert (tmp_path / "agent.toml").read_text() == "mine"
    assert "left as it is" in capsys.readouterr().out


def test_a_token_may_come_by_the_standard_input(authority, asked, tmp_path, monkeypatch):
    token = f"other.{fingerprint(authority.ca.read_text())}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(token))
    assert enrolled(tmp_path, authority, token="-") == 0  # noqa: S106
    assert asked["secret"] == "other"  # noqa: S105


@pytest.mark.parametrize("token", ["x", ".", "secret.", ".abc"])
def test_what_is_no_token_is_not_sent(authority, asked, tmp_path, token):
    assert enrolled(tmp_path, authority, token=token) == 2
    assert "url" not in asked


@pytest.mark.parametrize(
    "url", ["http://a:1", "analyzer.example", "https://", "https://a:port", "https://a:70000"]
)
def test_what_is_no_analyzer_is_not_asked(authority, asked, tmp_path, url):
    assert enrolled(tmp_path, authority, url=url) == 2
    assert "url" not in asked


@pytest.mark.parametrize(
    ("url", "door"),
    [("https://a", "https://a:445"), ("https://[fd00::5]:8420", "https://[fd00::5]:8422")],
)
def test_hosts_enrol_two_ports_further(authority, asked, tmp_path, url, door):
    assert enrolled(tmp_path, authority, url=url) == 0
    assert asked["url"] == door


def test_another_authority_than_the_token_s_is_not_told_the_secret(authority, asked, tmp_path):
    wrong = hashlib.sha256(ssl.PEM_cert_to_DER_cert(authority.ca.read_text())[1:]).hexdigest()
    assert enrolled(tmp_path, authority, token=f"secret.{wrong}") == 3
    assert "secret" not in asked


def test_a_folder_that_cannot_be_made_is_told(authority, asked, tmp_path, capsys):
    (tmp_path / "state").write_text("a file")
    assert enrolled(tmp_path, authority) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_a_folder_that_cannot_be_looked_into_is_told(authority, asked, tmp_path, capsys):
    words = ["--state", str(tmp_path / ("x" * 300))]
    assert enrolled(tmp_path, authority, *words) == 2
    assert "host.pem: cannot be read: File name too long" in capsys.readouterr().err


def test_a_host_that_is_enrolled_is_left_as_it_is(authority, asked, tmp_path, capsys):
    assert enrolled(tmp_path, authority) == 0
    before = (tmp_path / "state" / "tls" / "host.pem").read_text()
    del asked["secret"]
    assert enrolled(tmp_path, authority) == 0
    assert "already" in capsys.readouterr().out
    assert "secret" not in asked
    assert enrolled(tmp_path, authority, "--force") == 0
    assert (tmp_path / "state" / "tls" / "host.pem").read_text() != before


def test_a_list_of_another_authority_does_not_stay(authority, asked, tmp_path):
    assert enrolled(tmp_path, authority) == 0
    tls = tmp_path / "state" / "tls"
    (tls / "crl.pem").write_text(Authority.create(tmp_path / "x", "before").crl.read_text())
    (tls / "host.pem").write_text("damaged")
    assert enrolled(tmp_path, authority, "--force") == 0
    assert Trust(load(tmp_path / "agent.toml").tls).revoked == frozenset()
