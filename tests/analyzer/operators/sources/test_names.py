# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.operators.log import GroupKind
from analyzer.operators.sources.names import host_of, kind_of, ranks_of, text_of


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["nccl_trace_rank_0", "nccl_trace_rank_11"], [0, 11]),
        (["_dump_0", "_dump_7"], [0, 7]),
        (["comm_lib_trace_rank_7", "comm_lib_trace_rank_8"], [7, 8]),
        (["dump_12.pkl", "dump_3.pkl"], [12, 3]),
        (["rank_0.json", "rank_1.json.gz"], [0, 1]),
        (["rank_container-node02_5", "rank_container-node07_40"], [5, 40]),
        (["nccl_trace_rank_10.0.0.1_5", "nccl_trace_rank_10.0.0.2_6"], [5, 6]),
        (["rank0_20240101.json", "rank1_20240101.json"], [0, 1]),
        (["rank_0/dump.pkl", "rank_1/dump.pkl"], [0, 1]),
        (["h0/gpu3-trace", "h0/gpu4-trace"], [3, 4]),
        (["a/0.json", "b/1.json"], [0, 1]),
        (["trace_1.pkl", "trace_1.json"], None),
        (["a", "b"], None),
        (["rank_99999999999"], None),
    ],
)
def test_the_rank_is_read_alike_from_all_names(names, ranks):
    assert ranks_of(names) == ranks


def test_a_host_may_stand_before_the_rank():
    assert host_of("x/nccl_trace_rank_container-node02_5.pkl") == "container-node02"
    assert host_of("nccl_trace_rank_5") is None


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ("default_pg", GroupKind.WORLD), ("0", GroupKind.WORLD), ("dp0", GroupKind.DATA),
        ("mesh_dp", GroupKind.DATA), ("DATA_PARALLEL_GROUP", GroupKind.DATA),
        ("TENSOR_MODEL_PARALLEL_GROUP", GroupKind.TENSOR), ("tp", GroupKind.TENSOR),
        ("PIPELINE_MODEL_PARALLEL_GROUP", GroupKind.PIPELINE), ("pp_3", GroupKind.PIPELINE),
        ("EXPERT_DATA_PARALLEL_GROUP", GroupKind.EXPERT), ("ep", GroupKind.EXPERT),
        ("mesh_fsdp", GroupKind.DATA), ("14", GroupKind.UNKNOWN), ("undefined", GroupKind.UNKNOWN),
        ("step", GroupKind.UNKNOWN), ("", GroupKind.UNKNOWN), ("http", GroupKind.UNKNOWN),
    ],
)  # fmt: skip
def test_what_a_group_is_for_is_in_its_name(description, kind):
    assert kind_of(description) is kind


@pytest.mark.parametrize(
    ("value", "text"),
    [("abcdef", "abc"), (1234, "123"), (["x"] * 3, "?"), (1 << 70, "?"), (None, "?"), (1.5, "?")],
)
def test_what_is_no_text_and_no_number_is_not_written_out(value, text):
    assert text_of(value, 3, "?") == text
