# SPDX-License-Identifier: Apache-2.0
from netagent.host.checks import inspect
from netagent.host.checks.contract import Inspected, State
from netagent.host.facts import HostView
from netagent.host.hardware import Hardware
from tests.netagent.host.checks.healthy import look, wrong
from tests.netagent.server_board import gpu_server


def test_nothing_is_wrong_with_a_healthy_server(tmp_path):
    said = look(gpu_server(tmp_path))
    assert wrong(said) == []
    assert {each.check for each in said if each.state is State.OK} == {
        "PCIe link", "PCIe errors", "ACS and ATS", "GPUDirect", "GPU distance", "hugepages",
        "MTU ladder", "GIDs", "firmware", "PFC and DCQCN", "offload", "virtual functions", "bonds",
    }  # fmt: skip


def test_a_machine_that_says_nothing_has_nothing_wrong():
    said = inspect(Inspected("h0", HostView(), Hardware()))
    assert wrong(said) == []
    unknown = {each.check for each in said if each.state is State.UNKNOWN}
    assert unknown == {"PCIe link", "PCIe errors", "MTU ladder", "firmware", "PFC and DCQCN"}
