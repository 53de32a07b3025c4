# SPDX-License-Identifier: Apache-2.0
"""The host's certificate: taken when it changes, renewed before it ends, and who was revoked."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from netagent.adapters.clock import wall_ns
from netagent.agent.adapters import Adapters
from netagent.config import AgentConfig, TlsConfig
from netagent.model.errors import ConfigError, NetAgentError
from netagent.trust import Trust, due, new_request, revoked_in, write_whole

log = structlog.get_logger()

LOOK_S = 10.0
"""Seconds between two looks. Chosen: what is revoked is refused within a minute."""
AGAIN_S = 600.0
"""Seconds between two attempts. Chosen: thousands before it ends."""


class Renewal:
    """Looks at what TLS needs. Certificates are renewed where key and certificate are one file.

    That is how `netagent enroll` leaves them; others are whoever's who wrote them.
    """

    def __init__(self, config: AgentConfig, adapters: Adapters) -> None:
        self._config, self._uplink = config, adapters.uplink
        self.trust: Trust | None = adapters.trust
        self.on_look: Callable[[], None] = lambda: None
        """Called after each look."""
        self._crl = ""
        self._again_s = 0.0

    async def run(self) -> None:
        """Work until cancelled; at once over where there is no TLS."""
        while self.trust is not None:
            if await asyncio.to_thread(self.trust.look):
                log.info("certificates_taken", revoked=len(self.trust.revoked))
                await self._uplink.reconnect()  # what stands was verified by what was there before
            elif self.trust.problem:
                log.warning("certificates_not_taken", problem=self.trust.problem)
            self.on_look()
            try:
                await self._follow_revocations()
                await self._renew(self.trust, wall_ns() / 1e9)
            except (NetAgentError, OSError) as error:
                log.warning("certificate_not_renewed", error=str(error))
            await asyncio.sleep(LOOK_S)

    async def _follow_revocations(self) -> None:
        tls, wanted = self._config.tls, self._uplink.crl_version
        if tls is None or not tls.crl or not wanted or wanted == self._crl:
            return
        text = await self._uplink.revoked()
        await asyncio.to_thread(_keep, text, tls)
        self._crl = wanted

    async def _renew(self, trust: Trust, now_s: float) -> None:
        tls = self._config.tls
        due_s = due(self._config.host, trust.began_s, trust.expires_s)
        if tls is None or tls.cert != tls.key or now_s < due_s or now_s < self._again_s:
            return
        self._again_s = now_s + AGAIN_S
        key, request = await asyncio.to_thread(new_request, self._config.host)
        certified = await self._uplink.renewed(request)
        await asyncio.to_thread(_use, key + certified.certificate, tls)
        log.info("certificate_renewed")


def _use(text: str, tls: TlsConfig) -> None:
    """Put key and certificate in place, once they are known to fit. Raises ConfigError."""
    tried = Path(f"{tls.cert}.new")
    write_whole(tried, text)
    try:
        Trust(TlsConfig(ca=tls.ca, cert=str(tried), key=str(tried)))
        tried.replace(tls.cert)
    finally:
        tried.unlink(missing_ok=True)


def _keep(text: str, tls: TlsConfig) -> None:
    """Keep a list that the authority signed, and no older one than there is. Raises ConfigError."""
    path = Path(tls.crl)
    new = revoked_in(text, tls.ca)
    if path.exists() and new.made_s < revoked_in(path.read_text(), tls.ca).made_s:
        raise ConfigError(tls.crl, "the list that was sent is older")
    write_whole(path, text)
