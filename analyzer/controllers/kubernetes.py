# SPDX-License-Identifier: Apache-2.0
"""The door to Kubernetes' API: lists, watches, events and conditions of nodes."""

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
import msgspec

from analyzer.config import Kubernetes
from netagent.model.errors import ConfigError, RemoteProtocolError

T = TypeVar("T")

CONNECT_S = 5.0
"""Seconds that a connection may take, and its TLS handshake. Chosen: an API server that is well
answers in milliseconds."""
ANSWER_S = 60.0
"""Seconds that an answer may take. Chosen: the API server itself gives up after as many
(--request-timeout)."""
WATCH_S = 120
"""Seconds after which the API server ends a watch, since we ask it to. Chosen: a connection that
died without a word is noticed by then, and one request in two minutes costs nothing."""
SLACK_S = 15.0
"""Seconds that its end may be late. Chosen: more than a busy server takes."""
PAGE = 200
"""Objects listed at a time. Chosen: some MB, decoded within a few hundredths of a second."""
MAX_PAGES = 5_000
"""Most pages of a list. Chosen: a million objects."""
MAX_PAGE_BYTES = 64 << 20
"""Most bytes of a page. Chosen: 320 kB each, ten times what pods have."""
MAX_EVENT_BYTES = 4 << 20
"""Most bytes of a watch's event. Chosen: etcd takes objects of 1.5 MB."""
MAX_SAID = 2_000
"""Most bytes that are read of a refusal. Chosen: a sentence for people."""
RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
"""Shortest and longest pause, in seconds, after a failure; it doubles, give or take a half. Chosen:
an API server that starts again is not stormed, and is asked again within the minute."""
HOLDS_S = 5.0
"""Seconds that a watch holds until all is well again. Chosen: one that fails does so at once."""
LIST_S = 30.0
"""Seconds between two lists, at least. Chosen: all pods of a large cluster are a hundred megabytes,
and what makes one list needless to go on from may do so with the next."""


class ApiError(RemoteProtocolError):
    """The API server cannot be reached, refuses, or makes no sense."""

    def __init__(self, text: str, status: int = 0, *, stale: bool = False) -> None:
        super().__init__(text)
        self.status = status
        """HTTP's; 0 without an answer."""
        self.stale = stale or status == httpx.codes.GONE
        """Whether events may be missing, so that all has to be listed again."""


class Api:
    """An API server, asked over connections that are kept until `close`."""

    def __init__(self, config: Kubernetes, path: str) -> None:
        """Use what the configuration file at `path` names. Raises ConfigError."""
        self._config, self._url = config, config.url.rstrip("/")
        try:
            tls = ssl.create_default_context(cafile=config.ca or None)
            if config.cert:
                tls.load_cert_chain(config.cert, config.key)
        except OSError as error:  # ssl.SSLError is one, and names no file
            named = ", ".join(filter(None, (config.ca, config.cert, config.key)))
            raise ConfigError(path, f"controllers.kubernetes: of {named}: {error}") from error
        self._client = httpx.AsyncClient(
            verify=tls,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=4, max_keepalive_connections=2),
            headers={"user-agent": "netagent", "accept": "application/json",
                     "accept-encoding": "identity"},
        )  # fmt: skip

    async def pages(
        self, path: str, params: Mapping[str, str]
    ) -> AsyncGenerator[tuple[list[Any], str], None]:
        """Yield a list's objects, PAGE at a time, each with the version of the whole list."""
        following = ""
        for _ in range(MAX_PAGES):
            more = {"continue": following} if following else {}
            query = {**params, "limit": str(PAGE), **more}
            async with self._ask("GET", path, query) as response:
                body = await _body(response, MAX_PAGE_BYTES)
            page = _decoded(body)
            meta, items = page.get("metadata"), page.get("items")
            if not isinstance(meta, dict) or not isinstance(items, list | None):
                raise ApiError(f"{path}: no list")
            yield [i for i in items or () if isinstance(i, dict)], _version(meta)
            following = str(meta.get("continue") or "")
            if not following:
                return
        raise ApiError(f"{path}: more than {MAX_PAGES} pages")

    async def watch(
        self,
        path: str,
        params: Mapping[str, str],
        version: str,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield what changes after `version`, bookmarks included, until the API server ends it.

        `opened` is called once it has begun, however long nothing changes.

        Raises ApiError, which is `stale` where the version is too old.
        """
        query = {
            **params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        async with self._ask("GET", path, query, read_s=WATCH_S + SLACK_S) as response:
            opened()
            rest = bytearray()
            async for chunk in response.aiter_raw():
                *lines, tail = chunk.split(b"\n")
                for line in lines:
                    event = _decoded(bytes(rest + line))
                    rest.clear()
                    if event.get("type") == "ERROR":
                        raise _failed(event.get("object"))
                    yield event
                rest += tail
                if len(rest) > MAX_EVENT_BYTES:
                    text = f"{path}: an event has more than {MAX_EVENT_BYTES} bytes"
                    raise ApiError(text, stale=True)

    async def post_event(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Make an Event; one of its name may be there already."""
        with contextlib.suppress(_AlreadyThere):
            path = f"/api/v1/namespaces/{namespace}/events"
            await self._send("POST", path, body, "application/json")

    async def patch_node(self, node: str, body: Mapping[str, Any]) -> None:
        """Merge `body` into a node's status."""
        kind = "application/strategic-merge-patch+json"
        await self._send("PATCH", f"/api/v1/nodes/{node}/status", body, kind)

    async def close(self) -> None:
        """Drop every connection."""
        await self._client.aclose()

    async def _send(self, method: str, path: str, body: Mapping[str, Any], kind: str) -> None:
        content = msgspec.json.encode(body)
        async with self._ask(method, path, {}, content=content, kind=kind) as response:
            # What the object is now says nothing new, but would end the connection unread.
            await _body(response, MAX_EVENT_BYTES)

    @contextlib.asynccontextmanager
    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        content: bytes | None = None,
        kind: str = "",
        read_s: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Ask once; raises ApiError, also for what happens while the answer is read."""
        headers = {"content-type": kind} if kind else {}
        try:
            if self._config.token_file:  # the kubelet replaces it within the hour
                token = await asyncio.to_thread(Path(self._config.token_file).read_text)
                headers["authorization"] = f"Bearer {token.strip()}"
            async with self._client.stream(
                method,
                self._url + path,
                params=query,
                content=content,
                headers=headers,
                timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=read_s or ANSWER_S),
            ) as response:
                if not response.is_success:
                    raise await _refusal(response)
                yield response
        except (TimeoutError, httpx.TimeoutException) as error:
            raise ApiError("no answer in time") from error
        except (OSError, UnicodeError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise ApiError(str(error) or type(error).__name__) from error


class Reader(Generic[T]):
    """Keeps up with one list of the API, however long it takes."""

    def __init__(
        self,
        open_api: Callable[[], Api],
        path: str,
        params: Mapping[str, str],
        *,
        read: Callable[[Mapping[str, Any]], T | None],
        listed: Callable[[list[T]], None],
        took: Callable[[Mapping[str, Any]], None],
        away: Callable[[str], None],
    ) -> None:
        """Read `path`.

        `listed` is told all that `read` makes of its objects, `took` each event after that, and
        `away` why it cannot be read; "" once it can be again.
        """
        self._open_api, self._path, self._params = open_api, path, params
        self._read, self._listed, self._took, self._away = read, listed, took, away
        self._failures = 0
        self._is_away = False
        self._holding: asyncio.TimerHandle | None = None
        self._listed_s = -LIST_S
        self._version = ""
        """Of the newest object that was seen; "": all have to be listed."""
        self.lists = 0
        """How often all were listed."""

    async def run(self) -> None:
        """Keep up, until it is cancelled."""
        while True:
            try:
                api = self._open_api()  # with the certificates that there now are
                try:
                    await self._keep_up(api)
                finally:
                    self._let_go()
                    await api.close()
            except (ApiError, ConfigError) as error:
                if isinstance(error, ApiError) and error.stale:
                    self._version = ""
                await self._failed(str(error))

    async def _keep_up(self, api: Api) -> None:
        while True:
            if not self._version:
                await self._list(api)
            began_s = time.monotonic()
            watching = api.watch(self._path, self._params, self._version, self._hold)
            async with contextlib.aclosing(watching) as events:
                async for event in events:
                    self._took(event)
                    thing = event.get("object")
                    meta = thing.get("metadata") if isinstance(thing, dict) else None
                    self._version = _version(meta) or self._version
            self._works()
            # One that ends it at once would be asked without end.
            await asyncio.sleep(max(0.0, began_s + RETRY_MIN_S - time.monotonic()))

    async def _list(self, api: Api) -> None:
        await asyncio.sleep(max(0.0, self._listed_s + LIST_S - time.monotonic()))
        self._listed_s = time.monotonic()
        found: list[T] = []
        version = ""
        async with contextlib.aclosing(api.pages(self._path, self._params)) as pages:
            async for objects, now in pages:
                found += _those(map(self._read, objects))
                version = now
        self.lists += 1
        self._listed(found)
        if not version:
            raise ApiError(f"{self._path}: the list has no version")
        self._version = version

    def _hold(self) -> None:
        """Take that a watch began."""
        self._let_go()
        self._holding = asyncio.get_running_loop().call_later(HOLDS_S, self._works)

    def _let_go(self) -> None:
        if self._holding is not None:
            self._holding.cancel()

    def _works(self) -> None:
        self._let_go()
        self._failures = 0
        if self._is_away:
            self._is_away = False
            self._away("")

    async def _failed(self, why: str) -> None:
        """Wait; a connection that broke once is nothing to tell of."""
        self._failures += 1
        if self._failures > 1:
            self._is_away = True
            self._away(why)
        pause_s = min(RETRY_MIN_S * 2 ** min(self._failures - 1, 10), RETRY_MAX_S)
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))


class _AlreadyThere(ApiError):
    """What is to be made is there."""


async def _body(response: httpx.Response, most: int) -> bytes:
    body = bytearray()
    async with asyncio.timeout(2 * ANSWER_S):
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > most:
                raise ApiError(f"an answer has more than {most} bytes")
    return bytes(body)


async def _refusal(response: httpx.Response) -> ApiError:
    said = bytearray()
    async for chunk in response.aiter_raw():
        said += chunk
        if len(said) > MAX_SAID:
            break
    try:
        text = str(msgspec.json.decode(bytes(said))["message"])
    except (msgspec.DecodeError, KeyError, TypeError, UnicodeError):
        text = said[:MAX_SAID].decode(errors="replace").strip() or response.reason_phrase
    kind = _AlreadyThere if response.status_code == httpx.codes.CONFLICT else ApiError
    return kind(f"{response.status_code}: {_line(text)}", response.status_code)


def _failed(status: object) -> ApiError:
    """Return what a watch ended with."""
    code = status.get("code") if isinstance(status, dict) else None
    text = status.get("message") if isinstance(status, dict) else None
    code = code if isinstance(code, int) else 500
    return ApiError(f"{code}: {_line(str(text))}", code, stale=True)


def _line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:300]).strip()


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ApiError(f"no JSON: {error}", stale=True) from error
    if not isinstance(found, dict):
        raise ApiError("no object", stale=True)
    return found


def _version(meta: object) -> str:
    found = meta.get("resourceVersion") if isinstance(meta, dict) else None
    return found if isinstance(found, str) else ""


def _those(found: Iterable[T | None]) -> list[T]:
    return [each for each in found if each is not None]
