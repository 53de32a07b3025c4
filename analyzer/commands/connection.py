# SPDX-License-Identifier: Apache-2.0
"""The way from a command to the analyzer."""

import argparse
import os
import re
import ssl
from collections.abc import Iterator
from typing import Any, BinaryIO, Self

import httpx

from netagent.model.errors import ConfigError, NetAgentError, Unreachable
from netagent.terminal import NEGATIVE, UNAVAILABLE, USAGE

EPILOG = """\
The analyzer is found by --url, --ca, --cert and --key, or else by the
environment: NETAGENT_ANALYZER_URL, NETAGENT_CA, NETAGENT_CERT, NETAGENT_KEY.
"""

DEFAULT_URL = "http://127.0.0.1:8420"

TIMEOUT_S = 10.0
"""Seconds that the analyzer may take to answer, beside the wait of a long poll. Chosen: a busy
analyzer needs a few."""

NO_ROUTE = "Not Found"
"""What an analyzer says of a route that it has not; of what it does not know, it names that."""
ELSEWHERE = "is this the address of its page, which has one of its own, or an older analyzer?"

_URL = re.compile(r"^https?://[^/\s]")
_UNNAMED = "the default URL; --url or NETAGENT_ANALYZER_URL names another analyzer"


class Refused(NetAgentError):
    """The analyzer answered, and not with what was asked for."""

    def __init__(self, status: int, error: str, remedy: str) -> None:
        super().__init__(f"{error}; {remedy}" if remedy else error)
        self.status, self.remedy = status, remedy
        if status >= 500:
            self.exit_status = UNAVAILABLE
        else:
            self.exit_status = NEGATIVE if status == 404 else USAGE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the analyzer is and how to prove who asks."""
    group = parser.add_argument_group("connection")
    for flag, variable, metavar, text in (
        ("--url", "NETAGENT_ANALYZER_URL", "URL", f"analyzer (default: {DEFAULT_URL})"),
        ("--ca", "NETAGENT_CA", "PEM", "who signed the analyzer's certificate"),
        ("--cert", "NETAGENT_CERT", "PEM", "certificate to show"),
        ("--key", "NETAGENT_KEY", "PEM", "its private key"),
    ):
        group.add_argument(flag, metavar=metavar, default=os.environ.get(variable), help=text)
    parser.add_argument("--json", action="store_true", help="print what the API answered")


class Connection:
    """Requests to one analyzer. Raises Unreachable and Refused."""

    def __init__(self, args: argparse.Namespace, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = (args.url or DEFAULT_URL).rstrip("/")
        if not _URL.match(self.url):
            raise ConfigError("--url", f"{self.url!r} is no URL such as https://analyzer:8420")
        self._timeout_s = timeout_s
        self._is_raw = bool(getattr(args, "json", False))
        self._hint = "" if args.url else f" ({_UNNAMED})"
        self._client = httpx.Client(
            base_url=self.url, verify=_context(args), trust_env=False, timeout=timeout_s
        )

    def get(self, path: str, *, wait_s: float = 0.0, **query: str | int | None) -> Any:
        """Return what is at `path`; `wait_s` is how long the analyzer may hold the request."""
        asked: dict[str, str | int | float] = {
            name: value for name, value in query.items() if value is not None
        }
        if wait_s:
            asked["wait_s"] = wait_s
        return self._ask("GET", path, params=asked, timeout=self._timeout_s + wait_s)

    def all(self, path: str, name: str, **query: Any) -> Any:
        """Return the list `name` at `path` whole, however many pages it has."""
        answer = self.get(path, **query)
        while (after := answer.pop("next", None)) is not None:
            following = self.get(path, after=after, **query)
            answer[name] += following[name]
            answer["next"] = following.get("next")
        return answer

    def post(self, path: str, body: object, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the answer to `body`."""
        return self._ask("POST", path, json=body, timeout=timeout_s)

    def put(self, path: str, body: object) -> Any:
        """Return the answer to `body`, which replaces what is at `path`."""
        return self._ask("PUT", path, json=body)

    def delete(self, path: str) -> Any:
        """Return the answer to what is at `path` being taken away."""
        return self._ask("DELETE", path)

    def fetch(self, path: str, **query: str | int | None) -> bytes:
        """Return the bytes at `path`."""
        asked = {name: value for name, value in query.items() if value is not None}
        response = self._request("GET", path, params=asked)
        if not response.is_success:
            raise _refused(response, path)
        return response.content

    def download(self, path: str, to: BinaryIO, *, timeout_s: float) -> int:
        """Write the bytes at `path` to `to`; return how many."""
        return sum(to.write(chunk) for chunk in self.chunks(path, timeout_s=timeout_s))

    def chunks(self, path: str, *, timeout_s: float, **query: str | int) -> Iterator[bytes]:
        """Yield the bytes at `path` as they come."""
        try:
            with self._client.stream("GET", path, params=query, timeout=timeout_s) as response:
                if not response.is_success:
                    response.read()
                    raise _refused(response, path)
                yield from response.iter_bytes()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(self.url, _reason(error, self.url)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        response = self._request(method, path, **request)
        known = _object(response)
        if response.is_success and known:
            return known if self._is_raw else readable(known)
        raise _refused(response, path)

    def _request(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(self.url, _reason(error, self.url) + self._hint) from error


def readable(answer: Any) -> Any:
    """Return an answer of the API without what a terminal would obey, or show as something else.

    Hosts quote flows, errors and names, and any of them may be an attacker's.
    """
    match answer:
        case str():
            if answer.isprintable():
                return answer
            return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in answer)
        case list():
            return list(map(readable, answer))
        case dict():
            return {readable(name): readable(each) for name, each in answer.items()}
    return answer


def _object(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _refused(response: httpx.Response, path: str) -> Refused:
    known = readable(_object(response))
    error = str(known.get("error", f"{path}: HTTP {response.status_code}"))
    if response.status_code == 404 and error == NO_ROUTE:
        refused = Refused(404, f"{response.request.url}: there is nothing", ELSEWHERE)
        refused.exit_status = UNAVAILABLE  # it is no answer, and so no negative one
        return refused
    return Refused(
        response.status_code, error, str(known.get("remedy", "is this an analyzer's URL?"))
    )


def _context(args: argparse.Namespace) -> ssl.SSLContext | bool:
    files = [(flag, getattr(args, flag)) for flag in ("ca", "cert", "key")]
    given = [flag for flag, file in files if file]
    if not given:
        return True
    if len(given) < len(files):
        missing = ", ".join(f"--{flag}" for flag, file in files if not file)
        raise ConfigError(
            "connection",
            f"--{given[0]} needs {missing} too; each may be in NETAGENT_CA, _CERT, _KEY instead",
        )
    try:
        context = ssl.create_default_context(cafile=args.ca)
        context.load_cert_chain(args.cert, args.key)
    except OSError as error:  # ssl.SSLError is one
        odd = [file for _, file in files if not os.access(file, os.R_OK)]
        names = ", ".join(odd or [file for _, file in files])
        raise ConfigError(names, f"cannot be used: {error.strerror or error}") from error
    return context


def _reason(error: Exception, url: str) -> str:
    text = str(error) or type(error).__name__
    if "disconnected without" in text:
        if url.startswith("http:"):
            text += " (it may want https://)"
        else:
            text += " (it may have refused the certificate: revoked, or of another authority)"
    if "self-signed" in text or "local issuer" in text:
        text += " (--ca or NETAGENT_CA names who signed its certificate)"
    if "is not valid for" in text:
        text += " (ask by one that it has; `netagent-analyzer ca issue analyzer --help`)"
    if "CERTIFICATE_REQUIRED" in text or "alert" in text.lower():
        text += " (it wants a certificate that it trusts: --cert, --key)"
    return text
