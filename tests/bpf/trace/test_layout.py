# SPDX-License-Identifier: Apache-2.0
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.btf import Btf
from bpf.trace.layout import (
    FLAGS,
    KERNEL,
    SWITCH,
    Layout,
    define_of,
    from_data,
    read_layout,
    to_data,
)
from netagent.model.errors import RemoteProtocolError
from tests.bpf.blobs import Blob


def blob_of(fields, blob=None, **enums) -> Blob:
    """Return BTF with these (struct, member), eight bytes apart, and these enums."""
    blob = blob or Blob()
    structs: dict[str, list[str]] = {}
    for struct, member in fields:
        structs.setdefault(struct, []).append(member)
    for struct, members in structs.items():
        blob.record(struct, [(name, 1, 64 * (1 + index)) for index, name in enumerate(members)])
    for name, values in enums.items():
        blob.enum(name, values)
    return blob


PRIVATE = {name: 1 << (10 + index) for index, name in enumerate(FLAGS)}
REASONS = {"SKB_DROP_REASON_NOT_SPECIFIED": 1, "SKB_DROP_REASON_TC_EGRESS": 44}


def kernel_btf(**enums) -> Btf:
    return Btf(blob_of(KERNEL, **{"netdev_priv_flags": PRIVATE, **enums}).bytes())


def test_all_that_the_programs_read_is_a_define():
    kernel = kernel_btf(skb_drop_reason=REASONS)
    module = blob_of(SWITCH, Blob(kernel.end_id, kernel.end_string))
    layout = read_layout(kernel, Btf(module.bytes(), kernel))
    assert layout.defines["SK_BUFF_LEN_OFFSET"] == 16
    assert layout.defines["SK_BUFF__SKB_REFDST_OFFSET"] == 56
    assert layout.defines["IFF_OVS_DATAPATH"] == 1 << 10
    assert set(layout.defines) >= {define_of(*each) for each in (*KERNEL, *SWITCH)}
    assert layout.has_switch
    assert layout.reasons == {1: "NOT_SPECIFIED", 44: "TC_EGRESS"}
    assert layout.defines["DROPS_HAVE_REASONS"] == 1
    assert not layout.has_ovs_reasons


def test_the_switch_may_be_built_in_or_absent():
    assert not read_layout(kernel_btf(), None).has_switch
    built_in = blob_of((*KERNEL, *SWITCH), netdev_priv_flags=PRIVATE)
    assert read_layout(Btf(built_in.bytes()), None).has_switch


def test_reasons_of_the_switch_are_told_apart():
    kernel = kernel_btf(skb_drop_reason=REASONS)
    module = blob_of(
        SWITCH,
        Blob(kernel.end_id, kernel.end_string),
        ovs_drop_reason={"OVS_DROP_LAST_ACTION": 0x30001},
    )
    layout = read_layout(kernel, Btf(module.bytes(), kernel))
    assert layout.has_ovs_reasons
    assert layout.reasons[0x30001] == "OVS_LAST_ACTION"
    assert from_data(json.loads(json.dumps(to_data(layout)))) == layout


def test_kernels_without_reasons_have_none():
    assert read_layout(kernel_btf(), None).defines["DROPS_HAVE_REASONS"] == 0


def test_a_kernel_that_lacks_a_field_or_a_flag_is_refused():
    with pytest.raises(RemoteProtocolError, match="tun_id"):
        read_layout(Btf(blob_of(KERNEL[:-1], netdev_priv_flags=PRIVATE).bytes()), None)
    with pytest.raises(RemoteProtocolError, match="IFF_OPENVSWITCH"):
        read_layout(Btf(blob_of(KERNEL, netdev_priv_flags={"IFF_OVS_DATAPATH": 1}).bytes()), None)


def whole() -> dict[str, object]:
    """Return a cached layout."""
    return to_data(read_layout(kernel_btf(), None))


@pytest.mark.parametrize(
    "change",
    [
        {"defines": {}},
        {"defines": {**whole()["defines"], "X -include /etc/shadow": 1}},
        {"defines": {**whole()["defines"], "SK_BUFF_LEN_OFFSET": -1}},
        {"defines": {**whole()["defines"], "SK_BUFF_LEN_OFFSET": 1 << 40}},
        {"defines": {**whole()["defines"], "SK_BUFF_LEN_OFFSET": None}},
        {"has_switch": True},
        {"reasons": []},
    ],
)
def test_a_cache_of_another_form_is_refused(change):
    with pytest.raises(RemoteProtocolError, match="another form"):
        from_data({**whole(), **change})


leaves = st.none() | st.integers() | st.text()
plain = st.recursive(leaves, lambda x: st.lists(x) | st.dictionaries(st.text(), x))


@given(plain, st.sampled_from(["defines", "reasons", "has_switch"]))
def test_any_cache_is_read_or_refused(data, member):
    for each in (data, {**whole(), member: data}):
        with suppress(RemoteProtocolError):  # any other error fails
            assert isinstance(from_data(each), Layout)
