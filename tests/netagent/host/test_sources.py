# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from netagent.host.facts import Port
from netagent.host.ports import ContainerPort, Unusable
from netagent.host.sources import Found, Given, OwnPorts, found_by
from netagent.model.ids import EndpointId
from tests.netagent.host.small_host import C0, plug, tunnel

PORTS = tuple(Port(each.name, (each,)) for each in (tunnel(), plug("c1"), plug()))


class Said:
    """A source that says the same of whatever is given."""

    def __init__(self, *ports: ContainerPort, odd: tuple[Unusable, ...] = ()) -> None:
        self._found = Found(ports, odd)

    def endpoints(self, _given: Given) -> Found:
        return self._found


def test_netagents_own_external_ids_are_one_source():
    found = OwnPorts().endpoints(Given(PORTS))
    assert [str(port.id) for port in found.ports] == ["c0/rail0", "c1/rail0"]
    assert found.unusable == ()


def test_what_several_sources_say_is_one_list_in_order():
    other = ContainerPort(EndpointId("b", 0), "t", "p", "10.0.0.1", "02:00:00:00:00:01")
    why = Unusable("x", "odd")
    found = found_by([Said(other, odd=(why,)), OwnPorts()], Given(PORTS))
    assert [str(port.id) for port in found.ports] == ["b/rail0", "c0/rail0", "c1/rail0"]
    assert found.unusable == (why,)


def test_of_two_that_name_one_endpoint_the_first_holds():
    mine = ContainerPort(C0, "t", "net1", "", "", bridged=False)
    found = found_by([OwnPorts(), Said(mine)], Given(PORTS[:1] + PORTS[2:]))
    assert [port.interface for port in found.ports] == ["c0-r0"]
    assert found.unusable == (
        Unusable("net1 of c0", "c0/rail0 is already on port c0-r0", "interface"),
    )
    (other,) = found_by([Said(mine), Said(replace(mine, interface="p"))], Given()).unusable
    assert other.text == "c0/rail0 is already on interface net1"
