# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.facts import VswitchView
from netagent.host.hardware import Hardware, Nic, PciFunction, Placed
from netagent.host.inventory import inventory_of
from netagent.host.rates import PortRate
from netagent.wire.inventory import MOST_RNICS, MOST_TEXT, Inventory, RnicInventory

KERNEL = "6.1.0-56-amd64"
CARD = Placed(PciFunction("0000:17:00.0", model="15b3:1021"))
NIC = Nic(
    "rnic0", CARD, driver="mlx5_core", driver_version="24.10-1.1.4",
    firmware="28.39.1002 (MT_0000000838)", offload=True, pause=(3,), marks=(3, 4), trust="dscp",
)  # fmt: skip


def told(*nics, vswitch=None, rates=None, mtus=None, kernel=KERNEL):
    hardware = Hardware(nics=nics, mtus=mtus or {})
    return inventory_of(hardware, rates or {}, vswitch, kernel=kernel, netagent="1.2.0")


def test_all_that_is_read_is_told():
    vswitch = VswitchView(settings={"hw-offload": "true"}, version="3.1.0")
    found = told(NIC, vswitch=vswitch, rates={"rnic0": PortRate(4 * 10**11)}, mtus={"rnic0": 9000})
    rnic = RnicInventory(
        netdev="rnic0", model="15b3:1021", board="MT_0000000838", firmware="28.39.1002",
        driver="mlx5_core 24.10-1.1.4", pfc=(3,), dcqcn=(3, 4), trust="dscp", mtu=9000,
        mbps=400_000, offload=True,
    )  # fmt: skip
    assert found == Inventory(
        rnics=(rnic,), kernel=KERNEL, ovs="3.1.0", hw_offload=True, netagent="1.2.0"
    )


def test_what_cannot_be_read_is_absent():
    rates = {"rnic0": None}
    assert told(Nic("rnic0"), rates=rates) == Inventory(
        rnics=(RnicInventory(netdev="rnic0"),), kernel=KERNEL, netagent="1.2.0"
    )
    unset = told(vswitch=VswitchView())
    assert (unset.ovs, unset.hw_offload) == ("", False)


def test_a_driver_of_the_kernels_own_has_no_version_besides():
    for kernel in (KERNEL, "6.8.0-1021-a-vendors-own-name-of-it"):
        nic = Nic("eth0", driver="virtio_net", driver_version=kernel[:31])
        (rnic,) = told(nic, kernel=kernel).rnics
        assert (rnic.model, rnic.driver) == ("virtio_net", "virtio_net")


def test_firmware_without_a_board_is_told_as_it_is():
    for firmware in ("20.0.14.4", "0x80017778, 20.0.13", "1 (2) (3)", ""):
        (rnic,) = told(Nic("eth0", driver="bnxt_en", firmware=firmware)).rnics
        assert (rnic.firmware, rnic.board) == (firmware, "")


@given(st.lists(st.tuples(st.text(max_size=200), st.text(max_size=200)), max_size=100))
def test_whatever_drivers_say_is_bounded_and_printable(nics):
    found = told(*(Nic(name, driver=text, firmware=text) for name, text in nics))
    assert len(found.rnics) == min(len(nics), MOST_RNICS)
    for rnic in found.rnics:
        for text in (rnic.netdev, rnic.model, rnic.firmware, rnic.driver):
            assert len(text) <= MOST_TEXT
            assert text.isprintable()
