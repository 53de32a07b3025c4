# SPDX-License-Identifier: Apache-2.0
"""Where an agent says that it can be asked: the analyzer and other agents send requests there."""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from netagent.model.errors import RemoteProtocolError

MAX_LENGTH = 512
"""Most characters of a URL. Chosen: a host's name has 253 at most."""


def check_rpc_url(url: str, names: Collection[str] | None) -> None:
    """Raise RemoteProtocolError unless an agent may be asked at `url`.

    `names` are those in the certificate that its host showed: a host may have nobody ask another
    one, nor anything but an agent's RPC. Without TLS they are None, and any host passes. An empty
    URL is one that nobody asks.
    """
    if not url:
        return
    if len(url) > MAX_LENGTH or not url.isprintable():
        raise RemoteProtocolError(f"no URL of an agent: {url[:80]!r}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise RemoteProtocolError(f"no URL of an agent: {error}") from error
    schemes = {"http", "https"} if names is None else {"https"}
    if parts.scheme not in schemes:
        raise RemoteProtocolError(f"{url!r}: an agent is asked by {' or '.join(sorted(schemes))}")
    plain = f"{parts.scheme}://{parts.netloc}"
    if not host or "@" in parts.netloc or url.rstrip("/") != plain:
        raise RemoteProtocolError(f"{url!r} says more than the host and port of an agent")
    known = None if names is None else set(map(_plain, names))
    if known is not None and _plain(host) not in known:
        raise RemoteProtocolError(
            f"{url!r}: the host's certificate is for {', '.join(sorted(known)) or 'nobody'}"
        )


def _plain(name: str) -> str:
    """Return a name or address as it is compared: an address has several forms."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name.lower()
