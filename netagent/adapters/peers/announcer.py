# SPDX-License-Identifier: Apache-2.0
"""Announces to the agents of peers what is up here, once per change."""

import asyncio
import random
from collections.abc import Iterable

import httpx
import structlog

from netagent.adapters.peers.uplink import client_tls
from netagent.concurrency import timeout
from netagent.config import AgentConfig
from netagent.trust import Trust
from netagent.wire.codec import ContentType, encode
from netagent.wire.messages import Announcement, Peer

log = structlog.get_logger()

AT_ONCE = 16
"""Peers that hear of a change at the same time. Chosen: it bounds the agent's open connections."""
DEADLINE_S = 3.0
"""Seconds one peer has to take an announcement. Chosen: a silent peer does not hold up the others
for long."""
WHOLE_S = 3 * DEADLINE_S
"""Seconds that an attempt may take in all. Chosen: after connecting and the TLS handshake, each of
which has its deadline: a handshake that is cancelled leaks its socket (httpcore 1.0)."""
MOST_TEXT = 200
"""Bytes of a refusal that are read. Chosen: to be told in the log; of who takes it nothing is."""
TRIES = 4
"""Attempts per peer and announcement. Chosen: with `RETRY_S` they outlast a short loss; the
analyzer reaches the rest."""
RETRY_S = 0.5
"""Seconds before the second attempt; each further attempt waits as much longer. Chosen: a random
factor of 0.5 to 1.5 spreads them."""


class Announcer:
    """Announces the newest state; the peers left over do not hear of a state that was overtaken."""

    def __init__(self, config: AgentConfig, trust: Trust | None = None) -> None:
        """Open no connection yet; ConfigError if the TLS files cannot be used."""
        self._host = config.host
        self._client = httpx.AsyncClient(
            verify=trust.client if trust is not None else client_tls(config.tls),
            timeout=DEADLINE_S,
            trust_env=False,
            limits=httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=0),
        )
        self._wanted: tuple[Announcement, tuple[Peer, ...]] | None = None
        self._changed = asyncio.Event()
        self._told: tuple[object, ...] = ()
        self._silent: set[str] = set()
        """Peers that the last announcement did not reach: they come last in the next one."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def announce(self, said: Announcement, peers: Iterable[Peer]) -> None:
        """Announce to `peers` what is up here, if it differs from the last announcement."""
        if said.endpoints == self._told:
            return  # who came since heard it from the analyzer
        self._told = said.endpoints
        self._wanted = said, tuple(peers)
        self._changed.set()

    async def run(self) -> None:
        """Announce until cancelled."""
        telling: asyncio.Task[None] | None = None
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                if telling is not None:
                    telling.cancel()
                if self._wanted is not None:
                    telling = asyncio.create_task(self.tell(*self._wanted))
        finally:
            if telling is not None:
                telling.cancel()

    async def tell(self, said: Announcement, peers: Iterable[Peer], *, tries: int = TRIES) -> None:
        """Announce to all `peers` now; the analyzer informs those that cannot be reached."""
        body, limit = encode(said), asyncio.Semaphore(AT_ONCE)

        async def tell(peer: Peer) -> str | None:
            async with limit:
                return await self._insist(peer, body, tries)

        others = [each for each in peers if each.host != self._host]
        others.sort(key=lambda each: each.host in self._silent)
        problems = await asyncio.gather(*map(tell, others))
        failed = {p.host: why for p, why in zip(others, problems, strict=True) if why is not None}
        self._silent = set(failed)
        if failed:
            log.warning("peers_not_told", peers=len(failed), first=next(iter(failed.values())))

    async def _insist(self, peer: Peer, body: bytes, tries: int) -> str | None:
        """Return why the announcement did not reach `peer`; None if it did."""
        why = ""
        for attempt in range(tries):
            if attempt:
                await asyncio.sleep(RETRY_S * attempt * random.uniform(0.5, 1.5))
            try:
                async with timeout(WHOLE_S):
                    refusal = await self._put(f"{peer.rpc_url.rstrip('/')}/v1/peers", body)
            except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                why = f"{peer.host}: {str(error) or type(error).__name__}"
                continue
            if refusal is None:
                return None
            why = f"{peer.host}: {refusal}"
        return why

    async def _put(self, url: str, body: bytes) -> str | None:
        """Return what a peer refuses with; None if it takes it.

        A peer may be anybody's by now: of its answer no more is read than is of use, as it came.
        """
        headers = {"content-type": ContentType.MSGPACK.value, "accept-encoding": "identity"}
        async with self._client.stream("PUT", url, content=body, headers=headers) as answer:
            if answer.is_success:
                return None
            said = bytearray()
            async for chunk in answer.aiter_raw():
                said += chunk
                if len(said) >= MOST_TEXT:
                    break
            text = said[:MOST_TEXT].decode(errors="replace")
            return f"status {answer.status_code} {text}".rstrip()
