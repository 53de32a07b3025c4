# SPDX-License-Identifier: Apache-2.0
"""Endpoints that are asked for more replies than they may give. Reads no clock.

Whoever can send to an endpoint, its own container first of all, can use up its share of replies:
then probes of others are not answered, and are lost without any fault of the network. On a host of
very many endpoints one that is flooded uses up the common half, too, and its neighbours lack it.
"""

from collections.abc import Iterator, Mapping

from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, Kind
from netagent.model.window import Window

LEAST_PER_S = 1.0
"""Probes per second that were not answered, from which that is stated. Chosen: each is lost to
somebody, and a loss or two of a window accuse nobody."""


def flooded(unanswered: Mapping[str, int], window: Window) -> Iterator[Finding]:
    """Yield a finding for each endpoint, by its name, that left many probes unanswered."""
    seconds = window.width_ns / 1e9
    for endpoint, count in sorted(unanswered.items()):
        if count >= LEAST_PER_S * seconds:
            text = (
                f"{endpoint} was asked for {count} replies in {seconds:g} s beyond what it, or all "
                "of its host, may give: it is flooded, or an endpoint beside it"
            )
            component = Component(Kind.ENDPOINT, endpoint)
            evidence = {"unanswered": str(count)}
            yield Finding(FindingKind.FLOODED, component, text, window.start_ns, evidence)
