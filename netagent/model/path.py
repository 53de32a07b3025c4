# SPDX-License-Identifier: Apache-2.0
"""Components, and the ordered components between two endpoints."""

from dataclasses import dataclass

from netagent.model.strenum import StrEnum

MAX_HOPS = 32
"""Most routers of one direction of a path. Chosen: fabrics have five, the internet rarely 32."""


class Layer(StrEnum):
    """Where a component lives."""

    UNDERLAY = "underlay"
    RNIC = "rnic"
    OVERLAY = "overlay"
    CONTAINER = "container"
    AGENT = "agent"
    HOST = "host"
    CONTROLLER = "controller"
    JOB = "job"


class Kind(StrEnum):
    """What a component is."""

    SWITCH = "switch"
    LINK = "link"
    RNIC = "rnic"
    FLOW = "flow"
    TUNNEL = "tunnel"
    VSWITCH = "vswitch"
    CONTAINER = "container"
    ENDPOINT = "endpoint"
    AGENT = "agent"
    HOST = "host"
    CONTROLLER = "controller"
    """What drives virtual switches: an instance of it, or something that it says."""
    RANK = "rank"
    """One process of a training job, `TASK/NUMBER`: what it computes, not what carries it."""
    TASK = "task"
    """A training job, where no one of its ranks is at fault."""


LAYER_OF = {
    Kind.SWITCH: Layer.UNDERLAY,
    Kind.LINK: Layer.UNDERLAY,
    Kind.RNIC: Layer.RNIC,
    Kind.FLOW: Layer.OVERLAY,
    Kind.TUNNEL: Layer.OVERLAY,
    Kind.VSWITCH: Layer.OVERLAY,
    Kind.CONTAINER: Layer.CONTAINER,
    Kind.ENDPOINT: Layer.CONTAINER,
    Kind.AGENT: Layer.AGENT,
    Kind.HOST: Layer.HOST,
    Kind.CONTROLLER: Layer.CONTROLLER,
    Kind.RANK: Layer.JOB,
    Kind.TASK: Layer.JOB,
}


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """A thing that can be at fault, written `<kind> <name>`."""

    kind: Kind
    name: str

    def __hash__(self) -> int:
        return hash(self.name)  # the generated one calls that of the enum, in Python

    @property
    def layer(self) -> Layer:
        """The layer the component belongs to."""
        return LAYER_OF[self.kind]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @classmethod
    def parse(cls, text: str) -> "Component":
        """Return the component that `str()` wrote as `text`; ValueError if it is none."""
        kind, _, name = text.partition(" ")
        if not name:
            raise ValueError(f"{text!r} is no component; write KIND NAME")
        try:
            return cls(Kind(kind), name)
        except ValueError:
            kinds = ", ".join(Kind)
            raise ValueError(f"{kind!r} is no kind of component: {kinds}") from None


def switch(name: str) -> Component:
    """Return the switch `name`."""
    return Component(Kind.SWITCH, name)


def link(a: str, b: str) -> Component:
    """Return the link between switches `a` and `b`, whichever way round."""
    return Component(Kind.LINK, " -- ".join(sorted((a, b))))


def link_ends(component: Component) -> tuple[str, str]:
    """Return the two switches of a link; ValueError if it is none."""
    a, separator, b = component.name.partition(" -- ")
    if component.kind is not Kind.LINK or not separator:
        raise ValueError(f"{component} is no link")
    return a, b


def rnic(host: str, device: str) -> Component:
    """Return the RNIC `device` of `host`, with its cable and the switch port it is plugged into."""
    return Component(Kind.RNIC, f"{host}/{device}")


def flow_table(host: str, bridge: str, table: int) -> Component:
    """Return the table of `bridge` on `host` that holds (or lacks) an entry."""
    return Component(Kind.FLOW, f"{host}/{bridge}/table={table}")


def tunnel(host: str, port: str) -> Component:
    """Return the tunnel `port` of `host`; its address where the port is not known."""
    return Component(Kind.TUNNEL, f"{host}/{port}")


def vswitch(host: str) -> Component:
    """Return the virtual switch of `host`."""
    return Component(Kind.VSWITCH, host)


def controller(part: str) -> Component:
    """Return a part of a controller.

    That is its instance on a host (``h3``), its translation (``northd``), or something that it
    says: ``port NAME``, ``tunnel HOST`` or ``chassis NAME``.
    """
    return Component(Kind.CONTROLLER, part)
