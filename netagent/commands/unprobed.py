# SPDX-License-Identifier: Apache-2.0
"""What a host says of the ports that are no endpoint, as text."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from netagent.wire.unprobed import Unprobed


def unprobed_count(said: Unprobed) -> str:
    """Return how many ports are no endpoint, and why, in less than a line."""
    whys = Counter(each.why for each in said.ports)
    told = ", ".join(f"{whys[why]} {why}" for why in sorted(whys))
    return f"ports that are no endpoint: {said.count}" + (f" ({told})" if told else "")


def unprobed_lines(said: Unprobed) -> Iterator[str]:
    """Yield the ports that are no endpoint, each with why; in lines of a terminal."""
    for each in said.ports:
        of = f" of {each.task}" if each.task else ""
        at = f" on {each.bridge}" if each.bridge else ""
        yield from textwrap.wrap(
            f"{each.port}{at}{of}: {each.why}: {each.text}", 79, subsequent_indent="  "
        )
    if more := said.count - len(said.ports):
        yield f"and {more} more"
    if not said.count:
        yield "each port that may be an endpoint is one"
