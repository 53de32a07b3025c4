# SPDX-License-Identifier: Apache-2.0
"""``netagent enroll``: this host's first certificate, and its configuration."""

import argparse
import hashlib
import ipaddress
import os
import socket
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from netagent.adapters.peers.enrolment import Door
from netagent.commands.asking import CONFIG
from netagent.config import parse
from netagent.model.errors import ConfigError, RemoteProtocolError
from netagent.trust import new_request, validity, write_whole
from netagent.wire.enrolment import Certified

EPILOG = """\
examples:
  netagent enroll --analyzer https://analyzer.example:8420 --token TOKEN
  netagent enroll --analyzer https://10.1.0.5:8420 --token - </root/token

TOKEN is what `netagent-analyzer invite HOST` printed; it is good once. It also
tells by which authority the analyzer is known, so that nobody can stand in for
it. The host's name is that of the invitation. Written are a key, which never
leaves the host, and its certificate, below STATE/tls, and FILE unless it is
there. The agent renews the certificate by itself.

exit status: 0 it has its certificate; 2 what was given, or what is there,
cannot be used; 3 the analyzer does not answer, or refuses
"""

PORT = 8421
"""Of the agent's RPC."""
PORT_AFTER = 2
"""By how much the analyzer's port for enrolment is behind the other."""

TEXT = """\
# Written by netagent enroll. All settings: /usr/share/doc/netagent/operating.md
host = "{host}"
state_dir = "{state}"

[analyzer]
url = "{url}"

[tls]
ca = "{tls}/ca.pem"
cert = "{tls}/host.pem"
key = "{tls}/host.pem"
crl = "{tls}/crl.pem"

[rpc]
listen = "{address}"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--analyzer", metavar="URL", required=True,
                        help="the analyzer, https://ADDRESS:PORT")  # fmt: skip
    parser.add_argument("--token", required=True, help="by whom this host was invited; - reads it")
    parser.add_argument("--port", type=int, metavar="PORT",
                        help="for enrolment (default: URL's and two)")  # fmt: skip
    parser.add_argument("--config", metavar="FILE", default=CONFIG,
                        help="to write, unless it is there (default: %(default)s)")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="also where it is enrolled already")
    parser.add_argument("--state", metavar="FOLDER", default="/var/lib/netagent",
                        help="the agent's (default: %(default)s)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Enrol, and write what the agent needs."""
    given = sys.stdin.readline() if arguments.token == "-" else arguments.token  # noqa: S105
    secret, _, fingerprint = given.strip().partition(".")
    if not secret or not fingerprint:
        raise ConfigError("--token", "is no token: it has two parts, with a dot between")
    tls = Path(arguments.state) / "tls"
    os.umask(0o077)
    if not arguments.force and (until := _enrolled(tls / "host.pem")):
        print(f"enrolled until {until} already; --force for another certificate")
        return 0
    try:
        tls.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(str(tls), f"cannot be made: {error.strerror}") from error
    door = Door(_door(arguments))
    key, request = new_request(socket.gethostname()[:63])
    certified = door.enrol(_known(door.authority(), fingerprint), secret, request)
    # One of the authority before would be no list of this one's; the agent fetches it anew.
    (tls / "crl.pem").unlink(missing_ok=True)
    write_whole(tls / "ca.pem", certified.ca)
    write_whole(tls / "host.pem", key + certified.certificate)
    print(f"{certified.host}: enrolled, for {certified.address}")
    print(f"  certificate   {tls / 'host.pem'}")
    print(f"  configuration {_configured(arguments, certified, tls)}")
    print("next: systemctl start netagent; netagent doctor")
    return 0


def _enrolled(certificate: Path) -> str:
    """Return until when this host's certificate holds; "" where there is none that does."""
    try:
        is_there = certificate.exists()
    except OSError as error:
        raise ConfigError(str(certificate), f"cannot be read: {error.strerror}") from error
    if not is_there:
        return ""
    _, expires_s = validity(certificate)
    return time.strftime("%Y-%m-%d", time.gmtime(expires_s)) if time.time() < expires_s else ""


def _door(arguments: argparse.Namespace) -> str:
    parts = urlsplit(arguments.analyzer)
    try:
        port = arguments.port or (parts.port or 443) + PORT_AFTER
    except ValueError as error:
        raise ConfigError("--analyzer", str(error)) from error
    if parts.scheme != "https" or not parts.hostname:
        raise ConfigError("--analyzer", "write https://ADDRESS:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"https://{host}:{port}"


def _known(authority: str, fingerprint: str) -> str:
    """Return an authority's certificate if it is the one that the token tells of."""
    try:
        mine = hashlib.sha256(ssl.PEM_cert_to_DER_cert(authority)).hexdigest()
    except ValueError as error:
        raise RemoteProtocolError(f"the analyzer's authority is no certificate: {error}") from error
    if mine != fingerprint:
        raise RemoteProtocolError(
            "this is not the authority that the token tells of: somebody stands between, or the "
            "token is of another analyzer"
        )
    return authority


def _configured(arguments: argparse.Namespace, certified: Certified, tls: Path) -> str:
    """Write the configuration unless there is one; return what to say of it."""
    path = Path(arguments.config)
    if path.exists():
        return f"{path} was there, and is left as it is"
    address = certified.address
    is_six = ipaddress.ip_address(address).version == 6
    text = TEXT.format(
        host=certified.host,
        state=arguments.state,
        url=arguments.analyzer.rstrip("/"),
        tls=tls,
        address=f"[{address}]:{PORT}" if is_six else f"{address}:{PORT}",
    )
    parse(text, str(path))
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)
    write_whole(path, text, mode=0o644)
    return str(path)
