# SPDX-License-Identifier: Apache-2.0
"""Random small pipelines and packets that have a fair chance to meet each other."""

from hypothesis import strategies as st

TABLES = range(5)
PORTS = range(1, 5)
MACS = ("00:00:00:00:00:01", "00:00:00:00:00:02", "01:00:00:00:00:03")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.1.1")

port = st.sampled_from(PORTS)
small = st.integers(0, 3)
register = st.sampled_from(("reg0", "reg1", "reg2"))

_any_field = st.one_of(
    st.builds("in_port={}".format, port),
    st.builds("dl_dst={}".format, st.sampled_from(MACS)),
    st.just("dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"),
    st.builds("{}={:#x}".format, register, small),
    st.builds("{}={:#x}/{:#x}".format, register, small, st.integers(1, 3)),
    st.builds("metadata={:#x}".format, small),
    st.builds("xreg0={:#x}/{:#x}".format, small, st.integers(1, 2**33)),
    st.sampled_from(("vlan_tci=0x0000", "vlan_tci=0x1000/0x1000", "dl_vlan=5")),
    st.builds("dl_vlan={},dl_vlan_pcp={}".format, st.sampled_from((5, 6)), small),
    st.builds("pkt_mark={:#x}".format, small),
)
_ip_field = st.one_of(
    st.builds("nw_dst={}".format, st.sampled_from(ADDRESSES)),
    st.builds("nw_src={}/{}".format, st.sampled_from(ADDRESSES), st.sampled_from((24, 31, 32))),
    st.builds("nw_dst={}/0.0.1.3".format, st.sampled_from(ADDRESSES)),
    st.builds("nw_tos={}".format, st.sampled_from((0, 4, 32))),
    st.builds("nw_ecn={}".format, small),
    st.builds("nw_ttl={}".format, st.integers(0, 3)),
)
_frag_field = st.builds("nw_frag={}".format, st.sampled_from(("no", "first", "later", "not_later")))
_l4_field = st.one_of(
    st.builds("tp_dst={}".format, st.sampled_from((80, 81))),
    st.builds("tp_src={:#x}/{:#x}".format, small, st.integers(1, 3)),
)
_arp_field = st.one_of(
    st.builds("arp_op={}".format, st.integers(1, 2)),
    st.builds("arp_tpa={}".format, st.sampled_from(ADDRESSES)),
    st.builds("arp_sha={}".format, st.sampled_from(MACS)),
)
_FIELDS = {
    "": _any_field,
    "ip": _any_field | _ip_field | _frag_field,
    "udp": _any_field | _ip_field | _l4_field,
    "tcp": _any_field | _ip_field | _l4_field | st.sampled_from(("tcp_flags=+syn-ack",)),
    "arp": _any_field | _arp_field,
}

_any_action = st.one_of(
    st.builds("output:{}".format, port | st.sampled_from((9,))),
    st.builds("resubmit(,{})".format, st.sampled_from(TABLES)),
    st.builds("resubmit({},{})".format, port, st.sampled_from(TABLES)),
    st.builds("resubmit({},)".format, port),
    st.builds(
        "load:{:#x}->NXM_NX_{}[{}..{}]".format, small, st.just("REG0"), st.just(0), small
    ).filter(lambda text: int(text.split(":")[1].split("-")[0], 16) < 2 ** (1 + int(text[-2]))),
    st.builds("set_field:{:#x}/{:#x}->{}".format, small, st.just(3), register),
    st.builds("set_field:{:#x}->metadata".format, small),
    st.builds("set_field:{:#x}->pkt_mark".format, small),
    st.builds("set_field:{}->eth_dst".format, st.sampled_from(MACS)),
    st.sampled_from(
        (
            "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
            "move:NXM_NX_REG1[0..1]->NXM_NX_REG2[1..2]",
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
            "move:NXM_OF_IN_PORT[]->NXM_NX_REG2[0..15]",
            "move:OXM_OF_PKT_REG0[]->OXM_OF_PKT_REG1[]",
            "set_field:0->in_port",
            "output:NXM_NX_REG2[0..15]",
            "in_port",
            "normal",
            "flood",
            "all",
            "local",
            "push_vlan:0x8100",
            "note:01.02",
            "exit",
            "controller",
            "set_queue:1",
            "pop_queue",
            "ct_clear",
        )
    ),
)
_ip_action = st.one_of(
    st.just("dec_ttl"),
    st.builds("set_field:{}->ip_dst".format, st.sampled_from(ADDRESSES)),
    st.builds("mod_nw_tos:{}".format, st.sampled_from((0, 4, 32))),
    st.just("move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]"),
    st.just("move:NXM_OF_IP_DST[]->NXM_NX_REG1[]"),
)
_ACTIONS = {
    "": _any_action,
    "ip": _any_action | _ip_action,
    "udp": _any_action | _ip_action | st.just("set_field:81->udp_dst"),
    "tcp": _any_action | _ip_action | st.just("set_field:81->tcp_dst"),
    "arp": _any_action | st.just("move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]"),
}


@st.composite
def actions_of(draw: st.DrawFn, family: str, table: int) -> list[str]:
    """Rewrite this and that, then mostly send out or go to a later table."""
    onwards = st.builds("resubmit(,{})".format, st.integers(table + 1, TABLES.stop))
    out = st.builds("output:{}".format, port) | st.sampled_from(("normal", "flood", "in_port"))
    onwards = st.one_of(onwards, out) if table < TABLES[-1] else out
    before = draw(st.lists(_ACTIONS[family], max_size=3))
    return before + draw(st.lists(onwards, min_size=not before, max_size=2))


@st.composite
def flows(draw: st.DrawFn, table: int) -> str:
    """One flow of `table` as ovs-ofctl takes it, without its priority."""
    family = draw(st.sampled_from(("", "", *_FIELDS)))
    fields = draw(st.lists(_FIELDS[family], max_size=2, unique_by=lambda f: f.split("=")[0]))
    names = {part.split("=")[0] for field in fields for part in field.split(",")}
    if len({"dl_vlan", "vlan_tci"} & names) > 1 or ({"xreg0"} & names and {"reg0", "reg1"} & names):
        fields = fields[:1]
    actions = draw(actions_of(family, table) | st.just(["drop"]))
    match = ",".join(filter(None, [family, *fields]))
    return f"table={table},{match} actions={','.join(actions)}"


@st.composite
def pipelines(draw: st.DrawFn) -> list[str]:
    """Flows of distinct priorities, for Open vSwitch leaves open which of two equal ones wins.

    Most tables end in a flow that matches everything, or few packets would get anywhere.
    """
    drawn = []
    for table in TABLES:
        if draw(st.integers(0, 3)):
            drawn.append(f"table={table} actions={','.join(draw(actions_of('', table)))}")
        drawn += draw(st.lists(flows(table), max_size=3))
    return [f"priority={n},cookie={n:#x},{flow}" for n, flow in enumerate(drawn, start=1)]


_vlan = st.sampled_from(("", ",vlan_tci=0x1005", ",vlan_tci=0x3006"))
_l2 = st.builds(
    "in_port={},dl_src={},dl_dst={}{}".format,
    port,
    st.sampled_from(MACS[:2]),
    st.sampled_from(MACS),
    _vlan,
)
_l3 = st.builds(
    "nw_src={},nw_dst={},nw_tos={},nw_ecn={},nw_ttl={}".format,
    st.sampled_from(ADDRESSES),
    st.sampled_from(ADDRESSES),
    st.sampled_from((0, 4, 32)),
    small,
    st.integers(0, 3),
)
_l4_port = st.integers(0, 3) | st.sampled_from((80, 81))
packets = st.one_of(
    st.builds("udp,{},{},udp_src={},udp_dst={}".format, _l2, _l3, _l4_port, _l4_port),
    st.builds("udp,{},{},nw_frag=later".format, _l2, _l3),
    st.builds("udp,{},{},nw_frag=first,udp_dst={}".format, _l2, _l3, _l4_port),
    st.builds("tcp,{},{},tcp_dst={},tcp_flags={:#x}".format, _l2, _l3, _l4_port, st.just(2)),
    st.builds("icmp,{},{},icmp_type={},icmp_code=0".format, _l2, _l3, st.sampled_from((0, 8))),
    st.builds(
        "arp,{},arp_op={},arp_spa={},arp_tpa={},arp_sha={}".format,
        _l2,
        st.integers(1, 2),
        st.sampled_from(ADDRESSES),
        st.sampled_from(ADDRESSES),
        st.sampled_from(MACS[:2]),
    ),
    st.builds("dl_type=0x1234,{}".format, _l2),
)
