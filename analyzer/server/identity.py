# SPDX-License-Identifier: Apache-2.0
"""The caller's identity: the name in the certificate that TLS verified."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

from litestar import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from analyzer.config import Tls
from analyzer.server.problems import Problem
from netagent.model.errors import ConfigError

PEER = "netagent_peer"
"""Key of the caller's name in the connection's ASGI state."""


class IdentifiedProtocol(H11Protocol):
    """HTTP/1.1 that passes the name in the connection's certificate to the application."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn types it
        """Note the peer's name; every request of the connection finds it in its state."""
        super().connection_made(transport)
        peer = transport.get_extra_info("ssl_object")
        name = common_name(peer.getpeercert() or {}) if peer is not None else None
        self.app_state = {**self.app_state, PEER: name}  # the dictionary given is everybody's


def common_name(certificate: dict[str, Any]) -> str:
    """Return the CN of a certificate as `getpeercert()` gives it; "" where it has none."""
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def require_host(
    request: "Request[Any, Any, Any]", host: str, admins: tuple[str, ...] = ()
) -> None:
    """Let only the agent of `host` pass, and `admins`."""
    caller = _caller(request)
    if caller is not None and caller != host and caller not in admins:
        raise Problem(
            403,
            f"the certificate names {caller!r}, not {host!r}",
            "an agent speaks for its own host only; use that host's certificate",
        )


def require_admin(request: "Request[Any, Any, Any]", admins: tuple[str, ...]) -> None:
    """Let only administrators pass."""
    caller = _caller(request)
    if caller is not None and caller not in admins:
        raise Problem(
            403,
            f"the certificate names {caller!r}, who may not do this",
            f"use a certificate of {' or '.join(admins)}, or add it to admins in the "
            "analyzer's configuration",
        )


def client_context(tls: Tls, path: str) -> ssl.SSLContext:
    """Return what the analyzer shows and trusts as a client. Raises ConfigError."""
    return _context(tls, path, ssl.Purpose.SERVER_AUTH)


def server_context(tls: Tls, path: str) -> ssl.SSLContext:
    """Return what the analyzer shows and trusts as a server: mutual TLS. Raises ConfigError."""
    context = _context(tls, path, ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


# None: plain HTTP, which the configuration allowed for whoever reaches it.
def _caller(request: "Request[Any, Any, Any]") -> str | None:
    name: str | None = request.scope["state"].get(PEER)
    return name


def _context(tls: Tls, path: str, purpose: ssl.Purpose) -> ssl.SSLContext:
    for file in (tls.ca, tls.cert, tls.key):
        if not Path(file).is_file():
            raise ConfigError(path, f"[tls]: {file} does not exist")
    try:
        context = ssl.create_default_context(purpose, cafile=tls.ca)
        context.load_cert_chain(tls.cert, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(path, f"[tls]: {tls.ca}, {tls.cert}, {tls.key}: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
