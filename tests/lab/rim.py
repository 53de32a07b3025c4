# SPDX-License-Identifier: Apache-2.0
"""What faults act through."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabError
from tests.lab.ovs import VirtualSwitch
from tests.lab.processes import Processes
from tests.lab.services import Services
from tests.lab.shape import Shape, namespace
from tests.lab.state import Fault
from tests.lab.targets import link_of


@dataclass(frozen=True, slots=True)
class Rim:
    """A living lab, as faults see it."""

    directory: Path
    shape: Shape
    faults: tuple[Fault, ...]
    """All that should be in effect afterwards."""

    processes: Processes
    services: Services
    switch: Callable[[int], VirtualSwitch]
    revive_switch: Callable[[int], None]


Action = Callable[[Rim, Fault], None]


def ends(rim: Rim, fault: Fault) -> Iterator[tuple[str, str]]:
    """Yield (namespace, interface) of both ends of the link, the spine's end first."""
    link = link_of(fault.target, rim.shape)
    yield namespace(link.spine), f"to-{link.leaf}"
    yield namespace(link.leaf), f"to-{link.spine}"


def wrapped_in(rim: Rim) -> str:
    """Return the word of nftables and tc for the IP packets that tunnels make."""
    return "ip6" if rim.shape.ip.underlay == 6 else "ip"


def nft_table(fault: Fault) -> str:
    """Return a name for a fault's nftables table."""
    return f"{fault.name}_{fault.target}".replace("-", "_").replace("/", "_")


@contextmanager
def needed(feature: str) -> Iterator[None]:
    """Say of what fails inside that the kernel lacks `feature`, which a guest's has."""
    try:
        yield
    except LabError as error:
        problem = f"this kernel lacks {feature}: {error.problem}"
        raise LabError(problem, "run it in a guest: python -m vagrant.vm --help") from error
