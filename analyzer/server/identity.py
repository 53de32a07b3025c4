# SPDX-License-Identifier: Apache-2.0
"""The caller's identity: the name in the certificate that TLS verified."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from litestar import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from analyzer.config import Config, Tls, is_loopback
from analyzer.fleet import certificate_names
from analyzer.server.joined import Joined
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight, sight_of
from netagent.model.errors import ConfigError
from netagent.trust import Trust
from netagent.wire.codec import MAX_BODY_BYTES

PEER = "netagent_peer"
"""Key of the caller's name in the connection's ASGI state."""
PEER_NAMES = "netagent_peer_names"
"""Key of all names in its certificate, addresses included; None without TLS."""
PEER_SERIAL = "netagent_peer_serial"
"""Key of the serial number of its certificate."""
CONNECTIONS = "netagent_connections"
"""Key of the number of connections by name, in everybody's state."""
REFUSED = "netagent_refused"
"""Key of the number of refusals by why, in everybody's state, where these are counted."""

MAX_CONNECTIONS = 64
"""Most connections of one name. Chosen: an agent takes two, and some that died are not noticed for
a minute; 5,000 hosts and their thousandth part of such leave files for all others."""
MAX_HEAD_BYTES = 320 << 10
"""Most bytes that come before a head is whole, what of its body came with it included. Chosen: a
head of 64 KiB, and asyncio reads 256 KiB at once."""
MAX_MESSAGE_BYTES = 2 * MAX_BODY_BYTES
"""Most bytes of one message. Chosen: a body in chunks has more of them than it is long."""


class IdentifiedProtocol(HttpToolsProtocol):
    """HTTP/1.1 that passes the name in the connection's certificate to the application.

    It bounds what its parser does not: bytes of a head and of a message, connections of a name.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn types it
        """Note the peer's name; every request of the connection finds it in its state."""
        self._joined = Joined(transport, self.loop)
        super().connection_made(self._joined)
        peer = transport.get_extra_info("ssl_object")
        self.certificate = certificate = (peer.getpeercert() or {}) if peer is not None else None
        name = common_name(certificate) if certificate is not None else None
        held: Counter[str | None] = self.app_state.setdefault(CONNECTIONS, Counter())
        names = names_of(certificate) if certificate is not None else None
        # The dictionary given is everybody's.
        serial = (certificate or {}).get("serialNumber", "")
        self.app_state = {**self.app_state, PEER: name, PEER_NAMES: names, PEER_SERIAL: serial}
        who = self.counted(name, transport)
        held[who] += 1
        self._leave: Callable[[], None] = lambda: _leave(held, who)
        self._taken = 0
        """Bytes since the message began, or the one before it ended."""
        self._is_head = True
        if who is not None and held[who] > MAX_CONNECTIONS:
            self.app_state.get(REFUSED, Counter())["connection"] += 1
            transport.abort()  # to close it would wait for the peer

    def counted(self, name: str | None, _transport: asyncio.Transport) -> str | None:
        """Return by what a connection of this name is counted; None: by nothing."""
        return name

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the name have another connection."""
        self._leave()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """Send what is written: behind an end that nobody holds up the connection is closed."""
        self._joined.flush()
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Take what came, unless that is more than any message has."""
        self._taken += len(data)
        if self._taken > (MAX_HEAD_BYTES if self._is_head else MAX_MESSAGE_BYTES):
            self.send_400_response("Too large.")
        else:
            super().data_received(data)

    def on_headers_complete(self) -> None:
        """Let a body follow."""
        self._is_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Let the next message begin."""
        self._taken, self._is_head = 0, True
        super().on_message_complete()


def _leave(held: Counter[str | None], who: str | None) -> None:
    held[who] -= 1
    if not held[who]:
        del held[who]  # the page counts by address, of which there are more than memory has room


def is_ours(host: str) -> bool:
    """Return whether a Host that a client asks for is this machine by address, or `localhost`.

    A browser gives the name of a site that is being looked at, wherever that name leads meanwhile.
    """
    bare = host if host.endswith("]") else host.rpartition(":")[0] or host
    return is_loopback(bare.removeprefix("[").removesuffix("]"))


def common_name(certificate: dict[str, Any]) -> str:
    """Return the CN of a certificate as `getpeercert()` gives it; "" where it has none."""
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def names_of(certificate: dict[str, Any]) -> frozenset[str]:
    """Return whom and which addresses a certificate is for."""
    also = certificate.get("subjectAltName", ())
    addresses = {str(value) for kind, value in also if kind == "IP Address"}
    return frozenset(certificate_names(certificate) | addresses)


def caller_names(request: "Request[Any, Any, Any]") -> frozenset[str] | None:
    """Return the names in the caller's certificate; None without TLS."""
    names: frozenset[str] | None = request.scope["state"].get(PEER_NAMES)
    return names


def require_host(request: "Request[Any, Any, Any]", host: str, config: Config) -> None:
    """Let only the agent of `host` pass."""
    require(_caller(request), host, config)


def require(caller: str | None, host: str, config: Config) -> None:
    """Let only a caller pass that is the agent of `host`; Problem otherwise.

    One authority signs for all: who may only read would be a host by claiming to be one of its own
    name. Without TLS there are no names, and anybody passes.
    """
    if caller is None:
        return
    if caller != host:
        raise Problem(
            403,
            f"the certificate names {caller!r}, not {host!r}",
            "an agent speaks for its own host only; use that host's certificate",
        )
    if caller in config.not_hosts:
        raise Problem(
            403,
            f"{caller!r} is no host: the analyzer's configuration has it among admins, readers, "
            "tenants or clients",
            "enrol the host by a name of its own",
        )


def is_admin(request: "Request[Any, Any, Any]", admins: tuple[str, ...]) -> bool:
    """Return whether the caller is an administrator; without TLS anybody is."""
    caller = _caller(request)
    return caller is None or caller in admins


def require_admin(request: "Request[Any, Any, Any]", admins: tuple[str, ...]) -> None:
    """Let only administrators pass."""
    if not is_admin(request, admins):
        raise Problem(
            403,
            f"the certificate names {_caller(request)!r}, who may not do this",
            f"use a certificate of {' or '.join(admins)}, or add it to admins in the "
            "analyzer's configuration",
        )


def sight(request: "Request[Any, Any, Any]", config: Config) -> Sight:
    """Return what the caller may see; Problem for who may see nothing."""
    return sight_of(_caller(request), {*config.admins, *config.readers}, config.tenants)


def require_reader(request: "Request[Any, Any, Any]", config: Config) -> None:
    """Let only those pass who may read everything."""
    if not sight(request, config).is_whole:
        raise Problem(
            403,
            f"the certificate names {_caller(request)!r}, who may read of its own tasks alone",
            "ask for incidents, tasks or endpoints, or add the name to readers",
        )


def trust_of(tls: Tls, path: str) -> Trust:
    """Return what the analyzer shows and trusts, as both sides of mutual TLS. Raises ConfigError.

    `path` is the configuration file that names the others.
    """
    try:
        return Trust(tls)
    except ConfigError as error:
        raise ConfigError(path, f"[tls]: {error}") from error


# None: plain HTTP, which the configuration allowed for whoever reaches it.
def _caller(request: "Request[Any, Any, Any]") -> str | None:
    name: str | None = request.scope["state"].get(PEER)
    return name
