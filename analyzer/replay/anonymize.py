# SPDX-License-Identifier: Apache-2.0
"""A recording in which names and addresses are replaced, the same ones always by the same. Pure.

Names keep their order, since decisions that are a tie otherwise are made in it: so an anonymized
recording replays to the same incidents, under other names. What a diagnosis had learned before the
recording began is left out: it is a graph in which names cannot be found with certainty. What is
not replaced: an address in another notation (hexadecimal in a flow), and a name that is a word of
the recording itself, such as `link`.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any

import msgspec

from analyzer.detect.held import JobVerdict
from analyzer.intent.differences.contract import Difference
from analyzer.intent.differences.ladder import TRANSLATION
from analyzer.localize.validating.judge import SLOWS, STATED
from analyzer.questions import MeaningReply
from analyzer.replay import records
from netagent.model.errors import RemoteProtocolError
from netagent.model.path import Component, Kind
from netagent.model.task import Task
from netagent.model.verdict import Incident, Verdict
from netagent.wire.codec import decode, encode
from netagent.wire.messages import CheckReply, PathReply, Registration, Status, Summary
from netagent.wire.trace import TraceReply
from netagent.wire.validate import ValidateReply

IPV4 = r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\d|\.\d)"
MAC = r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])"
IPV6 = (
    r"(?<![0-9a-zA-Z:])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}"
    r"(?:(?<=::)|(?<!:))(?![0-9a-zA-Z]|:[0-9a-fA-F:]|\.\d)"
)
ADDRESS = f"{IPV4}|{IPV6}"
EDGE = r"[A-Za-z0-9]"
"""What a name goes on with. The parts of a longer name that are names are replaced: a domain that
follows a host's name, or what an interface is called after."""
NOTHING = "::"
"""What becomes of what looks like an IPv6 address and is none."""
APART = {"rpc_url"}
"""Fields that are left empty: nothing is decided by them, and they may name a domain."""
LEFT_OUT = {"inventory", "controller", "unprobed", "operators"}
"""Fields that are left out: nothing is decided by them, releases of kernels may name a company, and
logical ports name pods.
"""
NAMING = {"iface-id", "owner", "chassis", "chassis of the host", "hostname"}
"""What findings on controllers read that is a name."""
OF_CONTROLLERS = {TRANSLATION}
"""Parts of controllers that are called alike everywhere."""
NET = 10 << 24
"""First address, as a number, that anonymized addresses get in their order: 10.0.0.0 (RFC 1918)."""
NET_6 = 0xFD << 120
"""The same of IPv6: fd00:: (RFC 4193)."""


def _words() -> Iterator[str]:
    """Yield what messages are written with besides names: tags and values of enumerations."""
    todo: list[Any] = list(msgspec.inspect.multi_type_info([records.Record, *_BODIES]))
    known: set[object] = set()
    while todo:
        each = todo.pop()
        of = getattr(each, "cls", None)
        if of in known:
            continue
        known |= {of} - {None}
        match each:
            case msgspec.inspect.EnumType():
                yield from (str(member.value) for member in each.cls)
            case msgspec.inspect.LiteralType():
                yield from (str(value) for value in each.values)
            case msgspec.inspect.StructType(tag=str() as tag):
                yield tag
        for name in getattr(each, "__struct_fields__", ()):
            value = getattr(each, name)
            inner = value if isinstance(value, tuple) else (value,)
            todo += [i for i in inner if isinstance(i, _INSPECTED) and not _is_left_out(i)]


def _is_left_out(part: Any) -> bool:
    return isinstance(part, msgspec.inspect.Field) and part.name in LEFT_OUT


_BODIES = (Summary, Status, CheckReply, PathReply, TraceReply, ValidateReply, MeaningReply)
_INSPECTED = (msgspec.inspect.Type, msgspec.inspect.Field)
WORDS = frozenset({*_words(), *STATED, *SLOWS})
"""No name is one of these: it would be replaced where it means something else."""


class Names:
    """Names found in a recording."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        """Name -> what it is the name of."""
        self.addresses: set[str] = set()

    def find(self, record: records.Record) -> None:
        """Take in the names of a record."""
        match record:
            case records.Heard() | records.Forgotten():
                self._add("host", [record.host])
            case records.Ingested():
                self._summary(record.payload)
            case records.Restored():
                self._incidents(record.incidents)
            case records.Told():
                self._incidents([record.incident])
            case records.Differed():
                self._differences(record.differences)
            case records.HeldUp():
                self._jobs(record.jobs)
            case _:
                self._declared(record)
        for text in _strings(_plain(record)):
            self.addresses.update(re.findall(ADDRESS, text))

    def _differences(self, differences: Iterable[Difference]) -> None:
        for each in differences:
            self._add("host", each.hosts)
            self._add("port", each.ports)
            self._add("container", (end.container for end in each.endpoints))
            self._component(each.finding.component)
            read = each.finding.evidence
            self._add("name", (read[key] for key in NAMING & read.keys()))

    def _jobs(self, jobs: Iterable[JobVerdict]) -> None:
        for job in jobs:
            self._add("task", [job.task])
            self._add("host", (each.host for each in job.verdict.culprits if each.host))
            self._add("container", (e.container for ends in job.endpoints.values() for e in ends))

    def _declared(self, record: records.Record) -> None:
        match record:
            case records.Header():
                self._topology(record)
                self._add("task", (name for name, _ in record.sensitivity.tasks))
            case records.Roster():
                for state in record.hosts:
                    self._add("host", [state.agent.host])
                    self._endpoints(each.endpoint for each in state.records)
                for task in record.tasks:
                    self._task(task)
            case records.Registered():
                self._registration(record.registration)
            case records.TaskPut():
                self._task(record.task)
            case records.TaskDeleted():
                self._add("task", [record.task])
            case _:
                pass

    def _topology(self, header: records.Header) -> None:
        topology = header.topology
        self._add("switch", topology.names.values())
        self._add("switch", (name for link in topology.links for name in link))
        self._add("host", (each.host for each in topology.uplinks))

    def _task(self, task: Task) -> None:
        self._add("task", [task.id])
        self._add("container", task.containers)
        self._add("host", task.hosts)

    def _registration(self, registration: Registration) -> None:
        self._add("host", [registration.host])
        self._endpoints(registration.endpoints)

    def _summary(self, payload: bytes) -> None:
        with contextlib.suppress(RemoteProtocolError):  # refused, then as now
            summary = decode(payload, Summary)
            self._add("host", [summary.host])
            self._add("container", (each.container for each in summary.endpoints))

    def _incidents(self, incidents: Iterable[Incident]) -> None:
        for incident in incidents:
            self._add("task", incident.tasks)
            self._verdict(incident.verdict)

    def _verdict(self, verdict: Verdict) -> None:
        named = [verdict.component, *(each.component for each in verdict.alternatives)]
        for component in filter(None, named):
            self._component(component)
        for pair in (*verdict.failing, *verdict.healthy):
            self._add("container", [pair.source.container, pair.target.container])

    def _component(self, component: Component) -> None:
        kind, names = component.kind, component.name.split(" -- ")
        match kind:
            case Kind.SWITCH | Kind.LINK:
                self._add("switch", names)
            case Kind.CONTAINER | Kind.ENDPOINT:
                self._add("container", [names[0].rpartition("/")[0] or names[0]])
            case Kind.RANK | Kind.TASK:
                self._add("task", [names[0].rpartition("/")[0] if kind is Kind.RANK else names[0]])
            case Kind.CONTROLLER:  # the instance of a host, or `port NAME` and the like
                self._add("host", {component.name.rpartition(" ")[2]} - OF_CONTROLLERS)
            case _:  # of a host, whatever it is
                self._add("host", [names[0].partition("/")[0]])

    def _endpoints(self, endpoints: Iterable[Any]) -> None:
        for each in endpoints:
            self._add("container", [each.id.container])
            self._add("task", [each.task])
            self._add("host", [each.host])
            self._add("port", [each.port])

    def _add(self, kind: str, names: Iterable[str]) -> None:
        for name in names:
            if name and name not in WORDS:
                self.kinds.setdefault(name, kind)

    def renamer(self) -> Callable[[str], str]:
        """Return what replaces all of them in a text."""
        ordered = sorted(self.kinds)
        width = len(str(len(ordered)))
        by_name = {
            name: f"{self.kinds[name]}-{n:0{width}d}" for n, name in enumerate(ordered, start=1)
        }
        four = sorted(filter(None, {_four(text) for text in self.addresses}))
        six = sorted(filter(None, {_six(text) for text in self.addresses}))
        by_four = {a: str(IPv4Address(NET + n)) for n, a in enumerate(four, start=1)}
        by_six = {a: str(IPv6Address(NET_6 + n)) for n, a in enumerate(six, start=1)}
        longest = sorted(by_name, key=lambda name: (-len(name), name))
        names = "|".join(map(re.escape, longest)) or r"(?!)"
        pattern = re.compile(
            rf"(?P<mac>{MAC})|(?P<ip>{IPV4})|(?P<ip6>{IPV6})"
            rf"|(?<!{EDGE})(?P<name>(?i:{names}))(?!{EDGE})"
        )
        by_lower = {name.lower(): new for name, new in by_name.items()}

        def replaced(found: re.Match[str]) -> str:
            text = found[0]
            if found["mac"]:
                return "02:00:00:00:00:00"
            if found["ip6"]:
                six = _six(text)
                return by_six[six] if six is not None else NOTHING
            if found["ip"]:
                four = _four(text)
                return by_four[four] if four is not None else text
            return by_name.get(text) or by_lower[text.lower()]

        return lambda text: pattern.sub(replaced, text)


def _four(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except AddressValueError:
        return None


def _six(text: str) -> IPv6Address | None:
    try:
        return IPv6Address(text)
    except AddressValueError:
        return None


def anonymize(record: records.Record, renamed: Callable[[str], str]) -> records.Record | None:
    """Return `record` with every name replaced; None where it is left out."""
    match record:
        case records.State():
            return None
        case records.Header():
            plain = msgspec.to_builtins(record) | {"whole": False}
            return _record(_renamed(plain, renamed))
        case _:
            return _record(_renamed(_plain(record), renamed))


def _plain(record: records.Record) -> Any:
    """Return a record as plain data, with what it holds as bytes opened."""
    plain = msgspec.to_builtins(record, builtin_types=(bytes,))
    for field in ("payload", "body"):
        if field in plain:
            plain[field] = {"opened": decode(plain[field], Any)}
    return plain


def _record(plain: Any) -> records.Record:
    for field in ("payload", "body"):
        if isinstance(plain.get(field), dict):
            plain[field] = encode(plain[field]["opened"])
    return records.unpack(encode(plain))


def _renamed(plain: Any, renamed: Callable[[str], str]) -> Any:
    match plain:
        case str():
            return renamed(plain)
        case dict():
            return {
                # Keys are fields of messages, or addresses.
                (renamed(key) if isinstance(key, str) and re.fullmatch(ADDRESS, key) else key): (
                    "" if key in APART else _renamed(value, renamed)
                )
                for key, value in plain.items()
                if key not in LEFT_OUT
            }
        case list() | tuple():
            return [_renamed(each, renamed) for each in plain]
        case _:
            return plain


def _strings(plain: Any) -> Iterator[str]:
    match plain:
        case str():
            yield plain
        case dict():
            for key, value in plain.items():
                yield from _strings(key)
                yield from _strings(value)
        case list() | tuple():
            for each in plain:
                yield from _strings(each)
        case _:
            return


def anonymized(read: Callable[[], Iterator[records.Record]]) -> Iterator[records.Record]:
    """Yield a recording with its names replaced; `read` gives it from its beginning, twice.

    Raises DamagedRecording, and RemoteProtocolError where it is none.
    """
    names = Names()
    for record in read():
        names.find(record)
    renamed, written = names.renamer(), 0
    for record in read():
        if isinstance(record, records.End):
            yield records.End(records=written)
            return
        made = anonymize(record, renamed)
        if made is not None:
            written += 1
            yield made
    raise RemoteProtocolError("the recording has no end")
