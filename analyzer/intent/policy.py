# SPDX-License-Identifier: Apache-2.0
"""What a controller is asked to keep apart: no fault, whatever probes lose."""

from analyzer.intent.model import Port


def shut(source: Port, target: Port) -> tuple[Port, ...]:
    """Return which of two ports are disabled: then nothing passes between them, as intended."""
    return tuple(port for port in (source, target) if not port.is_enabled)
