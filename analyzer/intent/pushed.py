# SPDX-License-Identifier: Apache-2.0
"""What a controller pushes in place of being read: its messages, and what is kept of them. Pure.

Messages hold the contract's own words (`analyzer.intent.model`), by name. What a controller cannot
know, since when a port is where it is and how often it moved, is watched here. Nothing outlives the
process: what should be is worth as much as it is new, and who pushes sends it anew when asked.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from typing import Annotated, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import asdict

from analyzer.intent.model import (
    MOVES_NS,
    Allowed,
    Chassis,
    Encapsulation,
    Intent,
    Ladder,
    Placement,
    Port,
)
from netagent.model.endpoint import MAC
from netagent.model.errors import RemoteProtocolError

T = TypeVar("T")

PART = "intent"
"""What `Intent.away` calls it, as it calls a database of one that is read."""
MOST_PORTS = 65_536
"""Most ports, and most placements. Chosen: their usual rows fill the largest body."""
MOST_CHASSIS = 16_384
"""Most chassis. Chosen: three times the hosts of the largest clusters."""
MOST_MOVES = 256
"""Most moves of a port that are remembered. Chosen, as of OVN's: bounds memory."""

Text = Annotated[str, Meta(max_length=512)]
"""Chosen: names of pods and namespaces are 316 characters together at most."""
Texts = Annotated[tuple[Text, ...], Meta(max_length=256)]
"""Chosen: four times the addresses that a host may say of itself."""
Version = Annotated[str, Meta(min_length=1, max_length=128)]
"""As who pushes calls a state of it: any text that no other state has."""
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class _Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all of them are."""


class AllowedBody(_Body, frozen=True):
    """`Allowed`."""

    mac: Text
    addresses: Texts = ()


class PortBody(_Body, frozen=True):
    """`Port`, but for its name."""

    network: Text = ""
    pod: Text = ""
    container: Text = ""
    macs: Texts = ()
    addresses: Texts = ()
    hosts: Texts = ()
    is_enabled: bool = True
    allowed: Annotated[tuple[AllowedBody, ...], Meta(max_length=256)] = ()
    owner: Text = ""


class PlacementBody(_Body, frozen=True):
    """`Placement`, but for its port and what is watched."""

    chassis: Text = ""
    is_up: bool = False
    encapsulation: Text = ""


class EncapsulationBody(_Body, frozen=True):
    """`Encapsulation`."""

    kind: Text
    address: Text


class ChassisBody(_Body, frozen=True):
    """`Chassis`, but for its name."""

    hostname: Text = ""
    encapsulations: Annotated[tuple[EncapsulationBody, ...], Meta(max_length=256)] = ()
    is_registered: bool = True
    installed: Number | None = None
    installed_ns: Number = 0


class LadderBody(_Body, frozen=True):
    """`Ladder`, but for what is watched."""

    asked: Number | None = None
    translated: Number | None = None


class WholeIntent(_Body, frozen=True):
    """All that a controller says; `ports` and `placements` by port, `chassis` by name."""

    version: Version
    ports: Annotated[dict[Text, PortBody], Meta(max_length=MOST_PORTS)] = {}
    placements: Annotated[dict[Text, PlacementBody], Meta(max_length=MOST_PORTS)] = {}
    chassis: Annotated[dict[Text, ChassisBody], Meta(max_length=MOST_CHASSIS)] = {}
    ladder: LadderBody = LadderBody()


class IntentChange(_Body, frozen=True):
    """What changed of it since version `since`; null: it is not there any more.

    One that holds no change says that all still holds.
    """

    since: Version
    version: Version
    ports: Annotated[dict[Text, PortBody | None], Meta(max_length=MOST_PORTS)] = {}
    placements: Annotated[dict[Text, PlacementBody | None], Meta(max_length=MOST_PORTS)] = {}
    chassis: Annotated[dict[Text, ChassisBody | None], Meta(max_length=MOST_CHASSIS)] = {}
    ladder: LadderBody | None = None
    """None: as it was."""


class LostChange(RemoteProtocolError):
    """A change does not follow what is kept: one before it never came."""


class Pushed:
    """What one controller pushed. `now_ns` is the analyzer's Unix time."""

    def __init__(self, name: str, away_after_ns: int) -> None:
        """Take what is older than `away_after_ns` for what nobody knows to hold any more."""
        self.name, self._away_after_ns = name, away_after_ns
        self.version: str | None = None
        """None: nothing was pushed so far."""
        self._since: str | None = None
        """Version that the newest change followed; None where the whole came last."""
        self._is_lost = False
        self._heard_ns = 0
        self._ports: dict[str, Port] = {}
        self._placements: dict[str, Placement] = {}
        self._chassis: dict[str, Chassis] = {}
        self._ladder = Ladder()
        self._last: dict[str, str] = {}
        """Port -> chassis that it had last."""
        self._moves: dict[str, deque[int]] = {}
        """Port -> Unix nanoseconds of its newest moves."""
        self._made: Intent | None = None

    def put(self, whole: WholeIntent, now_ns: int) -> None:
        """Take all of it; RemoteProtocolError, and nothing is taken, where it makes no sense."""
        ports = {name: _port(name, each) for name, each in whole.ports.items()}
        chassis = {name: _chassis(name, each) for name, each in whole.chassis.items()}
        _check_placements(whole.placements)
        self._ports, self._chassis = ports, chassis
        for name in self._placements.keys() - whole.placements.keys():
            self._unplace(name)
        for name, each in whole.placements.items():
            self._place(name, each, now_ns)
        self._climb(whole.ladder, now_ns)
        self._took(whole.version, None, now_ns)

    def patch(self, changed: IntentChange, now_ns: int) -> None:
        """Take what changed, whole or not at all; the newest change may come once more.

        Raises LostChange where it follows something else than what is kept, and RemoteProtocolError
        where it makes no sense.
        """
        again = changed.version == self.version and changed.since == self._since
        if changed.since != self.version and not again:
            self._is_lost = self.version is not None
            kept = f"what is kept is of version {self.version}" if self.version else ""
            kept = kept or "nothing was pushed since the analyzer began"
            raise LostChange(f"it changes version {changed.since}, and {kept}")
        ports = {n: _port(n, each) if each else None for n, each in changed.ports.items()}
        chassis = {n: _chassis(n, each) if each else None for n, each in changed.chassis.items()}
        placements = changed.placements
        _check_placements({n: each for n, each in placements.items() if each is not None})
        for what, kept_of, new, most in (
            ("ports", self._ports, ports, MOST_PORTS),
            ("placements", self._placements, placements, MOST_PORTS),
            ("chassis", self._chassis, chassis, MOST_CHASSIS),
        ):
            count = sum(each is not None for each in new.values()) + len(kept_of.keys() - new)
            if count > most:
                raise RemoteProtocolError(f"{count} {what}; {most} at most")
        _update(self._ports, ports)
        _update(self._chassis, chassis)
        for name, each in placements.items():
            if each is None:
                self._unplace(name)
            else:
                self._place(name, each, now_ns)
        if changed.ladder is not None:
            self._climb(changed.ladder, now_ns)
        self._took(changed.version, changed.since, now_ns)

    def intent(self, now_ns: int) -> Intent:
        """Return what is kept: a value that no later change reaches."""
        self._settle(now_ns)
        if self._made is None:
            self._made = Intent(
                source=self.name,
                wall_ns=self._heard_ns,
                ports=dict(self._ports),
                placements=dict(self._placements),
                chassis=dict(self._chassis),
                ladder=self._ladder,
            )
        why = self._why(now_ns)
        return replace(self._made, away={PART: why}) if why else self._made

    def kept(self) -> WholeIntent | None:
        """Return what is kept as it could be put again; None where nothing was pushed."""
        if self.version is None:
            return None
        return WholeIntent(
            version=self.version,
            ports={name: _port_body(each) for name, each in self._ports.items()},
            placements={
                name: PlacementBody(
                    chassis=each.chassis, is_up=each.is_up, encapsulation=each.encapsulation
                )
                for name, each in self._placements.items()
            },
            chassis={name: _chassis_body(each) for name, each in self._chassis.items()},
            ladder=LadderBody(asked=self._ladder.asked, translated=self._ladder.translated),
        )

    def _why(self, now_ns: int) -> str:
        """Return why what is kept may not hold; "" where it does."""
        if self.version is None:
            return "nothing was pushed since the analyzer began"
        if self._is_lost:
            return "a change of it never came, and the whole was not pushed since"
        if now_ns - self._heard_ns > self._away_after_ns:
            return f"nothing was pushed for more than {self._away_after_ns // 10**9} s"
        return ""

    def _took(self, version: str, since: str | None, now_ns: int) -> None:
        self.version, self._since, self._heard_ns = version, since, now_ns
        if since is None:
            self._is_lost = False
        self._made = None

    def _place(self, port: str, body: PlacementBody, now_ns: int) -> None:
        was, last = self._placements.get(port), self._last.get(port)
        stays = was is not None and was.chassis == body.chassis
        if body.chassis:
            if last is not None and last != body.chassis:
                self._moves.setdefault(port, deque(maxlen=MOST_MOVES)).append(now_ns)
            self._last[port] = body.chassis
        self._placements[port] = Placement(
            port,
            body.chassis,
            body.is_up,
            body.encapsulation,
            since_ns=was.since_ns if was is not None and stays else now_ns,
            moves=len(self._moves.get(port, ())),
        )

    def _unplace(self, port: str) -> None:
        self._placements.pop(port, None)
        self._last.pop(port, None)
        self._moves.pop(port, None)

    def _settle(self, now_ns: int) -> None:
        """Let moves that were long ago count no more."""
        for port, moves in list(self._moves.items()):
            before = len(moves)
            while moves and not 0 <= now_ns - moves[0] < MOVES_NS:
                moves.popleft()  # also what would be to come: the clock was set
            if not moves:
                del self._moves[port]
            if len(moves) != before:
                self._placements[port] = replace(self._placements[port], moves=len(moves))
                self._made = None

    def _climb(self, body: LadderBody, now_ns: int) -> None:
        was = self._ladder
        since_ns = was.asked_ns if body.asked == was.asked else now_ns
        self._ladder = Ladder(
            body.asked, body.translated, since_ns if body.asked is not None else 0
        )


def _update(held: dict[str, T], new: Mapping[str, T | None]) -> None:
    for name, each in new.items():
        if each is None:
            held.pop(name, None)
        else:
            held[name] = each


def _port(name: str, body: PortBody) -> Port:
    at = f"ports.{name}"
    texts = (name, body.network, body.pod, body.container, body.owner, *body.hosts)
    _check_texts(at, texts)
    if body.pod and (body.pod.count("/") != 1 or not all(body.pod.split("/"))):
        raise RemoteProtocolError(f"{at}.pod: {body.pod!r} is not NAMESPACE/NAME")
    _check_macs(f"{at}.macs", body.macs)
    _check_macs(f"{at}.allowed", (each.mac for each in body.allowed))
    for rule in (rule for each in body.allowed for rule in each.addresses):
        try:
            ip_interface(rule)
        except ValueError:
            raise RemoteProtocolError(f"{at}.allowed: {rule!r} is no address") from None
    values = asdict(body) | {
        "addresses": tuple(_address(f"{at}.addresses", each) for each in body.addresses),
        "allowed": tuple(Allowed(each.mac, each.addresses) for each in body.allowed),
    }
    return Port(name, **values)


def _check_placements(placements: Mapping[str, PlacementBody]) -> None:
    for name, body in placements.items():
        at = f"placements.{name}"
        _check_texts(at, (name, body.chassis))
        if body.encapsulation:
            _address(f"{at}.encapsulation", body.encapsulation)


def _chassis(name: str, body: ChassisBody) -> Chassis:
    at = f"chassis.{name}"
    _check_texts(at, (name, body.hostname, *(each.kind for each in body.encapsulations)))
    ends = tuple(
        Encapsulation(each.kind, _address(f"{at}.encapsulations", each.address))
        for each in body.encapsulations
    )
    return Chassis(name, **asdict(body) | {"encapsulations": ends})


def _check_texts(at: str, texts: Iterable[str]) -> None:
    """Refuse a first text that is empty, and what a terminal would not print as it is."""
    for n, text in enumerate(texts):
        if not text.isprintable() or (not n and not text):
            raise RemoteProtocolError(f"{at!r}: {text!r} is no name")


def _check_macs(at: str, macs: Iterable[str]) -> None:
    for mac in macs:
        if not MAC.fullmatch(mac):
            raise RemoteProtocolError(f"{at}: {mac!r} is no hardware address")


def _address(at: str, text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise RemoteProtocolError(f"{at}: {text!r} is no address") from None


def _port_body(port: Port) -> PortBody:
    return PortBody(
        network=port.network,
        pod=port.pod,
        container=port.container,
        macs=port.macs,
        addresses=port.addresses,
        hosts=port.hosts,
        is_enabled=port.is_enabled,
        allowed=tuple(AllowedBody(mac=a.mac, addresses=a.addresses) for a in port.allowed),
        owner=port.owner,
    )


def _chassis_body(chassis: Chassis) -> ChassisBody:
    return ChassisBody(
        hostname=chassis.hostname,
        encapsulations=tuple(
            EncapsulationBody(kind=e.kind, address=e.address) for e in chassis.encapsulations
        ),
        is_registered=chassis.is_registered,
        installed=chassis.installed,
        installed_ns=chassis.installed_ns,
    )
