# SPDX-License-Identifier: Apache-2.0
"""What a host says of ports that are no endpoint, held to what an agent can say."""

from netagent.model.errors import RemoteProtocolError
from netagent.wire.unprobed import MOST_COUNT, MOST_PORTS, MOST_TEXT, Unprobed


def check_unprobed(said: Unprobed) -> None:
    """Raise RemoteProtocolError for what is longer than agents make it, or cannot be."""
    if len(said.ports) > MOST_PORTS:
        text = f"{len(said.ports)} ports that are no endpoint; {MOST_PORTS} at most"
        raise RemoteProtocolError(text)
    if not len(said.ports) <= said.count <= MOST_COUNT:
        raise RemoteProtocolError(f"{said.count} ports that are no endpoint are a wrong count")
    for each in said.ports:
        if not each.port:
            raise RemoteProtocolError("a port that is no endpoint, without a name")
        told = (each.port, each.text, each.bridge, each.name, each.container, each.task)
        for text in told:
            if len(text) > MOST_TEXT or not text.isprintable():
                raise RemoteProtocolError(f"a port with the text {text[:MOST_TEXT]!r}")
