# SPDX-License-Identifier: Apache-2.0
"""Does what the analyzer asks for, where this host's owner permits it.

Theory of operation. What is to be changed is written down before it is changed, and forgotten once
it is as before: whatever ends the agent in between, the next one puts it back. One thing is done at
a time, in a task of its own, so that who asked may hang up.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from netagent.adapters.clock import wall_ns
from netagent.adapters.host.ovn import working_of
from netagent.adapters.host.protocols import Changed, exchange_protocols, read_bridge
from netagent.adapters.host.vswitchd import VswitchdError, appctl
from netagent.config import AgentConfig
from netagent.host.acting import Held, Ledger, Memory, detour
from netagent.model.errors import NetAgentError, RemoteProtocolError, TooSoon
from netagent.model.unixctl import OVN_CONTROLLER
from netagent.model.vswitch import drives
from netagent.server import Refusal
from netagent.trust import write_whole
from netagent.wire.actions import MAX_TEXT, ActionReply, ActionRequest, HostVerb
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.controller import Working

log = structlog.get_logger()

FILE = "actions.json"
"""In the agent's state folder: what was begun, and what is held."""
MAX_FILE_BYTES = 1 << 20
RECOMPUTE_S = 10.0
"""Seconds that ovn-controller has to compute its flows. Chosen: it takes seconds for 30,000."""
PUT_BACK_S = (1.0, 30.0)
"""First and longest pause, in seconds, between two attempts to put back what is held. Chosen: Open
vSwitch may be restarting."""
CLOSE_S = 8.0
"""Seconds that an agent which stops waits for what it has begun. Chosen: it takes a second, and
systemd waits 20; what is held then, the next agent puts back."""

_RECOMPUTE = "inc-engine/recompute"


@dataclass(frozen=True, slots=True)
class _Look:
    """What was read before anything is done."""

    command: str
    undo: str = ""
    read: tuple[str, ...] = ()
    refused: str = ""
    held: Held | None = None


class Acting:
    """One host's actions. `run` puts back what an earlier agent left; `close` on the way out."""

    def __init__(self, config: AgentConfig, clock: Callable[[], int] = wall_ns) -> None:
        self._config, self._clock = config, clock
        self._file = Path(config.state_dir) / FILE
        self._database = Path(config.ovs.rundir) / "db.sock"
        self._ledger = Ledger(config.host, config.actions.per_hour)
        self._held: Held | None = None
        self._is_read = False
        self._deciding = asyncio.Lock()
        self._work: tuple[str, asyncio.Task[str]] | None = None
        """What is under way, by its id; returns why it failed."""
        self._left = asyncio.Event()
        """Set while something may have to be put back."""
        self._left.set()
        self._is_closed = False

    async def act(self, request: ActionRequest, peer: str | None) -> ActionReply:
        """Do what is asked, or say what would be done.

        Raises Refusal for who may not ask, TooSoon where too much was done lately.
        """
        if peer is None or peer not in self._config.actions.peers:
            log.warning("action_refused", by=peer, verb=request.verb.value, why="may not ask")
            allowed = ", ".join(self._config.actions.peers) or "nobody"
            raise Refusal(403, f"{peer!r} may not ask for actions", f"use that of: {allowed}")
        if request.dry_run:
            async with self._deciding:
                await self._remember()
            look = await self._look(request)
            refused = look.refused or self._full(request.id)
            return self._reply(request, look, done=False, refused=refused)
        # Who hangs up between what is written down and its work would leave it held for ever.
        work = await asyncio.shield(self._begun(request, peer))
        if isinstance(work, ActionReply):
            return work
        return self._ended(request, await asyncio.shield(work))

    async def run(self) -> None:
        """Put back what is held and nobody works at, until cancelled."""
        wait_s = PUT_BACK_S[0]
        while True:
            await self._left.wait()
            try:
                async with self._deciding:
                    await self._remember()
                    if self._work is None:
                        await self._put_back()
                    self._left.clear()
                wait_s = PUT_BACK_S[0]
            except (NetAgentError, OSError) as error:
                log.warning("not_put_back", error=str(error), again_in_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, PUT_BACK_S[1])

    async def close(self) -> None:
        """Let what was begun end, and begin nothing more."""
        self._is_closed = True
        if self._work is not None:
            task = self._work[1]
            await asyncio.wait({task}, timeout=CLOSE_S)
            task.cancel()  # what it holds is in the file
            with suppress(asyncio.CancelledError):
                await task

    # --- deciding --------------------------------------------------------------------------------

    async def _begun(self, request: ActionRequest, peer: str) -> "ActionReply | asyncio.Task[str]":
        """Return what works at a request, begun now or before, or why nothing does."""
        async with self._deciding:
            await self._remember()
            if self._work is not None and self._work[0] == request.id:
                return self._work[1]
            if (known := self._ledger.known(request.id)) is not None:
                if known.verb is not request.verb:
                    raise RemoteProtocolError(f"{request.id} was another action: {known.verb}")
                ended = "it was begun, and this agent ended meanwhile"
                return self._ended(request, ended if known.outcome is None else known.outcome)
            if self._is_closed:
                raise TooSoon(self._config.host, "this agent is stopping")
            if self._work is not None or self._held is not None:
                raise TooSoon(self._config.host, "another action is under way")
            asked = {"action": request.id, "verb": request.verb.value, "bridge": request.bridge}
            look = await self._look(request)
            if look.refused:
                log.warning("action_refused", by=peer, of=request.by, why=look.refused, **asked)
                return self._reply(request, look, done=False, refused=look.refused)
            try:
                self._ledger.begin(request.id, request.verb, self._clock())
            except TooSoon as error:
                log.warning("action_refused", by=peer, of=request.by, why=error.reason, **asked)
                raise
            self._held = look.held
            try:
                await self._save()  # before anything is done
            except OSError as error:
                self._held = None
                del self._ledger.begun[request.id]
                raise RemoteProtocolError(f"{self._file} cannot be written: {error}") from error
            log.warning("action_begun", by=peer, of=request.by, command=look.command, **asked)
            task = asyncio.create_task(self._do(request))
            self._work = request.id, task
            return task

    def _full(self, action: str) -> str:
        """Return why nothing more is begun now, noting nothing."""
        trial = Ledger(self._ledger.host, self._ledger.per_hour, dict(self._ledger.begun))
        try:
            trial.begin(f"{action}?", HostVerb.RECOMPUTE, self._clock())
        except TooSoon as error:
            return error.reason
        return ""

    async def _look(self, request: ActionRequest) -> _Look:
        """Read what the decision needs; nothing is changed."""
        bridge = self._config.ovs.integration_bridge
        command = f"ovn-appctl -t ovn-controller {_RECOMPUTE}"
        if request.verb is HostVerb.REINSTALL:
            command = f"ovs-vsctl set Bridge {request.bridge} protocols=..."
        if request.verb not in self._config.actions.allow:
            why = f"{request.verb} is not in actions.allow of this host"
            return _Look(command, refused=why)
        if request.bridge != bridge:
            return _Look(command, refused=f"this host's integration bridge is {bridge or 'none'}")
        working, why = await working_of(Path(self._config.ovs.ovn_rundir))
        read = (f"ovn-controller: {working}" + (f" ({why})" if why else ""),)
        if working is not Working.CONNECTED:
            return _Look(command, read=read, refused="ovn-controller would install nothing anew")
        if request.verb is HostVerb.RECOMPUTE:
            return _Look(command, read=read)
        return await self._look_at_bridge(bridge, read)

    async def _look_at_bridge(self, bridge: str, read: tuple[str, ...]) -> _Look:
        set_to = f"ovs-vsctl set Bridge {bridge} protocols="
        try:
            row = await read_bridge(self._database, bridge)
        except NetAgentError as error:
            return _Look(set_to + "...", read=read, refused=str(error))
        if row is None:
            return _Look(set_to + "...", read=read, refused=f"there is no bridge {bridge}")
        during = detour(row.protocols)
        read = (*read, f"protocols of {bridge}: {' '.join(row.protocols) or 'all'}")
        # Who else installs flows by hand would lose them.
        ours = drives(row.external_ids)
        return _Look(
            set_to + ",".join(during),
            set_to + (",".join(row.protocols) or "[]"),
            read,
            "" if ours else f"ovn-controller does not say that {bridge} is its own",
            Held(bridge, row.protocols, during),
        )

    # --- doing -----------------------------------------------------------------------------------

    async def _do(self, request: ActionRequest) -> str:
        """Return why it failed; "" where it was done."""
        outcome = "it was cut short"
        try:
            if request.verb is HostVerb.RECOMPUTE:
                await appctl(
                    Path(self._config.ovs.ovn_rundir), _RECOMPUTE, timeout_s=RECOMPUTE_S,
                    daemon=OVN_CONTROLLER,
                )  # fmt: skip
            else:
                await self._reinstall()
            outcome = ""
        except (NetAgentError, VswitchdError, OSError) as error:
            outcome = str(error)[:MAX_TEXT] or type(error).__name__
        except Exception as error:
            log.exception("action_failed", action=request.id)
            outcome = f"{type(error).__name__}: {error}"[:MAX_TEXT]
        finally:
            self._ledger.end(request.id, outcome)
            self._work = None
            log.warning("action_ended", action=request.id, problem=outcome)
            if self._held is not None:
                self._left.set()
        with suppress(OSError):
            await self._save()
        return outcome

    async def _reinstall(self) -> None:
        held = self._held
        if held is None:
            raise RuntimeError("nothing was written down")
        await exchange_protocols(self._database, held.bridge, held.before, held.during)
        await self._put_back()

    async def _put_back(self) -> None:
        """Make what is held as it was, unless somebody else changed it since."""
        held = self._held
        if held is None:
            return
        row = await read_bridge(self._database, held.bridge)
        if row is not None and row.protocols == held.during:
            try:
                await exchange_protocols(self._database, held.bridge, held.during, held.before)
            except Changed:
                row = None
            log.info("protocols_put_back", bridge=held.bridge, protocols=held.before)
        if row is None or row.protocols not in {held.during, held.before}:
            log.warning("protocols_left", bridge=held.bridge, why="somebody else changed it")
        self._held = None
        await self._save()

    # --- what outlives the agent -----------------------------------------------------------------

    async def _remember(self) -> None:
        """Read what earlier agents wrote, once.

        A file that makes no sense is no reason to do things twice: raises RemoteProtocolError.
        """
        if self._is_read:
            return
        try:
            body = await asyncio.to_thread(self._file.read_bytes)
        except FileNotFoundError:
            body = b""
        if body:
            memory = decode(body, Memory, ContentType.JSON, max_bytes=MAX_FILE_BYTES)
            self._ledger.begun = {each.id: each for each in memory.begun}
            self._held = memory.held
        self._is_read = True

    async def _save(self) -> None:
        memory = Memory(tuple(self._ledger.begun.values()), self._held)
        text = encode(memory, ContentType.JSON).decode()
        await asyncio.to_thread(self._write, text)

    def _write(self, text: str) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, text)

    # --- answers ---------------------------------------------------------------------------------

    def _ended(self, request: ActionRequest, outcome: str) -> ActionReply:
        return ActionReply(
            host=self._config.host, verb=request.verb, done=not outcome, problem=outcome[:MAX_TEXT]
        )

    def _reply(
        self, request: ActionRequest, look: _Look, *, done: bool, refused: str
    ) -> ActionReply:
        return ActionReply(
            host=self._config.host,
            verb=request.verb,
            done=done,
            refused=refused[:MAX_TEXT],
            command=look.command[:MAX_TEXT],
            undo=look.undo[:MAX_TEXT],
            read=tuple(each[:MAX_TEXT] for each in look.read),
        )
