# SPDX-License-Identifier: Apache-2.0
"""Addresses of the overlay and of the underlay, as text."""

import ipaddress
import re

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_FOUR = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")
"""IPv4, in the only text that it has: registrations have hundreds of thousands, and `ipaddress`
takes several times as long for each."""


def canonical(text: str) -> str | None:
    """Return the canonical text (RFC 5952) of an address that one interface may have.

    None where `text` is none, and of IPv6 for one that needs a scope, names many or nobody, or is
    not assigned to interfaces: link-local, multicast, and those of RFC 4291, section 4, that are
    reserved, the unspecified, loopback and IPv4-mapped ones among them.
    """
    return text if _FOUR.fullmatch(text) else _canonical_six(text)


def _canonical_six(text: str) -> str | None:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    odd = address.is_link_local or address.is_multicast or address.is_reserved or address.scope_id
    return None if odd else str(address)


def is_six(address: str) -> bool:
    """Whether an address that is one is of IPv6."""
    return ":" in address
