# SPDX-License-Identifier: Apache-2.0
"""A receiver of incidents that is down, then slow, then failing, while a lab is broken and mended.

A second receiver, which takes all at once, is the witness of what there was to tell. The same
faults are tried before without any receiver, so that what one costs the diagnosis would be seen.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median
from typing import Any

from tests.analyzer.receiver import Handler, Receiver, free_port, status
from tests.lab import demo
from tests.lab.demo import SETTLE_S, WINDOW_S, Found, Observer, Say
from tests.lab.lab import Lab
from tests.lab.shape import Shape, Transport

FAULTS = ("rnic-down", "spine-down", "flow-deleted", "container-crash")
TIMEOUT_S, SLOW_S = 2.0, 3.0
"""Seconds that the analyzer gives a receiver, and that a slow one takes: it takes the event all the
same, and gets it again."""
BACK_S = 330.0
"""Seconds in which all has to arrive once the receiver is back. Chosen: `outbox.LONGEST_NS`, and
half a minute for what then follows one another."""
PAGER, WITNESS = "pager", "witness"
TAKES, FAILS = status(204), status(500, "no")


def slow(handler: Handler) -> bool:
    """Take it, and answer after the analyzer gave up."""
    handler.server.receiver.released.wait(SLOW_S)
    with suppress(OSError):  # nobody listens any more
        TAKES(handler)
    return True


@dataclass(slots=True)
class Report:
    """What was seen."""

    alone: list[Found] = field(default_factory=list)
    """Faults without any receiver."""
    told: list[Found] = field(default_factory=list)
    """Faults while the receiver was away."""
    made: list[str] = field(default_factory=list)
    """Ids of the events that the witness took, ``INCIDENT.NUMBER``."""
    arrived: list[str] = field(default_factory=list)
    """Those that the receiver took, in order, the ones that it took twice too."""
    attempts: int = 0
    """Requests that reached it."""
    away_s: float = 0.0
    back_s: float | None = None
    """Seconds in which all of them had arrived once it was back; None where that was too long."""
    is_told: Counter[str] = field(default_factory=Counter)
    """What the analyzer counts: sent, retried, refused, dropped."""

    @property
    def missing(self) -> set[str]:
        """Events that never arrived."""
        return set(self.made) - set(self.arrived)

    @property
    def again(self) -> int:
        """How often an event came that had been taken: its id tells."""
        return len(self.arrived) - len(set(self.arrived))

    @property
    def out_of_order(self) -> list[str]:
        """Incidents of which an event came before an earlier one."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for each in dict.fromkeys(self.arrived):
            incident, _, number = each.rpartition(".")
            numbers[incident].append(int(number))
        return [incident for incident, each in numbers.items() if each != sorted(each)]

    @property
    def good(self) -> bool:
        """Whether each event arrived, in order, and nothing was named later or otherwise."""
        return not any(self._wrong())

    def _wrong(self) -> Iterator[str]:
        if not self.made:
            yield "nothing was told"
        if strangers := set(self.arrived) - set(self.made):
            yield f"{len(strangers)} events that the witness never had"
        if self.missing:
            yield f"{len(self.missing)} events never arrived"
        if self.back_s is None:
            yield f"not all had arrived within {BACK_S:.0f} s"
        if self.out_of_order:
            yield f"out of order: {', '.join(self.out_of_order)}"
        if self.is_told["dropped"] or self.is_told["refused"]:
            yield "the analyzer gave some up"
        for found in (*self.alone, *self.told):
            if found.verdict is None or found.verdict[:2] != found.truth:
                yield f"{found.fault}: {found.verdict}"
        if _median(self.told) > _median(self.alone) + WINDOW_S:
            yield "faults were named later than without a receiver"

    def lines(self) -> list[str]:
        """Return the sums, for people."""
        back = "never" if self.back_s is None else f"{self.back_s:.1f} s"
        return [
            f"receiver away: {self.away_s:.0f} s, and all had arrived after {back}",
            f"events: {len(set(self.made))} of {len(_incidents(self.made))} incidents",
            (
                f"arrived: {len(set(self.arrived))}, {self.again} of them once more, out of order"
                f" in {len(self.out_of_order)} incidents"
            ),
            f"requests that reached it: {self.attempts}",
            f"the analyzer counts: {', '.join(f'{v} {k}' for k, v in self.is_told.items())}",
            f"without a receiver: {_times(self.alone)}",
            f"with it away: {_times(self.told)}",
            *(f"FAILED: {what}" for what in self._wrong()),
        ]


def _incidents(ids: Sequence[str]) -> set[str]:
    return {each.rpartition(".")[0] for each in ids}


def _median(tried: Sequence[Found]) -> float:
    return median([each.detected_s or 0.0 for each in tried] or [0.0])


def _times(tried: Sequence[Found]) -> str:
    right = sum(each.right for each in tried)
    worst = max((each.detected_s or 0.0 for each in tried), default=0.0)
    return (
        f"{right} of {len(tried)} faults right, detected after {_median(tried):.1f} s"
        f" (median), {worst:.1f} s (worst)"
    )


def run(lab: Lab, say: Say, *, minutes: float) -> Report:
    """Run on a fresh lab, which is taken down after; the receiver is away for `minutes`."""
    report = Report()
    lab.up(Shape())
    try:
        with lab.services().client() as client:
            observer = Observer(client)
            _settle(observer)
            say("without a receiver")
            report.alone = [demo._try(lab, observer, name, say) for name in FAULTS]
            with Receiver(TAKES) as witness:
                pager = Receiver(TAKES, port=free_port())
                _tell(lab, pager, witness)
                _settle(observer)
                _away(lab, observer, say, pager, report, minutes=minutes)
                say("the receiver is back")
                with pager:
                    pager.usual = TAKES
                    _await(observer, witness, pager, report)
                report.made, report.arrived = witness.ids(), pager.ids()
                report.attempts = len(pager.attempts)
    finally:
        lab.down()
    return report


def _settle(observer: Observer) -> None:
    observer.wait(lambda: False, timeout_s=SETTLE_S[Transport.UDP])
    observer.remember()


def _tell(lab: Lab, *receivers: Receiver) -> None:
    """Start the analyzer anew, with receivers."""
    file = lab.directory / "analyzer.toml"
    sections = (
        f'\n[[webhooks]]\nname = "{name}"\nurl = "{each.url}"\ntimeout_s = {TIMEOUT_S}\n'
        for name, each in zip((PAGER, WITNESS), receivers, strict=True)
    )
    file.write_text(file.read_text() + "".join(sections))
    lab.restart("analyzer")


def _away(
    lab: Lab, observer: Observer, say: Say, pager: Receiver, report: Report, *, minutes: float
) -> None:
    """Break and mend the lab, a third of the time with each kind of receiver."""
    faults, began_s = cycle(FAULTS), time.monotonic()

    def until(share: float) -> None:
        while time.monotonic() < began_s + share * 60 * minutes:
            (name,) = islice(faults, 1)
            report.told.append(demo._try(lab, observer, name, say))

    say("the receiver is down")
    until(1 / 3)
    with pager:
        say("it is slow")
        pager.usual = slow
        until(2 / 3)
        say("it fails")
        pager.usual = FAILS
        until(1)
    report.away_s = time.monotonic() - began_s


def _await(observer: Observer, witness: Receiver, pager: Receiver, report: Report) -> None:
    """Wait until the receiver has what the witness has, and nothing waits."""
    began_s = time.monotonic()

    def told() -> dict[str, Any]:
        (found,) = (e for e in observer.webhooks() if e["name"] == PAGER)
        return dict(found)

    def is_done() -> bool:
        return set(witness.ids()) <= set(pager.ids()) and not told()["waiting"]

    if observer.wait(is_done, timeout_s=BACK_S):
        report.back_s = time.monotonic() - began_s
    counts = told()
    report.is_told = Counter({e: counts[e] for e in ("sent", "retried", "refused", "dropped")})
