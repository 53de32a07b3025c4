# SPDX-License-Identifier: Apache-2.0
"""Kubernetes as a source of declared tasks; where that is wanted, it is told of incidents."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable

import structlog

from analyzer.config import Kubernetes as Config
from analyzer.controllers.kubernetes import (
    RETRY_MAX_S,
    RETRY_MIN_S,
    Api,
    ApiError,
    Reader,
)
from analyzer.intent.kubernetes import SOURCE, Book, Change, Json, Node, Pod, node_of, pod_of
from analyzer.intent.told import Teller
from analyzer.judge.workers import Workers
from analyzer.roster.registry import Registry
from analyzer.roster.service import AnalyzerService
from analyzer.server.journal import Journal
from netagent.model.errors import CapabilityMissing, ConfigError, RemoteProtocolError
from netagent.model.verdict import IncidentState

log = structlog.get_logger()

LOOK_S = 1.0
"""Seconds between two looks at what is to be declared or told. Chosen: little beside how long
changes are gathered."""
HEARD_S = 5.0
"""Seconds between two looks at which agents there are. Chosen: a window."""
WRITE_S = 0.2
"""Seconds after each request that writes. Chosen: five a second are nothing to an API server."""
BOUND = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
"""Field selector of pods that were put on a node and did not end."""


HOPELESS = frozenset({400, 404, 409, 413, 422})
"""Status codes of what will not be taken later either: the node or the namespace is gone."""


class Kubernetes:
    """The analyzer's side of one API server."""

    def __init__(
        self,
        config: Config,
        path: str,
        *,
        registry: Registry,
        service: AnalyzerService,
        journal: Journal,
        clock: Callable[[], int],
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Read as the configuration file at `path` says."""
        self._config, self._registry, self._service = config, registry, service
        self._journal, self._clock, self._monotonic = journal, clock, monotonic
        self._open_api = functools.partial(Api, config, path)
        self._rules = config.rules
        mine = [task for task in registry.tasks() if task.source == SOURCE]
        self.book = Book(self._rules, namespaces=config.namespaces, known=mine)
        self._readers = [
            self._reader(f"/api/v1/namespaces/{name}/pods" if name else "/api/v1/pods", name)
            for name in config.namespaces or ("",)
        ]
        self._nodes = Reader(
            self._open_api,
            "/api/v1/nodes",
            {},
            read=node_of,
            listed=self._list_nodes,
            took=self._take,
            away=functools.partial(self._hear, "nodes"),
        )
        self._away: dict[str, str] = {}
        """What cannot be read -> why."""
        self._since_ns = 0
        self.clashes: dict[str, str] = {}
        """Task that cannot be declared -> why."""
        confirmed = (i.id for i in journal.active() if i.state is IncidentState.CONFIRMED)
        self.teller = Teller(self.book, confirmed)
        self._seq = journal.seq
        self._untold = ""
        """Why nothing can be told now."""
        self.written = self.refused = 0
        """Events and conditions that the API server took, and did not want."""

    @property
    def is_away(self) -> bool:
        """Whether the API cannot be read now, in part or at all."""
        return bool(self._away)

    @property
    def tasks(self) -> int:
        """How many tasks are declared from here."""
        return sum(task.source == SOURCE for task in self._registry.tasks())

    def work(self, workers: Workers) -> None:
        """Begin."""
        for reader in self._readers:
            workers.start("kubernetes pods", reader.run)
        workers.start("kubernetes nodes", self._nodes.run)
        workers.start("kubernetes tasks", self._declare)
        if self._config.tell:
            workers.start("kubernetes telling", self._tell)

    def warnings(self) -> list[str]:
        """Return what is wrong with it, in words."""
        told = []
        if self._away:
            minutes = (self._clock() - self._since_ns) // (60 * 10**9)
            why = next(iter(self._away.values()))
            told.append(f"Kubernetes cannot be read for {minutes} min, its tasks are old: {why}")
        told += [f"Kubernetes' {why}" for why in list(self.clashes.values())[:3]]
        if self.book.passed_over:
            told.append("Kubernetes has more pods than are read: give a label selector")
        if self._untold:
            told.append(f"Kubernetes takes no Events or conditions: {self._untold}")
        return told

    # --- reading --------------------------------------------------------------------------------

    def _reader(self, path: str, namespace: str) -> Reader[Pod]:
        labels = {"labelSelector": self._config.labels} if self._config.labels else {}
        return Reader(
            self._open_api,
            path,
            {"fieldSelector": BOUND, **labels},
            read=self._pod,
            listed=functools.partial(self._list_pods, namespace),
            took=self._take,
            away=functools.partial(self._hear, f"pods {namespace}".strip()),
        )

    def _pod(self, thing: Json) -> Pod | None:
        return pod_of(thing, self._rules)

    def _list_pods(self, namespace: str, pods: list[Pod]) -> None:
        self.book.replace_pods(namespace, pods, self._monotonic())
        log.info("kubernetes_listed", pods=len(pods), namespace=namespace or None)

    def _list_nodes(self, nodes: list[Node]) -> None:
        self.book.replace_nodes(nodes, self._monotonic())

    def _take(self, event: Json) -> None:
        self.book.take(event, self._monotonic())

    def _hear(self, what: str, why: str) -> None:
        """Take why something cannot be read, "" where it can; all of it is told of once."""
        was_away = self.is_away
        if why:
            self._away[what] = why
        else:
            self._away.pop(what, None)
        if self.is_away and not was_away:
            self._since_ns = self._clock()
            log.warning("kubernetes_away", error=why, what=what)
        elif was_away and not self.is_away:
            log.info("kubernetes_back")

    # --- declaring ------------------------------------------------------------------------------

    async def _declare(self) -> None:
        heard_ns = None
        while True:
            now_ns = self._monotonic()
            if heard_ns is None or now_ns >= heard_ns + HEARD_S * 10**9:
                heard_ns = now_ns
                self.book.heard({agent.host for agent in self._registry.agents()}, now_ns)
            for change in self.book.changes(now_ns):
                await self._make(change)
            for task in [t for t in self.clashes if self.book.task(t) is None]:
                del self.clashes[task]
            await asyncio.sleep(LOOK_S)

    async def _make(self, change: Change) -> None:
        task, wall_ns = change.task, self._clock()
        known = self._registry.task(task)
        try:
            if change.declared is not None:
                await self._service.put_task(change.declared, wall_ns)
            elif known is not None and known.source == SOURCE:
                await self._service.delete_task(task, wall_ns, source=SOURCE)
        except (RemoteProtocolError, CapabilityMissing) as error:
            self.book.refused(change, self._monotonic())
            if task not in self.clashes:
                log.warning("kubernetes_task_refused", task=task, error=str(error))
            self.clashes[task] = f"task {task} is not taken: {error}"
            return
        except Exception:  # a bug, but it shall not be believed that this was done
            self.book.refused(change, self._monotonic())
            raise
        self.clashes.pop(task, None)
        size = len(change.declared.containers) if change.declared else 0
        log.info("kubernetes_task", task=task, containers=size)

    # --- telling --------------------------------------------------------------------------------

    async def _tell(self) -> None:
        pause_s = RETRY_MIN_S
        while True:
            try:
                api = self._open_api()
                try:
                    while True:
                        if await self._tell_once(api):
                            pause_s = RETRY_MIN_S
                        await asyncio.sleep(LOOK_S)
                finally:
                    await api.close()
            except (ApiError, ConfigError) as error:
                if not self._untold:
                    log.warning("kubernetes_not_told", error=str(error))
                self._untold = str(error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _tell_once(self, api: Api) -> bool:
        """Tell what there is to tell; return whether something was."""
        for each in self._journal.events(self._seq):
            self._seq = each.seq
            if each.event in {"confirmed", "recovered", "revised"}:
                self.teller.note(each.incident)
        wrote = False
        while (event := self.teller.next_event()) is not None:
            await self._write(api.post_event(event.namespace, event.body))
            self.teller.done(event)
            wrote = True
        for patch in list(self.teller.patches(self._journal.active(), self._clock())):
            await self._write(api.patch_node(patch.node, patch.body))
            self.teller.patched(patch, self._clock())
            wrote = True
        return wrote

    async def _write(self, request: Awaitable[None]) -> None:
        """Send what is told; what the API server never takes is passed over. Raises ApiError."""
        try:
            await request
            self.written += 1
        except ApiError as error:
            if error.status not in HOPELESS:
                raise
            self.refused += 1
            log.info("kubernetes_refused", error=str(error))
        if self._untold:
            log.info("kubernetes_told_again")
        self._untold = ""
        await asyncio.sleep(WRITE_S)
