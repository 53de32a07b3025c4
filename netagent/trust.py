# SPDX-License-Identifier: Apache-2.0
"""Mutual TLS from files that may change while they are in use.

Certificates are renewed and revoked while connections stand: new ones are taken by the next
handshake of the same context. What is revoked fails its handshake on either side. A list of
revoked certificates that is past its date still counts, and one that is missing revokes nobody:
who forgets to sign lists loses no connection by it.
"""

import hashlib
import os
import re
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from netagent.model.errors import ConfigError

OPENSSL_S = 10.0
"""Seconds that openssl may take. Chosen: it takes milliseconds."""
RENEW_AT = 0.6, 0.7
"""Share of its time after which a certificate is renewed, by name. Chosen: a month is left of
ninety days, and the hosts that were enrolled in an hour do not all come at once."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_UPDATED = re.compile(r"Last Update: (.+ GMT)")
_SERIAL = re.compile(r"^\s*Serial Number: ([0-9A-Fa-f]+)", re.MULTILINE)


class TlsFiles(Protocol):
    """Where they are: PEM files; `crl` is "" where nobody revokes."""

    @property
    def ca(self) -> str:
        """Certificates of who signs."""

    @property
    def cert(self) -> str:
        """Our own certificate."""

    @property
    def key(self) -> str:
        """Its key; may be the same file."""

    @property
    def crl(self) -> str:
        """What they revoked; may not exist yet."""


Stamp = tuple[int, int, int] | None


class Trust:
    """Contexts for both sides of mutual TLS, as the files are at the last `look`.

    Raises ConfigError if they cannot be used to begin with.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self.revoked: frozenset[str] = frozenset()
        """Serial numbers as `ssl` writes them."""
        self.expires_s = 0.0
        """Unix time at which our own certificate ends."""
        self.began_s = 0.0
        self.problem = ""
        """Why files that changed were not taken; "" where they were."""
        self.roots: frozenset[bytes] = frozenset()
        """Certificates of who signs, as DER. Contexts keep those of earlier files."""
        self._stamps: tuple[Stamp, ...] = ()
        self.client = self._context(ssl.PROTOCOL_TLS_CLIENT)
        self.server = self._context(ssl.PROTOCOL_TLS_SERVER)
        self.server.verify_mode = ssl.CERT_REQUIRED
        # A session that is resumed was verified when it began, not now.
        self.server.num_tickets = 0
        self.optional = self._context(ssl.PROTOCOL_TLS_SERVER)
        """Of a server to which a client may show a certificate, and need not."""
        self.optional.verify_mode = ssl.CERT_OPTIONAL
        self.optional.num_tickets = 0
        self.bare = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """Of a server that asks nobody for a certificate."""
        self.bare.minimum_version = ssl.TLSVersion.TLSv1_3
        self._take()

    def look(self) -> bool:
        """Take files that changed; return whether any were. What cannot be used is `problem`."""
        if self._stamps == self._stamps_now():
            return False
        try:
            self._take()
        except ConfigError as error:
            self.problem = str(error)
            self._stamps = ()  # it may have been the moment: a file half written, openssl too slow
            return False
        self.problem = ""
        return True

    def refuses(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a certificate, as `getpeercert` has it, was revoked or has ended."""
        if not certificate:
            return False
        ended = ends_s(certificate) < time.time()
        return ended or certificate["serialNumber"].lstrip("0") in self.revoked

    @property
    def key_is_open(self) -> bool:
        """Return whether others than its owner may read our key."""
        return bool(Path(self.files.key).stat().st_mode & 0o077)

    def _take(self) -> None:
        self._stamps = stamps = self._stamps_now()
        files = self.files
        _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)  # as a whole, or not at all
        began_s, expires_s = validity(Path(files.cert))
        roots = _roots(Path(files.ca))
        revoked = frozenset[str]()
        if stamps[3] is not None:
            try:
                text = Path(files.crl).read_text()
            except (OSError, ValueError) as error:
                raise ConfigError(files.crl, f"no list in PEM: {error}") from error
            revoked = revoked_in(text, files.ca).serials
        for context in (self.client, self.server, self.optional, self.bare):
            _loaded(context, files)
        self.began_s, self.expires_s = began_s, expires_s
        self.revoked, self.roots = revoked, roots

    def _stamps_now(self) -> tuple[Stamp, ...]:
        files = self.files
        return tuple(_stamp(each) for each in (files.ca, files.cert, files.key, files.crl))

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        trust = self

        class Checked(ssl.SSLObject):
            def do_handshake(self) -> None:
                super().do_handshake()
                certificate = self.getpeercert()
                if not certificate and self.context.verify_mode is ssl.CERT_OPTIONAL:
                    return
                if trust.refuses(certificate):
                    raise ssl.SSLCertVerificationError("certificate revoked")
                if trust.roots.isdisjoint(_chain(self)):
                    raise ssl.SSLCertVerificationError("signed by who is trusted no more")

        context.sslobject_class = Checked
        return context


def ends_s(certificate: Mapping[str, Any]) -> int:
    """Return when a certificate ends, as `getpeercert` has it: Unix time."""
    return _seconds(certificate["notAfter"])


# Every few seconds it is asked of each connection, of which an analyzer has ten thousand.
@lru_cache(1 << 16)
def _seconds(date: str) -> int:
    return ssl.cert_time_to_seconds(date)


def due(name: str, began_s: float, expires_s: float) -> float:
    """Return when who is called `name` renews what holds from when until when: Unix times."""
    least, most = RENEW_AT
    place = hashlib.sha256(name.encode()).digest()[0] / 256
    return began_s + (least + (most - least) * place) * (expires_s - began_s)


def validity(certificate: Path) -> tuple[float, float]:
    """Return from when until when a certificate holds, as Unix times. Raises ConfigError."""
    told = openssl("x509", "-in", str(certificate), "-noout", "-dates")
    dates = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    try:
        return ssl.cert_time_to_seconds(dates["notBefore"]), ssl.cert_time_to_seconds(
            dates["notAfter"]
        )
    except (KeyError, ValueError) as error:
        raise ConfigError(str(certificate), f"openssl told no dates of it: {error}") from error


def names_of(certificate: Path) -> tuple[str, list[str], list[str]]:
    """Return the common name, the addresses and the DNS names of a certificate.

    Raises ConfigError.
    """
    words = ("-noout", "-subject", "-nameopt", "multiline", "-ext", "subjectAltName")
    told = openssl("x509", "-in", str(certificate), *words)
    named = re.search(r"commonName\s*= (.+)", told)
    if named is None:
        raise ConfigError(str(certificate), "names nobody")
    addresses = re.findall(r"IP Address:([0-9A-Fa-f.:]+)", told)
    return named[1].strip(), addresses, re.findall(r"DNS:([^,\s]+)", told)


def openssl(*words: str, given: bytes | None = None, path: str = "openssl") -> str:
    """Return what the command openssl prints. Raises ConfigError, which names `path`."""
    return _openssl(words, given, path).stdout.decode(errors="replace")


def _openssl(
    words: tuple[str, ...], given: bytes | None, path: str
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["openssl", *words],
            input=given, capture_output=True, timeout=OPENSSL_S, check=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise ConfigError(path, "the command openssl is missing: apt install openssl") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(path, f"openssl {words[0]}: not done in {OPENSSL_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(path, f"openssl {words[0]}: {said[-1] if said else 'failed'}") from error


def new_request(name: str) -> tuple[str, str]:
    """Return a new private key, and a request for a certificate of it, in PEM."""
    made = openssl(
        "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-keyout", "-", "-subj", f"/CN={name}",
    )  # fmt: skip
    key, begins, request = made.partition("-----BEGIN CERTIFICATE REQUEST-----")
    return key, begins + request


def write_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file that is there whole, or as before."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _loaded(context: ssl.SSLContext, files: TlsFiles) -> None:
    for file in (files.ca, files.cert, files.key):
        try:
            is_there = Path(file).is_file()
        except OSError as error:  # who may not look into its folder cannot tell
            raise ConfigError(file, f"cannot be read: {error.strerror}") from error
        if not is_there:
            raise ConfigError(file, "does not exist, and [tls] names it")
    try:
        context.load_verify_locations(files.ca)
        context.load_cert_chain(files.cert, files.key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            files.cert, f"TLS files cannot be used: {files.ca}, {files.key}: {error}"
        ) from error


@dataclass(frozen=True)
class Revoked:
    """A list of what was revoked."""

    serials: frozenset[str]
    made_s: float
    """Unix time at which it was made."""


def revoked_in(text: str, ca: str) -> Revoked:
    """Return what the authority in the file `ca` revoked, by its list.

    Raises ConfigError if that one did not sign it.
    """
    words, path = ("crl", "-CAfile", ca, "-noout"), "list of revoked certificates"
    # Of a signature that is wrong, the exit status of version 3.0 says nothing.
    told = _openssl((*words, "-text", "-verify"), text.encode(), path)
    if b"verify OK" not in told.stderr:
        raise ConfigError(path, "the authority did not sign it")
    plain = told.stdout.decode(errors="replace")
    made = _UPDATED.search(plain)
    if made is None:
        raise ConfigError(path, "it has no date")
    serials = frozenset(each.upper().lstrip("0") for each in _SERIAL.findall(plain))
    return Revoked(serials, ssl.cert_time_to_seconds(made[1]))


def _roots(ca: Path) -> frozenset[bytes]:
    """Return the certificates in a file, as DER. Raises ConfigError."""
    try:
        return frozenset(map(ssl.PEM_cert_to_DER_cert, _PEM.findall(ca.read_text())))
    except (OSError, ValueError) as error:
        raise ConfigError(str(ca), f"holds no certificates: {error}") from error


def _chain(peer: ssl.SSLObject) -> Iterator[bytes]:
    """Yield the certificates by which the peer's was verified, as DER."""
    if hasattr(peer, "get_verified_chain"):  # Python 3.13
        yield from peer.get_verified_chain()
    else:
        for each in peer._sslobj.get_verified_chain():  # type: ignore[attr-defined] # noqa: SLF001
            yield ssl.PEM_cert_to_DER_cert(each.public_bytes())


def _stamp(file: str) -> Stamp:
    if not file:
        return None
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
