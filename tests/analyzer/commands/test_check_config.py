# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from analyzer import cli
from analyzer.commands import check_config
from tests.analyzer.certificates import Authority


def test_check_config_says_what_it_found_and_where_it_is_wrong(tmp_path, capsys):
    good = tmp_path / "analyzer.toml"
    good.write_text('topology = "topology.toml"\n')
    (tmp_path / "topology.toml").write_text('[switches]\ns = "10.0.0.1"\n')
    assert cli.main(["check-config", "--config", str(good)]) == 0
    assert "1 switches, 0 links" in capsys.readouterr().out
    assert cli.main(["check-config", "--config", str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    (tmp_path / "topology.toml").write_text("\nx = 1\n")
    assert cli.main(["check-config", "--config", str(good)]) == 2
    assert "topology.toml:2: unknown key 'x'" in capsys.readouterr().err
    assert cli.main(["check-config", "--config", str(good), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["line"] == 2
    good.write_text('[tls]\nca = "no.pem"\ncert = "no.pem"\nkey = "no.key"\n')
    assert cli.main(["check-config", "--config", str(good)]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_who_may_ask_is_shown(tmp_path, capsys):
    path = tmp_path / "analyzer.toml"
    path.write_text('readers = ["grafana", "prometheus"]\n[tenants]\na = ["x*", "y"]\nb = []\n')
    assert cli.main(["check-config", str(path)]) == 0
    said = capsys.readouterr().out
    assert "admins     admin\n" in said
    assert "readers    grafana, prometheus\n" in said
    assert "tenant     a: x*, y\n" in said
    assert "tenant     b: no task\n" in said


def test_a_page_is_shown(tmp_path, capsys):
    path = tmp_path / "analyzer.toml"
    path.write_text('[page]\nlisten = "127.0.0.1:8443"\n')
    assert cli.main(["check-config", str(path)]) == 0
    assert "  page       on 127.0.0.1:8443\n" in capsys.readouterr().out


def test_an_api_server_is_shown_and_its_files_are_read(tmp_path, capsys):
    path = tmp_path / "analyzer.toml"
    path.write_text('[controllers.kubernetes]\nurl = "https://10.0.0.1:6443"\ntell = true\n')
    assert cli.main(["check-config", str(path)]) == 0
    assert "  kubernetes https://10.0.0.1:6443, told of incidents\n" in capsys.readouterr().out
    path.write_text('[controllers.kubernetes]\nurl = "https://10.0.0.1:6443"\nca = "no.pem"\n')
    assert cli.main(["check-config", str(path)]) == 2
    assert "controllers.kubernetes.ca: " in capsys.readouterr().err
    path.write_text(
        '[controllers.kubernetes]\nurl = "https://10.0.0.1:6443"\ntoken_file = "no.token"\n'
    )
    assert cli.main(["check-config", str(path)]) == 2
    assert "controllers.kubernetes.token_file: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "remotes"),
    [
        ("controllers.ovn", ("northbound", "southbound")),
        ("actions.northbound", ("remotes",)),
    ],
)
def test_certificates_of_databases_are_read(tmp_path, capsys, name, remotes):
    path = tmp_path / "analyzer.toml"
    table = f"[{name}]\n" + "".join(f'{key} = ["ssl:10.9.0.1:6641"]\n' for key in remotes)

    def check(ca, cert, key):
        files = f'ca = "{ca}"\ncert = "{cert}"\nkey = "{key}"\n'
        path.write_text(table + files)
        status = cli.main(["check-config", str(path)])
        said = capsys.readouterr()
        return status, said.out if status == 0 else said.err

    authority = Authority(tmp_path)
    ca, (cert, key) = authority.ca, authority.sign("analyzer")
    status, said = check(ca, cert, key)
    assert status == 0
    assert ("  ovn        northbound ssl:10.9.0.1:6641; southbound" in said) == ("ovn" in name)
    status, said = check(ca, tmp_path / "no.pem", key)
    assert (status, f"{name}.cert: {tmp_path}/no.pem is not there" in said) == (2, True)
    status, said = check(ca, ca, key)  # a key that is not the certificate's
    assert (status, f"{name}: {ca}, {key}: not in PEM" in said) == (2, True)


def test_zones_are_shown(tmp_path, capsys):
    path = tmp_path / "analyzer.toml"
    path.write_text('[controllers.ovn]\nzones = "agents"\n')
    assert cli.main(["check-config", str(path)]) == 0
    assert "  ovn        each host's own databases, through its agent\n" in capsys.readouterr().out


def test_the_installed_file_is_the_one_that_is_meant_without_a_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check_config, "FILE", str(tmp_path / "analyzer.toml"))
    assert cli.main(["check-config"]) == 2
    assert f"{tmp_path}/analyzer.toml" in capsys.readouterr().err


def test_what_may_be_done_is_shown_and_a_hook_that_cannot_be_run_is_an_error(tmp_path, capsys):
    path = tmp_path / "analyzer.toml"
    hook = 'cordon_command = ["/bin/true", "-q"]\n'
    for text, said in (
        ("", "none are proposed"),
        ('[actions]\nmode = "advise"\n', "are advised, and done by persons"),
        ('[actions]\nmode = "act"\n', "nothing: 4 an hour, on 2% of the hosts"),
        (
            '[actions]\nmode = "act"\nverbs = ["recompute", "cordon"]\nper_hour = 9\n' + hook,
            "recompute, cordon: 9 an hour",
        ),
    ):
        path.write_text(text)
        assert cli.main(["check-config", str(path)]) == 0
        assert f"actions    {said}" in capsys.readouterr().out
    path.write_text(f'[actions]\ncordon_command = ["{tmp_path}/no"]\n')
    assert cli.main(["check-config", str(path)]) == 2
    assert f"{tmp_path}/no cannot be run" in capsys.readouterr().err


def test_webhooks_are_shown_and_their_files_are_looked_at(tmp_path, capsys):
    path, secret = tmp_path / "analyzer.toml", tmp_path / "secret"
    path.write_text(
        '[[webhooks]]\nname = "a"\nurl = "https://a.example/"\nsecret = "secret"\n'
        '[[webhooks]]\nname = "b"\nurl = "http://127.0.0.1:1/"\n'
    )
    assert cli.main(["check-config", str(path)]) == 2
    assert "webhook a: " in capsys.readouterr().err
    secret.write_text("x" * 32)
    secret.chmod(0o644)
    assert cli.main(["check-config", str(path)]) == 2
    assert "others than its owner may read it" in capsys.readouterr().err
    secret.chmod(0o600)
    assert cli.main(["check-config", str(path)]) == 0
    said = capsys.readouterr().out
    assert "webhook    a: signed\n" in said
    assert "webhook    b: not signed\n" in said
