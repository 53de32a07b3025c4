# SPDX-License-Identifier: Apache-2.0
"""What the programs must know of this kernel: offsets of fields, flags, names of drop reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bpf.trace.btf import Btf
from netagent.model.errors import RemoteProtocolError

KERNEL = (
    ("sk_buff", "dev"),
    ("sk_buff", "len"),
    ("sk_buff", "head"),
    ("sk_buff", "data"),
    ("sk_buff", "tail"),
    ("sk_buff", "network_header"),
    ("sk_buff", "_skb_refdst"),
    ("net_device", "name"),
    ("net_device", "nd_net"),
    ("net_device", "priv_flags"),
    ("net", "ns"),
    ("ns_common", "inum"),
    ("dst_entry", "flags"),
    ("metadata_dst", "type"),
    ("metadata_dst", "u"),
    ("ip_tunnel_info", "key"),
    ("ip_tunnel_key", "tun_id"),
)
"""Fields that every program reads, by struct."""

SWITCH = (
    ("vport", "dev"),
    ("datapath", "net"),
    ("dp_upcall_info", "cmd"),
    ("sw_flow_actions", "actions_len"),
)
"""Fields of openvswitch.ko."""

FLAGS = ("IFF_OVS_DATAPATH", "IFF_OPENVSWITCH")
"""Flags of devices: a port of a datapath, and the datapath's own (internal) port."""

MAX_DEFINE = 1 << 24
"""Largest value of a stored macro. Chosen: a larger number comes from a damaged cache."""


@dataclass(frozen=True)
class Layout:
    """What one kernel's BTF says."""

    defines: Mapping[str, int]
    """Macro names and values for the compiler."""

    reasons: Mapping[int, str] = field(default_factory=dict)
    """Names of drop reasons, without their prefixes."""

    has_switch: bool = False
    """Whether the fields of openvswitch.ko are known."""

    @property
    def has_ovs_reasons(self) -> bool:
        """Return whether Open vSwitch gives drops a reason, as since kernel 6.6."""
        return bool(self.defines.get("DROPS_HAVE_OVS_REASONS"))


def define_of(struct: str, member: str) -> str:
    """Return the macro's name."""
    return f"{struct}_{member}_offset".upper()


def read_layout(kernel: Btf, switch: Btf | None) -> Layout:
    """Return what the programs need; raises RemoteProtocolError if the kernel's part is missing.

    `switch` is the BTF of openvswitch.ko; None where it is built in, or not loaded.
    """
    defines = {define_of(*each): kernel.offset(*each) for each in KERNEL}
    flags = {name: value for value, name in kernel.enumerators("netdev_priv_flags").items()}
    if missing := set(FLAGS) - set(flags):
        raise RemoteProtocolError(f"BTF has no {min(missing)}")
    defines |= {name: flags[name] for name in FLAGS}
    holder = switch or kernel
    try:
        defines |= {define_of(*each): holder.offset(*each) for each in SWITCH}
        has_switch = True
    except RemoteProtocolError:
        has_switch = False
    reasons = _short(kernel.enumerators("skb_drop_reason"), "SKB_DROP_REASON_")
    of_switch = _short(holder.enumerators("ovs_drop_reason"), "OVS_DROP_", "OVS_")
    defines["DROPS_HAVE_REASONS"] = int(bool(reasons))
    defines["DROPS_HAVE_OVS_REASONS"] = int(bool(of_switch))
    return Layout(defines, {**reasons, **of_switch}, has_switch)


def _short(names: Mapping[int, str], prefix: str, instead: str = "") -> dict[int, str]:
    return {value: instead + name.removeprefix(prefix) for value, name in names.items()}


def to_data(layout: Layout) -> dict[str, object]:
    """Return plain data for a cache."""
    return {
        "defines": dict(layout.defines),
        "reasons": {str(value): name for value, name in layout.reasons.items()},
        "has_switch": layout.has_switch,
    }


def from_data(data: object) -> Layout:
    """Return what `to_data` stored; raises RemoteProtocolError for anything else."""
    parts: dict[str, Any] = data if isinstance(data, dict) else {}
    defines: Any = parts.get("defines")
    reasons: Any = parts.get("reasons")
    has_switch = parts.get("has_switch") is True
    if not _holds(defines, str, int) or not _holds(reasons, str, str):
        raise RemoteProtocolError("a cached layout of another form")
    wanted = {define_of(*each) for each in (*KERNEL, *(SWITCH if has_switch else ()))} | {*FLAGS}
    if (
        wanted - set(defines)
        or not all(name.isidentifier() for name in defines)
        or not all(0 <= value <= MAX_DEFINE for value in defines.values())
        or not all(value.isascii() and value.isdigit() and len(value) < 12 for value in reasons)
    ):
        raise RemoteProtocolError("a cached layout of another form")
    return Layout(defines, {int(value): name for value, name in reasons.items()}, has_switch)


def _holds(data: Any, keys: type, values: type) -> bool:
    return isinstance(data, dict) and all(
        type(key) is keys and type(value) is values for key, value in data.items()
    )
