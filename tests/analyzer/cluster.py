# SPDX-License-Identifier: Apache-2.0
"""Endpoints and registrations for tests, in one line each."""

from collections.abc import Mapping

from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.ids import EndpointId
from netagent.wire.messages import Registration
from netagent.wire.trace import StageRow, TraceReply, TraceRequest

SECOND = 10**9


def endpoint(
    host: str,
    container: str,
    rail: int = 0,
    *,
    task: str = "train-a",
    state: EndpointState = EndpointState.UP,
) -> Endpoint:
    """Return an endpoint whose addresses follow from where it is."""
    number = sum(host.encode()) % 200 + 10
    return Endpoint(
        id=EndpointId(container, rail),
        task=task,
        host=host,
        address=f"10.0.{rail}.{number}",
        mac=f"02:00:00:00:{rail:02x}:{number:02x}",
        underlay=f"172.30.{rail}.{number}",
        rnic=f"rnic{rail}",
        bridge="br-int",
        port=f"{container}-r{rail}",
        state=state,
    )


def registration(
    host: str, *endpoints: Endpoint, generation: int = 1, instance: str = "one"
) -> Registration:
    """Return what the agent of `host` says."""
    return Registration(
        host=host,
        instance=instance,
        generation=generation,
        rpc_url=f"https://{host}:8421",
        endpoints=endpoints,
    )


def reply_of(request: TraceRequest, packets: Mapping[str, int]) -> TraceReply:
    """Return what a host answers that counted so many packets by stage."""
    rows = tuple(StageRow(stage=s, packets=n, bytes=0) for s, n in packets.items())
    return TraceReply(kind="drops", flow=request.flow, netns=1, lasted_ns=1, stages=rows)
