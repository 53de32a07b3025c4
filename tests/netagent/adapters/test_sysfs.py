# SPDX-License-Identifier: Apache-2.0
from netagent.adapters.sysfs import RdmaPort, rdma_ports


def test_ports_of_rdma_devices_are_read(tmp_path):
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("Ethernet\n")
    (tmp_path / "mlx5_0" / "device" / "net" / "ens1f0").mkdir(parents=True)
    (tmp_path / "mlx5_0" / "ports" / "junk").mkdir()
    (tmp_path / "rxe0" / "ports" / "1").mkdir(parents=True)
    assert rdma_ports(tmp_path) == (
        RdmaPort("mlx5_0", 1, "ACTIVE", "Ethernet", ("ens1f0",)),
        RdmaPort("rxe0", 1, "", ""),
    )


def test_a_kernel_without_rdma_has_no_ports(tmp_path):
    assert rdma_ports(tmp_path / "none") == ()
