# SPDX-License-Identifier: Apache-2.0
"""Random small pipelines and packets that have a fair chance to meet each other.

Between them they use every field and every action that the translation knows. Flows are valid by
construction: Open vSwitch refuses to set a field that the match does not make sure of.
"""

import re

from hypothesis import strategies as st

TABLES = range(5)
PORTS = range(1, 5)
GROUPS = range(1, 7)
MACS = ("00:00:00:00:00:01", "00:00:00:00:00:02", "01:00:00:00:00:03", "ff:ff:ff:ff:ff:ff")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.1.1")
ADDRESSES6 = ("fe80::1", "fe80::2", "2001:db8::1:1")

port = st.sampled_from(PORTS)
small = st.integers(0, 3)
mac = st.sampled_from(MACS)
address = st.sampled_from(ADDRESSES)
address6 = st.sampled_from(ADDRESSES6)
register = st.sampled_from(("reg0", "reg1", "reg2", "reg15"))


def _each(form: str, values: st.SearchStrategy[object]) -> st.SearchStrategy[str]:
    return st.builds(form.format, values)


# --- matches -------------------------------------------------------------------------------------

_ANY = (
    _each("in_port={}", port),
    _each("dl_dst={}", mac),
    st.just("dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"),
    _each("dl_src={}/00:00:00:00:00:03", mac),
    st.builds("{}={:#x}".format, register, small),
    st.builds("{}={:#x}/{:#x}".format, register, small, st.integers(1, 3)),
    _each("metadata={:#x}", small),
    st.builds("metadata={:#x}/{:#x}".format, small, st.integers(1, 3)),
    st.builds("xreg0={:#x}/{:#x}".format, small, st.integers(1, 2**33)),
    st.builds("xxreg0={:#x}/{:#x}".format, small, st.integers(1, 2**70)),
    st.sampled_from(("vlan_tci=0x0000", "vlan_tci=0x1000/0x1000", "dl_vlan=5")),
    st.builds("dl_vlan={},dl_vlan_pcp={}".format, st.sampled_from((5, 6)), small),
    _each("pkt_mark={:#x}", small),
    st.builds("pkt_mark={:#x}/{:#x}".format, small, st.integers(1, 3)),
    _each("tun_id={:#x}", small),
    _each("tun_src={}", address),
    _each("tun_metadata0={:#x}", small),
    st.sampled_from(("tun_flags=+oam", "tun_flags=-oam", "actset_output=2")),
)
_IP = (
    _each("nw_tos={}", st.sampled_from((0, 4, 32))),
    _each("nw_ecn={}", small),
    _each("nw_ttl={}", small),
    _each("nw_frag={}", st.sampled_from(("no", "yes", "first", "later", "not_later"))),
    st.sampled_from(("ct_state=+trk+new", "ct_state=-trk", "ct_state=+trk-est-inv")),
    _each("ct_zone={}", small),
    st.builds("ct_mark={:#x}/{:#x}".format, small, st.integers(1, 3)),
    st.builds("ct_label={:#x}/{:#x}".format, small, st.integers(1, 2**66)),
)
_IPV4 = (
    *_IP,
    _each("nw_dst={}", address),
    st.builds("nw_src={}/{}".format, address, st.sampled_from((8, 24, 31, 32))),
    _each("nw_dst={}/0.0.1.3", address),
    st.builds("nw_dst={}/{}".format, address, st.sampled_from((16, 24, 31))),
)
_IPV6 = (
    *_IP,
    _each("ipv6_dst={}", address6),
    st.builds("ipv6_src={}/{}".format, address6, st.sampled_from((10, 64, 127))),
    _each("ipv6_dst={}/::3", address6),
    _each("ipv6_label={:#x}", small),
)
_L4 = (
    _each("tp_dst={}", st.sampled_from((80, 81))),
    st.builds("tp_src={:#x}/{:#x}".format, small, st.integers(1, 3)),
    st.builds("tp_dst={:#x}/{:#x}".format, small, st.sampled_from((0xFFF0, 0xFFFC, 1))),
)
_FLAGS = st.sampled_from(("tcp_flags=+syn-ack", "tcp_flags=syn|ack", "tcp_flags=0x2/0x3"))
_ARP = (
    _each("arp_op={}", st.integers(1, 2)),
    _each("arp_tpa={}", address),
    _each("arp_spa={}/24", address),
    _each("arp_sha={}", mac),
)
_MPLS = (
    _each("mpls_label={}", small),
    _each("mpls_tc={}", small),
    _each("mpls_bos={}", st.integers(0, 1)),
    _each("mpls_ttl={}", small),
)
FAMILIES = {
    "": _ANY,
    "ip": _ANY + _IPV4,
    "udp": _ANY + _IPV4 + _L4,
    "tcp": (*_ANY, *_IPV4, *_L4, _FLAGS),
    "sctp": _ANY + _IPV4 + _L4,
    "icmp": (*_ANY, *_IPV4, _each("icmp_type={}", st.sampled_from((0, 8)))),
    "ipv6": _ANY + _IPV6,
    "udp6": _ANY + _IPV6 + _L4,
    "tcp6": (*_ANY, *_IPV6, *_L4, _FLAGS),
    "icmp6": (*_ANY, *_IPV6, _each("icmpv6_type={}", st.sampled_from((128, 135)))),
    "icmp6,icmpv6_type=135,icmpv6_code=0": (
        *_ANY,
        _each("nd_target={}", address6),
        _each("nd_sll={}", mac),
    ),
    "arp": _ANY + _ARP,
    "mpls": _ANY + _MPLS,
    "vlan_tci=0x1000/0x1000": (_each("in_port={}", port), _each("dl_dst={}", mac)),
}

# --- actions -------------------------------------------------------------------------------------

_HASHES = ("eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "nw_src", "nw_dst")
_OUT = (
    _each("output:{}", port),
    st.sampled_from(("in_port", "normal", "flood", "all", "local", "controller")),
    _each("group:{}", st.sampled_from(GROUPS)),
)
_ANY_ACTIONS = (
    *_OUT,
    st.just("output:9"),
    _each("resubmit(,{})", st.sampled_from(TABLES)),
    st.builds("resubmit({},{})".format, port, st.sampled_from(TABLES)),
    _each("resubmit({},)", port),
    st.builds("load:{}->NXM_NX_REG0[{}..{}]".format, st.integers(0, 1), small, st.just(5)),
    st.builds(
        "set_field:{}->{}".format, st.sampled_from(("0x3", "0/0x1", "0x1/0x3", "0x2/0x2")), register
    ),
    _each("set_field:{:#x}->metadata", small),
    _each("set_field:{}->pkt_mark", st.sampled_from(("0x3", "0/0x1", "0x1/0x3", "0x2/0x2"))),
    _each("set_field:{:#x}->tun_id", small),
    _each("set_field:{}->tun_dst", address),
    _each("set_field:{:#x}->tun_metadata0", small),
    _each("set_field:{}->eth_dst", mac),
    st.just("set_field:00:00:00:00:00:09/00:00:00:00:ff:ff->eth_src"),
    st.builds("output(port={},max_len={})".format, port, st.integers(64, 70)),
    st.builds(
        "push_vlan:{},set_field:{}->vlan_vid".format,
        st.sampled_from(("0x8100", "0x88a8")),
        st.sampled_from((4101, 4102)),
    ),
    st.sampled_from(
        (
            "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
            "move:NXM_NX_REG1[0..1]->NXM_NX_REG2[1..2]",
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
            "move:NXM_OF_ETH_SRC[0..7]->NXM_OF_ETH_DST[8..15]",
            "move:NXM_OF_IN_PORT[]->NXM_NX_REG2[0..15]",
            "move:OXM_OF_PKT_REG0[]->OXM_OF_PKT_REG1[]",
            "move:NXM_NX_XXREG0[]->NXM_NX_XXREG1[]",
            "set_field:0->in_port",
            "output:NXM_NX_REG2[0..15]",
            "push_vlan:0x8100,pop_vlan",
            "note:01.02",
            "exit",
            "controller(reason=no_match,max_len=128,id=3)",
            "set_queue:1",
            "pop_queue",
            "enqueue:2:3",
            "push:NXM_NX_REG0[]",
            "push:NXM_OF_ETH_SRC[0..15]",
            "pop:NXM_NX_REG1[0..15]",
            "pop:NXM_OF_ETH_DST[]",
            "ct_clear",
            "clone(set_field:0x7->reg1,output:2)",
            "clone(output(port=3,max_len=70),resubmit(,3))",
            "check_pkt_larger(100)->NXM_NX_REG0[0]",
            "learn(table=9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:0x5->NXM_NX_REG1[])",
            "sample(probability=3,collector_set_id=1,obs_domain_id=2,obs_point_id=3)",
            "delete_field:tun_metadata0",
            "push_mpls:0x8847",
        )
    ),
    st.builds(
        "multipath({},{},{},3,0,NXM_NX_REG2[0..7])".format,
        st.sampled_from(_HASHES),
        small,
        st.sampled_from(("modulo_n", "hash_threshold", "hrw", "iter_hash")),
    ),
    st.builds(
        "bundle({},{},{},ofport,members:2,3)".format,
        st.sampled_from(_HASHES),
        small,
        st.sampled_from(("hrw", "active_backup")),
    ),
    st.builds(
        "bundle_load({},0,hrw,ofport,NXM_NX_REG2[0..15],members:2,3)".format,
        st.sampled_from(_HASHES),
    ),
)
_CT = st.builds(
    "ct({}{}{}{}{})".format,
    st.sampled_from(("", "commit,", "commit,force,")),
    st.sampled_from(("", "zone=5,", "zone=NXM_NX_REG0[0..15],")),
    st.sampled_from(("", "table=6,", "table=7,")),
    st.sampled_from(("", "nat,")),
    st.just(""),
) | st.builds(
    "ct(commit,{}{}exec({}))".format,
    st.sampled_from(("", "nat(src=10.9.9.1-10.9.9.9:5-9,random),", "nat(dst=10.9.9.7),")),
    st.sampled_from(("", "table=6,")),
    st.sampled_from(
        ("set_field:0x1->ct_mark", "set_field:0x1/0x3->ct_mark", "set_field:0x5->ct_label",
         "load:0x1->NXM_NX_CT_LABEL[3]", "move:NXM_NX_REG0[]->NXM_NX_CT_MARK[]")
    ),
)  # fmt: skip
_CT6 = st.sampled_from(
    ("ct(commit,nat(src=fe80::9-fe80::a),table=6)", "ct(commit,nat(dst=[fe80::9]:80),table=7)",
     "ct(table=6)", "ct(commit,zone=3)")
)  # fmt: skip
_IP_ACTIONS = (
    st.just("dec_ttl"),
    st.just("dec_ttl(1,2)"),
    _each("set_field:{}->nw_ttl", small),
    _each("set_field:{}->ip_dscp", small),
    _each("set_field:{}->nw_ecn", small),
)
_IPV4_ACTIONS = (
    *_IP_ACTIONS,
    _CT,
    _each("set_field:{}->ip_dst", address),
    st.just("set_field:0.0.0.7/0.0.0.255->ip_src"),
    st.just("move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]"),
    st.just("move:NXM_OF_IP_DST[0..15]->NXM_NX_REG1[0..15]"),
)
_IPV6_ACTIONS = (
    *_IP_ACTIONS,
    _CT6,
    _each("set_field:{}->ipv6_dst", address6),
    st.just("set_field:::7/::ff->ipv6_src"),
    _each("set_field:{}->ipv6_label", small),
    st.just("move:NXM_NX_IPV6_SRC[0..31]->NXM_NX_REG1[]"),
)


def _ports(protocol: str) -> tuple[st.SearchStrategy[str], ...]:
    return (
        st.just(f"set_field:81->{protocol}_dst"),
        st.just(f"set_field:3/0xf->{protocol}_src"),
        st.just(f"move:NXM_NX_REG0[0..15]->OXM_OF_{protocol.upper()}_DST[]"),
    )


ACTIONS = {
    "": _ANY_ACTIONS,
    "ip": _ANY_ACTIONS + _IPV4_ACTIONS,
    "udp": _ANY_ACTIONS + _IPV4_ACTIONS + _ports("udp"),
    "tcp": (*_ANY_ACTIONS, *_IPV4_ACTIONS, *_ports("tcp"), st.just("fin_timeout(idle_timeout=5)")),
    "sctp": _ANY_ACTIONS + _IPV4_ACTIONS + _ports("sctp"),
    "icmp": (*_ANY_ACTIONS, *_IPV4_ACTIONS, st.just("set_field:3->icmp_type")),
    "ipv6": _ANY_ACTIONS + _IPV6_ACTIONS,
    "udp6": _ANY_ACTIONS + _IPV6_ACTIONS + _ports("udp"),
    "tcp6": _ANY_ACTIONS + _IPV6_ACTIONS + _ports("tcp"),
    "icmp6": (*_ANY_ACTIONS, *_IPV6_ACTIONS, st.just("set_field:1->icmpv6_code")),
    "icmp6,icmpv6_type=135,icmpv6_code=0": (
        *_ANY_ACTIONS,
        *_IPV6_ACTIONS,
        _each("set_field:{}->nd_target", address6),
        _each("set_field:{}->nd_sll", mac),
    ),
    "arp": (
        *_ANY_ACTIONS,
        st.just("move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]"),
        st.just("set_field:2->arp_op"),
        _each("set_field:{}->arp_sha", mac),
    ),
    "mpls": (
        *_ANY_ACTIONS,
        st.sampled_from(("pop_mpls:0x8847", "pop_mpls:0x0800", "dec_mpls_ttl")),
        _each("set_field:{}->mpls_label", small),
        _each("set_field:{}->mpls_tc", small),
        _each("set_mpls_ttl({})", small),
    ),
    "vlan_tci=0x1000/0x1000": (
        *_ANY_ACTIONS,
        st.sampled_from(("pop_vlan", "set_field:4103->vlan_vid", "set_field:3->vlan_pcp")),
        st.just("pop_vlan,output:2"),
    ),
}
_INSTRUCTIONS = st.sampled_from(
    ("clear_actions", "write_actions(output:2)", "write_actions(set_field:0x3->reg1,output:3)",
     "write_actions(group:3)", "write_metadata:0x1/0x3")
)  # fmt: skip


@st.composite
def actions_of(draw: st.DrawFn, family: str, table: int) -> list[str]:
    """Rewrite this and that, then mostly send out or go to a later table."""
    onwards = _each("resubmit(,{})", st.integers(table + 1, TABLES.stop))
    onwards = st.one_of(onwards, *_OUT) if table < TABLES[-1] else st.one_of(*_OUT)
    before = draw(st.lists(st.one_of(*ACTIONS[family]), max_size=3))
    pushed = "push_mpls:0x8847" in before
    done = before + draw(st.lists(onwards, min_size=not before, max_size=2))
    if pushed:  # what comes after must do without the fields that the label hides
        done = [
            one for one in done if one in _LABEL_SAFE or one.startswith(("output:", "resubmit"))
        ]
    if draw(st.integers(0, 5)) == 0:
        done.append(draw(_INSTRUCTIONS))
        if draw(st.booleans()) and table < TABLES[-1]:
            done.append(f"goto_table:{draw(st.integers(table + 1, TABLES[-1]))}")
    return done


_LABEL_SAFE = frozenset({"push_mpls:0x8847", "exit", "in_port", "flood", "all", "local"})


@st.composite
def flows(draw: st.DrawFn, table: int) -> str:
    """One flow of `table` as ovs-ofctl takes it, without its priority."""
    family = draw(st.sampled_from(("", "", *FAMILIES)))
    fields = draw(
        st.lists(st.one_of(*FAMILIES[family]), max_size=3, unique_by=lambda f: f.split("=")[0])
    )
    names = {part.split("=")[0] for field in fields for part in field.split(",")}
    registers = {name for name in names if "reg" in name}
    tags = {"dl_vlan", "vlan_tci"} & names
    if len(tags) > 1 or len(registers) > 1 or (family in _FIXED and names & _FIXED[family]):
        fields = fields[:1]
        names = {part.split("=")[0] for part in fields}
        if family in _FIXED and names & _FIXED[family]:
            fields = []
    if "nw_frag=later" in fields:  # it has no ports, and Open vSwitch says so
        fields = ["nw_frag=later"]
    actions = draw(actions_of(family, table) | st.just(["drop"]))
    match = ",".join(filter(None, [family, *fields]))
    return f"table={table},{match} actions={','.join(actions)}"


_FIXED = {"icmp6,icmpv6_type=135,icmpv6_code=0": {"icmpv6_type"}}


@st.composite
def conjunctions(draw: st.DrawFn, table: int) -> list[str]:
    """Draw a conjunctive match: flows that are its conditions, and what it does."""
    number, done = draw(st.integers(1, 2)), ",".join(draw(actions_of("ip", table)))
    return [
        f"table={table},ip,nw_src={draw(address)} actions=conjunction({number},1/2)",
        f"table={table},ip,nw_dst={draw(address)} actions=conjunction({number},2/2)",
        f"table={table},ip,conj_id={number} actions={done}",
    ]


_TAG_ON = "push_vlan:0x8100,set_field:4101->vlan_vid,normal"
_TRACKED = st.builds(
    "table={},{} actions={}".format,
    st.sampled_from((6, 7)),
    st.sampled_from(
        ("ct_state=+trk+new,ip", "ct_state=+trk,ipv6", "ct_zone=5,ip", "ct_mark=0x1/0x1,ip",
         "ct_label=0x5,ip", "ip,nw_src=10.9.9.0/24", "ip,nw_dst=10.9.9.7", "reg0=0x1", "")
    ),
    st.sampled_from(
        ("output:2", "set_field:0x7->reg1,in_port,flood", _TAG_ON, "output:4",
        "group:3", "ct_clear,output:1", "write_actions(output:3)", "drop")
    ),
)  # fmt: skip


_FREEZES = ("group:1", "pop_mpls:0x0800", "table=6", "table=7")
_WRITES = r"([ ,])(?:clear_actions|write_actions\([^()]*\))"
"""Open vSwitch 3.1 dies of an assertion when it freezes a packet that has an action set."""


@st.composite
def tracked(draw: st.DrawFn) -> list[str]:
    """Tables that packets go on in after connection tracking; nothing leads back from them."""
    again = (
        "table=6,ip,priority={} actions=ct(commit,table=7,zone=3)" if draw(st.booleans()) else ""
    )
    found = draw(st.lists(_TRACKED, max_size=4))
    return found + ([again.replace(",priority={}", "")] if again else [])


@st.composite
def pipelines(draw: st.DrawFn) -> list[str]:
    """Flows of distinct priorities, or of two only.

    Of several that match and have one priority, Open vSwitch takes one by the order of its masks.
    Most tables end in a flow that matches everything, or few packets would get anywhere. The
    conditions of a conjunctive match have one priority; what they lead to is above them.
    """
    drawn: list[list[str]] = []
    for table in TABLES:
        if draw(st.integers(0, 3)):
            drawn.append([f"table={table} actions={','.join(draw(actions_of('', table)))}"])
        drawn += [[flow] for flow in draw(st.lists(flows(table), max_size=3))]
        if not draw(st.integers(0, 9)):
            one, other, result = draw(conjunctions(table))
            drawn += [[one, other], [result]]
    drawn += [[flow] for flow in draw(tracked())]
    if any(word in flow for same in drawn for flow in same for word in _FREEZES):
        drawn = [[re.sub(_WRITES, r"\1note:01", flow) for flow in same] for same in drawn]
    steps = draw(st.sampled_from((1, 1, 1, len(drawn))))
    return [
        f"priority={1 + n // steps},cookie={n:#x},{flow}"
        for n, same in enumerate(drawn, start=1)
        for flow in same
    ]


# --- packets -------------------------------------------------------------------------------------

_vlan = st.sampled_from(("", "", ",vlan_tci=0x1005", ",vlan_tci=0x3006"))
_ARRIVED = ",tun_id=0x1,tun_src=10.0.0.1,tun_dst=10.0.0.2"
_more = st.sampled_from(
    ("", "", "", ",metadata=0x1", ",reg0=0x1", ",pkt_mark=0x2", _ARRIVED,
     ",tun_metadata0=0x1,tun_dst=10.0.0.2")
)  # fmt: skip
_l2 = st.builds("in_port={},dl_src={},dl_dst={}{}{}".format, port, mac, mac, _vlan, _more)
_ip = st.builds(
    "nw_tos={},nw_ecn={},nw_ttl={}".format, st.sampled_from((0, 4, 32)), small, st.integers(0, 3)
)
_l3 = st.builds("nw_src={},nw_dst={},{}".format, address, address, _ip)
_l3v6 = st.builds("ipv6_src={},ipv6_dst={},ipv6_label={:#x},{}".format, address6, address6, small,
                  _ip)  # fmt: skip
_l4 = st.integers(0, 3) | st.sampled_from((80, 81))
packets = st.one_of(
    st.builds("udp,{},{},udp_src={},udp_dst={}".format, _l2, _l3, _l4, _l4),
    st.builds("udp,{},{},nw_frag=later".format, _l2, _l3),
    st.builds("udp,{},{},nw_frag=first,udp_dst={}".format, _l2, _l3, _l4),
    st.builds("tcp,{},{},tcp_dst={},tcp_flags={:#x}".format, _l2, _l3, _l4, st.integers(0, 31)),
    st.builds("sctp,{},{},sctp_src={},sctp_dst={}".format, _l2, _l3, _l4, _l4),
    st.builds("icmp,{},{},icmp_type={}".format, _l2, _l3, st.sampled_from((0, 8))),
    st.builds("ip,{},{},nw_proto={}".format, _l2, _l3, st.sampled_from((2, 50))),
    st.builds("udp6,{},{},udp_src={},udp_dst={}".format, _l2, _l3v6, _l4, _l4),
    st.builds("tcp6,{},{},tcp_src={},tcp_dst={}".format, _l2, _l3v6, _l4, _l4),
    st.builds("icmp6,{},{},icmpv6_type={}".format, _l2, _l3v6, st.sampled_from((128, 135))),
    st.builds(
        "icmp6,{},{},icmpv6_type=135,icmpv6_code=0,nd_target={},nd_sll={}".format,
        *(_l2, _l3v6, address6, mac),
    ),
    st.builds(
        "arp,{},arp_op={},arp_spa={},arp_tpa={},arp_sha={}".format,
        *(_l2, st.integers(1, 2), address, address, mac),
    ),
    st.builds(
        "mpls,{},mpls_label={},mpls_tc={},mpls_ttl={},mpls_bos={}".format,
        *(_l2, small, small, small, st.integers(0, 1)),
    ),
    st.builds("{}".format, _l2),
)
