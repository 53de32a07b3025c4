# SPDX-License-Identifier: Apache-2.0
"""Fabric and matrix, as the newest window shows them, with what is at fault marked."""

from collections import defaultdict
from typing import Any

from analyzer.picture.asked import By, Fabric, Matrix
from analyzer.server.page.page import Page
from analyzer.server.page.shown import active
from analyzer.server.page.unwatched import silent_hosts
from analyzer.server.places import places_of
from analyzer.server.sight import Sight
from netagent.model.path import Kind

MAX_APART = 100
"""Most hosts and switches that are drawn by themselves. Chosen: a quarter of what is drawn."""

Plain = dict[str, Any]


async def fabric(page: Page, sees: Sight) -> Plain:
    """Return nodes and links, and which incidents suspect them."""
    analyzer = page.analyzer
    suspects: dict[str, list[str]] = defaultdict(list)
    links: dict[str, list[str]] = defaultdict(list)
    for each in active(analyzer, sees):
        component = each.verdict.component
        if component is not None and component.kind is Kind.LINK:
            links[component.name].append(each.id)
        elif component is not None:
            for name in places_of(analyzer, component, each):
                suspects[name].append(each.id)
    silent = silent_hosts(analyzer, sees)
    ends = [end for name in links for end in name.split(" -- ")]
    apart = tuple(dict.fromkeys([*suspects, *ends, *silent]))[:MAX_APART]
    drawn = await page.looks.at(Fabric(tasks=sees.patterns, apart=apart))
    quiet = set(silent)
    nodes = [
        {
            **node,
            "suspects": suspects.get(node["id"], []),
            "state": "silent" if node["id"] in quiet else "well",
        }
        for node in drawn["nodes"]
    ]
    told = [
        {**link, "suspects": links.get(" -- ".join(sorted((link["a"], link["b"]))), [])}
        for link in drawn["links"]
    ]
    return {**drawn, "nodes": nodes, "links": told}


async def matrix(
    page: Page, sees: Sight, by: By, row: str | None = None, col: str | None = None
) -> Plain:
    """Return from whom to whom probes were lost."""
    return await page.looks.at(Matrix(tasks=sees.patterns, by=by, row=row, col=col))
