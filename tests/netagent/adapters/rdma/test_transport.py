# SPDX-License-Identifier: Apache-2.0
"""What needs no device of the probing side; tests/rdma has the rest."""

from types import SimpleNamespace

import pytest

from netagent.adapters.rdma.messages import Place
from netagent.adapters.rdma.transport import RdmaTransport
from netagent.probing.rdma.gids import packed_gid


@pytest.mark.parametrize(("gid", "overhead"), [("::ffff:10.0.0.10", 52), ("fd00::10", 72)])
def test_a_packet_has_beside_its_frame_what_its_gid_says(gid, overhead):
    port = SimpleNamespace(
        place=Place(device="mlx5_0", gid=gid, path=""), own_gid=packed_gid(gid), ports=(49152,),
        steering=None, mtu=1024, stamped=False, descriptors=lambda: (3, 4),
    )  # fmt: skip
    assert RdmaTransport(port, SimpleNamespace()).overhead_bytes == overhead
