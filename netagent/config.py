# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration: one TOML file, frozen values.

Unknown keys, wrong types and values out of range are `ConfigError` with the line at fault. Every
field below names its unit; what has a default may be left out of the file. Relative paths are
relative to the file's folder.
"""

import ipaddress
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from netagent.host.controllers import CONTROLLERS, UPLINK, Rule, Rules
from netagent.host.ports import parse_rail
from netagent.model.errors import ConfigError
from netagent.model.path import MAX_HOPS
from netagent.wire.actions import HostVerb

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from typing_extensions import Self

MIN_PROBE_BYTES = 64
"""Bytes of the smallest overlay IP packet of a probe. Chosen: IPv4 and UDP headers (28) and the
frame (24) fit."""

LEAST_ROTATE_S = 10
"""Fewest seconds after which a source port may be exchanged. Chosen: more than twice the longest
timeout, so that no probe of the port is under way when it is closed."""

Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][\w.-]*$")]
"""A host, bridge or certificate name."""
NO_DATABASES = "none"
"""What `ovs.ovn_databases` says where they are not to be read."""
NoName = Annotated[str, Meta(max_length=128, pattern=r"^([A-Za-z0-9][\w.-]*)?$")]
"""A name, or none."""


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; a key that no field names is an error."""


class AnalyzerConfig(_Section, frozen=True, kw_only=True):
    """``[analyzer]``: where summaries go and ping lists come from."""

    url: str
    """Base URL, ``https://ADDRESS:PORT``; plain ``http://`` only to loopback or with `insecure`."""

    def __post_init__(self) -> None:
        """Refuse what is no URL of a server."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("write https://ADDRESS:PORT")
        if parts.query or parts.fragment or parts.username:
            raise ValueError("no user, query or fragment belongs in the analyzer's URL")

    @property
    def encrypted(self) -> bool:
        """Whether the URL asks for TLS."""
        return urlsplit(self.url).scheme == "https"

    @property
    def loopback(self) -> bool:
        """Whether the analyzer runs on this host."""
        return is_loopback(urlsplit(self.url).hostname or "")


class TlsConfig(_Section, frozen=True, kw_only=True):
    """``[tls]``: PEM files of mutual TLS, for the RPC server and for the analyzer's client."""

    ca: str
    """Certificate of the authority that signed every peer's certificate."""
    cert: str
    """This host's certificate; its common name is the host's name."""
    key: str
    """This host's private key; may be in the same file."""
    crl: str = ""
    """List of what the authority revoked; need not exist yet. Empty: nobody revokes."""


class RpcConfig(_Section, frozen=True, kw_only=True):
    """``[rpc]``: the agent's own server."""

    listen: str = "127.0.0.1:8421"
    """ADDRESS:PORT to listen on; IPv6 addresses in brackets."""
    advertise: str = ""
    """ADDRESS:PORT at which the analyzer reaches this agent; empty: `listen`."""
    peers: tuple[Name, ...] = ("analyzer", "admin")
    """Common names of certificates that may ask."""

    def __post_init__(self) -> None:
        """Refuse what is no address and port."""
        split_listen(self.listen)
        if self.advertise:
            split_listen(self.advertise)

    @property
    def wildcard(self) -> bool:
        """Whether it listens on every address, which is none to connect to."""
        return self.address[0] in {"0.0.0.0", "::", ""}

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to bind."""
        return split_listen(self.listen)

    @property
    def loopback(self) -> bool:
        """Whether only this host can connect."""
        return is_loopback(self.address[0])


class OvsConfig(_Section, frozen=True, kw_only=True):
    """``[ovs]``: the host's Open vSwitch."""

    rundir: str = "/var/run/openvswitch"
    """Folder of ``db.sock`` and of ovs-vswitchd's pid file and control socket."""
    integration_bridge: NoName = "br-int"
    """Bridge that holds the containers' ports and the tunnels; empty: this host has no Open
    vSwitch, and its endpoints are all declared."""
    ovn_rundir: str = "/var/run/ovn"
    """Folder of ovn-controller's pid file and control socket, where OVN drives the bridge."""
    driven_by: NoName = ""
    """Name of the controller that drives the bridge by OpenFlow, as the analyzer's
    ``[controllers.pushed.NAME]`` has it; empty: OVN, where it does."""
    ovn_databases: str = ""
    """Folder of ``ovnnb_db.sock`` and ``ovnsb_db.sock``, where this host has databases of its own
    that the analyzer may have read; empty: `ovn_rundir`, or ``/var/run/ovn-ic``; ``none``: neither.
    """
    rails: Annotated[tuple[Name, ...], Meta(max_length=256)] = ()
    """Netdevs of the RNICs of rails 0, 1, ...: the rails of tunnels that name none, as OVN's."""

    def __post_init__(self) -> None:
        """Refuse an RNIC of two rails."""
        if len(set(self.rails)) < len(self.rails):
            raise ValueError("rails: one RNIC is there twice")


class RuleConfig(_Section, frozen=True, kw_only=True):
    """How to read a container's name, a task or a rail from a port's external_ids."""

    text: str
    """Text in which each ``{KEY}`` stands for that key's value; ``{port}`` is the port's name."""
    match: str = ""
    """Regular expression that all of the text must match; its first group is the result."""
    first: Annotated[int, Meta(ge=0, le=255)] = 0
    """Of a rail: the number that stands for rail 0."""


class EndpointsConfig(_Section, frozen=True, kw_only=True):
    """``[endpoints]``: who plugs containers in, and how to read what they say of them.

    netagent's own external_ids are read in any case.
    """

    controller: str = ""
    """Who writes the external_ids of the integration bridge: one of `CONTROLLERS`; empty: whoever
    writes netagent's own."""
    container: str | RuleConfig | None = None
    """Where a container's name comes from, as text or as a rule; None: as its controller has it."""
    task: str | RuleConfig | None = None
    """Where a task comes from; who has none belongs to others."""
    rail: str | RuleConfig | None = None
    """Where a rail comes from; ``"uplink"`` is that of the tunnel or RNIC which the port uses."""
    folder: str = "/run/netagent/endpoints"
    """Folder of the files that declare endpoints without a port (`netagent.host.declared`); an
    absolute path, since others write there."""

    def __post_init__(self) -> None:
        """Refuse rules that nothing can be read with."""
        self.rules()
        if not self.folder.startswith("/"):
            raise ValueError(f"folder: {self.folder!r} is no absolute path")

    def rules(self) -> Rules | None:
        """Return how to read the controller's external_ids; None without a controller.

        Raises ValueError for a controller that nobody knows, and for rules that say nothing.
        """
        if not self.controller:
            if self.container or self.task or self.rail:
                raise ValueError("rules need a controller")
            return None
        own = CONTROLLERS.get(self.controller)
        if own is None:
            raise ValueError(f"controller: {self.controller!r} is none of {', '.join(CONTROLLERS)}")
        rules = replace(
            own,
            container=_rule(self.container) or own.container,
            task=_rule(self.task) or own.task,
            rail=None if self.rail == UPLINK else _rule(self.rail) or own.rail,
        )
        if rules.task is None:
            raise ValueError(f"task is needed: {self.controller} writes none")
        if rules.rail and not rules.rail.has_keys:
            number = parse_rail(rules.rail.of({}))
            if number is None or number < rules.rail.first:
                text = f"rail: {rules.rail.text!r} has no {{KEY}}, and is neither a rail's number"
                raise ValueError(f'{text} nor "{UPLINK}"')
        return rules


def _rule(given: str | RuleConfig | None) -> Rule | None:
    if isinstance(given, RuleConfig):
        return Rule(given.text, given.match, given.first)
    return None if given is None else Rule(given)


class ProbeConfig(_Section, frozen=True, kw_only=True):
    """``[probe]``: how often, how large, how varied."""

    transport: Literal["auto", "udp", "rdma"] = "auto"
    """``rdma`` probes with the endpoint's RDMA device, ``udp`` through its kernel; ``auto`` takes
    RDMA for the endpoints that have a device with a RoCE v2 GID when they are first seen."""
    rate_per_endpoint: Annotated[float, Meta(gt=0, le=1000)] = 20
    """Probes per second that one endpoint sends at most."""
    rate_per_host: Annotated[float, Meta(gt=0, le=100_000)] = 400
    """Probes per second that all endpoints of the host send at most."""
    bytes_per_second_per_endpoint: Annotated[int, Meta(ge=1024, le=1 << 30)] = 4 * 65536
    """Bytes of overlay IP packets per second that one endpoint sends at most."""
    bytes_per_second_per_host: Annotated[int, Meta(ge=1024, le=1 << 34)] = 64 * 65536
    """Bytes of overlay IP packets per second that all endpoints of the host send at most."""
    flows_per_pair: Annotated[int, Meta(ge=1, le=64)] = 4
    """UDP source ports per ordered pair: how many ECMP draws a pair makes at any time."""
    rotate_s: Annotated[int, Meta(ge=0, le=86400)] = 180
    """Seconds, in whole windows, after which one source port of each ordered pair is exchanged, so
    that it comes by other ways; 0: never. By RDMA, and where a pair has one port, all ports stay.
    """
    sizes: Annotated[tuple[int | Literal["mtu"], ...], Meta(min_length=1, max_length=8)] = (
        64,
        1100,
        "mtu",
    )
    """Bytes of the overlay IP packet, sent in turn; ``"mtu"`` is the endpoint's own MTU."""
    timeout_ms: Annotated[int, Meta(ge=10, le=4000)] = 500
    """Milliseconds after which a probe without an answer is lost."""
    pings_per_visit: Annotated[int, Meta(ge=1, le=64)] = 4
    """Probes in a row each time a target's turn comes."""
    port: Annotated[int, Meta(ge=1, le=65535)] = 18515
    """UDP destination port of probes, inside every container."""
    window_s: Annotated[int, Meta(ge=1, le=60)] = 5
    """Seconds one summary covers; the same on every host."""

    def __post_init__(self) -> None:
        """Refuse sizes that hold no probe or that no interface carries."""
        for size in self.sizes:
            if size != "mtu" and not MIN_PROBE_BYTES <= size <= 65_000:
                raise ValueError(f"sizes: {size} is not within {MIN_PROBE_BYTES}..65000 bytes")
        if 0 < self.rotate_s < LEAST_ROTATE_S:
            raise ValueError(
                f"rotate_s: {self.rotate_s} is neither 0 nor at least {LEAST_ROTATE_S}"
            )


class TraceConfig(_Section, frozen=True, kw_only=True):
    """``[trace]``: TTL-limited probes of the outer header."""

    packets_per_second: Annotated[float, Meta(ge=0, le=10_000)] = 50
    """TTL-limited packets per second the host sends at most; 0: no flow is traced. What the
    analyzer asks for when it has to decide comes on top."""
    refresh_s: Annotated[float, Meta(ge=1, le=3600)] = 5
    """Seconds after which a flow's path is traced anew."""
    max_hops: Annotated[int, Meta(ge=1, le=MAX_HOPS)] = 6
    """Routers between two hosts at most."""


class TrafficConfig(_Section, frozen=True, kw_only=True):
    """``[traffic]``: the series of what endpoints send, from which skeletons are inferred."""

    tick_ms: Annotated[int, Meta(ge=100, le=10_000, multiple_of=100)] = 1000
    """Milliseconds of the wall clock that one number of a series covers. The analyzer may ask for
    finer ones for some minutes."""


class LimitsConfig(_Section, frozen=True, kw_only=True):
    """``[limits]``: what the agent may use of its host."""

    spool_mib: Annotated[int, Meta(ge=1, le=65536)] = 64
    """MiB of summaries kept on disk while the analyzer is away; then the oldest are dropped."""
    vswitch_traces: bool = True
    """Whether the analyzer may have this host's virtual switch traced (`netagent trace`)."""
    vswitch_validation: bool = True
    """Whether the analyzer may have the datapath and tc dumped and held against the flow tables
    (as `netagent flows layers` does)."""


class MetricsConfig(_Section, frozen=True, kw_only=True):
    """``[metrics]``: what Prometheus may read of this agent."""

    listen: str = ""
    """ADDRESS:PORT; empty: nobody listens. On loopback it is plain HTTP, and whoever is on this
    host may read; on any other address it needs `[tls]`."""
    peers: tuple[Name, ...] = ("prometheus",)
    """Common names of certificates that may read, where it is not on loopback."""

    def __post_init__(self) -> None:
        """Refuse what is no address and port."""
        if self.listen:
            split_listen(self.listen)

    @property
    def loopback(self) -> bool:
        """Whether only this host can connect."""
        return not self.listen or is_loopback(split_listen(self.listen)[0])


class ActionsConfig(_Section, frozen=True, kw_only=True):
    """``[actions]``: what the analyzer may have this host do."""

    allow: tuple[HostVerb, ...] = ()
    """What may be done; by default nothing."""
    per_hour: Annotated[int, Meta(ge=1, le=60)] = 4
    """Most actions within an hour, whoever asks."""
    peers: tuple[Name, ...] = ("analyzer",)
    """Common names of certificates that may ask for one; each is in `rpc.peers`, too."""


class OperatorsConfig(_Section, frozen=True, kw_only=True):
    """``[operators]``: what training jobs on this host communicate, as they record it."""

    enabled: bool = False
    """Whether the agent reads what jobs record, and says sums of it with each window."""
    folder: str = "/run/netagent/operators"
    """Where jobs record it: in memory, and mounted into each container that does."""
    most_processes: Annotated[int, Meta(ge=1, le=64)] = 64
    """Most processes that are read; a ring takes 2 MiB of memory by default."""
    uprobes: bool = False
    """Whether gloo and NCCL are watched in all processes of this host, without a change to them;
    it needs root."""

    def __post_init__(self) -> None:
        """Refuse a folder that depends on where the agent was started."""
        if not self.folder.startswith("/"):
            raise ValueError(f"folder: {self.folder!r} is no absolute path")
        if self.uprobes and not self.enabled:
            raise ValueError("uprobes need operators.enabled")


class AgentConfig(_Section, frozen=True, kw_only=True):
    """The whole file."""

    host: Name
    """This host's name, unique in the cluster and equal to its certificate's common name."""
    state_dir: str = "/var/lib/netagent"
    """Folder of the spool; made if it does not exist."""
    insecure: bool = False
    """Allow plain HTTP beyond loopback. For experiments only."""
    analyzer: AnalyzerConfig
    tls: TlsConfig | None = None
    rpc: RpcConfig = field(default_factory=RpcConfig)
    ovs: OvsConfig = field(default_factory=OvsConfig)
    endpoints: EndpointsConfig = field(default_factory=EndpointsConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    trace: TraceConfig = field(default_factory=TraceConfig)
    traffic: TrafficConfig = field(default_factory=TrafficConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    actions: ActionsConfig = field(default_factory=ActionsConfig)
    operators: OperatorsConfig = field(default_factory=OperatorsConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)

    def __post_init__(self) -> None:
        """Refuse plain HTTP where others can reach it, and a controller of no bridge."""
        if self.tls is None and self.analyzer.encrypted:
            raise ValueError(
                "[tls] with ca, cert and key is needed for an https:// analyzer "
                "(`netagent enroll` writes it)"
            )
        if self.endpoints.controller and not self.ovs.integration_bridge:
            raise ValueError(
                "endpoints.controller needs a bridge to read: ovs.integration_bridge is empty"
            )
        if self.actions.allow and self.tls is None:
            raise ValueError("[tls] is needed: without it, anybody could ask for actions")
        if self.actions.allow and not self.ovs.integration_bridge:
            raise ValueError("actions.allow needs a bridge: ovs.integration_bridge is empty")
        if self.insecure:
            return
        if self.tls is None and not self.rpc.loopback:
            raise ValueError("[tls] is needed: rpc.listen is not on loopback (or insecure = true)")
        if self.tls is None and not self.metrics.loopback:
            raise ValueError("[tls] is needed: metrics.listen is not on loopback")
        if not self.analyzer.encrypted and not self.analyzer.loopback:
            raise ValueError("analyzer.url must be https:// beyond loopback (or insecure = true)")
        local = self.rpc.loopback and not self.analyzer.loopback
        if not self.rpc.advertise and (local or self.rpc.wildcard):
            raise ValueError(
                "rpc.advertise is needed: the analyzer cannot reach rpc.listen at this address"
            )

    @property
    def rpc_url(self) -> str:
        """Where the analyzer reaches this agent's RPC."""
        return f"{'https' if self.tls else 'http'}://{self.rpc.advertise or self.rpc.listen}"

    def within(self, folder: Path) -> "Self":
        """Return the configuration with its relative paths made absolute from `folder`."""
        tls = self.tls and TlsConfig(
            ca=str(folder / self.tls.ca),
            cert=str(folder / self.tls.cert),
            key=str(folder / self.tls.key),
            crl=str(folder / self.tls.crl) if self.tls.crl else "",
        )
        ovs = msgspec.structs.replace(
            self.ovs,
            rundir=str(folder / self.ovs.rundir),
            ovn_rundir=str(folder / self.ovs.ovn_rundir),
            ovn_databases=_databases_within(folder, self.ovs.ovn_databases),
        )
        state_dir = str(folder / self.state_dir)
        return msgspec.structs.replace(self, tls=tls, ovs=ovs, state_dir=state_dir)


def _databases_within(folder: Path, said: str) -> str:
    return said if said in {"", NO_DATABASES} else str(folder / said)


def load(path: Path | str) -> AgentConfig:
    """Return the configuration in the file `path`.

    Raises ConfigError if it cannot be read, is no TOML, or says what no agent can do.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        remedy = "; `netagent enroll` writes one" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(str(path), f"cannot be read: {reason}{remedy}") from error
    return parse(text, str(path)).within(Path(path).absolute().parent)


def parse(text: str, path: str = "<config>") -> AgentConfig:
    """Return the configuration that `text` holds; ConfigError names `path` and the line."""
    try:
        return msgspec.convert(tomllib.loads(text), AgentConfig, strict=True)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, str(error), _syntax_line(str(error), text)) from error
    except msgspec.ValidationError as error:
        message, keys = _explain(str(error))
        raise ConfigError(path, message, _line_of(text, keys)) from error


def split_listen(text: str) -> tuple[str, int]:
    """Return address and port of ``ADDRESS:PORT``; ValueError if `text` is none."""
    address, separator, port = text.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]")
    if not separator or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise ValueError(f"{text!r} is no ADDRESS:PORT")
    if ":" in bare and address != f"[{bare}]":
        raise ValueError(f"{text!r}: an IPv6 address needs brackets, as in [fd00::11]:8421")
    try:
        ipaddress.ip_address(bare)
    except ValueError as error:
        if bare != "localhost":
            raise ValueError(f"{bare!r} is no IP address") from error
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _syntax_line(message: str, text: str) -> int:
    found = re.search(r"at line (\d+)", message)
    return int(found[1]) if found else max(1, text.count("\n") + (not text.endswith("\n")))


def _explain(message: str) -> tuple[str, tuple[str, ...]]:
    """Split msgspec's message into a sentence for operators and the path of keys at fault."""
    from netagent import choices  # noqa: PLC0415  # where nothing is wrong nobody needs it

    text, _, where = message.partition(" - at `$")
    keys = tuple(re.findall(r"\.([^.\[`]+)", where))
    if unknown := re.match(r"Object contains unknown field `(.*)`$", text):
        remedy = choices.instead_of_key(AgentConfig, keys, unknown[1])
        keys = (*keys, unknown[1])
        return f"unknown key {'.'.join(keys)!r}{remedy}", keys
    if missing := re.match(r"Object missing required field `(.*)`$", text):
        return f"key {'.'.join((*keys, missing[1]))!r} is missing", keys
    if text.startswith("Invalid enum"):
        text += choices.instead_of_value(AgentConfig, keys)
    return (f"{'.'.join(keys)}: {text}" if keys else text), keys


def _line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """Return the 1-based line where the statement that defines `keys` starts.

    A statement ends where a prefix of the file parses again, so the first prefix that has the keys
    ends with their statement, and the prefix before it ends just above.
    """
    above = 0
    for count, document in _prefixes(text):
        if keys and _has(document, keys):
            return above + 1
        above = count
    return None


def _prefixes(text: str) -> Iterator[tuple[int, dict[str, object]]]:
    lines = text.splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        try:
            yield count, tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue


def _has(document: object, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if not isinstance(document, dict) or key not in document:
            return False
        document = document[key]
    return True
