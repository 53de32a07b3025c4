# SPDX-License-Identifier: Apache-2.0
"""The TOML files that the agents and the analyzer are started with. Pure."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.lab.certs import ANALYZER, READER, Certificates
from tests.lab.shape import (
    AGENT_PORT,
    ANALYZER_ADDRESS,
    ANALYZER_PORT,
    INTEGRATION_BRIDGE,
    NORTHBOUND,
    PAGE_PORT,
    SOUTHBOUND,
    Shape,
    Transport,
    management_address,
    rnic,
)

ANALYZER_URL = f"https://{ANALYZER_ADDRESS}:{ANALYZER_PORT}"


_EMULATED = """
[probe]
transport = "{}"
# Single probes: emulated, each of a burst would wait for the one before.
pings_per_visit = 1
rate_per_endpoint = 16

"""
_ON_OVN = """\
rails = {}
ovn_rundir = "{}"

[endpoints]
controller = "ovn-kubernetes"
"""
_READ_OVN = """
[controllers.ovn]
northbound = ["{}"]
southbound = ["{}"]
"""
_TRACE = """
[trace]
packets_per_second = {}
"""


def agent_url(host: int) -> str:
    """Return where the agent of a host answers."""
    return f"https://{management_address(host)}:{AGENT_PORT}"


def agent_toml(
    directory: Path,
    certificates: Certificates,
    host: int,
    transport: Transport = Transport.UDP,
    *,
    traced: bool = True,
    rnics: Sequence[str] = (),
) -> str:
    """Return the agent's configuration on a host.

    `rnics` are those of rails 0, 1, ..., where OVN plugs in.
    """
    name = f"h{host}"
    probe = "" if transport is Transport.UDP else _EMULATED.format(transport)
    if not traced or transport is not Transport.UDP:
        probe += _TRACE.format(20 if traced else 0)
    return f"""\
host = "{name}"
state_dir = "{directory / name / "agent"}"

[analyzer]
url = "{ANALYZER_URL}"

{_tls(certificates, name)}
[rpc]
listen = "{management_address(host)}:{AGENT_PORT}"

[ovs]
rundir = "{directory / name}"
integration_bridge = "{INTEGRATION_BRIDGE}"
{_ON_OVN.format(json.dumps(rnics), directory / name) if rnics else ""}{probe}"""


def analyzer_toml(directory: Path, certificates: Certificates, *, on_ovn: bool = False) -> str:
    """Return the analyzer's configuration."""
    read = _READ_OVN.format(NORTHBOUND, SOUTHBOUND) if on_ovn else ""
    return f"""\
listen = "{ANALYZER_ADDRESS}:{ANALYZER_PORT}"
database = "{directory / "analyzer" / "netagent.duckdb"}"
topology = "{directory / "topology.toml"}"
readers = ["{READER}"]

[page]
listen = "{ANALYZER_ADDRESS}:{PAGE_PORT}"

{_tls(certificates, ANALYZER)}{read}"""


def topology_toml(shape: Shape) -> str:
    """Return the declared topology: switches by address, cables, and where RNICs plug in."""
    parts = ["# the address with which each switch answers TTL-exceeded", "[switches]"]
    parts += [f'"{name}" = "{shape.router_address(name)}"' for name in shape.router_names]
    for link in shape.links():
        parts += ["", "[[links]]", f'a = "{link.leaf}"', f'b = "{link.spine}"']
    for host in range(shape.hosts):
        for rail in range(shape.rails):
            parts += ["", "[[uplinks]]", f'host = "h{host}"', f'rnic = "{rnic(rail)}"']
            parts.append(f'leaf = "{shape.leaf_of(host, rail)}"')
    return "\n".join(parts) + "\n"


def _tls(certificates: Certificates, name: str) -> str:
    return f"""\
[tls]
ca = "{certificates.ca}"
cert = "{certificates.cert(name)}"
key = "{certificates.key(name)}"
"""
