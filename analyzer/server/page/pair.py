# SPDX-License-Identifier: Apache-2.0
"""One pair of endpoints: what its probes did now, by port, and in the last hour."""

from typing import Any

from analyzer.picture.asked import Between
from analyzer.roster.registry import EndpointRecord
from analyzer.server.page.page import Page
from analyzer.server.page.shown import incidents, short
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.errors import CapabilityMissing
from netagent.model.ids import EndpointId

MAX_INCIDENTS = 50
"""Most incidents of a pair that are told, the newest. Chosen: they are read."""

Plain = dict[str, Any]


async def pair(page: Page, sees: Sight, source: str, target: str) -> Plain:
    """Return what is known of a pair. Raises Problem where the caller may not see both ends."""
    analyzer = page.analyzer
    ends = [_end(page, sees, each) for each in (source, target)]
    one, other = (record.endpoint for record in ends)
    both = {one.id, other.id}
    mine = [
        each
        for each in incidents(analyzer, sees)
        if any({failing.source, failing.target} == both for failing in each.verdict.failing)
    ]
    try:
        now = await page.looks.at(Between(tasks=sees.patterns, source=one.id, target=other.id))
    except CapabilityMissing:
        now = None
    return {
        "source": source,
        "target": target,
        "source_host": one.host,
        "target_host": other.host,
        "task": one.task or None,
        "now": now and {key: now[key] for key in now if not key.startswith("ports")},
        "ports": now["ports"] if now else [],
        "series": await page.series.of_pair(str(one.id), str(other.id)),
        "incidents": [short(analyzer, each) for each in mine[:MAX_INCIDENTS]],
    }


def _end(page: Page, sees: Sight, text: str) -> EndpointRecord:
    try:
        record = page.analyzer.registry.endpoint(EndpointId.parse(text))
    except ValueError as error:
        raise Problem(400, str(error), "name both ends so") from error
    if record is None or not sees.sees(record.endpoint.task):
        raise Problem(404, f"no endpoint {text!r}", "`netagent-analyzer endpoints` lists them")
    return record
