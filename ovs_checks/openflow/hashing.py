# SPDX-License-Identifier: Apache-2.0
"""The hashes by which Open vSwitch chooses: links, buckets, and the order in which it floods.

MurmurHash3's mixing as in `lib/hash.h` where the CPU's CRC is not compiled in, which is what
distributions ship for x86-64, and Bob Jenkins' lookup3 as in `lib/jhash.c`.
"""

from collections.abc import Iterable

from .packet import (
    ETH_IPV4,
    ETH_IPV6,
    FRAGMENT,
    SCTP,
    TCP,
    UDP,
    Header,
)

_M = 0xFFFFFFFF
"""Mask of 32 bits: Open vSwitch computes these hashes in `uint32_t` (lib/hash.h)."""


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & _M


def hash_add(hashed: int, data: int) -> int:
    """Mix 32 bits of data into a hash."""
    data = _rotate(data * 0xCC9E2D51 & _M, 15) * 0x1B873593 & _M
    return (_rotate(hashed ^ data, 13) * 5 + 0xE6546B64) & _M


def hash_finish(hashed: int, final: int) -> int:
    """Spread what was mixed over all bits."""
    hashed ^= final
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _M
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _M
    return hashed ^ hashed >> 16


def hash_words(x: int, y: int) -> int:
    """Hash two words (`hash_2words`, also `hash_int`)."""
    return hash_finish(hash_add(hash_add(x & _M, 0), y & _M), 8)


def hash_add64(hashed: int, data: int) -> int:
    """Mix 64 bits of data into a hash, the low half first."""
    return hash_add(hash_add(hashed, data & _M), data >> 32)


def hash_u64(data: int, basis: int = 0) -> int:
    """Hash one number of 64 bits (`hash_uint64_basis`)."""
    return hash_finish(hash_add64(basis, data), 8)


def hash_bytes(data: bytes, basis: int) -> int:
    """Hash bytes."""
    hashed = basis
    for start in range(0, len(data), 4):
        hashed = hash_add(hashed, int.from_bytes(data[start : start + 4], "little"))
    return hash_finish(hashed, len(data))


def hash_boolean(value: bool, basis: int) -> int:  # noqa: FBT001 - it is the data
    """Mix one bit into a hash."""
    return (0xC2B73583 if value else 0xE90F1258) ^ _rotate(basis, 1)


def jhash_bytes(data: bytes, basis: int) -> int:
    """Hash bytes as lookup3 does."""
    a = b = c = (0xDEADBEEF + len(data) + basis) & _M
    words = [int.from_bytes(data[n : n + 4], "little") for n in range(0, len(data), 4)]
    while len(words) >= 3 and len(data) >= 12:
        a, b, c = (a + words[0]) & _M, (b + words[1]) & _M, (c + words[2]) & _M
        a, b, c = _jhash_mix(a, b, c)
        words, data = words[3:], data[12:]
    if data:
        words += [0] * (3 - len(words))
        a, b, c = (a + words[0]) & _M, (b + words[1]) & _M, (c + words[2]) & _M
        c = _jhash_final(a, b, c)
    return c


def _jhash_mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for rotations in ((4, 6, 8), (16, 19, 4)):
        a = (a - c & _M) ^ _rotate(c, rotations[0])
        c = c + b & _M
        b = (b - a & _M) ^ _rotate(a, rotations[1])
        a = a + c & _M
        c = (c - b & _M) ^ _rotate(b, rotations[2])
        b = b + a & _M
    return a, b, c


def _jhash_final(a: int, b: int, c: int) -> int:
    c = (c ^ b) - _rotate(b, 14) & _M
    a = (a ^ c) - _rotate(c, 11) & _M
    b = (b ^ a) - _rotate(a, 25) & _M
    c = (c ^ b) - _rotate(b, 16) & _M
    a = (a ^ c) - _rotate(c, 4) & _M
    b = (b ^ a) - _rotate(a, 14) & _M
    return (c ^ b) - _rotate(b, 24) & _M


# --- of packets ----------------------------------------------------------------------------------


def _network(value: int, octets: int) -> int:
    """Return the number that a little-endian CPU reads where the network's bytes stand."""
    return int.from_bytes(value.to_bytes(octets, "big"), "little")


def hash_fields(flow: Header, fields: str, basis: int) -> int:
    """Hash a packet by what `multipath` and `bundle` name (`flow_hash_fields`)."""
    match fields:
        case "eth_src":
            return jhash_bytes(flow.eth_src.to_bytes(6, "big"), basis)
        case "symmetric_l4":
            return symmetric_l4(flow, basis)
        case "symmetric_l3l4":
            return symmetric_l3l4(flow, basis, udp=False)
        case "symmetric_l3l4+udp":
            return symmetric_l3l4(flow, basis, udp=True)
        case "symmetric_l3":
            return _symmetric_l3(flow, basis)
        case _:
            return _one_address(flow, fields, basis)


def _one_address(flow: Header, fields: str, basis: int) -> int:
    if flow.eth_type == ETH_IPV4:
        value = flow.nw_src if fields == "nw_src" else flow.nw_dst
        return jhash_bytes(value.to_bytes(4, "big"), basis)
    if flow.eth_type == ETH_IPV6:
        value = flow.ipv6_src if fields == "nw_src" else flow.ipv6_dst
        return jhash_bytes(value.to_bytes(16, "big"), basis)
    return basis


def _addresses(flow: Header) -> bytes:
    """Return source and destination, either way round the same, in 16 bytes."""
    if flow.eth_type == ETH_IPV4:
        return (flow.nw_src ^ flow.nw_dst).to_bytes(4, "big") + bytes(12)
    if flow.eth_type == ETH_IPV6:
        return (flow.ipv6_src ^ flow.ipv6_dst).to_bytes(16, "big")
    return bytes(16)


def symmetric_l4(flow: Header, basis: int) -> int:
    """Hash both directions of a connection alike (`flow_hash_symmetric_l4`)."""
    ip = flow.eth_type in {ETH_IPV4, ETH_IPV6}
    ports = flow.tp_src ^ flow.tp_dst if ip and flow.nw_proto in {TCP, SCTP} else 0
    tags = (flow.vlan_tci ^ flow.vlan_tci1) & 0xFFF
    data = (
        _addresses(flow)
        + flow.eth_type.to_bytes(2, "big")
        + tags.to_bytes(2, "big")
        + ports.to_bytes(2, "big")
        + (flow.eth_src ^ flow.eth_dst).to_bytes(6, "big")
        + bytes([flow.nw_proto if ip else 0])
        + bytes(3)
    )
    return jhash_bytes(data, basis)


def symmetric_l3l4(flow: Header, basis: int, *, udp: bool) -> int:
    """Hash both directions of a connection alike, by IP and above only."""
    hashed = basis
    if flow.eth_type == ETH_IPV4:
        hashed = hash_add(hashed, _network(flow.nw_src ^ flow.nw_dst, 4))
    elif flow.eth_type == ETH_IPV6:
        both = (flow.ipv6_src ^ flow.ipv6_dst).to_bytes(16, "big")
        for half in (both[:8], both[8:]):
            hashed = hash_add64(hashed, int.from_bytes(half, "little"))
    else:
        return _symmetric_l2(flow, basis)
    hashed = hash_add(hashed, flow.nw_proto)
    ported = {TCP, SCTP, UDP} if udp else {TCP, SCTP}
    if flow.nw_proto in ported and not flow.nw_frag & FRAGMENT:
        hashed = hash_add(hashed, _network(flow.tp_src ^ flow.tp_dst, 2))
    return hash_finish(hashed, basis)


def _symmetric_l2(flow: Header, basis: int) -> int:
    if flow.packet_type:
        return 0
    data = (
        flow.eth_type.to_bytes(2, "big")
        + ((flow.vlan_tci ^ flow.vlan_tci1) & 0xFFF).to_bytes(2, "big")
        + (flow.eth_src ^ flow.eth_dst).to_bytes(6, "big")
        + bytes(2)
    )
    hashed = basis
    for n in range(0, 12, 4):
        hashed = hash_add(hashed, int.from_bytes(data[n : n + 4], "little"))
    return hash_finish(hashed, basis)


def _symmetric_l3(flow: Header, basis: int) -> int:
    data = _addresses(flow) + flow.eth_type.to_bytes(2, "big") + bytes(2)
    return jhash_bytes(data, basis)


# --- order ---------------------------------------------------------------------------------------


def table_order(numbers: Iterable[int]) -> list[int]:
    """Return ports in the order in which Open vSwitch walks its hash table of them (`hmap`).

    The table grows when it holds twice as many as it has buckets; new ones go to the front of
    their bucket. How large it once was is not known: ports that were deleted may have made it
    larger.
    """
    buckets: dict[int, list[int]] = {0: []}
    mask = 0
    for count, port in enumerate(numbers, start=1):
        buckets.setdefault(hash_words(port, 0) & mask, []).insert(0, port)
        if count // 2 > mask:
            mask = _table_mask(count)
            old, buckets = buckets, {}
            for bucket in sorted(old):
                for moved in old[bucket]:
                    buckets.setdefault(hash_words(moved, 0) & mask, []).insert(0, moved)
    return [port for bucket in sorted(buckets) for port in buckets[bucket]]


def _table_mask(count: int) -> int:
    mask = (1 << (count // 2).bit_length()) - 1
    return mask | (mask & 1) << 1
