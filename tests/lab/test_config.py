# SPDX-License-Identifier: Apache-2.0
import tomllib
from pathlib import Path

from tests.lab.certs import Certificates
from tests.lab.config import agent_toml, analyzer_toml, topology_toml
from tests.lab.shape import Shape, Transport

LAB = Path("/lab")
CERTIFICATES = Certificates(LAB / "tls")


def test_an_agent_is_told_who_it_is_and_where_everything_is() -> None:
    assert tomllib.loads(agent_toml(LAB, CERTIFICATES, 1)) == {
        "host": "h1",
        "state_dir": "/lab/h1/agent",
        "analyzer": {"url": "https://198.18.0.1:8420"},
        "tls": {"ca": "/lab/tls/ca.pem", "cert": "/lab/tls/h1.pem", "key": "/lab/tls/h1.key"},
        "rpc": {"listen": "198.18.0.11:8421"},
        "ovs": {"rundir": "/lab/h1", "integration_bridge": "br-int"},
    }


def test_where_ovn_plugs_in_an_agent_is_told_how_to_read_it_and_which_rnic_is_of_which_rail() -> (
    None
):
    text = agent_toml(LAB, CERTIFICATES, 1, traced=False, rnics=("rnic0", "rnic1"))
    document = tomllib.loads(text)
    assert document["ovs"]["rails"] == ["rnic0", "rnic1"]
    assert document["endpoints"] == {"controller": "ovn-kubernetes"}
    assert document["trace"] == {"packets_per_second": 0}


def test_an_agent_is_told_to_probe_by_rdma_where_the_lab_has_it() -> None:
    document = tomllib.loads(agent_toml(LAB, CERTIFICATES, 1, Transport.RDMA))
    assert document["probe"]["transport"] == "rdma"


def test_the_analyzer_knows_its_files() -> None:
    document = tomllib.loads(analyzer_toml(LAB, CERTIFICATES))
    assert document["database"] == "/lab/analyzer/netagent.duckdb"
    assert document["tls"]["cert"] == "/lab/tls/analyzer.pem"
    assert document["page"] == {"listen": "198.18.0.1:8443"}


def test_the_declared_topology_names_every_switch_link_and_uplink() -> None:
    document = tomllib.loads(topology_toml(Shape()))
    assert document["switches"]["spine-1"] == "10.254.1.2"
    assert len(document["switches"]) == 6
    assert {"a": "leaf-s1-r0", "b": "spine-1"} in document["links"]
    assert len(document["links"]) == 8
    assert {"host": "h2", "rnic": "rnic1", "leaf": "leaf-s1-r1"} in document["uplinks"]
