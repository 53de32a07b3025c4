# SPDX-License-Identifier: Apache-2.0
"""Certificates of hosts over HTTP: invited, renewed and revoked by who has one."""

import asyncio
import ipaddress
from typing import Annotated

import msgspec
import structlog
from litestar import Response, get, post
from litestar.params import FromPath

from analyzer.authority import NAME, Authority
from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives, takes
from analyzer.server.http import BOTH, Call, analyzer_of, as_json, read, reply
from analyzer.server.identity import PEER, PEER_SERIAL, caller_names, require_admin, require_host
from analyzer.server.problems import Problem
from netagent.wire.codec import ContentType
from netagent.wire.enrolment import MAX_REQUEST_BYTES, Certified, Renew

log = structlog.get_logger()

MOST_VALID_S = 7 * 24 * 3600
"""Seconds that an invitation holds at most. Chosen: a rollout, and not for ever."""

SIGNING_BYTES = 64 << 10
"""What a certificate that is asked for counts of the bytes that its host may send. Chosen: one in
two seconds for long, and each, made or refused, takes openssl a hundredth of a second; an agent
asks once in a month, and again after ten seconds where it is refused."""


class Invite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to invite, and for how long."""

    host: str
    address: str = ""
    """For which it gets a certificate; "": the one that it asks from."""
    valid_s: Annotated[int, msgspec.Meta(ge=1, le=MOST_VALID_S)] = 3600


class Revoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose certificates to revoke."""

    name: str
    force: bool = False
    """Also the caller's own: who has no other certificate can do nothing more."""


ANALYZER = "analyzer"
"""Common name by which agents know the analyzer."""

RENEWAL_EXAMPLE = {"request": "-----BEGIN CERTIFICATE REQUEST-----..."}


@post(
    "/v1/invitations",
    status_code=200,
    operation_class=takes(Invite, {"host": "gpu-0417"}, forms=(ContentType.JSON,)),
    responses={200: gives("A token, which is good once."), 403: PROBLEM, 404: PROBLEM},
    tags=["certificates"],
)
async def invite(request: Call) -> Response[bytes]:
    """Let a host ask for its first certificate."""
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    authority = _authority(analyzer)
    asked, _ = await read(request, Invite, max_bytes=MAX_REQUEST_BYTES)
    config = analyzer.config
    if asked.host == ANALYZER or asked.host in config.not_hosts:
        raise Problem(400, f"{asked.host!r} is no host", "use netagent-analyzer ca issue")
    if asked.address and not _is_address(asked.address):
        raise Problem(400, f"{asked.address!r} is no address", "write it in numbers")
    now_ns = analyzer.clock()
    until_ns = now_ns + asked.valid_s * 10**9
    async with analyzer.signing:
        token = await asyncio.to_thread(
            authority.invite, asked.host, asked.address, until_ns=until_ns, now_ns=now_ns
        )
    log.info("host_invited", host=asked.host, valid_s=asked.valid_s)
    _, port = config.enrolment_address
    return as_json({"host": asked.host, "token": token, "port": port})


@post(
    "/v1/hosts/{host:str}/certificate",
    status_code=200,
    operation_class=takes(Renew, RENEWAL_EXAMPLE, forms=BOTH),
    responses={200: gives("The next certificate.", Certified), 403: PROBLEM, 404: PROBLEM},
    tags=["certificates"],
)
async def renew(host: FromPath[str], request: Call) -> Response[bytes]:
    """Sign the next certificate of a host, for the addresses of the one that it shows."""
    analyzer = analyzer_of(request)
    require_host(request, host, analyzer.config)
    authority = _authority(analyzer)
    asked, payload = await read(request, Renew, max_bytes=MAX_REQUEST_BYTES)
    analyzer.may_send(host, SIGNING_BYTES + len(payload))
    addresses = sorted(filter(_is_address, caller_names(request) or ()))
    serial: str = request.scope["state"].get(PEER_SERIAL, "")
    async with analyzer.signing:
        try:
            signed = await asyncio.to_thread(
                authority.renew, asked.request, host, serial, addresses
            )
        except PermissionError as error:
            raise Problem(403, str(error), "enrol again") from error
    log.info("certificate_renewed", host=host)
    return reply(request, Certified(certificate=signed, ca=authority.ca.read_text(), host=host))


@get("/v1/crl", responses={200: gives("PEM, signed by the authority.", str), 404: PROBLEM},
     media_type="application/x-pem-file", tags=["certificates"])  # fmt: skip
async def revoked(request: Call) -> Response[bytes]:
    """Return the list of what was revoked."""
    authority = _authority(analyzer_of(request))
    return Response(authority.crl.read_bytes(), media_type="application/x-pem-file")


@post(
    "/v1/revocations",
    status_code=200,
    operation_class=takes(Revoke, {"name": "gpu-0417"}, forms=(ContentType.JSON,)),
    responses={200: gives("How many certificates held."), 403: PROBLEM, 404: PROBLEM},
    tags=["certificates"],
)
async def revoke(request: Call) -> Response[bytes]:
    """Revoke all certificates of a name; all agents refuse it within a minute."""
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    authority = _authority(analyzer)
    asked, _ = await read(request, Revoke, max_bytes=MAX_REQUEST_BYTES)
    if not NAME.fullmatch(asked.name):
        raise Problem(400, f"{asked.name!r} is no name that is signed", "name a host")
    if asked.name == request.scope["state"].get(PEER) and not asked.force:
        raise Problem(400, f"{asked.name!r} is who asks", "make another first, or use force")
    async with analyzer.signing:
        count = await asyncio.to_thread(authority.revoke, asked.name)
    log.warning("certificates_revoked", name=asked.name, certificates=count)
    return as_json({"name": asked.name, "revoked": count})


ROUTES = (invite, renew, revoked, revoke)


def _authority(analyzer: Analyzer) -> Authority:
    if analyzer.authority is None:
        raise Problem(404, "this analyzer signs nothing", "add [enrolment] to its configuration")
    return analyzer.authority


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
