# SPDX-License-Identifier: Apache-2.0
"""Who passes to the page's data, and what every answer says to browsers.

Theory of operation. A certificate is shown by a browser to whoever has it ask, so it is no proof
that our own page asks: what another site makes a browser send is refused, by what browsers say of
it (Sec-Fetch-Site, Origin). A session sees as its name does, and goes before a certificate: who
opened a link for a tenant wants to see as that one. Behind this the caller has a name, by which
everything is decided as for a certificate of that name.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog

from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import PEER, is_ours
from analyzer.server.page.files import INDEX, TYPES, File
from analyzer.server.page.prose import refusal
from analyzer.server.page.sessions import SESSION_NS
from analyzer.server.problems import Problem, refused

log = structlog.get_logger()

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

HOLDS = "netagent_holds"
"""Key of whether the caller may still look, in the connection's ASGI state."""
KNOWN = "netagent_known"
"""Key of what is called once it is known who asks, in the connection's ASGI state."""
HTML = TYPES[".html"].encode()
STREAM = "/v1/views/events"
MAX_UNDER_WAY = 32
"""Most requests of one name under way, streams besides. Chosen: six of a browser, some browsers.
Who hangs up is worked for still, so connections bound none."""
POSTS = re.compile(r"/v1/diagnose|/v1/tasks/[^/]+/inquiry")
"""Paths of all that may be posted here."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Headers = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
NO_SESSION = "this needs a session, or a certificate"
ASK = "run `netagent-analyzer open`, which asks for one with your certificate"


class Guard:
    """The page's ASGI application; `rest` answers what is asked below /v1."""

    def __init__(
        self, analyzer: Analyzer, rest: App, files: Mapping[str, File], *, port: int
    ) -> None:
        self._analyzer, self._rest, self._files = analyzer, rest, files
        self._is_secure = analyzer.config.tls is not None
        # Browsers keep cookies by host, whatever the port: two analyzers may be on one.
        self._cookie = f"__Host-netagent-{port}"
        self._under_way: Counter[str | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        try:
            self._check(scope, path)
            if path.startswith("/v1/"):
                self._identify(scope)
                told = _told(send, [(b"cache-control", b"no-store")])
                with self._one_more(scope["state"].get(PEER), path):
                    await self._rest(scope, receive, told)
                return
            status, headers, body = self._static(scope, path)
        except Exception as error:  # noqa: BLE001 - as the application answers
            status, body = refused(error, path)
            media_type = b"application/json"
            if not path.startswith("/v1/") and "text/html" in _header(scope, b"accept"):
                media_type, body = HTML, refusal(**msgspec.json.decode(body))  # a person reads it
            headers = [(b"content-type", media_type), (b"cache-control", b"no-store")]
        headers = [*headers, (b"content-length", str(len(body)).encode())]
        send = _told(send, [])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @contextmanager
    def _one_more(self, name: str | None, path: str) -> Iterator[None]:
        """Count a request while it is under way. Raises Problem where there are too many."""
        if path == STREAM:  # `Streams` counts them
            yield
            return
        if self._under_way[name] >= MAX_UNDER_WAY:
            raise self._refusal(
                "requests", 429, f"{MAX_UNDER_WAY} requests of yours are under way",
                "come again when some are answered",
            )  # fmt: skip
        self._under_way[name] += 1
        try:
            yield
        finally:
            self._under_way[name] -= 1

    def _refusal(self, why: str, status: int, text: str, remedy: str) -> Problem:
        self._analyzer.sessions.refused[why] += 1
        return Problem(status, text, remedy)

    def _check(self, scope: Scope, path: str) -> None:
        """Raise Problem for what this listener never answers."""
        method = scope["method"]
        if method != "GET" and not (method == "POST" and POSTS.fullmatch(path)):
            raise Problem(405, f"{method} is not served here", "the page only reads")
        host = _header(scope, b"host")
        # Without TLS, a name that leads here may be of a site that wants to read us.
        if not self._is_secure and not self._analyzer.config.insecure and not is_ours(host):
            text = f"{host!r} is not this machine"
            raise self._refusal("site", 403, text, "ask for it by its address")
        if not path.startswith(("/v1/", "/session/")):
            return
        # Also of links: who is led into a session of somebody else's sees less, and does not know.
        if _header(scope, b"sec-fetch-site") not in {"", "same-origin", "none"}:
            remedy = "open the page itself; a link, by copying it into the address bar"
            raise self._refusal("site", 403, "another site asks", remedy)
        if method == "POST":
            scheme = "https" if self._is_secure else "http"
            if _header(scope, b"origin") != f"{scheme}://{host}":
                remedy = "send the Origin of this page"
                raise self._refusal("site", 403, "no page of ours asks", remedy)

    def _identify(self, scope: Scope) -> None:
        """Let the caller have the name of its session, or else that of its certificate."""
        state = scope["state"]
        self._name(scope, state)
        state.get(KNOWN, lambda: None)()

    def _name(self, scope: Scope, state: MutableMapping[str, Any]) -> None:
        token = self._token(scope)
        if token and self._name_of(token) is not None:
            state[PEER] = self._name_of(token)
            state[HOLDS] = lambda: self._name_of(token) is not None
            return
        state[HOLDS] = lambda: True
        if state.get(PEER) == "":  # a handshake without a certificate
            raise self._refusal("session", 401, NO_SESSION, ASK)

    def _name_of(self, token: str) -> "str | None":
        """Return as whom a session looks; None where there is none, or not any more."""
        analyzer = self._analyzer
        holder = analyzer.sessions.holder(token, analyzer.monotonic())
        if holder is None:
            return None
        revoked = analyzer.trust.revoked if analyzer.trust is not None else ()
        return None if holder.serial.lstrip("0") in revoked else holder.name

    def _token(self, scope: Scope) -> str:
        # http.cookies takes a tenth of a second of a long header, and of some more than linear time
        # before Python 3.11.10 (CVE-2024-7592): anybody may send one.
        cookies = f"; {_header(scope, b'cookie')}"
        _, found, rest = cookies.partition(f"; {self._cookie}=")
        return rest.partition(";")[0] if found else ""

    def _static(self, scope: Scope, path: str) -> tuple[int, Headers, bytes]:
        """Return what is answered by no data: the page's files, and the door of a session."""
        if path.startswith("/session/"):
            return self._enter(path.removeprefix("/session/"), self._token(scope))
        name = INDEX if path == "/" else path.removeprefix("/static/")
        file = self._files.get(name) if path == "/" or path.startswith("/static/") else None
        if file is None:
            raise Problem(404, "nothing is here", "the page is at /")
        headers = [
            (b"content-type", file.media_type.encode()),
            (b"cache-control", b"no-cache"),
            (b"etag", file.tag.encode()),
        ]
        if _header(scope, b"if-none-match") == file.tag:
            return 304, headers, b""
        return 200, headers, file.body

    def _enter(self, token: str, held: str) -> tuple[int, Headers, bytes]:
        analyzer = self._analyzer
        session = analyzer.sessions.enter(token, analyzer.monotonic())
        if session is None and held and self._name_of(held) is not None:
            return 303, [(b"location", b"/"), (b"cache-control", b"no-store")], b""  # reloaded
        if session is None:
            raise self._refusal(
                "link", 403, "this link was opened before, or is too old",
                "ask for another one: netagent-analyzer open",
            )  # fmt: skip
        holder = analyzer.sessions.holder(session, analyzer.monotonic())
        if holder is not None:
            log.info("page_session_begun", name=holder.name, asked=holder.asked)
        cookie = (
            f"{self._cookie}={session}; Path=/; Max-Age={SESSION_NS // 10**9}; Secure; HttpOnly; "
            "SameSite=Strict"
        )
        headers = [
            (b"location", b"/"),
            (b"set-cookie", cookie.encode()),
            (b"cache-control", b"no-store"),
        ]
        return 303, headers, b""


def _told(send: Send, more: Headers) -> Send:
    """Return `send` for answers that say to browsers what may become of them."""

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS, *more]}
        await send(message)

    return told


def _header(scope: Scope, wanted: bytes) -> str:
    found = [value for name, value in scope["headers"] if name == wanted]
    return found[0].decode("latin-1") if found else ""
