# SPDX-License-Identifier: Apache-2.0
"""The analyzer's TOML files, read into frozen values. Unknown keys are errors with their line."""

import ipaddress
import os
import re
import sys
import tomllib
from collections.abc import Container, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from analyzer.actions.broker import Limits, Mode
from analyzer.actions.verbs import PortWay, Verb
from analyzer.detect.arrival import AFTER_NS
from analyzer.detect.latency.floors import FACTOR, SHIFT_NS, Floor, Sensitivity
from analyzer.intent.kubernetes import CONTAINER, LABELS, RAIL, Rules
from analyzer.intent.ovn import SOURCE as OVN
from analyzer.runbooks.pages import FOLDER
from analyzer.runbooks.pages import Runbooks as Pages
from netagent.model.address import canonical
from netagent.model.errors import ConfigError, LocalProtocolError
from netagent.model.path import Kind
from netagent.model.topology import DeclaredTopology, Fabric, Uplink
from netagent.model.verdict import IncidentState

T = TypeVar("T")
Part = TypeVar("Part", bound=msgspec.Struct)

LIMITS = Limits()
"""Of actions, by default."""

DEFAULT_PORT = 8420
"""TCP port of the analyzer's API. Chosen: one default for the analyzer and the commands."""


ENROL_PORT_AFTER = 2
"""By how much the port for enrolment is behind the API's. Chosen: agents listen at the next one."""


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files in PEM, relative to the configuration file."""

    ca: str
    """Who may sign the certificates of agents and administrators."""
    cert: str
    """The analyzer's own certificate; its subjectAltName holds the address it listens on."""
    key: str
    """May be in the same file."""
    crl: str = ""
    """List of what the authority revoked; need not exist yet. Empty: nobody revokes."""


class Enrolment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts ask for their certificates here (`netagent enroll`), and for the next ones."""

    authority: str
    """Folder that `netagent-analyzer ca` made, relative to the configuration file."""
    listen: str = f"0.0.0.0:{DEFAULT_PORT + ENROL_PORT_AFTER}"
    """ADDRESS:PORT for hosts that have no certificate yet; nothing else is answered there."""


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The page for browsers: what is known, read-only, on a listener of its own."""

    listen: str
    """ADDRESS:PORT. Nobody needs a certificate to reach it; without one, a session is needed."""


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much history the database keeps."""

    age_s: int = 24 * 3600
    """Seconds that raw summaries are kept."""
    bytes: int = 2 << 30
    """Bytes of raw summaries kept; the oldest go first."""
    incidents_s: int = 365 * 24 * 3600
    """Seconds that recovered incidents are kept."""


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Minutes and hours by pair and by component, as Parquet files beside the database."""

    enabled: bool = True
    """False: none are written; those there are can be read."""
    minute_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] = 4 << 30
    """Bytes of minutes kept; the oldest go first. Chosen: four days of 8,192 RNICs, two weeks of
    2,048, where each probes 8.5 others; where it probes 31, as in a task without a skeleton, less
    than a third of that (tests.bench history)."""
    minute_age_s: Annotated[int, msgspec.Meta(ge=7200)] = 30 * 24 * 3600
    """Seconds that minutes are kept. At least two hours, since an hour is made of minutes."""
    hour_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] = 4 << 30
    """Bytes of hours kept; the oldest go first. Chosen: eight months of 8,192 RNICs, where each
    probes 8.5 others; likewise."""
    hour_age_s: Annotated[int, msgspec.Meta(ge=7200)] = 400 * 24 * 3600
    """Seconds that hours are kept. Chosen: a year, and the month to compare it with."""


class Skeletons(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traffic skeletons: whether what tasks use decides what is probed."""

    enabled: bool = True
    """False: every task keeps its basic list."""
    rare_share: Annotated[float, msgspec.Meta(ge=0.01, le=0.5)] = 0.1
    """Share of the probes that goes to pairs which a task does not use; 0.01 to 0.5."""


class SlownessOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From which rise on a task's flows are slow; what is not said is as for all."""

    factor: Annotated[float, msgspec.Meta(ge=1)] | None = None
    shift_us: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Slowness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From which rise of its round trips on a flow is slow: by both."""

    factor: Annotated[float, msgspec.Meta(ge=1)] = FACTOR
    """Ratio to what it was."""
    shift_us: Annotated[float, msgspec.Meta(ge=0)] = SHIFT_NS / 1_000
    """Microseconds more than it was."""
    tasks: dict[str, SlownessOf] = {}
    """Tasks with others: `[slowness.tasks.NAME]`."""

    @property
    def sensitivity(self) -> Sensitivity:
        """The same as the detector takes it."""
        tasks = (
            (
                name,
                Floor(
                    self.factor if of.factor is None else of.factor,
                    1_000 * (self.shift_us if of.shift_us is None else of.shift_us),
                ),
            )
            for name, of in sorted(self.tasks.items())
        )
        return Sensitivity(Floor(self.factor, 1_000 * self.shift_us), tuple(tasks))


class Tasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Declared tasks."""

    missing_after_s: Annotated[int, msgspec.Meta(ge=1)] = AFTER_NS // 10**9
    """Seconds after which a declared container that never registered is told of."""


class Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the diagnosis is given, kept so that it can be replayed (`netagent-analyzer record`)."""

    enabled: bool = True
    """False: nothing is recorded."""
    bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] = 128 << 20
    """Bytes of the newest records kept, in a folder beside the database; at least 1 MiB."""
    keep: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 4
    """Recordings of the newest incidents kept, each as large at most; 0 keeps none."""


class WritableNorthbound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OVN's northbound database, where ports may be disabled that are nobody's."""

    remotes: tuple[str, ...]
    """As those of `[controllers.ovn]`, which are never written to."""
    ca: str = ""
    """Who may sign the servers' certificates; files in PEM, relative to the configuration file."""
    cert: str = ""
    key: str = ""


class Actions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be done about a verdict; the owner of each host permits it besides."""

    mode: Mode = Mode.OBSERVE
    """`observe`: nothing is even proposed; `advise`: it is said what could be done; `act`: what
    `verbs` lists is done."""
    verbs: tuple[Verb, ...] = ()
    """What is done without a person, where the mode is to act; the rest is advised."""
    per_hour: Annotated[int, msgspec.Meta(ge=1, le=1000)] = LIMITS.per_hour
    """Most actions in any hour."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = LIMITS.share
    """Most of the hosts on which something is done in any hour; one host always may."""
    cordon_command: tuple[str, ...] = ()
    """Run with `cordon HOST` or `uncordon HOST` behind it, by no shell; an absolute path and what
    it is always given. Without it, to cordon is advised only."""
    port_command: tuple[str, ...] = ()
    """The same with `disable PORT` or `enable PORT`: it asks who owns the port."""
    northbound: WritableNorthbound | None = None
    """Instead of `port_command`, for ports that are nobody's."""

    def __post_init__(self) -> None:
        """Refuse a command that depends on where it is looked for, and what nobody can do."""
        for name in ("cordon_command", "port_command"):
            command: tuple[str, ...] = getattr(self, name)
            if command and not command[0].startswith("/"):
                raise ValueError(f"{name}: {command[0]!r} is no absolute path")
            if any("\0" in each for each in command):
                raise ValueError(f"{name}: no command has a NUL in it")
        if Verb.CORDON in self.verbs and not self.cordon_command:
            raise ValueError("verbs: to cordon needs cordon_command")
        if Verb.DISABLE_PORT in self.verbs:
            raise ValueError("verbs: a port is disabled by a person alone")
        if self.port_command and self.northbound is not None:
            raise ValueError("port_command and northbound: one of them disables ports")

    @property
    def limits(self) -> Limits:
        """The same as the broker takes it."""
        return Limits(
            self.mode, frozenset(self.verbs), self.per_hour, self.share, self.cordon_command,
            PortWay(self.port_command) if self.port_command or self.northbound else None,
        )  # fmt: skip


SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Folder of what a pod proves itself by to the API server."""


class Kubernetes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API server of Kubernetes. Files are relative to the configuration file."""

    url: str = ""
    """Such as ``https://10.0.0.1:6443``. Empty: that of the cluster in which the analyzer runs as a
    pod, with its service account."""
    ca: str = ""
    """Who may sign its certificate; in PEM. Empty: whom this machine trusts."""
    token_file: str = ""
    """Holds our bearer token; read for each request."""
    cert: str = ""
    """Our certificate, in place of a token."""
    key: str = ""
    namespaces: tuple[str, ...] = ()
    """Whose pods are read; none: all of them."""
    labels: str = ""
    """Label selector of pods, as kubectl's -l takes it."""
    task_labels: tuple[str, ...] = LABELS
    """Labels that name a pod's job; the first that it has counts."""
    container: str = CONTAINER
    """A pod's container as agents call it."""
    rail: str = RAIL
    """Which networks of a pod are a rail's, by their name; the first group is the rail."""
    first_rail: int = 0
    """Number that stands for rail 0."""
    every_pod: bool = False
    """True: pods count that ask for no device."""
    tell: bool = False
    """True: nodes and pods are told of incidents, by Events and a condition."""

    @property
    def rules(self) -> Rules:
        """How pods are read."""
        return Rules(self.task_labels, self.container, self.rail, self.first_rail, self.every_pod)


MAX_NAMESPACES = 32
"""Most namespaces that are named. Chosen: each holds a connection; of more, read all of them."""


class Webhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A receiver elsewhere, which is told of incidents by CloudEvents."""

    name: str
    """In metrics and in `netagent-analyzer webhooks`."""
    url: str
    """https, or http on loopback."""
    secret: str = ""
    """File with what events are signed with, relative to the configuration file. Empty: they are
    not."""
    ca: str = ""
    """File in PEM of who may sign the receiver's certificate. Empty: whom this machine trusts."""
    insecure: bool = False
    """Speak plain HTTP beyond loopback: everybody on the way reads it."""
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 10.0
    """Seconds that the receiver may take for one event. Chosen: one that is busy answers by then,
    and one that hangs holds a connection no longer."""
    state: IncidentState = IncidentState.OPEN
    """`open` tells of each incident, `confirmed` of those that were confirmed, from then on."""
    kinds: tuple[Kind, ...] = ()
    """What the component at fault must be; none: anything."""
    source: str = "/netagent/analyzer"
    """What events give as their source, a URI reference: which analyzer, where there are several.
    """
    queue_events: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Events that wait at most, besides the last of each incident. Chosen: two days of one every
    twenty seconds."""
    queue_bytes: Annotated[int, msgspec.Meta(ge=1 << 16)] = 16 << 20
    """Their bytes at most. Chosen: little beside what an analyzer takes."""


Where = Annotated[str, msgspec.Meta(pattern=r"\A(https?://[!-~]+|/[!-~]*|)\Z", max_length=500)]
"""A URL, an absolute path, or nothing."""


class Runbooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pages for whoever has to act on an incident."""

    url: Where = ""
    """Where they are, without the name; empty: on this machine's disk."""

    @property
    def pages(self) -> Pages:
        """Where each page is."""
        return Pages(self.url or _pages_on_disk())


@cache
def _pages_on_disk() -> str:
    """Return where the repository, the wheel or the package has the pages."""
    tree, installed = Path(__file__).parents[1] / FOLDER, Path("share/doc/netagent/runbooks")
    places = (tree, sys.prefix / installed, Path("/usr/share/doc/netagent-analyzer/runbooks"))
    return next((str(each) for each in places if each.is_dir()), FOLDER)


class Ovn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where OVN's databases are read; nothing is written there."""

    zones: Literal["", "agents"] = ""
    """``agents``: each host has databases of its own, which its agent reads; then all else is
    empty."""
    northbound: tuple[str, ...] = ()
    """Remotes: ``unix:FILE``, ``tcp:ADDRESS:PORT`` or ``ssl:ADDRESS:PORT``, each a member of one
    cluster."""
    southbound: tuple[str, ...] = ()
    ca: str = ""
    """Who may sign the servers' certificates; files in PEM, relative to the configuration file."""
    cert: str = ""
    key: str = ""


class Pushed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A controller that says by itself what should be (`PUT /v1/controllers/NAME/intent`)."""

    clients: tuple[str, ...]
    """Names in certificates that may say it; nobody else may."""
    away_after_s: Annotated[int, msgspec.Meta(ge=10, le=24 * 3600)] = 180
    """Seconds after which what was said last is not known to hold any more. Chosen: three times a
    minute, as often as hosts say their part."""


class Controllers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who says what should be."""

    ovn: Ovn | None = None
    pushed: dict[str, Pushed] = {}
    """By the name that hosts and incidents know it by."""
    kubernetes: Kubernetes | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The analyzer's configuration file."""

    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    """ADDRESS:PORT."""
    database: str = "netagent.duckdb"
    """File of the DuckDB database, relative to the configuration file."""
    topology: str | None = None
    """File that declares the fabric, relative to the configuration file."""
    tls: Tls | None = None
    """Without it the analyzer speaks plain HTTP, on loopback only."""
    enrolment: Enrolment | None = None
    """Without it, certificates are made elsewhere."""
    page: Page | None = None
    """Without it there is no page."""
    insecure: bool = False
    """Speak plain HTTP on any address: everybody who reaches it may do everything."""
    window_s: int = 5
    """Seconds; what every agent's `probe.window_s` says."""
    probe_port: int = 18515
    """What every agent's `probe.port` says: flow tables are asked about it."""
    admins: tuple[str, ...] = ("admin",)
    """Names in certificates that may declare tasks and forget hosts."""
    readers: tuple[str, ...] = ()
    """Names in certificates that may read everything, besides administrators."""
    tenants: dict[str, tuple[str, ...]] = {}
    """Names in certificates -> patterns (`*`, `?`) of the tasks of which they may read."""
    retention: Retention = msgspec.field(default_factory=Retention)
    history: History = msgspec.field(default_factory=History)
    skeletons: Skeletons = msgspec.field(default_factory=Skeletons)
    slowness: Slowness = msgspec.field(default_factory=Slowness)
    tasks: Tasks = msgspec.field(default_factory=Tasks)
    recording: Recording = msgspec.field(default_factory=Recording)
    actions: Actions = msgspec.field(default_factory=Actions)
    webhooks: tuple[Webhook, ...] = ()
    runbooks: Runbooks = msgspec.field(default_factory=Runbooks)
    controllers: Controllers = msgspec.field(default_factory=Controllers)

    @property
    def not_hosts(self) -> frozenset[str]:
        """Names in certificates that no agent has: they read, administer, or say what should be."""
        said = (pushed.clients for pushed in self.controllers.pushed.values())
        return frozenset().union(self.admins, self.readers, self.tenants, *said)

    @property
    def enrolment_address(self) -> tuple[str, int]:
        """Host and port for hosts without a certificate; only where there is `enrolment`."""
        if self.enrolment is None:
            raise LocalProtocolError("nobody enrols here")
        return split_address(self.enrolment.listen)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return split_address(self.listen)


class _Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    a: str
    b: str


class _Uplink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str
    rnic: str
    leaf: str


class _Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    switches: dict[str, str | list[str]] = {}
    links: list[_Link] = []
    uplinks: list[_Uplink] = []
    fabric: Fabric = Fabric.ECMP


def load(path: str) -> Config:
    """Return the configuration in the file at `path`. Raises ConfigError."""
    text = _read(path, absent="; `netagent-analyzer ca init` writes one")
    config = parse(text, Config, path)
    try:
        host, _ = config.address
    except ValueError as error:
        raise ConfigError(path, f"listen: {error}", line_of(text, ("listen",))) from None
    if config.enrolment is not None:
        try:
            split_address(config.enrolment.listen)
        except ValueError as error:
            line = line_of(text, ("enrolment", "listen"))
            raise ConfigError(path, f"enrolment.listen: {error}", line) from None
        if config.tls is None:
            raise ConfigError(path, "[enrolment] needs [tls]", line_of(text, ("enrolment",)))
    if config.tls is None and not config.insecure and not is_loopback(host):
        raise ConfigError(
            path,
            f"plain HTTP on {host}, which is not loopback; add [tls], or insecure = true if "
            "everybody who reaches it may do everything",
            line_of(text, ("listen",)),
        )
    if config.page is not None:
        _check_page(config.page, config, path, text)
    for name in config.tenants:
        if problem := _no_tenant(name, config):
            raise ConfigError(path, f"tenants: {problem}", line_of(text, ("tenants", name)))
    if config.controllers.kubernetes is not None:
        kubernetes = _within(config.controllers.kubernetes)
        _check_kubernetes(kubernetes, path, text)
        controllers = msgspec.structs.replace(config.controllers, kubernetes=kubernetes)
        config = msgspec.structs.replace(config, controllers=controllers)
    _check_webhooks(config.webhooks, path, text)
    _check_databases(config, path, text)
    return _anchored(config, Path(path).resolve().parent)


def load_topology(path: str) -> DeclaredTopology:
    """Return the fabric that the file at `path` declares. Raises ConfigError."""
    text = _read(path)
    plain = parse(text, _Topology, path)
    names: dict[str, str] = {}
    for switch, answer in plain.switches.items():
        for given in [answer] if isinstance(answer, str) else answer:
            address = canonical(given)
            if address is None or address in names:
                said = (
                    f"the address of {names[address]} too" if address else "no address of a switch"
                )
                line = line_of(text, ("switches", switch))
                raise ConfigError(path, f"{switch}: {given!r} is {said}", line)
            names[address] = switch
    for i, link in enumerate(plain.links):
        for end, name in (("a", link.a), ("b", link.b)):
            _known(path, text, plain, name, ("links", i, end))
    for i, uplink in enumerate(plain.uplinks):
        _known(path, text, plain, uplink.leaf, ("uplinks", i, "leaf"))
    return DeclaredTopology(
        names=names,
        links=frozenset((min(link.a, link.b), max(link.a, link.b)) for link in plain.links),
        uplinks=tuple(Uplink(u.host, u.rnic, u.leaf) for u in plain.uplinks),
        fabric=plain.fabric,
    )


def split_address(text: str) -> tuple[str, int]:
    """Return the host and port of ADDRESS:PORT or [IPv6]:PORT. Raises ValueError."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{text!r} is not ADDRESS:PORT")
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare and host != f"[{bare}]":
        raise ValueError(f"{text!r}: an IPv6 address needs brackets, as in [fd00::11]:{port}")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse(text: str, kind: type[T], path: str) -> T:
    """Return the `kind` that the TOML `text` of the file at `path` holds. Raises ConfigError."""
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"^(.*) \(at line (\d+), column \d+\)$", str(error))
        message, line = (found[1], int(found[2])) if found else (str(error), None)
        raise ConfigError(path, message, line) from None
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(path, *_explain(text, kind, str(error))) from None


def line_of(text: str, path: tuple[str | int, ...]) -> int | None:
    """Return the 1-based line of `text` that sets the key at `path`, or opens its table.

    Keys are found where TOML is usually written: tables by their header, keys at a line's start.
    An inline table's keys are found by the line of the table.
    """
    found: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()
    counts: dict[tuple[str | int, ...], int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if header := re.match(r"\s*\[\[(.+?)\]\]", line):
            keys = _keys(header[1])
            table = (*keys, counts.get(keys, 0))
            counts[keys] = counts.get(keys, 0) + 1
            found.setdefault(keys, number)
            found.setdefault(table, number)
        elif header := re.match(r"\s*\[(.+?)\]\s*(#.*)?$", line):
            table = _keys(header[1])
            found.setdefault(table, number)
        elif setting := re.match(r"""\s*((?:"[^"]*"|'[^']*'|[\w.-])+)\s*=""", line):
            found.setdefault((*table, *_keys(setting[1])), number)
    while path and not (known := [each for each in found if _is_at(each, path)]):
        path = path[:-1]
    return found[known[0]] if path and len(known) == 1 else None


ANY = "NAME"
"""Key of a table whose keys are names, where it is not said which one is meant."""


def _is_at(known: tuple[str | int, ...], path: tuple[str | int, ...]) -> bool:
    return len(known) == len(path) and all(
        asked in {ANY, key} for key, asked in zip(known, path, strict=True)
    )


def _read(path: str, absent: str = "") -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        remedy = absent if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(path, f"cannot be read: {error.strerror}{remedy}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(path, f"is not UTF-8 text: {error.reason}") from None


def _keys(dotted: str) -> tuple[str, ...]:
    parts = re.findall(r""""([^"]*)"|'([^']*)'|([^\s."']+)""", dotted)
    return tuple(double or single or bare for double, single, bare in parts)


# msgspec's complaint in an operator's words, and the line it is about.
def _explain(text: str, kind: type, complaint: str) -> tuple[str, int | None]:
    from netagent import choices  # noqa: PLC0415  # where nothing is wrong nobody needs it

    message, _, place = complaint.partition(" - at `")
    where: tuple[str | int, ...] = tuple(
        int(index) if index else name or ANY
        for name, index, _ in re.findall(
            r"\.([^.\[\]]+)|\[(?:(\d+)|(\.\.\.))\]", place.rstrip("`").lstrip("$")
        )
    )
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message):
        remedy = choices.instead_of_key(kind, where, unknown[1])
        return f"unknown key {unknown[1]!r}{remedy}", line_of(text, (*where, unknown[1]))
    if missing := re.fullmatch(r"Object missing required field `(.*)`", message):
        return f"key {missing[1]!r} is missing", line_of(text, where)
    name = ".".join(str(part) for part in where) or "the file"
    remedy = choices.instead_of_value(kind, where) if message.startswith("Invalid enum") else ""
    said = f"{name}: {message[0].lower()}{message[1:]}".replace("`", "")
    return said + remedy, line_of(text, where)


def _known(path: str, text: str, plain: _Topology, name: str, where: tuple[str | int, ...]) -> None:
    if name not in plain.switches:
        raise ConfigError(path, f"{name!r} is not among [switches]", line_of(text, where))


def _check_page(page: Page, config: Config, path: str, text: str) -> None:
    """Raise ConfigError for a page that cannot be served, or that anybody could read."""
    line = line_of(text, ("page", "listen"))
    try:
        host, _ = split_address(page.listen)
    except ValueError as error:
        raise ConfigError(path, f"page.listen: {error}", line) from None
    if config.tls is None and not config.insecure and not is_loopback(host):
        problem = f"plain HTTP on {host}, which is not loopback; add [tls]"
        raise ConfigError(path, f"page.listen: {problem}", line)


def _no_tenant(name: str, config: Config) -> str:
    """Return why a name cannot be a tenant's; "" where it can."""
    if name in {"admins", "readers"}:
        return f"{name!r} is a setting of its own: it belongs above the first [section]"
    also = [each for each in ("admins", "readers") if name in getattr(config, each)]
    return f"{name!r} is among {also[0]} too, who read everything" if also else ""


def _within(kubernetes: Kubernetes) -> Kubernetes:
    """Return the API server of the cluster that this is a pod of, unless one is named."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if kubernetes.url or not host:
        return kubernetes
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return msgspec.structs.replace(
        kubernetes,
        url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca=kubernetes.ca or f"{SERVICE_ACCOUNT}/ca.crt",
        token_file=kubernetes.token_file or f"{SERVICE_ACCOUNT}/token",
    )


def _check_kubernetes(kubernetes: Kubernetes, path: str, text: str) -> None:
    """Raise ConfigError for an API server that cannot be read."""
    if found := _unreadable(kubernetes):
        key, problem = found
        line = line_of(text, ("controllers", "kubernetes", key))
        raise ConfigError(path, f"controllers.kubernetes.{key}: {problem}", line)


def _unreadable(kubernetes: Kubernetes) -> tuple[str, str] | None:
    """Return which setting of an API server cannot be so, and why; None where all can."""
    if problem := _no_server(kubernetes.url):
        return "url", problem
    if bool(kubernetes.cert) != bool(kubernetes.key):
        return "cert", "cert and key go together"
    names = kubernetes.namespaces
    if len(names) > MAX_NAMESPACES or any(not _NAMESPACE.fullmatch(name) for name in names):
        return "namespaces", f"these are no names of at most {MAX_NAMESPACES} namespaces"
    for key in ("container", "rail"):
        try:
            Rules(**{key: getattr(kubernetes, key)})
        except ValueError as error:
            return key, str(error)
    return None


def _no_server(text: str) -> str:
    """Return why a URL can be no API server's; "" where it can."""
    if not text:
        return "name the API server: this is no pod (KUBERNETES_SERVICE_HOST is not set)"
    try:
        url = urlsplit(text)
        host, _ = url.hostname or "", url.port
    except ValueError as error:
        return f"{text!r}: {error}"
    is_safe = url.scheme == "https" or (url.scheme == "http" and is_loopback(host))
    if not host or not is_safe or url.username or url.query or url.fragment:
        return f"{text!r} is not such as https://10.0.0.1:6443"
    return ""


_NAMESPACE = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _check_webhooks(webhooks: Sequence[Webhook], path: str, text: str) -> None:
    """Raise ConfigError for receivers that cannot be told."""
    for i, webhook in enumerate(webhooks):
        others = {each.name for each in webhooks[:i]}
        if found := _unusable(webhook, others):
            key, problem = found
            line = line_of(text, ("webhooks", i, key))
            raise ConfigError(path, f"webhook {webhook.name!r}: {problem}", line)


def _unusable(webhook: Webhook, others: Container[str]) -> tuple[str, str] | None:
    """Return which setting of a webhook cannot be so, and why; None where all can."""
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", webhook.name):
        return "name", "a name has letters, digits, . _ -, and 64 of them at most"
    if webhook.name in others:
        return "name", "another one has that name"
    if problem := _no_url(webhook):
        return "url", problem
    if webhook.state is IncidentState.RECOVERED:
        return "state", "use open or confirmed: who is told of either is told that it is over"
    if not re.fullmatch("[!-~]+", webhook.source):
        return "source", f"{webhook.source!r} is no URI reference"
    return None


def _no_url(webhook: Webhook) -> str:
    """Return why a receiver cannot be reached by its URL; "" where it can."""
    try:
        url = urlsplit(webhook.url)
        host, _ = url.hostname, url.port
    except ValueError as error:
        return f"{webhook.url!r}: {error}"
    if url.scheme not in {"http", "https"} or not host or not re.fullmatch("[!-~]+", webhook.url):
        return f"{webhook.url!r} is no URL such as https://receiver.example/netagent"
    if url.username is not None or url.password is not None or url.fragment:
        return "a URL without user, password and fragment is needed"
    if url.scheme == "http" and not webhook.insecure and not is_loopback(host):
        return (
            f"plain HTTP to {host}, which is not loopback; use https, or insecure = true if "
            "everybody on the way may read it"
        )
    return ""


def _check_databases(config: Config, path: str, text: str) -> None:
    """Raise ConfigError for controllers that can neither be read, be heard, nor be written to."""
    if (ovn := config.controllers.ovn) is not None:
        _check_ovn(ovn, path, text)
    for name, pushed in config.controllers.pushed.items():
        if problem := _no_pushed(name, pushed):
            line = line_of(text, ("controllers", "pushed", name))
            raise ConfigError(path, f"controllers.pushed.{name}: {problem}", line)
    if (northbound := config.actions.northbound) is not None:
        where = ("actions", "northbound")
        _check_remotes(northbound.remotes, (*where, "remotes"), path, text)
        _check_files(northbound.remotes, northbound, where, path, text)


def _check_ovn(ovn: Ovn, path: str, text: str) -> None:
    """Raise ConfigError for remotes that cannot be any, or certificates that are not all there."""
    where = ("controllers", "ovn")
    if ovn.zones:
        if ovn != Ovn(zones=ovn.zones):
            raise ConfigError(
                path,
                "controllers.ovn: with zones there are no remotes and no certificates",
                line_of(text, where),
            )
        return
    _check_remotes(ovn.northbound, (*where, "northbound"), path, text)
    _check_remotes(ovn.southbound, (*where, "southbound"), path, text)
    _check_files((*ovn.northbound, *ovn.southbound), ovn, where, path, text)


def _check_remotes(remotes: Sequence[str], where: tuple[str, ...], path: str, text: str) -> None:
    problem = "names no remote" if not remotes else ""
    for remote in remotes:
        problem = problem or _no_remote(remote)
    if problem:
        raise ConfigError(path, f"{'.'.join(where)}: {problem}", line_of(text, where))


def _check_files(
    remotes: Sequence[str], files: Ovn | WritableNorthbound, where: tuple[str, ...], path: str,
    text: str,
) -> None:  # fmt: skip
    named = (files.ca, files.cert, files.key)
    is_tls = any(each.startswith("ssl:") for each in remotes)
    if not all(named) and (is_tls or any(named)):
        text_of = "a remote that begins with ssl: needs ca, cert and key" if is_tls else (
            "ca, cert and key go together"
        )  # fmt: skip
        raise ConfigError(path, f"{'.'.join(where)}: {text_of}", line_of(text, where))


def _no_pushed(name: str, pushed: Pushed) -> str:
    """Return why a controller cannot be pushed by this name; "" where it can."""
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return "a name has letters, digits, . _ -, and 64 of them at most"
    if name == OVN:
        return "that name is of what is read: [controllers.ovn]"
    return "" if pushed.clients and all(pushed.clients) else "clients names nobody"


def _no_remote(remote: str) -> str:
    """Return why a text is no remote of OVSDB; "" where it is one."""
    if re.fullmatch(r"unix:/[^,\s]+", remote):
        return ""
    if not (found := re.fullmatch(r"(?:tcp|ssl):([^,\s]+)", remote)):
        return f"{remote!r} is none of unix:/FILE, tcp:ADDRESS:PORT, ssl:ADDRESS:PORT"
    try:
        split_address(found[1])
    except ValueError as error:
        return str(error)
    return ""


def _anchored(config: Config, folder: Path) -> Config:
    def anchor(file: str) -> str:
        return str(folder / file)

    def within(part: Part, *names: str) -> Part:
        files = {name: anchor(file) for name in names if (file := getattr(part, name))}
        return msgspec.structs.replace(part, **files)

    tls, controllers = config.tls, config.controllers
    ovn, kubernetes = controllers.ovn, controllers.kubernetes
    northbound = config.actions.northbound
    return msgspec.structs.replace(
        config,
        database=anchor(config.database),
        topology=anchor(config.topology) if config.topology else None,
        tls=tls
        and Tls(
            anchor(tls.ca), anchor(tls.cert), anchor(tls.key), anchor(tls.crl) if tls.crl else ""
        ),
        enrolment=config.enrolment
        and Enrolment(anchor(config.enrolment.authority), config.enrolment.listen),
        actions=msgspec.structs.replace(
            config.actions, northbound=northbound and within(northbound, "ca", "cert", "key")
        ),
        webhooks=tuple(within(each, "secret", "ca") for each in config.webhooks),
        controllers=msgspec.structs.replace(
            controllers,
            ovn=ovn and within(ovn, "ca", "cert", "key"),
            kubernetes=kubernetes and within(kubernetes, "ca", "token_file", "cert", "key"),
        ),
    )
