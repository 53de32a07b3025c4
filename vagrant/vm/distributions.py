# SPDX-License-Identifier: Apache-2.0
"""The distributions that guests are made of."""

from dataclasses import dataclass

from vagrant.vm.errors import VmError


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Debian release."""

    name: str
    """As on the command line and in the Vagrantfile."""
    suite: str
    """As the mirror calls it."""
    python: str
    """Minor version of its Python: a virtual environment works with this one only."""


DISTRIBUTIONS = {
    each.name: each
    for each in (
        Distribution("debian-12", "bookworm", "3.11"),
        Distribution("debian-13", "trixie", "3.13"),
    )
}


def distribution(name: str) -> Distribution:
    """Return the distribution called `name`; raise `VmError` if there is none."""
    try:
        return DISTRIBUTIONS[name]
    except KeyError:
        known = ", ".join(DISTRIBUTIONS)
        raise VmError(f"no distribution is called {name}", f"known: {known}") from None
