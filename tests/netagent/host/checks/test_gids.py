# SPDX-License-Identifier: Apache-2.0
from netagent.host.checks.contract import State
from netagent.host.rdma_facts import RdmaView
from netagent.model.finding import FindingKind
from netagent.model.path import Component, Kind
from tests.netagent.host.checks.healthy import look, rdma, wrong
from tests.netagent.server_board import gpu_server


def test_an_endpoint_whose_device_has_no_gid_of_it_is_named(tmp_path):
    (found,) = wrong(look(gpu_server(tmp_path), seen_rdma=rdma(2)))
    assert (found.component, found.kind) == (
        Component(Kind.ENDPOINT, "c0/rail2"), FindingKind.GID_CHANGED
    )  # fmt: skip


def test_endpoints_whose_devices_are_not_seen_cannot_be_told(tmp_path):
    seen = RdmaView(rdma().devices[:3], "exclusive")
    said = look(gpu_server(tmp_path), seen_rdma=seen)
    assert wrong(said) == []
    assert [e.text for e in said if e.state is State.UNKNOWN] == [
        "no RDMA device is seen in the namespaces of c0/rail3"
    ]
