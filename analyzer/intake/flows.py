# SPDX-License-Identifier: Apache-2.0
"""Summaries into arrays: one decoded window of one host, its flows numbered across the cluster.

With more targets than an endpoint visits in a window, no two windows hold the same rows. So each
row is looked up by a key of numbers, without naming its flow. A flow keeps its number while
summaries report it. Restarted agents choose new source ports, so `recycle` frees numbers for other
flows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.columns import column, columns
from analyzer.intake.many import HISTOGRAM, as_one
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.wire.columns import typecodes
from netagent.wire.histogram import bucket_of
from netagent.wire.messages import FlowColumns, Summary

MAX_ENDS = 1 << 23
"""Most endpoints with numbers; summaries that name more are refused. Chosen: two hundred times
40,000, and two of them and a port are a key of 62 bits."""

MAX_ROWS = 1 << 17
"""Most flows, or paths, in a summary. Chosen: forty times the probes that a host sends in a window,
and twice the paths of eight endpoints in a task of 8,192; narrow columns say many in few bytes."""

MAX_LN = 100.0
"""Limit of the moments of ln(ns) of a round trip. Chosen: far above any round trip (2**64 ns are
44.4); what is not finite exceeds it too."""

MAX_MEAN_LN = 22.2
"""Largest mean of ln(ns): round trips are of 32 bits, of which it is 22.18."""

NO_END = NO_FLOW = -1

_NAME = attrgetter("container", "rail")
_NOTHING = np.zeros(0, np.int64)
_NOBODY = _NOTHING, _NOTHING
_MOMENTS = {
    "mean_ln": np.float32(MAX_MEAN_LN),
    "var_ln": np.nextafter(np.float32(MAX_LN), np.float32(0)),
}
"""Columns of moments -> their largest value."""
_MAX, _SUM = np.maximum.reduce, np.add.reduce
"""What methods of arrays do, without what these cost at a few hundred items."""


@dataclass(frozen=True, slots=True)
class WindowRows:
    """One host's window; arrays are (n_flows,), as in `FlowColumns`, but for the histogram's.

    Those of one summary are as narrow as they came: whoever computes with them joins them first.
    """

    host: str
    instance: str
    window: Window
    flow: NDArray[np.int64]
    """Number of the flow in the `FlowNumbers` that decoded it."""
    sent: NDArray[np.uint32]
    lost: NDArray[np.uint32]
    refused: NDArray[np.uint32]
    sent_large: NDArray[np.uint32]
    lost_large: NDArray[np.uint32]
    run: NDArray[np.uint16]
    run_ms: NDArray[np.uint32]
    count: NDArray[np.uint32]
    min_ns: NDArray[np.uint32]
    max_ns: NDArray[np.uint32]
    mean_ln: NDArray[np.float32]
    var_ln: NDArray[np.float32]
    prober_ns: NDArray[np.uint32]
    responder_ns: NDArray[np.uint32]
    hist_len: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))
    """How many entries of the two columns below are the flow's; empty in what an earlier version
    recorded."""
    hist_bucket: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))
    hist_count: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))

    def only(self, mask: NDArray[np.bool_]) -> "WindowRows":
        """Return the flows that `mask` (n_flows,) has."""
        if mask.all():
            return self
        kept = {each.name: getattr(self, each.name)[mask] for each in fields(self)[3:-3]}
        if len(self.hist_len):
            entries = np.repeat(mask, self.hist_len)
            kept |= {name: getattr(self, name)[entries] for name in HISTOGRAM}
            kept["hist_len"] = self.hist_len[mask]
        return replace(self, **kept)


_COUNTED = tuple(
    each.name
    for each in fields(WindowRows)
    if each.name in typecodes(FlowColumns) and each.name not in HISTOGRAM
)
MAX_SENT = 100_000
"""Most probes of a flow in a window. Chosen: an endpoint sends a thousand a second at most, and a
window into which the counters of skipped ones went may stand for a minute of them."""
MAX_BUCKET = bucket_of(2**32)
"""Last bucket of a histogram: round trips are of 32 bits."""


@dataclass(slots=True, eq=False)
class FlowNumbers:
    """Numbers flows and their endpoints 0, 1, 2 … in the order met.

    A flow is two numbers of endpoints and a port. So a million of them are columns, and whoever
    wants to name one asks for its `FlowId`.
    """

    _numbers: dict[int, int] = field(default_factory=dict)
    """Key of a flow -> its number, in the order met, without those in `_restored`."""
    _free: list[int] = field(default_factory=list)
    _ends: NDArray[np.int64] = field(default_factory=lambda: np.full((2, 1024), NO_END))
    """(2, n): numbers of the source and of the target, by number of the flow."""
    _ports: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1024, np.int64))
    _seen_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1024, np.int64))
    """Start of the newest window that had the flow, by number."""
    _end_at: dict[tuple[str, int], int] = field(default_factory=dict)
    """Container and rail of an endpoint -> its number: a tuple is looked up in a fifth of the time
    that an `EndpointId` takes."""
    _at: dict[int, int] = field(default_factory=dict)
    """Cache: `id` of an object in `_endpoints` -> its number. As that one is alive, no other has
    its id, and it is found in a fifth of the time again. `Tables` has one object for each name."""
    _endpoints: list[EndpointId] = field(default_factory=list)
    _free_ends: list[int] = field(default_factory=list)
    _of_host: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)
    """Cache: host -> keys of its flows, in order, and their numbers."""
    _ends_of: dict[str, tuple[Sequence[EndpointId], NDArray[np.int64]]] = field(
        default_factory=dict
    )
    """Cache: host -> its newest table of endpoints, all of which have numbers, and these."""
    _restored: tuple[NDArray[np.int64], NDArray[np.int64]] = _NOBODY
    """The same of flows that were numbered together, as after a start: more than MAX_ROWS, or none.
    A million of them in `_numbers` would take two hundred megabytes, and the start a second more.
    No state of so many flows is recorded."""

    changes: int = 0
    """How often an endpoint got or lost a number."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset(
        {"_at", "_of_host", "_ends_of", "_restored", "changes"}
    )
    """What no recording holds: it follows from the rest, or is of more flows than one holds."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: its endpoints are other objects, so it knows none by its id."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"_at": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what another one had."""
        for name, value in state.items():
            setattr(self, name, value)

    def __len__(self) -> int:
        return len(self._numbers) + len(self._restored[0])

    @property
    def known_parts(self) -> int:
        """Return the number of flows and of endpoints, whatever became of their summaries."""
        return len(self) + len(self._end_at)

    def flow(self, number: int) -> FlowId:
        """Return the flow of a number."""
        return self.flows(np.array([number]))[0]

    def flows(self, numbers: NDArray[np.int64]) -> list[FlowId]:
        """Return the flows of these numbers."""
        ends, names = self._ends[:, numbers].tolist(), self._endpoints
        ports = self._ports[numbers].tolist()
        return [FlowId(names[a], names[b], port) for a, b, port in zip(*ends, ports, strict=True)]

    def items(self, most: int | None = None) -> list[tuple[int, FlowId]]:
        """Return numbers that are in use, with their flows, in the order met: all, or so many."""
        numbers = self._in_use()[:most]
        return list(zip(numbers.tolist(), self.flows(numbers), strict=True))

    def _in_use(self) -> NDArray[np.int64]:
        """Return all numbers in use, in the order met: what was restored was there first."""
        since = np.fromiter(self._numbers.values(), np.int64, len(self._numbers))
        return np.concatenate([np.sort(self._restored[1]), since])

    def restore(self, flows: Sequence[FlowId], *, seen_ns: int) -> NDArray[np.int64]:
        """Return numbers of flows, as if a window that began at `seen_ns` had had them."""
        numbers = np.array([self.number(flow) for flow in flows], np.int64)
        self._seen_ns[numbers] = np.maximum(self._seen_ns[numbers], seen_ns)
        return numbers

    def known(self, flow: FlowId) -> int | None:
        """Return the number of a flow; None where it has none."""
        source, target = self.end(flow.source), self.end(flow.target)
        if source is None or target is None:
            return None
        key = _key(source, target, flow.source_port)
        number = self._numbers.get(key)
        if number is not None or not len(self._restored[0]):
            return number
        (found,) = _found(self._restored, np.array([key]))
        return None if found == NO_FLOW else int(found)

    def number(self, flow: FlowId) -> int:
        """Return the number of a flow, a new one where it has none."""
        ends = self._number_end(flow.source), self._number_end(flow.target)
        return int(self._numbers_of(np.array([_key(*ends, flow.source_port)], np.int64))[0])

    def traced(
        self,
        endpoints: Sequence[EndpointId],
        rows: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
        *,
        seen_ns: int,
    ) -> NDArray[np.int64]:
        """Return numbers (n,) of flows as a window has them that began at `seen_ns`.

        `rows` are their sources and targets, as places in `endpoints`, and their ports.
        """
        keys = self._keys(endpoints, *rows)
        # So many are of no host alone, but of a run before, and will all come again.
        if len(keys) > MAX_ROWS and not len(self._restored[0]) and not self._free:
            self._restore(keys)
        numbers = self._numbers_of(keys)
        self._seen_ns[numbers] = np.maximum(self._seen_ns[numbers], seen_ns)
        return numbers

    def numbers(
        self,
        endpoints: Sequence[EndpointId],
        rows: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    ) -> NDArray[np.int64]:
        """Return numbers (n,) of flows, new ones where they have none; `rows` as in `traced`."""
        return self._numbers_of(self._keys(endpoints, *rows))

    def _restore(self, keys: NDArray[np.int64]) -> None:
        """Give numbers to all that have none yet, unless none is new or one stands there twice."""
        known = np.fromiter(self._numbers, np.int64, len(self._numbers))
        new = keys[~np.isin(keys, known)] if len(known) else keys
        every = np.concatenate([known, new])
        order = every.argsort()
        in_order = every.take(order)
        if not len(new) or (in_order[1:] == in_order[:-1]).any():
            return
        first = np.fromiter(self._numbers.values(), np.int64, len(self._numbers))
        numbers = np.concatenate([first, len(self) + np.arange(len(new))])
        self._put(new, numbers[len(known) :])
        self._restored, self._numbers = (in_order, numbers.take(order)), {}

    def ends(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (2, n) numbers of the flows' sources and targets; `endpoint` has their names."""
        found: NDArray[np.int64] = self._ends.take(numbers, axis=1)
        return found

    def ports(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n,) the flows' source ports."""
        return self._ports[numbers]

    def endpoint(self, number: int) -> EndpointId:
        """Return the endpoint of a number."""
        return self._endpoints[number]

    def end(self, endpoint: EndpointId) -> int | None:
        """Return the number of an endpoint; None where no flow has it."""
        return self._end_at.get(_NAME(endpoint))

    def ends_in_use(self) -> Iterator[tuple[int, EndpointId]]:
        """Yield the endpoints that have numbers, with these."""
        for number in self._end_at.values():
            yield number, self._endpoints[number]

    @property
    def endpoints(self) -> int:
        """Return one more than the largest number of an endpoint."""
        return len(self._endpoints)

    def decode(self, summary: Summary) -> WindowRows:
        """Return the summary's flows; RemoteProtocolError where columns do not agree."""
        flows = summary.flows
        numbers = self._number_rows(summary)
        self._seen_ns[numbers] = np.maximum(self._seen_ns[numbers], summary.start_ns)
        arrays = _counted(flows, len(numbers))
        window = Window(summary.start_ns, summary.width_ns)
        return WindowRows(summary.host, summary.instance, window, numbers, **arrays)

    def decode_all(self, summaries: Sequence[Summary]) -> list[WindowRows | None]:
        """Return what `decode` does of each, at a part of its cost; None of whom it has to look at.

        That is who says what makes no sense, or names flows that have no numbers yet, and all where
        some say what makes no sense.
        """
        found: list[WindowRows | None] = [None] * len(summaries)
        hosts = self._known_hosts(summaries)
        rows = [each.rows for each in hosts]
        one = as_one([each.summary.flows for each in hosts], rows) if hosts else None
        if one is None:
            return found
        flows, entries = one
        try:
            arrays = _counted(flows, sum(rows))
            numbers, is_known = self._numbers_among(hosts, flows)
        except RemoteProtocolError:  # it is of one of them
            return found
        whose = np.repeat(is_known, rows)
        mine = numbers if whose.all() else numbers[whose]
        self._seen_ns[mine] = np.maximum(self._seen_ns[mine], hosts[0].summary.start_ns)
        first, first_entry = 0, 0
        counted = [(name, arrays[name]) for name in _COUNTED]
        buckets, counts = (arrays[name] for name in HISTOGRAM)
        for each, known, many in zip(hosts, is_known, entries, strict=True):
            last, last_entry = first + each.rows, first_entry + many
            if known:
                summary = each.summary
                found[each.place] = WindowRows(
                    summary.host, summary.instance, Window(summary.start_ns, summary.width_ns),
                    numbers[first:last], **{name: of[first:last] for name, of in counted},
                    hist_bucket=buckets[first_entry:last_entry],
                    hist_count=counts[first_entry:last_entry],
                )  # fmt: skip
            first, first_entry = last, last_entry
        return found

    def _known_hosts(self, summaries: Sequence[Summary]) -> "list[_Host]":
        """Return of whom all endpoints, and some flows, have numbers: each host once.

        All are of one window, the one that most are of. Arrays of one whose clock is wrong would
        be kept with its own until that is judged.
        """
        found: list[_Host] = []
        met: set[str] = set()
        starts = Counter(each.start_ns for each in summaries).most_common(1)
        for place, summary in enumerate(summaries):
            host, endpoints, ports = summary.host, summary.endpoints, summary.flows.source_port
            rows = len(ports) // 2
            known = self._of_host.get(host)
            is_first = host not in met
            met.add(host)
            if known is None or not is_first or summary.start_ns != starts[0][0]:
                continue
            if not rows or len(ports) % 2 or rows > MAX_ROWS:
                continue
            table, ends = self._ends_of.get(host, (None, _NOTHING))
            if table is not endpoints:
                numbers = map(self._at.get, map(id, endpoints), repeat(NO_END))
                ends = np.fromiter(numbers, np.int64, len(endpoints))
                if not len(ends) or ends.min() == NO_END:
                    continue
                self._ends_of[host] = endpoints, ends
            found.append(_Host(place, summary, rows, ends, *known))
        return found

    def _numbers_among(
        self, hosts: "Sequence[_Host]", flows: FlowColumns
    ) -> tuple[NDArray[np.int64], list[bool]]:
        """Return the numbers (n,) of all hosts' flows, and whose flows all have some.

        Raises RemoteProtocolError where a flow stands in two rows of a host, or a row makes no
        sense.
        """
        rows = [each.rows for each in hosts]
        last = list(accumulate(rows))
        source, target = columns(flows, ("source", "target"), last[-1]).values()
        ends = np.concatenate([each.ends for each in hosts])
        tables = np.array([len(each.ends) for each in hosts])
        before = np.repeat(np.cumsum(tables) - tables, rows)
        beyond = np.repeat(tables, rows)
        if (source >= beyond).any() or (target >= beyond).any():
            raise RemoteProtocolError("a row names an endpoint beyond the table")
        at = ends.take(before + source), ends.take(before + target)
        keys = _key(*at, column(flows, "source_port"))
        sizes = [len(each.keys) for each in hosts]
        places = np.concatenate([
            each.keys.searchsorted(keys[end - each.rows : end])
            for each, end in zip(hosts, last, strict=True)
        ])  # fmt: skip
        places += np.repeat(np.cumsum(sizes) - sizes, rows)
        # Behind a host's last one stands the first of the next host, and in the end none.
        among = np.concatenate([*(each.keys for each in hosts), [NO_FLOW]])
        numbers = np.concatenate([*(each.numbers for each in hosts), [NO_FLOW]]).take(places)
        is_known = among.take(places) == keys
        if np.bincount(places[is_known], minlength=1).max() > 1:
            raise RemoteProtocolError("a flow stands in two rows")
        begins = [0, *last[:-1]]
        return numbers, np.logical_and.reduceat(is_known, begins).tolist()

    def recycle(self, *, before_ns: int) -> NDArray[np.int64]:
        """Forget flows that no window since `before_ns` had; return their numbers, now free."""
        numbers = self._in_use()
        old = numbers[self._seen_ns[numbers] < before_ns]
        self._of_host.clear()
        self._ends_of.clear()
        self._keep_restored(before_ns)
        source, target = self._ends[:, old]
        for key in _key(source, target, self._ports[old]).tolist():
            self._numbers.pop(key, None)  # or it was restored
        self._free += old.tolist()
        self._ends[:, old] = NO_END
        self._recycle_ends()  # of summaries that were refused, too
        return old

    def _keep_restored(self, before_ns: int) -> None:
        keys, numbers = self._restored
        kept = self._seen_ns[numbers] >= before_ns
        self._restored = keys[kept], numbers[kept]
        if np.count_nonzero(kept) <= MAX_ROWS:
            keys, numbers = self._restored
            met = numbers.argsort()
            first = zip(keys[met].tolist(), numbers[met].tolist(), strict=True)
            self._numbers, self._restored = {**dict(first), **self._numbers}, _NOBODY

    def _recycle_ends(self) -> None:
        """Forget endpoints of which no flow is left; the others keep their numbers."""
        used = np.zeros(len(self._endpoints) + 1, np.bool_)
        used[self._ends] = True  # NO_END is the last
        for name, number in list(self._end_at.items()):
            if not used[number]:
                del self._end_at[name]
                self._at.pop(id(self._endpoints[number]), None)
                self._free_ends.append(number)
                self.changes += 1

    def _number_rows(self, summary: Summary) -> NDArray[np.int64]:
        flows, endpoints = summary.flows, summary.endpoints
        port = column(flows, "source_port")
        if len(port) > MAX_ROWS:
            raise RemoteProtocolError(f"{len(port)} flows of a host; {MAX_ROWS} at most")
        source, target = columns(flows, ("source", "target"), len(port)).values()
        if len(source) and max(_most(source), _most(target)) >= len(endpoints):
            raise RemoteProtocolError("a row names an endpoint beyond the table")
        keys = self._keys_of_host(summary.host, endpoints, source, target, port)
        order = keys.argsort()
        in_order = keys.take(order)
        if (in_order[1:] == in_order[:-1]).any():
            raise RemoteProtocolError("a flow stands in two rows")
        found = _among(self._of_host.get(summary.host, _NOBODY), in_order, order)
        return self._numbers_at(summary.host, keys) if found is None else found

    def _numbers_at(self, host: str, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of a host's flows, some of which no window of it had before."""
        known, numbers = self._of_host.get(host, _NOBODY)
        places = known.searchsorted(keys)
        is_new = np.ones(len(keys), np.bool_)
        is_inside = places < len(known)
        is_new[is_inside] = known[places[is_inside]] != keys[is_inside]
        found = np.empty(len(keys), np.int64)
        found[~is_new] = numbers[places[~is_new]]
        if is_new.any():
            found[is_new] = self._numbers_of(keys[is_new])
            if len(known) + len(keys) > MAX_ROWS:
                known, numbers, is_new = _NOTHING, _NOTHING, np.ones(len(keys), np.bool_)
            known = np.concatenate([known, keys[is_new]])
            order = np.argsort(known)
            numbers = np.concatenate([numbers, found[is_new]])[order]
            self._of_host[host] = known[order], numbers
        return found

    def _keys_of_host(
        self,
        host: str,
        endpoints: Sequence[EndpointId],
        source: NDArray[Any],
        target: NDArray[Any],
        port: NDArray[Any],
    ) -> NDArray[np.int64]:
        """Return what `_keys` does; it is no look-up where the host names the same ones again."""
        table, ends = self._ends_of.get(host, (None, _NOTHING))
        if table is not endpoints:
            ends = self._numbers_in(endpoints, source, target)
            if len(ends) and ends.min() != NO_END:
                self._ends_of[host] = endpoints, ends
        keys: NDArray[np.int64] = _key(ends.take(source), ends.take(target), port)
        return keys

    def _keys(
        self,
        endpoints: Sequence[EndpointId],
        source: NDArray[Any],
        target: NDArray[Any],
        port: NDArray[Any],
    ) -> NDArray[np.int64]:
        """Return the keys of flows whose ends are places in `endpoints`."""
        ends = self._numbers_in(endpoints, source, target)
        keys: NDArray[np.int64] = _key(ends.take(source), ends.take(target), port)
        return keys

    def _numbers_in(
        self, endpoints: Sequence[EndpointId], source: NDArray[Any], target: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Return the numbers of endpoints, new ones where those have none that flows have.

        Of flows the ends are given as places in `endpoints`; NO_END stands for who has no number.
        """
        numbers = map(self._at.get, map(id, endpoints), repeat(NO_END))
        ends = np.fromiter(numbers, np.int64, len(endpoints))
        if len(ends) and ends.min() == NO_END:
            self._look(endpoints, ends)
        if len(ends) and ends.min() == NO_END:
            # Of new ones those that have a flow are numbered, in order of the rows.
            order = np.stack([source, target], axis=1).reshape(-1)
            for place in dict.fromkeys(order.tolist()):
                ends[place] = self._number_end(endpoints[place])
        return ends

    def _look(self, endpoints: Sequence[EndpointId], ends: NDArray[np.int64]) -> None:
        """Put in the numbers of endpoints that are known by their names, where they lack."""
        for place in np.flatnonzero(ends == NO_END).tolist():
            number = self.end(endpoints[place])
            if number is not None:
                ends[place] = number
                self._hold(number, endpoints[place])

    def _numbers_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(self._restored[0]):
            return self._numbers_since(keys)
        found = _found(self._restored, keys)
        is_since = found == NO_FLOW
        if is_since.any():
            found[is_since] = self._numbers_since(keys[is_since])
        return found

    def _numbers_since(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of flows that were not restored, new ones where they have none."""
        listed = keys.tolist()
        known = list(map(self._numbers.get, listed))
        if None in known:
            new = [place for place, each in enumerate(known) if each is None]
            self._add([listed[place] for place in new])
            for place in new:
                known[place] = self._numbers[listed[place]]
        return np.array(known, np.int64)

    def _add(self, keys: Iterable[int]) -> None:
        """Give numbers to flows that have none, by their keys."""
        new = list(dict.fromkeys(keys))
        again = [self._free.pop() for _ in range(min(len(new), len(self._free)))]
        begin = len(self) + len(again)
        listed = [*again, *range(begin, begin + len(new) - len(again))]
        self._numbers.update(zip(new, listed, strict=True))
        self._put(np.array(new, np.int64), np.array(listed, np.int64))

    def _put(self, keys: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Note which ends and ports flows have."""
        more = int(numbers.max()) + 1 - len(self._ports)
        if more > 0:
            more = max(more, len(self._ports))
            ends = np.full((2, more), NO_END)
            self._ends = np.concatenate([self._ends, ends], axis=1)
            self._ports = np.concatenate([self._ports, np.zeros(more, np.int64)])
            self._seen_ns = np.concatenate([self._seen_ns, np.zeros(more, np.int64)])
        self._ends[:, numbers] = np.divmod(keys >> 16, MAX_ENDS)
        self._ports[numbers] = keys & 0xFFFF

    def _number_end(self, endpoint: EndpointId) -> int:
        number = self.end(endpoint)
        if number is not None:
            return number
        if self._free_ends:
            number = self._free_ends.pop()
        elif len(self._endpoints) == MAX_ENDS:
            raise RemoteProtocolError(f"more than {MAX_ENDS} endpoints are probed")
        else:
            number = len(self._endpoints)
            self._endpoints.append(endpoint)
        self._hold(number, endpoint)
        self._end_at[_NAME(endpoint)] = number
        self.changes += 1
        return number

    def _hold(self, number: int, endpoint: EndpointId) -> None:
        """Keep this object for a number, since it may come again."""
        self._at.pop(id(self._endpoints[number]), None)
        self._endpoints[number] = endpoint
        self._at[id(endpoint)] = number

    @classmethod
    def upgraded(cls, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return attributes as recordings have them, also of versions that numbered objects."""
        if "_flows" not in attributes:
            known = attributes.get("_endpoint", {})  # until endpoints were looked up by name
            kept = {name: value for name, value in attributes.items() if name != "_endpoint"}
            return {"_end_at": {_NAME(end): number for end, number in known.items()}, **kept}
        made = cls(_free=attributes["_free"])
        size = max(1024, len(attributes["_seen_ns"]))
        made._ends, made._ports = np.full((2, size), NO_END), np.zeros(size, np.int64)
        made._seen_ns = attributes["_seen_ns"]
        for flow, number in attributes["_number"].items():
            ends = made._number_end(flow.source), made._number_end(flow.target)
            made._numbers[_key(*ends, flow.source_port)] = number
            made._ends[:, number], made._ports[number] = ends, flow.source_port
        return {each.name: getattr(made, each.name) for each in fields(cls)}


@dataclass(frozen=True, slots=True)
class _Host:
    """Whose flows are decoded together with others'."""

    place: int
    summary: Summary
    rows: int
    ends: NDArray[np.int64]
    """(n_endpoints,) numbers of its table."""
    keys: NDArray[np.int64]
    """Keys of its flows, in order, and their numbers."""
    numbers: NDArray[np.int64]


def _counted(flows: FlowColumns, rows: int) -> dict[str, NDArray[Any]]:
    """Return what was counted of so many flows; RemoteProtocolError where it makes no sense."""
    arrays = columns(flows, _COUNTED, rows)
    _possible(flows, arrays)
    entries = int(_SUM(arrays["hist_len"])) if flows.hist_len else 0
    if entries > len(flows.hist_count):  # each has at least a byte: none counts nothing
        raise RemoteProtocolError(f"a histogram of {entries} entries without their counts")
    arrays |= columns(flows, HISTOGRAM, entries)
    if _most(arrays["hist_bucket"]) > MAX_BUCKET:
        raise RemoteProtocolError("a bucket beyond any round trip")
    return arrays


def _key(source: Any, target: Any, port: Any) -> Any:
    """Return one number for a flow, of those of its ends and its port; or arrays of them."""
    return ((source * MAX_ENDS + target) << 16) + port


def _found(
    known: tuple[NDArray[np.int64], NDArray[np.int64]], keys: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the numbers (n,) of flows; NO_FLOW of those that are not among `known`."""
    in_order, numbers = known
    order = keys.argsort()  # each is looked for where the one before it was found
    sought = keys.take(order)
    places = np.minimum(in_order.searchsorted(sought), len(in_order) - 1)
    found = np.empty(len(keys), np.int64)
    found[order] = np.where(in_order.take(places) == sought, numbers.take(places), NO_FLOW)
    return found


def _among(
    known: tuple[NDArray[np.int64], NDArray[np.int64]],
    in_order: NDArray[np.int64],
    order: NDArray[np.intp],
) -> NDArray[np.int64] | None:
    """Return the numbers (n,) of flows that are all among `known`; None where one is not.

    Their keys are given in order, with the places of these; `known` are keys in order, and numbers.
    """
    keys, numbers = known
    if not len(keys) or not len(in_order):
        return None
    places = keys.searchsorted(in_order)  # each begins where the one before it was found
    if places[-1] == len(keys) or not (keys.take(places) == in_order).all():
        return None
    found = np.empty(len(order), np.int64)
    found[order] = numbers.take(places)
    return found


def _possible(flows: FlowColumns, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise RemoteProtocolError unless a host may have counted so.

    Columns of which nothing came are zero; in a quiet window most are.
    """
    sent, lost = arrays["sent"], arrays["lost"]
    # What came in two bytes is below that.
    if any(each.itemsize > 2 and _most(each) > MAX_SENT for each in (sent, arrays["count"])):
        raise RemoteProtocolError("a flow with more probes than an agent sends")
    if (flows.lost and (lost > sent).any()) or (
        flows.refused and (arrays["refused"] > sent - lost).any()
    ):
        raise RemoteProtocolError("a flow with more lost and refused probes than sent ones")
    large, lost_large = arrays["sent_large"], arrays["lost_large"]
    if (flows.sent_large and (large > sent).any()) or (
        flows.lost_large and (lost_large > np.minimum(lost, large)).any()
    ):
        raise RemoteProtocolError("a flow with more large probes than there are")
    for name, most in _MOMENTS.items():
        of = arrays[name]
        # As numbers of their bits floats are in order, and what is below zero or none is beyond.
        if _most(of.view("<u4")) > most.view("<u4") and not ((of >= 0) & (of <= most)).all():
            raise RemoteProtocolError("a moment of ln(ns) is out of range")


def _most(items: NDArray[Any]) -> int:
    return int(_MAX(items)) if len(items) else 0
