# SPDX-License-Identifier: Apache-2.0
"""Who passes to the page's data, and what every answer says to browsers.

Theory of operation. A certificate is shown by a browser to whoever has it ask, so it is no proof
that our own page asks: what another site makes a browser send is refused, by what browsers say of
it (Sec-Fetch-Site, Origin). A session sees as its name does, and goes before a certificate: who
opened a link for a tenant wants to see as that one. Behind this the caller has a name, by which
everything is decided as for a certificate of that name.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

import structlog

from analyzer.config import is_loopback
from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import PEER
from analyzer.server.page.files import INDEX, File
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
POSTS = ("/v1/diagnose",)
"""All that may be posted here."""
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        try:
            self._check(scope, path)
            if path.startswith("/v1/"):
                self._identify(scope)
                await self._rest(scope, receive, _told(send, [(b"cache-control", b"no-store")]))
                return
            status, headers, body = self._static(scope, path)
        except Exception as error:  # noqa: BLE001 - as the application answers
            status, body = refused(error, path)
            headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        headers = [*headers, (b"content-length", str(len(body)).encode())]
        send = _told(send, [])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _check(self, scope: Scope, path: str) -> None:
        """Raise Problem for what this listener never answers."""
        method = scope["method"]
        if method != "GET" and not (method == "POST" and path in POSTS):
            raise Problem(405, f"{method} is not served here", "the page only reads")
        host = _header(scope, b"host")
        # Without TLS, a name that leads here may be of a site that wants to read us.
        if not self._is_secure and not self._analyzer.config.insecure and not _is_ours(host):
            raise Problem(403, f"{host!r} is not this machine", "ask for it by its address")
        if not path.startswith("/v1/"):
            return
        if _header(scope, b"sec-fetch-site") not in {"", "same-origin", "none"}:
            raise Problem(403, "another site asks", "open the page itself")
        if method == "POST":
            scheme = "https" if self._is_secure else "http"
            if _header(scope, b"origin") != f"{scheme}://{host}":
                raise Problem(403, "no page of ours asks", "send the Origin of this page")

    def _identify(self, scope: Scope) -> None:
        """Let the caller have the name of its session, or else that of its certificate."""
        state = scope["state"]
        token = self._token(scope)
        if token and self._name_of(token) is not None:
            state[PEER] = self._name_of(token)
            state[HOLDS] = lambda: self._name_of(token) is not None
            return
        state[HOLDS] = lambda: True
        if state.get(PEER) == "":  # a handshake without a certificate
            raise Problem(401, NO_SESSION, ASK)

    def _name_of(self, token: str) -> "str | None":
        """Return as whom a session looks; None where there is none, or not any more."""
        analyzer = self._analyzer
        holder = analyzer.sessions.holder(token, analyzer.monotonic())
        if holder is None:
            return None
        revoked = analyzer.trust.revoked if analyzer.trust is not None else ()
        return None if holder.serial.lstrip("0") in revoked else holder.name

    def _token(self, scope: Scope) -> str:
        cookies = SimpleCookie()
        try:
            cookies.load(_header(scope, b"cookie"))
        except CookieError:
            return ""
        found = cookies.get(self._cookie)
        return found.value if found is not None else ""

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
            raise Problem(
                403, "this link was opened before, or is too old",
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


def _is_ours(host: str) -> bool:
    bare = host if host.endswith("]") else host.rpartition(":")[0] or host
    return is_loopback(bare.removeprefix("[").removesuffix("]"))
