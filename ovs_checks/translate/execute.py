# SPDX-License-Identifier: Apache-2.0
"""Doing a list of actions, in order (`do_xlate_actions`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ovs_checks.openflow.actions import (
    Action,
    CheckPacketLarger,
    Clone,
    Conjunction,
    Ct,
    DecTtl,
    DeleteField,
    Enqueue,
    Goto,
    Learn,
    Members,
    Meter,
    Move,
    Multipath,
    Nat,
    Plain,
    Pop,
    PopMpls,
    Push,
    PushMpls,
    PushVlan,
    Resubmit,
    Sample,
    SetQueue,
    SetTunnel,
    Subfield,
    ToController,
    ToField,
    ToGroup,
    ToPort,
    ToPortTruncated,
    Unknown,
    Write,
    WriteActions,
    WriteMetadata,
    WriteMpls,
    WritePort,
    WriteTag,
)
from ovs_checks.openflow.describe import hex_text
from ovs_checks.openflow.fields import FIELDS, Field, applies, look, look_at_protocol, read, write
from ovs_checks.openflow.notation import SPECIAL_PORTS
from ovs_checks.openflow.packet import (
    ETH_IPV4,
    ETH_VLAN,
    LATER_FRAGMENT,
    MAX_MPLS,
    SLOTS,
    STAGES,
    TAG_PRESENT,
    TUN_METADATA_LANE,
    dl_type,
    is_ip,
    is_mpls,
)
from ovs_checks.translate.output.normal import normal
from ovs_checks.translate.output.ports import clear_conntrack, compose_output, flood, queue_priority

from . import datapath
from .choose import member, multipath
from .commit import commit
from .conntrack import track
from .context import ACTSET_OUTPUT, METADATA, UNSET, Context
from .freezing import INVALID_TTL, to_controller
from .groups import to_group
from .labels import count_labels, pop_label, pop_tag, push_label, push_tag
from .lookup import check_larger, do_clone, enter
from .origins import trace_origins

_S = SLOTS
_TCI, _TPID, _TYPE = _S["vlan_tci"], _S["vlan_tpid"], _S["eth_type"]
_TTL, _FRAG, _PROTO = _S["nw_ttl"], _S["nw_frag"], _S["nw_proto"]
_PRIORITY, _LSE, _TUN_ID = _S["skb_priority"], _S["mpls_lse"], _S["tun_id"]
_PRESENT, _TUN_METADATA = _S["tun_present"], _S["tun_metadata"]
_PORT = SPECIAL_PORTS

STOP = object()
"""What a handler returns where nothing more of its list is to be done."""


def execute(x: Context, actions: Sequence[Action], last: bool) -> None:
    """Do actions; `last` says that nothing follows them."""
    if not actions:
        x.tell("action", "drop")
        return
    for n, action in enumerate(actions):
        if x.error:
            return
        _freeze_for_mpls(x, action)
        if x.exit:
            if x.freezing:
                x.frozen += _kept(x, actions[n:])
            return
        final = last and n == len(actions) - 1 and not x.action_set
        x.tell("action", action.text or type(action).__name__)
        if isinstance(action, CheckPacketLarger) and x.features.check_packet_length:
            check_larger(x, action, actions[n + 1 :])
            return
        if isinstance(action, ToController):
            final = not any(isinstance(each, _FORWARDING) for each in actions[n + 1 :])
        stop = _HANDLERS[type(action)](x, action, final) is STOP
        if stop:
            return
        if x.rule is not None:
            x.origins = trace_origins(x.origins, x.rule, action)
        if isinstance(action, Resubmit | Goto):
            continue  # done, even if something below it froze
        if _must_keep(x):
            x.frozen += _kept(x, actions[n + _answers_itself(x, action) :])
            return


_FORWARDING = (Resubmit, Goto, ToPort, ToPortTruncated, ToField, ToGroup, Ct, Clone, Members)
"""What takes a packet on of which a controller got a copy, as of one that a policy logs."""


def _must_keep(x: Context) -> bool:
    """Tell whether the action just done froze the packet."""
    return x.exit and x.freezing and not x.error and not x.frozen


def _answers_itself(x: Context, action: Action) -> bool:
    """Tell whether the action is done although it froze, so that what follows is next."""
    debug = isinstance(action, Plain) and action.verb == "debug_recirc"
    return debug or (isinstance(action, ToController) and x.pause is not None)


def _kept(x: Context, actions: Sequence[Action]) -> list[Action]:
    """Return the actions to do after freezing: instructions become actions (`freeze_unroll`)."""
    kept: list[Action] = []
    for action in actions:
        if isinstance(action, Goto):
            kept.append(Resubmit(None, action.table, text=action.text))
        elif isinstance(action, Resubmit) and action.table is None:
            kept.append(replace(action, table=x.table))
        elif not isinstance(action, Conjunction) and not (
            isinstance(action, Plain) and action.verb == "note"
        ):
            kept.append(action)
    return kept


_NO_RECIRCULATION = (
    *(ToPort, ToPortTruncated, Enqueue, ToField, WriteTag, SetTunnel, SetQueue, ToGroup),
)
_L3_SLOT = STAGES[1]


def _freeze_for_mpls(x: Context, action: Action) -> None:
    """Freeze where an action needs to see what a label hid (`recirc_for_mpls`)."""
    if x.exit or not x.was_mpls or isinstance(action, _NO_RECIRCULATION):
        return
    if isinstance(action, Write) and FIELDS[action.field].parts[0].slot < _L3_SLOT:
        return
    x.freeze()


# --- where to ------------------------------------------------------------------------------------


def _to_port(x: Context, action: ToPort, last: bool) -> None:
    _output(x, action.port, action.max_len, last=last)


def _output(x: Context, number: int, max_len: int, *, last: bool, truncate: bool = False) -> None:
    """Send to a port or to what a reserved port stands for (`xlate_output_action`)."""
    if number == _PORT["in_port"]:
        compose_output(x, x.in_port, last=last, truncate=truncate)
    elif number == _PORT["table"]:
        enter(x, 0, x.in_port, last=False)
    elif number == _PORT["normal"]:
        normal(x)
    elif number in {_PORT["flood"], _PORT["all"]}:
        flood(x, every=number == _PORT["all"], last=last)
    elif number == _PORT["controller"]:
        to_controller(x, max_len, 3 if x.in_action_set else 1, 0)
    elif number == _PORT["none"]:
        pass
    elif number != x.in_port:
        compose_output(x, number, last=last, truncate=truncate)
    else:
        x.tell("detail", "skipping output to input port")
        port = x.port(number)
        name = port.name if port else f"port {number}"
        x.excuse(f"{name} is the port that it came in by", name)


def _to_field(x: Context, action: ToField, last: bool) -> None:
    source = action.source
    number = _bits(x, source)
    if number > 0xFFFF:
        x.tell("warn", f"output port {number} is out of range")
        return
    x.tell("detail", f"output port is {number}")
    look(FIELDS[source.field], x.looked, _mask(source))
    _output(x, number, action.max_len, last=last)


def _to_port_truncated(x: Context, action: ToPortTruncated, last: bool) -> None:
    number = action.port
    if number in set(_PORT.values()) - {_PORT["local"], _PORT["in_port"]}:
        x.tell("warn", f"output_trunc does not support port: {number}")
        return
    if number == x.in_port:
        x.tell("detail", "skipping output to input port")
        return
    port = x.port(number)
    if port is None or port.datapath is None:
        x.tell("error", f"output_trunc does not support patch port {number}")
        return
    x.steps.append(datapath.Step(f"trunc({action.max_len})"))
    _output(x, number, 0, last=last, truncate=True)


def _controller(x: Context, action: ToController, last: bool) -> None:
    if action.pause:
        x.pause = action
        x.freeze()
        return
    to_controller(
        x, action.max_len, action.reason, action.controller_id, action.meter_id, takes=last
    )


def _enqueue(x: Context, action: Enqueue, last: bool) -> None:
    x.looked[_PRIORITY] = 0xFFFFFFFF
    number = x.in_port if action.port == _PORT["in_port"] else action.port
    if number == x.in_port and action.port != _PORT["in_port"]:
        return
    saved, x.flow[_PRIORITY] = x.flow[_PRIORITY], queue_priority(x, action.queue)
    compose_output(x, number, last=last)
    x.flow[_PRIORITY] = saved


def _group(x: Context, action: ToGroup, last: bool) -> object:
    return None if to_group(x, action.group, last=last) else STOP


def _resubmit(x: Context, action: Resubmit, last: bool) -> None:
    in_port = x.in_port if action.port is None else action.port
    table = x.table if action.table is None else action.table
    enter(x, table, in_port, last=last, conntrack=action.conntrack)


def _goto(x: Context, action: Goto, last: bool) -> None:
    enter(x, action.table, x.in_port, last=last)


# --- what the packet becomes ---------------------------------------------------------------------


def _mask(subfield: Subfield) -> int:
    return ((1 << subfield.width) - 1) << subfield.start


def _bits(x: Context, subfield: Subfield) -> int:
    value = read(FIELDS[subfield.field], x.flow)
    return value >> subfield.start & (1 << subfield.width) - 1


def _tell_field(x: Context, subfield: Subfield) -> None:
    x.tell("detail", f"{_spell_subfield(subfield)} is now {hex_text(_bits(x, subfield))}")


def _spell_subfield(subfield: Subfield) -> str:
    field, start = FIELDS[subfield.field], subfield.start
    if subfield.width == field.width:
        return f"{field.name}[]"
    if subfield.width == 1:
        return f"{field.name}[{start}]"
    return f"{field.name}[{start}..{start + subfield.width - 1}]"


def _write(x: Context, action: Write, last: bool) -> None:
    field = FIELDS[action.field]
    if not applies(field, x.flow, x.looked):
        x.tell("warn", f"unmet prerequisites for {field.name}, set_field ignored")
        return
    look_at_protocol(field, x.flow, x.looked)
    look(field, x.looked, action.mask)
    write(field, x.flow, action.value, action.mask)


def _write_tag(x: Context, action: WriteTag, last: bool) -> None:
    bits, shift = (0xFFF, 0) if action.part == "vid" else (0xE000, 13)
    x.looked[_TCI] |= bits | TAG_PRESENT
    if x.flow[_TCI] & TAG_PRESENT or action.make:
        x.flow[_TPID] = x.flow[_TPID] or ETH_VLAN
        x.flow[_TCI] = x.flow[_TCI] & ~bits | action.value << shift | TAG_PRESENT


def _write_port(x: Context, action: WritePort, last: bool) -> None:
    if is_ip(x.flow) and not x.flow[_FRAG] & LATER_FRAGMENT:
        x.looked[_PROTO], x.looked[_S[action.field]] = 0xFF, 0xFFFF
        x.flow[_S[action.field]] = action.value


def _write_metadata(x: Context, action: WriteMetadata, last: bool) -> None:
    x.flow[METADATA] = x.flow[METADATA] & ~action.mask | action.value & action.mask


def _set_tunnel(x: Context, action: SetTunnel, last: bool) -> None:
    x.flow[_TUN_ID] = action.value


def _move(x: Context, action: Move, last: bool) -> None:
    source, target = FIELDS[action.source.field], FIELDS[action.target.field]
    if applies(target, x.flow, x.looked) and applies(source, x.flow, x.looked):
        look_at_protocol(target, x.flow, x.looked)
        look(target, x.looked, _mask(action.target))
        look(source, x.looked, _mask(action.source))
        bits = _bits(x, action.source)
        write(target, x.flow, bits << action.target.start, _mask(action.target))
    _tell_field(x, action.target)


def _push(x: Context, action: Push, last: bool) -> None:
    look(FIELDS[action.source.field], x.looked, _mask(action.source))
    x.stack.append((_bits(x, action.source), action.source.width))


def _pop(x: Context, action: Pop, last: bool) -> None:
    if not x.stack:
        x.tell("error", "stack underflow")
        return
    value, _ = x.stack.pop()
    field: Field = FIELDS[action.target.field]
    look(field, x.looked, _mask(action.target))
    write(field, x.flow, value << action.target.start, _mask(action.target))
    _tell_field(x, action.target)


def _push_vlan(x: Context, action: PushVlan, last: bool) -> None:
    push_tag(x.flow, x.looked, action.ethertype, TAG_PRESENT)


def _push_mpls(x: Context, action: PushMpls, last: bool) -> None:
    n = count_labels(x.flow, x.looked)
    if not n:
        commit(x)
    elif n >= MAX_MPLS:
        x.error = "Too many MPLS labels"
        return
    push_label(x.flow, n, action.ethertype, x.looked, clear=True)


def _pop_mpls(x: Context, action: PopMpls, last: bool) -> None:
    n = count_labels(x.flow, x.looked)
    if pop_label(x.flow, n, action.ethertype, x.looked):
        if not is_mpls(action.ethertype) and x.features.recirculation:
            x.was_mpls = True
    elif n >= MAX_MPLS:
        x.error = "Too many MPLS labels"
        x.steps.clear()


_LABEL_BITS = {"label": (0xFFFFF000, 12), "tc": (0xE00, 9), "ttl": (0xFF, 0)}
"""Part of an MPLS label stack entry -> its mask and lowest bit (RFC 3032)."""


def _write_mpls(x: Context, action: WriteMpls, last: bool) -> None:
    if is_mpls(dl_type(x.flow)):
        bits, shift = _LABEL_BITS[action.part]
        x.looked[_LSE] |= bits
        x.flow[_LSE] = x.flow[_LSE] & ~bits | action.value << shift


def _dec_ttl(x: Context, action: DecTtl, last: bool) -> object:
    x.looked[_TTL] = 0xFF
    if not is_ip(x.flow):
        return None
    x.looked[_PROTO] = 0xFF
    if x.flow[_TTL] > 1:
        x.flow[_TTL] -= 1
        return None
    for controller in action.controllers:
        to_controller(x, 0xFFFF, INVALID_TTL, controller)
    version = 4 if x.flow[_TYPE] == ETH_IPV4 else 6
    x.tell("warn", f"IPv{version} decrement TTL exception")
    x.excuse("its time to live ran out")
    return STOP


def _dec_mpls_ttl(x: Context) -> object:
    if is_mpls(x.flow[_TYPE]):
        ttl = x.flow[_LSE] & 0xFF
        x.looked[_LSE] |= 0xFF
        if ttl > 1:
            x.flow[_LSE] -= 1
            return None
        to_controller(x, 0xFFFF, INVALID_TTL, 0)
    x.tell("warn", "MPLS decrement TTL exception")
    x.excuse("its label's time to live ran out")
    return STOP


def _set_queue(x: Context, action: SetQueue, last: bool) -> None:
    x.looked[_PRIORITY] = 0xFFFFFFFF
    x.flow[_PRIORITY] = queue_priority(x, action.queue)


def _delete_field(x: Context, action: DeleteField, last: bool) -> None:
    field = FIELDS[action.field]
    x.flow[_PRESENT] &= ~field.present
    part = field.parts[0]
    x.flow[_TUN_METADATA] &= ~(((1 << TUN_METADATA_LANE) - 1) << part.shift)
    x.tell("detail", f"delete {action.field}")


# --- what decides --------------------------------------------------------------------------------


def _multipath(x: Context, action: Multipath, last: bool) -> None:
    multipath(x, action)
    _tell_field(x, action.target)


def _members(x: Context, action: Members, last: bool) -> None:
    port = member(x, action)
    if action.target is None:
        _output(x, port, 0, last=last)
        return
    field = FIELDS[action.target.field]
    look(field, x.looked, _mask(action.target))
    write(field, x.flow, port << action.target.start, _mask(action.target))
    _tell_field(x, action.target)


def _learn(x: Context, action: Learn, last: bool) -> None:
    for spec in action.specs:
        if spec.source is not None:
            look(FIELDS[spec.source.field], x.looked, _mask(spec.source))
    x.tell("warn", "suppressing side effects, so learn action ignored")


def _conjunction(x: Context, action: Conjunction, last: bool) -> None:
    x.tell("error", "executing no-op conjunction action")


def _write_actions(x: Context, action: WriteActions, last: bool) -> None:
    for one in action.inner:
        if isinstance(one, Unknown):
            raise x.give_up(f"action not understood (column {one.column}): {one.text}")
    if not x.action_set_has_group:
        for one in action.inner:
            if isinstance(one, ToPort):
                x.flow[ACTSET_OUTPUT] = one.port
            elif isinstance(one, ToGroup):
                x.flow[ACTSET_OUTPUT], x.action_set_has_group = UNSET, True
                break
    x.action_set += action.inner


def _meter(x: Context, action: Meter, last: bool) -> None:
    if action.meter in x.bridge.meters:
        x.steps.append(datapath.Step(f"meter({x.bridge.meters.index(action.meter)})"))


_ALWAYS = 0xFFFF
"""Probability of `sample` that takes every packet: 16 bits of ones (`nicira-ext.h`,
`NXAST_SAMPLE`)."""


def _sample(x: Context, action: Sample, last: bool) -> None:
    """Show packets to a collector (`xlate_sample_action`), if the bridge has one."""
    if not x.bridge.collects:
        return
    number = 0xFFFFFFFF
    if action.sampling_port not in {_PORT["none"], x.in_port}:
        port = x.port(action.sampling_port)
        if port is None or port.datapath is None:
            what = f"can't use unknown port {action.sampling_port} in flow sample action"
            x.tell("error", what)
            return
        if port.is_tunnel:
            raise x.give_up(f"samples of what leaves by tunnel {port.name}")
        number = port.datapath
    commit(x)
    direction = f",{action.direction}" if action.direction else ""
    told = (
        f"userspace(pid=0,flow_sample(probability={action.probability},"
        f"collector_set_id={action.collector_set_id},obs_domain_id={action.obs_domain_id},"
        f"obs_point_id={action.obs_point_id},output_port={number}{direction}))"
    )
    if action.probability < _ALWAYS:
        share = 100 * (action.probability << 16 | action.probability) / 0xFFFFFFFF
        told = f"sample(sample={share:.1f}%,actions({told}))"
    if action.probability:
        x.steps.append(datapath.Step(told, 72, "userspace"))


def _ct(x: Context, action: Ct, last: bool) -> None:
    track(x, action, last=last)


def _nat(x: Context, action: Nat, last: bool) -> None:
    x.nat = action


def _clone(x: Context, action: Clone, last: bool) -> None:
    do_clone(x, action, last)


def _larger(x: Context, action: CheckPacketLarger, last: bool) -> None:
    x.slow.add("action")
    field = FIELDS[action.target.field]
    write(field, x.flow, 0, _mask(action.target))


def _unknown(x: Context, action: Unknown, last: bool) -> None:
    raise x.give_up(f"action not understood (column {action.column}): {action.text}")


def _plain(x: Context, action: Plain, last: bool) -> object:
    match action.verb:
        case "pop_vlan":
            pop_tag(x.flow, x.looked)
        case "dec_mpls_ttl":
            return _dec_mpls_ttl(x)
        case "ct_clear":
            if x.conntracked:
                x.conntracked = False
                clear_conntrack(x.flow)
                if x.features.ct_clear:
                    x.steps.append(datapath.Step("ct_clear", 4))
        case "clear_actions":
            x.action_set, x.action_set_has_group = [], False
            x.flow[ACTSET_OUTPUT] = UNSET
        case "exit":
            x.exit = True
        case "pop_queue":
            x.looked[_PRIORITY] = 0xFFFFFFFF
            x.flow[_PRIORITY] = x.priority
        case "fin_timeout":
            x.looked[_PROTO] = 0xFF
        case "debug_recirc":
            x.freeze()
        case "debug_slow":
            x.slow.add("action")
    return None


_HANDLERS: Mapping[type[Action], Callable[..., object]] = {
    ToPort: _to_port,
    ToField: _to_field,
    ToPortTruncated: _to_port_truncated,
    ToController: _controller,
    Enqueue: _enqueue,
    ToGroup: _group,
    Resubmit: _resubmit,
    Goto: _goto,
    Write: _write,
    WriteTag: _write_tag,
    WritePort: _write_port,
    WriteMetadata: _write_metadata,
    SetTunnel: _set_tunnel,
    Move: _move,
    Push: _push,
    Pop: _pop,
    PushVlan: _push_vlan,
    PushMpls: _push_mpls,
    PopMpls: _pop_mpls,
    WriteMpls: _write_mpls,
    DecTtl: _dec_ttl,
    SetQueue: _set_queue,
    DeleteField: _delete_field,
    Multipath: _multipath,
    Members: _members,
    Learn: _learn,
    Conjunction: _conjunction,
    WriteActions: _write_actions,
    Meter: _meter,
    Sample: _sample,
    Ct: _ct,
    Nat: _nat,
    Clone: _clone,
    CheckPacketLarger: _larger,
    Unknown: _unknown,
    Plain: _plain,
}
