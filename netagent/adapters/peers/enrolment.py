# SPDX-License-Identifier: Apache-2.0
"""The way to an analyzer for a host that has no certificate yet."""

import ssl
from typing import TypeVar

import httpx
import msgspec

from netagent.model.errors import RemoteProtocolError, Unreachable
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.enrolment import Certified, Enrol

T = TypeVar("T")

DEADLINE_S = 15.0
"""Seconds a question may take. Chosen: longer than the analyzer gives itself."""


class _Authority(msgspec.Struct, frozen=True):
    ca: str


class _Refusal(msgspec.Struct, frozen=True):
    error: str
    remedy: str = ""


class Door:
    """The analyzer's listener for such hosts. All raise Unreachable and RemoteProtocolError."""

    def __init__(self, url: str) -> None:
        self._url = url

    def authority(self) -> str:
        """Return who signs there, in PEM, from whoever answers: nothing is trusted yet."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return self._asked(context, "GET", "/v1/ca", _Authority).ca

    def enrol(self, authority: str, secret: str, request: str) -> Certified:
        """Return this host's certificate, from an analyzer that shows one of `authority`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=authority)
        message = Enrol(secret=secret, request=request)
        certified = self._asked(context, "POST", "/v1/enrol", Certified, message)
        if certified.ca != authority:
            raise RemoteProtocolError("it signs with another authority than it shows")
        return certified

    def _asked(
        self, context: ssl.SSLContext, method: str, path: str, kind: type[T], message: object = None
    ) -> T:
        body = encode(message, ContentType.JSON) if message is not None else None
        headers = {"content-type": ContentType.JSON.value}
        try:
            with httpx.Client(verify=context, trust_env=False, timeout=DEADLINE_S) as client:
                response = client.request(method, self._url + path, content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = str(error) or type(error).__name__
            if "is not valid for" in reason:
                reason += " (name the analyzer as its certificate does)"
            elif isinstance(error, httpx.ConnectTimeout) or "refused" in reason:
                reason += " (hosts enrol at this port; --port names another)"
            raise Unreachable(self._url, reason) from error
        if not response.is_success:
            raise RemoteProtocolError(f"{self._url}: {_said(response)}")
        return decode(response.content, kind, ContentType.JSON)


def _said(response: httpx.Response) -> str:
    try:
        told = msgspec.json.decode(response.content, type=_Refusal)
    except msgspec.DecodeError:
        return f"HTTP {response.status_code}"
    return f"{told.error}; {told.remedy}" if told.remedy else told.error
