# SPDX-License-Identifier: Apache-2.0
import argparse

import pytest

from netagent.commands.asking import add_connection, agent_of, endpoint
from netagent.config import TlsConfig
from netagent.model.errors import ConfigError
from netagent.model.ids import EndpointId


def agent(*words: str):
    parser = argparse.ArgumentParser()
    add_connection(parser)
    return agent_of(parser.parse_args(words))


def test_an_agent_is_named_by_its_url():
    assert agent("--url", "http://127.0.0.1:8421").tls is None
    files = ("--ca", "a", "--cert", "b", "--key", "c")
    made = agent("--url", "https://198.18.0.10:8421", *files)
    assert made.tls == TlsConfig(ca="a", cert="b", key="c")


def test_certificates_may_come_from_the_environment(monkeypatch):
    for name in ("CA", "CERT", "KEY"):
        monkeypatch.setenv(f"NETAGENT_{name}", name)
    assert agent("--url", "https://h").tls == TlsConfig(ca="CA", cert="CERT", key="KEY")


def test_the_local_agent_is_named_by_its_file(tmp_path):
    file = tmp_path / "agent.toml"
    file.write_text(
        'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:1"\n[rpc]\nlisten = "127.0.0.1:9"\n'
    )
    assert agent("--config", str(file)).url == "http://127.0.0.1:9"


def test_an_agent_nobody_named_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="name the agent by --url or --config"):
        agent("--config", str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match="https needs"):
        agent("--url", "https://198.18.0.10:8421")


def test_an_endpoint_is_written_container_rail():
    assert endpoint("c0/rail3") == EndpointId("c0", 3)
    with pytest.raises(argparse.ArgumentTypeError):
        endpoint("c0")
