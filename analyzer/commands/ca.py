# SPDX-License-Identifier: Apache-2.0
"""Make the authority of a cluster, list what it signed, revoke."""

import argparse
import ipaddress
import json
import os
from contextlib import suppress
from pathlib import Path

from analyzer import config as configuration
from analyzer.authority import Authority, owned_by
from analyzer.commands import connection
from analyzer.commands.connection import Connection
from netagent.model.errors import ConfigError, RemoteProtocolError
from netagent.trust import names_of, new_request, write_whole

EPILOG = """\
examples:
  netagent-analyzer ca init --name analyzer.example --address 10.1.0.5
  netagent-analyzer ca init --address 10.1.0.5 --address fd00::5
  netagent-analyzer invite gpu-0417
  netagent-analyzer ca list
  netagent-analyzer ca issue grafana
  netagent-analyzer ca issue analyzer --address 10.1.0.5 --address 10.1.0.6
  netagent-analyzer ca revoke gpu-0417

`init` makes a key, which the analyzer signs hosts' certificates with, and
certificates of the analyzer and of an administrator, below STATE; and FILE,
unless it is there. It is done once, on the analyzer's machine, as root.
`list` and `issue` need STATE there, and root; `issue` makes a certificate for
a person or a program, also the next one of `admin`: what it may do is said in
FILE (admins, readers, tenants). Without --name and --address it is for those
of the one in its place, such as the analyzer's own; with them for these alone:
who comes by any other is cut off. `revoke` asks the running analyzer, with an
admin's certificate: all refuse what was revoked within a minute.
Who has an authority of their own needs none of this: see docs/security.md.

exit status: 0 done; 1 `revoke` found none that held; 2 it cannot be done so;
3 the analyzer cannot be reached
"""

STATE = "/var/lib/netagent-analyzer"
FILE = "/etc/netagent-analyzer/analyzer.toml"
USER = "netagent-analyzer"
ADMIN_DAYS = 365
"""Days of an administrator's certificate. Chosen: people renew theirs by hand."""

TEXT = """\
# Written by netagent-analyzer ca init. All settings:
# /usr/share/doc/netagent-analyzer/operating.md
listen = "{listen}"
database = "{state}/analyzer.duckdb"

[tls]
ca = "{state}/ca/ca.pem"
cert = "{state}/tls/analyzer.pem"
key = "{state}/tls/analyzer.pem"
crl = "{state}/ca/crl.pem"

[enrolment]
authority = "{state}/ca"
listen = "{enrolment}"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = actions.add_parser("init", help="make an authority, once")
    init.add_argument("--name", metavar="NAME", help="of the analyzer in DNS")
    init.add_argument("--address", action="append", default=[], metavar="IP", type=_address,
                      help="at which it is reached; may be repeated")  # fmt: skip
    init.add_argument("--port", type=int, default=configuration.DEFAULT_PORT,
                      help="hosts enrol at the next but one (default: %(default)s)")  # fmt: skip
    init.add_argument("--config", metavar="FILE", default=FILE, help="(default: %(default)s)")
    listing = actions.add_parser("list", help="list certificates that were signed")
    listing.add_argument("--json", action="store_true", help="print them as JSON")
    issue = actions.add_parser("issue", help="make a person's or a program's certificate")
    issue.add_argument("issued", metavar="NAME", help="as in admins, readers or tenants")
    issue.add_argument("--name", metavar="DNS", help="where it is reached, if it serves")
    issue.add_argument("--address", action="append", default=[], metavar="IP", type=_address,
                       help="likewise; may be repeated")  # fmt: skip
    issue.add_argument("--days", type=int, default=ADMIN_DAYS, help="(default: %(default)s)")
    for each in (init, listing, issue):
        each.add_argument("--state", metavar="FOLDER", default=STATE, help="(default: %(default)s)")
    revoke = actions.add_parser("revoke", help="revoke all certificates of a name")
    revoke.add_argument("revoked", metavar="NAME")
    revoke.add_argument("--force", action="store_true", help="also the name that asks")
    connection.add_arguments(revoke)


def run(args: argparse.Namespace) -> int:
    """Do one of them."""
    actions = {"init": _init, "list": _list, "issue": _issue, "revoke": _revoke}
    return actions[args.action](args)


def _issue(args: argparse.Namespace) -> int:
    os.umask(0o077)
    state, name = Path(args.state), args.issued
    authority, path = Authority(state / "ca"), state / "tls" / f"{args.issued}.pem"
    names, addresses = [args.name] if args.name else [], args.address
    if not names and not addresses and path.exists():
        # Whoever serves by it, as the analyzer does, could not be reached by one without these.
        _, addresses, names = names_of(path)
    lost = _lost(path, names, addresses)
    also = [f"DNS:{each}" for each in names if each != name]
    try:
        _signed(authority, name, also, addresses, path, args.days)
    except RemoteProtocolError as error:
        raise ConfigError("NAME", str(error)) from error
    with suppress(LookupError, PermissionError):
        owned_by(state, USER)
    print(f"{path}, certificate and key in one file, for {args.days} days")
    print("it is of " + ", ".join(dict.fromkeys((name, *names, *addresses))))
    if lost:
        print(f"and no longer of {', '.join(lost)}: who comes by these is cut off")
    return 0


def _lost(path: Path, names: list[str], addresses: list[str]) -> list[str]:
    """Return what the certificate in its place is for, and the next one is not."""
    try:
        name, before, known = names_of(path)
    except ConfigError:  # there is none, or none that anybody used
        return []
    kept = {name, *names, *map(_address, addresses)}
    return [each for each in (*known, *map(_address, before)) if each not in kept]


def _init(args: argparse.Namespace) -> int:
    if args.name is None and not args.address:
        raise ConfigError("ca init", "say where hosts and people reach it: --name or --address")
    os.umask(0o077)
    state, path = Path(args.state), Path(args.config)
    authority = Authority.create(
        state / "ca", f"netagent authority of {args.name or args.address[0]}"[:64]
    )
    tls = state / "tls"
    tls.mkdir(mode=0o700, exist_ok=True)
    # Its common name is what agents let ask them by default, its DNS name where it is.
    own = _signed(
        authority,
        "analyzer",
        [f"DNS:{args.name}"] if args.name else [],
        args.address,
        tls / "analyzer.pem",
    )
    admin = _signed(authority, "admin", [], [], tls / "admin.pem", ADMIN_DAYS)
    written = f"{path} was there, and is left as it is"
    if not path.exists():
        # A socket of "::" takes IPv4 as well (ipv6(7), IPV6_V6ONLY).
        every = "[::]" if any(":" in each for each in args.address) else "0.0.0.0"
        text = TEXT.format(
            listen=f"{every}:{args.port}",
            enrolment=f"{every}:{args.port + configuration.ENROL_PORT_AFTER}",
            state=state,
        )
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o755)  # the analyzer's user reads it
        write_whole(path, text, mode=0o644)
        written = str(path)
    with suppress(LookupError, PermissionError):
        owned_by(state, USER)
    print(f"authority      {authority.folder}")
    print(f"  fingerprint  {authority.fingerprint}")
    print(f"analyzer       {own}")
    print(f"administrator  {admin}, for people: copy it, with {authority.ca}")
    print(f"configuration  {written}")
    host = args.name or args.address[0]
    url = f"https://[{host}]:{args.port}" if ":" in host else f"https://{host}:{args.port}"
    print("next: systemctl start netagent-analyzer, and to ask it here:")
    print(f"  export NETAGENT_ANALYZER_URL={url} NETAGENT_CA={authority.ca}")
    print(f"  export NETAGENT_CERT={admin} NETAGENT_KEY={admin}")
    print("  netagent-analyzer invite HOST")
    return 0


def _signed(
    authority: Authority, name: str, also: list[str], addresses: list[str], path: Path,
    days: int | None = None,
) -> Path:  # fmt: skip
    key, request = new_request(name)
    more = {} if days is None else {"days": days}
    write_whole(path, key + authority.sign(request, name, addresses, also=also, **more))
    return path


def _list(args: argparse.Namespace) -> int:
    issued = list(Authority(Path(args.state) / "ca").issued())
    if args.json:
        plain = [
            {"name": e.name, "serial": e.serial, "expires": e.expires, "state": e.state}
            for e in issued
        ]
        print(json.dumps({"certificates": plain}, indent=2))
        return 0
    print(f"{'name':24} {'state':8} {'until':10} serial")
    for each in issued:
        until = f"20{each.expires[:2]}-{each.expires[2:4]}-{each.expires[4:6]}"
        print(f"{each.name:24} {each.state:8} {until} {each.serial[:16]}...")
    return 0


def _revoke(args: argparse.Namespace) -> int:
    with Connection(args) as analyzer:
        asked = {"name": args.revoked, "force": args.force}
        answer = analyzer.post("/v1/revocations", asked)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        print(f"{answer['name']}: {answer['revoked']} certificates revoked")
    return 0 if answer["revoked"] else 1


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
