# SPDX-License-Identifier: Apache-2.0
"""NORMAL: forwarding as a switch that learns addresses and knows VLANs (`xlate_normal`)."""

from dataclasses import dataclass, replace

from ovs_checks.openflow.notation import format_mac
from ovs_checks.openflow.packet import ETH_ARP, ETH_VLAN, SLOTS, TAG_PRESENT, is_vlan_type
from ovs_checks.switch.bonds import receives, senders, source_hash
from ovs_checks.switch.snapshot import Bridge, Lane
from ovs_checks.translate.choose import note_hashed
from ovs_checks.translate.context import Context
from ovs_checks.translate.labels import count_tags

_SRC, _DST, _TYPE = SLOTS["eth_src"], SLOTS["eth_dst"], SLOTS["eth_type"]
_PROTO, _NW_SRC, _NW_DST = SLOTS["nw_proto"], SLOTS["nw_src"], SLOTS["nw_dst"]
_TAGS = ((SLOTS["vlan_tpid"], SLOTS["vlan_tci"]), (SLOTS["vlan_tpid1"], SLOTS["vlan_tci1"]))
_ALL_MAC = (1 << 48) - 1
"""The broadcast address, and the mask of all 48 bits of an address (IEEE 802)."""
_GROUP_BIT = 1 << 40
"""Bit of an Ethernet address: it is a group's (IEEE 802)."""

_REPLY = 2
"""ARP operation "reply" (RFC 826)."""
_RESERVED_GROUP = 0x0180C2000000
"""First of the 16 link-local group addresses, which bridges do not forward (IEEE 802.1D)."""

ANY_LANE = Lane("", ())
"""Where a controller's packets come from: it is no port, and in every VLAN."""

_ORIGINLESS = frozenset({0xFFFD, 0xFFFF})
"""Numbers that are no port a packet can enter by: `OFPP_CONTROLLER` and `OFPP_NONE`."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A VLAN tag; the priority as it stands in the tag."""

    tpid: int = 0
    vid: int = 0
    pcp: int = 0


Tags = tuple[Tag, Tag]
_NO_TAG = Tag()


def extract(x: Context) -> Tags:
    """Return the packet's VLAN tags."""
    found = [_NO_TAG, _NO_TAG]
    for n in range(count_tags(x.flow)):
        tpid, tci = (x.flow[slot] for slot in _TAGS[n])
        if not is_vlan_type(tpid):
            break
        found[n] = Tag(tpid, tci & 0xFFF, tci & 0xE000)
    return found[0], found[1]


def put(x: Context, tags: Tags, *, always: bool) -> None:
    """Give the packet these VLAN tags; a tag without VLAN and priority only where asked for."""
    for tag, (tpid_slot, tci_slot) in zip(tags, _TAGS, strict=True):
        tci = tag.vid | tag.pcp
        if tci or (always and tag.tpid):
            tci |= TAG_PRESENT
            x.flow[tpid_slot] = tag.tpid or ETH_VLAN
        x.flow[tci_slot] = tci


def inside(lane: Lane, tags: Tags) -> Tags:
    """Return the tags that a packet has within the bridge, having come in by `lane`."""
    outer = tags[0]
    own = Tag(outer.tpid or ETH_VLAN, lane.tag, outer.pcp)
    match lane.mode:
        case "access":
            return own, _NO_TAG
        case "native-tagged" | "native-untagged" if not outer.vid:
            return own, tags[1]
        case "dot1q-tunnel":
            return Tag(lane.tag_type, lane.tag, 0), outer
        case _:
            return tags


def outside(lane: Lane, tags: Tags) -> Tags:
    """Return the tags that a packet leaves by `lane` with."""
    match lane.mode:
        case "access":
            return _NO_TAG, _NO_TAG
        case "native-untagged" if tags[0].vid == lane.tag:
            return tags[1], _NO_TAG
        case "dot1q-tunnel":
            return tags[1], _NO_TAG
        case _:
            return tags


def includes(lane: Lane, tags: Tags) -> bool:
    """Tell whether a lane takes part in a packet's VLAN."""
    match lane.mode:
        case "access":
            return tags[0].vid == lane.tag and not tags[1].vid
        case "dot1q-tunnel":
            allowed = lane.cvlans is None or tags[1].vid in lane.cvlans
            return tags[0].vid == lane.tag and allowed
        case _:
            return lane.trunks_vlan(tags[0].vid)


def admits(x: Context, lane: Lane, vid: int) -> bool:
    """Tell whether a packet with this VLAN may come in by `lane`, and say so if not."""
    if lane is ANY_LANE:
        return True
    name, mode = lane.name, lane.mode
    if mode == "access" and vid:
        what = f"packet received on port {name} configured as VLAN {lane.tag} access port"
        x.tell("error", f"dropping VLAN {vid} tagged {what}")
    elif mode == "dot1q-tunnel" and lane.cvlans is not None and vid not in lane.cvlans:
        what = f"packet received on dot1q-tunnel port {name} that excludes this VLAN"
        x.tell("error", f"dropping VLAN {vid} {what}")
    elif mode in {"native-tagged", "native-untagged"} and not vid:
        return True
    elif mode not in {"access", "dot1q-tunnel"} and not lane.trunks_vlan(vid):
        what = f"packet received on port {name} not configured for trunking VLAN {vid}"
        x.tell("error", f"dropping VLAN {vid} {what}")
    else:
        return True
    return False


def input_lane(x: Context) -> Lane | None:
    """Return the lane that the packet came in by."""
    lane = x.bridge.by_lane.get(x.in_port)
    if lane is None and x.in_port in _ORIGINLESS:
        return ANY_LANE
    if lane is None:
        x.tell("error", f"received packet on unknown port {x.in_port}")
    return lane


def mirrors_to(bridge: Bridge, lane: Lane) -> bool:
    """Tell whether a lane is reserved for the copies of a mirror."""
    return any(mirror.output == lane.name for mirror in bridge.mirrors if mirror.output)


def normal(x: Context) -> None:
    """Forward as a switch would."""
    looked = x.looked
    looked[_SRC] = looked[_DST] = _ALL_MAC
    looked[_TAGS[0][1]] |= 0xFFF | TAG_PRESENT
    lane = input_lane(x)
    if lane is None:
        _drop(x, "warn", "no input bundle, dropping",
              f"NORMAL refuses a packet from port {x.in_port}, which is not there")  # fmt: skip
        return
    if x.bridge.unsupported:
        raise x.give_up(f"NORMAL: {x.bridge.unsupported[0]}")
    if is_vlan_type(x.flow[_TYPE]) and not x.flow[_TAGS[0][1]] & TAG_PRESENT:
        _drop(x, "warn", "partial VLAN tag, dropping", "NORMAL: its VLAN tag is cut off")
    elif mirrors_to(x.bridge, lane):
        _drop(x, "warn", "input port is mirror output port, dropping",
              f"NORMAL: {lane.name} is reserved for a mirror")  # fmt: skip
    elif not admits(x, lane, extract(x)[0].vid):
        _drop(x, "warn", "disallowed VLAN VID for this input port, dropping",
              f"NORMAL: {lane.name} does not take VLAN {extract(x)[0].vid}")  # fmt: skip
    elif not x.bridge.forwards_bpdu and x.flow[_DST] & ~0xF == _RESERVED_GROUP:
        _drop(x, "detail", "packet has reserved destination MAC, dropping",
              "NORMAL does not forward link-local groups")  # fmt: skip
    else:
        tags = inside(lane, extract(x))
        if not _bond_takes(x, lane, tags[0].vid):
            return
        _note_gratuitous(x)
        _forward(x, lane, tags)


def _drop(x: Context, kind: str, told: str, reason: str) -> None:
    x.tell(kind, told)  # type: ignore[arg-type]
    x.excuse(reason)


def _note_gratuitous(x: Context) -> None:
    """Look at what decides whether the packet announces its sender (`is_gratuitous_arp`)."""
    if x.flow[_TYPE] != ETH_ARP or x.flow[_DST] != _ALL_MAC:
        return
    x.looked[_PROTO] = 0xFF
    if x.flow[_PROTO] == 1:
        x.looked[_NW_SRC] = x.looked[_NW_DST] = 0xFFFFFFFF


def _bond_takes(x: Context, lane: Lane, vid: int) -> bool:
    """Tell whether the packet may come in by this member of a bond, and say so if not."""
    if len(lane.ports) < 2:
        return True
    if lane.bond is None:
        raise x.give_up(f"NORMAL with bond {lane.name}: how it stands is not known")
    name = x.bridge.by_number[x.in_port].name
    verdict = receives(lane.bond, name, group=bool(x.flow[_DST] & _GROUP_BIT))
    if verdict == "no":
        _drop(x, "detail", "bonding refused admissibility, dropping",
              f"NORMAL: bond {lane.name} takes nothing in by {name} now")  # fmt: skip
        return False
    learned = x.bridge.learned.get((vid, x.flow[_SRC]))
    if verdict == "yes" or learned is None or x.bridge.by_lane.get(learned.port) == lane:
        return True
    if _announces(x):
        return True
    _drop(x, "detail", "SLB bond thinks this packet looped back, dropping",
          f"NORMAL: bond {lane.name} takes it for one that it sent itself")  # fmt: skip
    return False


def _announces(x: Context) -> bool:
    """Return whether the packet announces its sender (`is_gratuitous_arp`)."""
    _note_gratuitous(x)
    flow = x.flow
    if flow[_TYPE] != ETH_ARP or flow[_DST] != _ALL_MAC:
        return False
    return flow[_PROTO] == _REPLY or (flow[_PROTO] == 1 and flow[_NW_SRC] == flow[_NW_DST])


def _forward(x: Context, lane: Lane, tags: Tags) -> None:
    address = x.flow[_DST]
    entry = x.bridge.learned.get((tags[0].vid, address))
    if entry is None:
        x.tell("detail", "no learned MAC for destination, flooding")
        flood_lanes(x, lane, tags)
        return
    to_lane = x.bridge.by_lane.get(entry.port)
    where = f"{format_mac(address)} is learned at"
    if to_lane is None:
        _drop(x, "warn", "learned port is unknown, dropping",
              f"NORMAL: {where} a port that is not there")  # fmt: skip
    elif mirrors_to(x.bridge, to_lane):
        _drop(x, "warn", "learned port is a mirror port, dropping",
              f"NORMAL: {where} {to_lane.name}, which is a mirror's")  # fmt: skip
    elif to_lane == lane:
        _drop(x, "detail", "learned port is input port, dropping",
              f"NORMAL: {where} the port that it came in by")  # fmt: skip
    else:
        x.tell("detail", "forwarding to learned port")
        to_one(x, to_lane, tags)


def flood_lanes(x: Context, lane: Lane, tags: Tags) -> None:
    """Send by every lane in the packet's VLAN but the one that it came in by."""
    for other in x.bridge.every_lane:
        floodable = all(
            "NO_FLOOD" not in x.bridge.by_number[number].config
            and x.bridge.by_number[number].layer != "L3"
            for number in other.ports
            if number in x.bridge.by_number
        )
        wanted = other != lane and floodable and includes(other, tags)
        if wanted and not mirrors_to(x.bridge, other):
            to_one(x, other, tags)


def to_one(x: Context, lane: Lane, tags: Tags) -> None:
    """Send by one lane, with the tags that it wants (`output_normal`)."""
    if lane.mode == "dot1q-tunnel" and lane.cvlans is not None:
        x.looked[_TAGS[1][1]] = 0xFFFF
    out = outside(lane, tags)
    if lane.priority_tags != "no":
        pcp = x.flow[_TAGS[0][1]] & 0xE000
        out = replace(out[0], pcp=pcp), out[1]
    number = _member(x, lane, out[0].vid)
    if number is None:
        return
    bond = lane.bond if lane.bond and lane.bond.recirculation is not None else None
    saved = [x.flow[slot] for pair in _TAGS for slot in pair]
    put(x, out, always=lane.priority_tags == "always")
    x.go.output(x, number, last=False, bond=bond)
    for slot, value in zip((slot for pair in _TAGS for slot in pair), saved, strict=True):
        x.flow[slot] = value


def _member(x: Context, lane: Lane, vid: int) -> int | None:
    """Return the port of a lane to send by; None if it has none."""
    ports = [number for number in lane.ports if number in x.bridge.by_number]
    if len(lane.ports) < 2:
        return ports[0] if ports else None
    bond = lane.bond
    if bond is None:
        raise x.give_up(f"NORMAL with bond {lane.name}: how it stands is not known")

    def hashed() -> int | None:
        slb = bond.mode == "balance-slb"
        return source_hash(x.flow[_SRC], vid, bond.basis) if slb else None

    names = senders(bond, hashed)
    if bond.recirculation is None and bond.mode != "active-backup":
        note_hashed(x, "eth_src" if bond.mode == "balance-slb" else "symmetric_l3l4+udp")
    if len(names) > 1 and bond.recirculation is None:
        name = names[x.choose([f"member {name} of bond {lane.name}" for name in names])]
    else:
        name = names[0] if names else ""
    port = x.bridge.by_name.get(name)
    return port.ofport if port else None
