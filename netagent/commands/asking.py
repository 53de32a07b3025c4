# SPDX-License-Identifier: Apache-2.0
"""What the verbs that talk to a running agent share: where it is and who asks."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from netagent.config import TlsConfig, load
from netagent.model.errors import ConfigError
from netagent.model.ids import EndpointId

if TYPE_CHECKING:
    from netagent.adapters.peers.agent_rpc import AgentRpc

CONFIG = "/etc/netagent/agent.toml"


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare how to reach the agent."""
    group = parser.add_argument_group("connection")
    group.add_argument("--url", help="the agent's RPC, such as https://198.18.0.10:8421")
    group.add_argument("--ca", default=os.environ.get("NETAGENT_CA"), help="[NETAGENT_CA]")
    group.add_argument("--cert", default=os.environ.get("NETAGENT_CERT"), help="[NETAGENT_CERT]")
    group.add_argument("--key", default=os.environ.get("NETAGENT_KEY"), help="[NETAGENT_KEY]")
    group.add_argument("--config", default=CONFIG, help="of the local agent (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def agent_of(arguments: argparse.Namespace) -> "AgentRpc":
    """Return the agent that the arguments name; ConfigError if they name none."""
    from netagent.adapters.peers.agent_rpc import AgentRpc  # noqa: PLC0415 - httpx takes 50 ms

    files = (arguments.ca, arguments.cert, arguments.key)
    given = TlsConfig(ca=files[0], cert=files[1], key=files[2]) if all(files) else None
    if arguments.url:
        if arguments.url.startswith("https:") and given is None:
            raise ConfigError("command line", "https needs --ca, --cert and --key")
        return AgentRpc(arguments.url, given)
    if not Path(arguments.config).exists():
        raise ConfigError(arguments.config, "does not exist; name the agent by --url or --config")
    config = load(arguments.config)
    return AgentRpc(config.rpc_url, given or config.tls)


def endpoint(text: str) -> EndpointId:
    """Return the endpoint an argument names, for argparse."""
    try:
        return EndpointId.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def print_json(message: object) -> None:
    """Print a message as indented JSON."""
    print(json.dumps(msgspec.to_builtins(message), indent=2))
