# SPDX-License-Identifier: Apache-2.0
"""What ends of walks mean, of which a host's flows and the rows that made them tell."""

import time
from collections import Counter, defaultdict

from analyzer.controllers import messages
from analyzer.controllers.messages import AskMeaning
from analyzer.intent.logical import difference
from analyzer.intent.model import Port
from analyzer.intent.reading import read_end
from analyzer.intent.selected import Selected
from analyzer.questions import CHANGED, Meant
from netagent.model.errors import RemoteProtocolError
from netagent.wire.walk import End

BUDGET_S = 1.0
"""Seconds of CPU that ends of one host may take, beside what its flows do. Chosen: where few flows
are missing they take milliseconds, and other hosts' questions wait meanwhile."""


def meanings(rows: Selected, asked: AskMeaning) -> messages.Meanings:
    """Return what each end means that is asked about, by rows of both databases.

    Raises RemoteProtocolError where that takes too long: a host can make it so, by what it says.
    """
    host, explainer = rows.host(asked.chassis), rows.explainer()
    installed = Counter((cookie, metadata) for _, cookie, metadata in asked.installed)
    missing = difference(rows.flows, host, installed, rows.others).missing
    tables: defaultdict[int, set[int]] = defaultdict(set)
    for table, cookie, _ in asked.installed:
        tables[table].add(cookie)
    places = {explainer.place_of(cookies): table for table, cookies in tables.items()}
    ports = {name: Port(name, is_enabled=False) for name in asked.disabled}

    here = {cookie for cookie, _ in installed}
    until_s = time.thread_time() + BUDGET_S

    def meant(end: End) -> Meant:
        if time.thread_time() > until_s:
            raise RemoteProtocolError(f"{asked.chassis} lacks {len(missing)} flows: too many")
        if end.flow and end.flow.cookie not in here:
            return Meant(meaning=CHANGED, text="the flow that dropped it is gone")
        reading = read_end(end, explainer, host, missing, ports=ports)
        if reading is None:
            return Meant()
        flow = reading.flow
        place = (flow.pipeline, flow.table) if flow is not None else None
        return Meant(
            meaning=reading.meaning.value,
            text=reading.text,
            by=reading.by,
            table=places.get(place, -1) if place is not None else -1,
            part=f"port {reading.port}" if reading.port else "",
        )

    return messages.Meanings(query=asked.query, meant=tuple(map(meant, asked.ends)))
