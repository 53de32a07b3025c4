# SPDX-License-Identifier: Apache-2.0
import pytest

from netagent.model.encapsulation import GENEVE, KNOWN, VXLAN, overhead_bytes


@pytest.mark.parametrize(("address", "size"), [("172.30.0.10", 50), ("fd00::1", 70)])
def test_an_outer_packet_is_larger_by_its_headers(address, size):
    assert overhead_bytes(address) == size


def test_kinds_are_known_by_open_vswitchs_names():
    assert KNOWN == {"vxlan": VXLAN, "geneve": GENEVE}
