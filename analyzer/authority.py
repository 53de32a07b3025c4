# SPDX-License-Identifier: Apache-2.0
"""An authority in a folder, kept by `openssl ca`: what it signed, and what it revoked.

The analyzer signs what hosts ask for, so it reads the authority's key. Where a cluster has an
authority of its own, nothing here is used.
"""

import hashlib
import os
import pwd
import re
import secrets
import shutil
import ssl
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from analyzer.roster.invitations import Invitation, Invitations
from netagent.model.errors import ConfigError, RemoteProtocolError
from netagent.trust import new_request, openssl, write_whole

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Common names that are signed: those of hosts, which are names of DNS as well."""
CA_DAYS = 3_650
CRL_DAYS = 3_650
"""Days of a list of what was revoked. Chosen: it is made anew with each revocation, and who checks
its date would otherwise refuse everybody once nobody was revoked for long."""
HOST_DAYS = 90
"""Days of a certificate. Chosen: hosts renew theirs after two thirds, and have a month to do so."""
MOST_VALID = 8
"""Certificates of one name that hold at once and still are renewed. Chosen: a host has two for a
month; who has its key makes no more of them than are revoked at once."""
SKEW_S = 300
"""Seconds that hosts' clocks may be behind. Chosen: more than any that still keeps time."""

_SETTINGS = """\
[ca]
default_ca = netagent
[netagent]
dir = {folder}
database = $dir/index.txt
new_certs_dir = $dir/issued
certificate = $dir/ca.pem
private_key = $dir/ca.key
default_md = sha256
policy = any
unique_subject = no
copy_extensions = none
rand_serial = yes
[any]
commonName = supplied
"""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate in the authority's index."""

    name: str
    serial: str
    expires: str
    """As openssl writes it: YYMMDDHHMMSSZ."""
    state: str
    """`valid`, `revoked` or `expired`."""


class Authority:
    """An authority that exists. Raises ConfigError where its files cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.crl = folder / "ca.pem", folder / "crl.pem"
        try:
            is_here = self.ca.is_file() and (folder / "ca.key").is_file()
        except OSError as error:
            raise ConfigError(str(folder), f"cannot be read: {error.strerror}") from error
        if not is_here:
            raise ConfigError(
                str(folder), "no authority is here; make one: netagent-analyzer ca init"
            )
        self.crl_version = _digest(self.crl.read_bytes())
        self.invitations = Invitations(self._invitations())

    @classmethod
    def create(cls, folder: Path, name: str) -> "Authority":
        """Make an authority; raises ConfigError if there is one, or part of one, already."""
        try:
            is_taken = folder.exists() and any(folder.iterdir())
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(str(folder), f"cannot be made: {error.strerror}") from error
        if is_taken:
            raise ConfigError(str(folder), "is not empty: an authority is made once")
        (folder / "issued").mkdir(mode=0o700)
        key, request = new_request(name)
        write_whole(folder / "ca.key", key)
        given = tempfile.mkdtemp(dir=folder)
        try:
            (Path(given) / "request").write_text(request)
            extensions = Path(given) / "extensions"
            extensions.write_text(
                "basicConstraints=critical,CA:TRUE,pathlen:0\n"
                "keyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
            )
            certificate = openssl(
                "x509", "-req", "-in", f"{given}/request", "-key", str(folder / "ca.key"),
                "-days", str(CA_DAYS), "-sha256", "-extfile", str(extensions),
            )  # fmt: skip
        finally:
            shutil.rmtree(given)
        (folder / "index.txt").touch(mode=0o600)
        (folder / "openssl.cnf").write_text(_SETTINGS.format(folder=folder))
        write_whole(folder / "ca.pem", certificate, mode=0o644)
        _list_revoked(folder)
        return cls(folder)

    @property
    def fingerprint(self) -> str:
        """Return what a host knows the authority by before it trusts it: SHA-256, in hex."""
        return fingerprint(self.ca.read_text())

    def sign(
        self,
        request: str,
        name: str,
        addresses: Sequence[str],
        *,
        also: Sequence[str] = (),
        days: int = HOST_DAYS,
    ) -> str:
        """Return the certificate of a name and addresses, with the key of `request`.

        The names in the request do not count; `also` are other names, such as DNS:analyzer.example.
        Raises RemoteProtocolError for what is no request.
        """
        if not NAME.fullmatch(name):
            raise RemoteProtocolError(f"{name!r} is no name of a host")
        every = [f"DNS:{name}", *also, *(f"IP:{each}" for each in addresses)]
        with tempfile.TemporaryDirectory(dir=self.folder) as given:
            (Path(given) / "request").write_text(request)
            (Path(given) / "extensions").write_text(
                "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                "extendedKeyUsage=serverAuth,clientAuth\n"
                f"subjectAltName={','.join(every)}\n"
            )
            try:
                signed = self._ca(
                    "-in", f"{given}/request", "-extfile", f"{given}/extensions",
                    "-subj", f"/CN={name}", "-days", str(days), "-notext",
                    "-startdate", time.strftime("%y%m%d%H%M%SZ", time.gmtime(time.time() - SKEW_S)),
                )  # fmt: skip
            except ConfigError as error:
                raise RemoteProtocolError(f"not signed: {error.message}") from error
        if "BEGIN CERTIFICATE" not in signed:  # of that, openssl's exit status says nothing
            raise RemoteProtocolError("not signed: the key in the request did not sign it")
        return signed

    def renew(self, request: str, name: str, serial: str, addresses: Sequence[str]) -> str:
        """Return the next certificate of who shows the one with this serial number.

        Raises PermissionError where that does not hold, was not signed here, or too many do.
        """
        mine = [each for each in self.issued() if each.name == name and each.state == "valid"]
        if serial.lstrip("0") not in {each.serial.lstrip("0") for each in mine}:
            raise PermissionError("the certificate that was shown was revoked, or not signed here")
        if len(mine) >= MOST_VALID:
            raise PermissionError(f"{len(mine)} certificates of {name} hold: revoke, and invite it")
        return self.sign(request, name, addresses)

    def revoke(self, name: str) -> int:
        """Revoke all certificates of a name; return how many held until now."""
        mine = [each for each in self.issued() if each.name == name and each.state == "valid"]
        try:
            for each in mine:
                self._ca("-revoke", str(self.folder / "issued" / f"{each.serial}.pem"))
        finally:
            self.crl_version = _list_revoked(self.folder)
        return len(mine)

    def issued(self) -> Iterator[Issued]:
        """Yield what it signed, oldest first."""
        states = {"V": "valid", "R": "revoked", "E": "expired"}
        for line in (self.folder / "index.txt").read_text().splitlines():
            state, expires, _, serial, _, subject = line.split("\t")
            name = subject.rpartition("CN=")[2].strip()
            yield Issued(name, serial, expires, states.get(state, state))

    def invite(self, host: str, address: str = "", *, until_ns: int, now_ns: int) -> str:
        """Return the token by which a host enrols, once. Raises RemoteProtocolError."""
        if not NAME.fullmatch(host):
            raise RemoteProtocolError(f"{host!r} is no name of a host")
        secret = secrets.token_hex(24)  # no dash at its begin, nor a dot within
        self.invitations.invite(host, secret, address, until_ns=until_ns, now_ns=now_ns)
        self._keep_invitations()
        return f"{secret}.{self.fingerprint}"

    def enrol(
        self, secret: str, request: str, address: str, *, now_ns: int
    ) -> tuple[str, str, str]:
        """Return the host that a secret invites, its certificate, and for which address.

        `address` is where it asks from.

        Raises PermissionError where it invites nobody, RemoteProtocolError for a bad request.
        """
        invited = self.invitations.redeem(secret, now_ns=now_ns)
        if invited is None:
            raise PermissionError("the token was used, has ended, or never was one")
        self._keep_invitations()
        address = invited.address or address
        return invited.host, self.sign(request, invited.host, [address]), address

    def _ca(self, *words: str) -> str:
        return _ca(self.folder, *words)

    def _invitations(self) -> Iterable[Invitation]:
        try:
            return msgspec.json.decode(
                (self.folder / "invitations.json").read_bytes(), type=list[Invitation]
            )
        except FileNotFoundError:
            return ()
        except msgspec.DecodeError as error:
            raise ConfigError(str(self.folder / "invitations.json"), str(error)) from error

    def _keep_invitations(self) -> None:
        text = msgspec.json.encode(list(self.invitations)).decode()
        write_whole(self.folder / "invitations.json", text)


def fingerprint(ca: str) -> str:
    """Return the SHA-256 of a certificate, in hex; raises ValueError where it is none."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(ca)).hexdigest()


def owned_by(folder: Path, user: str) -> None:
    """Give a folder with all in it to a user; raises LookupError if there is none."""
    try:
        known = pwd.getpwnam(user)
    except KeyError as error:
        raise LookupError(f"no user {user}") from error
    os.chown(folder, known.pw_uid, known.pw_gid)
    for path, folders, files in os.walk(folder):
        for each in (*folders, *files):  # a link that somebody put there leads elsewhere
            os.chown(Path(path) / each, known.pw_uid, known.pw_gid, follow_symlinks=False)


def _ca(folder: Path, *words: str) -> str:
    return openssl("ca", "-batch", "-config", str(folder / "openssl.cnf"), *words)


def _list_revoked(folder: Path) -> str:
    """Write the list anew; return its version."""
    text = _ca(folder, "-gencrl", "-crldays", str(CRL_DAYS))
    write_whole(folder / "crl.pem", text, mode=0o644)
    return _digest(text.encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
