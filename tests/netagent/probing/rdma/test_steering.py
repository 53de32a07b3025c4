# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.probing.rdma import steering as s


def label_port(label):
    """Return the source port of a flow label, as rdma_flow_label_to_udp_sport does."""
    return (label & 0x3FFF) ^ ((label & 0xFC000) >> 14) | s.PORT_BASE


def test_soft_roce_ports_as_captured():
    """Ports that tcpdump saw of queue pairs 17 to 20 on kernel 6.1."""
    assert [s.queue_port(n) for n in (17, 18, 19, 20)] == [57236, 63494, 53368, 59626]


def test_flow_labels_as_the_kernel_folds_them():
    assert label_port(0) == 0xC000
    assert label_port(1) == 0xC001
    assert label_port(0x3FFF) == 0xFFFF
    assert label_port(0x4000) == 0xC001
    assert label_port(0xFFFFF) == 0xC000 | (0x3FFF ^ 0x3F)


@given(st.integers(0, 0xFFFFF))
def test_every_label_gives_a_port_that_a_label_names(label):
    port = label_port(label)
    assert s.PORT_BASE <= port <= 0xFFFF
    assert label_port(s.port_label(port)) == port
    assert 0 < s.port_label(port) <= 0xFFFFF  # 0 would let the device choose


@given(st.text(max_size=40), st.integers(1, 64))
def test_an_endpoints_flows_differ_and_stay_the_same(name, flows):
    ports = s.flow_ports(name, flows)
    assert len(set(ports)) == len(ports) == flows
    assert all(s.PORT_BASE <= port <= 0xFFFF for port in ports)
    assert s.flow_ports(name, flows) == ports
    assert s.flow_ports(name, flows + 1)[:flows] == ports


def test_other_endpoints_draw_other_ports():
    drawn = {s.flow_ports(f"::ffff:10.0.0.{n}", 4) for n in range(50)}
    assert len(drawn) == 50


@given(st.integers(17, 1 << 24), st.integers(2, 64))
def test_neighbouring_soft_roce_queue_pairs_differ(first, count):
    ports = {s.queue_port(first + n) for n in range(count)}
    assert len(ports) == count


def test_only_soft_roce_is_known_to_ignore_flow_labels():
    assert s.steering_of(s.VENDOR_RXE) is s.Steering.QUEUE_PAIR
    assert s.steering_of(0x02C9) is s.Steering.FLOW_LABEL
