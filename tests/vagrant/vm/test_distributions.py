# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest

from vagrant.vm.distributions import DISTRIBUTIONS, distribution
from vagrant.vm.errors import VmError

VAGRANTFILE = Path(__file__).parents[3] / "vagrant" / "Vagrantfile"


def test_a_distribution_is_found_by_its_name():
    assert distribution("debian-13").suite == "trixie"


def test_an_unknown_distribution_is_answered_with_the_known_ones():
    with pytest.raises(VmError) as caught:
        distribution("debian-11")
    assert caught.value.remedy == "known: debian-12, debian-13"


def test_vagrant_has_the_same_distributions():
    line = r'^  "(\S+)" => \{ libvirt: "debian/(\S+)64"'
    boxes = re.findall(line, VAGRANTFILE.read_text(), re.MULTILINE)
    assert dict(boxes) == {each.name: each.suite for each in DISTRIBUTIONS.values()}
