# SPDX-License-Identifier: Apache-2.0
"""What a host asks of the authority, and its answer. Certificates and requests are PEM."""

from msgspec import Struct

CRL_VERSION = "netagent-crl"
"""Header of answers to who follows a ping list: another value, another list of what was revoked."""

MAX_REQUEST_BYTES = 16 << 10
"""Bytes of such a message. Chosen: a request with a key of 8,192 bits has a quarter."""


class Enrol(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host's first certificate; it has nothing to show but what an administrator gave it."""

    secret: str
    """The first part of the token; it is good once."""
    request: str
    """Of whatever names: those of the invitation count."""


class Renew(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The next certificate of who shows one that holds."""

    request: str


class Certified(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A certificate."""

    certificate: str
    ca: str
    """Who signed it."""
    host: str
    """Its common name."""
    address: str = ""
    """The address it is for: the one that the host asked from."""
