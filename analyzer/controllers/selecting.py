# SPDX-License-Identifier: Apache-2.0
"""Rows on demand, over a connection of their own: what is asked are selects, and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ovs.jsonrpc
import ovs.poller
import ovs.stream
import ovs.timeval

from netagent.model.errors import RemoteProtocolError, Unreachable

SOUTHBOUND, NORTHBOUND = "OVN_Southbound", "OVN_Northbound"
WAIT_MS = 10_000
"""Milliseconds that an answer may take. Chosen: a list of the uuids of a million flows takes a
server a second or two, and whoever asks waits."""
MOST_BYTES = 128 << 20
"""Bytes of answers to one question. Chosen: a million uuids are half of it; bounds memory."""

Select = Callable[..., list[list[dict[str, Any]]]]
"""Returns the rows of each of some selects, of one transaction."""


@contextmanager
def connected(database: str, remotes: Sequence[str]) -> Iterator[Select]:
    """Yield what selects at the first remote that answers; Unreachable where none does."""
    failed = Unreachable(database, "it has no remote")
    for remote in remotes:
        try:
            connection = _Connection(database, remote)
        except Unreachable as error:
            failed = error
            continue
        try:
            yield connection.select
        finally:
            connection.close()
        return
    raise failed


def selecting(table: str, where: list[Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return the operation that selects `columns` of the rows of a table, and their uuids."""
    return {"op": "select", "table": table, "where": where, "columns": ["_uuid", *columns]}


class _Connection:
    """One connection to a server, for some selects."""

    def __init__(self, database: str, remote: str) -> None:
        self._database, self._remote = database, remote
        self._deadline_ms = ovs.timeval.msec() + WAIT_MS
        try:
            stream = ovs.stream.Stream
            error, opened = stream.open_block(stream.open(remote), WAIT_MS)
        except OSError as why:  # of certificates
            raise Unreachable(remote, str(why)) from why
        if error:
            raise Unreachable(remote, "it refuses, or does not answer")
        self._rpc = ovs.jsonrpc.Connection(opened)

    def select(self, *operations: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Return the rows of each select, in one transaction."""
        asked = ovs.jsonrpc.Message.create_request("transact", [self._database, *operations])
        self._rpc.send(asked)
        said = self._answer(asked.id)
        results = said.result
        if said.type != ovs.jsonrpc.Message.T_REPLY or not isinstance(results, list):
            raise RemoteProtocolError(f"{self._remote}: {said.error or 'no rows'}")
        if any(not isinstance(each, dict) or "rows" not in each for each in results):
            raise RemoteProtocolError(f"{self._remote}: {results!r:.200}")
        return [each["rows"] for each in results]

    def _answer(self, wanted: object) -> Any:
        rpc = self._rpc
        while ovs.timeval.msec() < self._deadline_ms and rpc.get_received_bytes() < MOST_BYTES:
            rpc.run()
            _, said = rpc.recv()
            if said is not None:
                if said.id == wanted:
                    return said
                continue
            if rpc.get_status():
                raise Unreachable(self._remote, "the connection was closed")
            poller = ovs.poller.Poller()
            rpc.wait(poller)
            rpc.recv_wait(poller)
            poller.timer_wait_until(self._deadline_ms)
            poller.block()
        raise Unreachable(self._remote, "it takes too long, or says too much")

    def close(self) -> None:
        self._rpc.close()
