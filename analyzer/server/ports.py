# SPDX-License-Identifier: Apache-2.0
"""Disables ports in OVN's northbound database, by the one connection that may write there.

It is not the reader's (`analyzer.controllers`), which never writes: this one is configured by
itself, has its own certificate, and is open for one action.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from analyzer.actions import ports
from analyzer.config import WritableNorthbound, split_address
from netagent.model.errors import NetAgentError, RemoteProtocolError, Unreachable

WAIT_S = 10.0
"""Seconds that all of it may take. Chosen: it is one row."""
MOST_BYTES = 1 << 20
"""Bytes of an answer. Chosen: a port has a few hundred."""

Decide = Callable[[ports.Row, str], list[ports.Operation] | str]
"""Returns for a port and an action what changes it, or why that may not be."""


class Ports:
    """Ports that are nobody's, in one northbound database."""

    def __init__(self, config: WritableNorthbound) -> None:
        self._config = config

    async def disable(self, name: str, action: str, *, dry_run: bool = False) -> tuple[str, str]:
        """Disable a port, or see whether that may be; return why it failed, and why it may not.

        Both are "" where it was done, or may be.
        """
        return await self._change(name, action, ports.disabling, dry_run=dry_run)

    async def enable(self, name: str, action: str) -> str:
        """Take back what an action did; return why it was not, "" where it was."""
        problem, refusal = await self._change(name, action, ports.enabling)
        return problem or refusal

    async def _change(
        self, name: str, action: str, decide: Decide, *, dry_run: bool = False
    ) -> tuple[str, str]:
        refused: NetAgentError = Unreachable("northbound", "it has no remote")
        for remote in self._config.remotes:
            try:
                async with asyncio.timeout(WAIT_S), _connected(remote, self._config) as ask:
                    return await _changed(ask, name, action, decide, dry_run=dry_run)
            except Unreachable as error:
                refused = error
            except (NetAgentError, OSError, TimeoutError, ValueError) as error:
                return f"{remote}: {error or 'it does not answer'}", ""
        return "", str(refused)


async def _changed(
    ask: "_Ask", name: str, action: str, decide: Decide, *, dry_run: bool
) -> tuple[str, str]:
    (found,) = await ask([ports.reading(name)])
    rows = found["rows"]
    if len(rows) != 1:
        return "", f"{len(rows)} ports have the name {name}"
    operations = decide(rows[0], action)
    if isinstance(operations, str):
        return "", operations
    if not dry_run:
        await ask(operations)
    return "", ""


class _Ask:
    """Transactions over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0

    async def __call__(self, operations: Sequence[ports.Operation]) -> list[dict[str, Any]]:
        """Return what came of each operation. Raises RemoteProtocolError where one failed."""
        self._number += 1
        asked = {"method": "transact", "params": [ports.DATABASE, *operations], "id": self._number}
        self._writer.write(json.dumps(asked).encode())
        said = await self._answer()
        results = said.get("result")
        if said.get("error") or not isinstance(results, list):
            raise RemoteProtocolError(f"it refuses: {said.get('error')!r:.200}")
        failed = [each for each in results if isinstance(each, dict) and "error" in each]
        if failed:
            raise RemoteProtocolError(f"nothing was changed: {failed[0]!r:.200}")
        return results

    async def _answer(self) -> dict[str, Any]:
        """Return the reply to what was asked last; requests for an echo are left."""
        text = b""
        while True:
            chunk = await self._reader.read(1 << 16)
            text += chunk
            if not chunk or len(text) > MOST_BYTES:
                raise RemoteProtocolError("it ended, or says too much")
            for said in _whole(text):
                if said.get("id") == self._number:
                    return said


def _whole(text: bytes) -> list[dict[str, Any]]:
    """Return the messages that are whole; there is nothing between two."""
    told, found, at = text.decode(errors="replace"), list[dict[str, Any]](), 0
    while at < len(told):
        try:
            message, at = json.JSONDecoder().raw_decode(told, at)
        except ValueError:
            break
        if isinstance(message, dict):
            found.append(message)
    return found


@asynccontextmanager
async def _connected(remote: str, config: WritableNorthbound) -> AsyncIterator[_Ask]:
    kind, _, rest = remote.partition(":")
    try:
        if kind == "unix":
            reader, writer = await asyncio.open_unix_connection(rest)
        else:
            host, port = split_address(rest)
            tls = _tls(config) if kind == "ssl" else None
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    except (OSError, ValueError) as error:
        raise Unreachable(remote, str(error)) from error
    try:
        yield _Ask(reader, writer)
    finally:
        writer.close()


def _tls(config: WritableNorthbound) -> ssl.SSLContext:
    """Return what proves who we are, from files as they are now.

    Who has one of that authority is taken for a server, whatever its name is, as by OVN's clients.
    """
    context = ssl.create_default_context(cafile=config.ca)
    context.check_hostname = False
    context.load_cert_chain(config.cert, config.key)
    return context
