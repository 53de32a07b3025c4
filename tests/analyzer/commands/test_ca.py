# SPDX-License-Identifier: Apache-2.0
"""`revoke` needs an analyzer: `tests/analyzer/server/test_enrolling.py` has one."""

import json
import stat

import pytest

from analyzer import cli
from analyzer.authority import Authority
from analyzer.config import load
from netagent.trust import names_of


@pytest.fixture
def made(tmp_path, capsys):
    words = ["--name", "analyzer.example", "--address", "10.1.0.5", "--address", "fd00::5"]
    assert cli.main(["ca", "init", *words, *places(tmp_path)]) == 0
    return capsys.readouterr().out


def places(folder):
    return ["--state", str(folder / "state"), "--config", str(folder / "analyzer.toml")]


def test_what_it_writes_is_what_an_analyzer_starts_with(made, tmp_path):
    config = load(str(tmp_path / "analyzer.toml"))
    assert config.tls is not None
    assert config.enrolment is not None
    assert (config.address, config.enrolment_address) == (("::", 8420), ("::", 8422))
    assert cli.main(["check-config", "--config", str(tmp_path / "analyzer.toml")]) == 0
    name, addresses, others = names_of(tmp_path / "state" / "tls" / "analyzer.pem")
    assert name == "analyzer"
    assert addresses == ["10.1.0.5", "FD00:0:0:0:0:0:0:5"]
    assert set(others) == {"analyzer", "analyzer.example"}
    assert Authority(tmp_path / "state" / "ca").fingerprint in made
    for path in (tmp_path / "state" / "tls").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_says_how_to_ask_the_analyzer_that_it_made(made, tmp_path):
    names = ("NETAGENT_ANALYZER_URL", "NETAGENT_CA", "NETAGENT_CERT", "NETAGENT_KEY")
    given = dict(each.split("=", 1) for each in made.split() if each.startswith(names))
    tls = tmp_path / "state" / "tls"
    assert given == {
        "NETAGENT_ANALYZER_URL": "https://analyzer.example:8420",
        "NETAGENT_CA": str(tmp_path / "state" / "ca" / "ca.pem"),
        "NETAGENT_CERT": str(tls / "admin.pem"),
        "NETAGENT_KEY": str(tls / "admin.pem"),
    }


def test_without_an_address_of_ipv6_it_listens_on_ipv4(tmp_path):
    assert cli.main(["ca", "init", "--address", "10.1.0.5", *places(tmp_path)]) == 0
    config = load(str(tmp_path / "analyzer.toml"))
    assert (config.address, config.enrolment_address) == (("0.0.0.0", 8420), ("0.0.0.0", 8422))


def test_it_is_done_once(made, tmp_path, capsys):
    before = (tmp_path / "state" / "ca" / "ca.pem").read_text()
    assert cli.main(["ca", "init", "--name", "a", *places(tmp_path)]) == 2
    assert "made once" in capsys.readouterr().err
    assert (tmp_path / "state" / "ca" / "ca.pem").read_text() == before


def test_a_configuration_that_is_there_is_left(tmp_path, capsys):
    (tmp_path / "analyzer.toml").write_text("mine")
    assert cli.main(["ca", "init", "--name", "a", *places(tmp_path)]) == 0
    assert "left as it is" in capsys.readouterr().out
    assert (tmp_path / "analyzer.toml").read_text() == "mine"


def test_what_was_signed_is_listed(made, tmp_path, capsys):
    state = ["--state", str(tmp_path / "state")]
    assert cli.main(["ca", "list", *state]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["analyzer", "valid"], ["admin", "valid"]]
    assert all(len(line) < 80 for line in lines)
    assert cli.main(["ca", "list", *state, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["certificates"]
    assert [each["name"] for each in listed] == ["analyzer", "admin"]


def test_where_no_authority_is_that_is_said(tmp_path, capsys):
    assert cli.main(["ca", "list", "--state", str(tmp_path)]) == 2
    assert "no authority is here" in capsys.readouterr().err


def test_an_address_is_one(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["ca", "init", "--address", "analyzer.example", *places(tmp_path)])
    assert caught.value.code == 2


def test_where_it_is_reached_has_to_be_said(tmp_path, capsys):
    assert cli.main(["ca", "init", *places(tmp_path)]) == 2
    assert "--name or --address" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_people_and_programs_get_certificates_of_their_own(made, tmp_path, capsys):
    state = ["--state", str(tmp_path / "state")]
    assert cli.main(["ca", "issue", "grafana", "--days", "30", *state]) == 0
    path = tmp_path / "state" / "tls" / "grafana.pem"
    assert str(path) in capsys.readouterr().out
    assert names_of(path) == ("grafana", [], ["grafana"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert cli.main(["ca", "issue", "../admin", *state]) == 2


def test_the_next_certificate_of_the_analyzer_is_for_where_it_is_reached(made, tmp_path, capsys):
    state = ["--state", str(tmp_path / "state")]
    path = tmp_path / "state" / "tls" / "analyzer.pem"
    before = path.read_text()
    assert cli.main(["ca", "issue", "analyzer", *state]) == 0
    of = "it is of analyzer, analyzer.example, 10.1.0.5, FD00:0:0:0:0:0:0:5\n"
    assert capsys.readouterr().out.endswith(of)
    assert path.read_text() != before
    name, addresses, others = names_of(path)
    assert (name, addresses) == ("analyzer", ["10.1.0.5", "FD00:0:0:0:0:0:0:5"])
    assert set(others) == {"analyzer", "analyzer.example"}


def test_a_certificate_is_for_other_addresses_where_these_are_given(made, tmp_path, capsys):
    state = ["--state", str(tmp_path / "state")]
    given = ["--name", "other.example", "--address", "10.1.0.6"]
    assert cli.main(["ca", "issue", "analyzer", *given, *state]) == 0
    said = capsys.readouterr().out
    assert "it is of analyzer, other.example, 10.1.0.6\n" in said
    assert "no longer of analyzer.example, 10.1.0.5, fd00::5:" in said
    path = tmp_path / "state" / "tls" / "analyzer.pem"
    assert names_of(path) == ("analyzer", ["10.1.0.6"], ["analyzer", "other.example"])
