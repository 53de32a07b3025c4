# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from pathlib import Path

import pytest

from netagent.adapters.workers.vswitch import VswitchWorker
from netagent.agent.adapters import Adapters, build
from netagent.agent.membership import Membership
from netagent.config import AgentConfig, AnalyzerConfig, ProbeConfig


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    return AgentConfig(
        host="h0",
        analyzer=AnalyzerConfig(url="http://127.0.0.1:1"),
        state_dir=str(tmp_path),
        probe=ProbeConfig(transport="udp"),
    )


@pytest.fixture
def adapters(config: AgentConfig) -> Iterator[Adapters]:
    """Return an agent's adapters, of which none runs: no socket is open, no process started."""
    made = build(config, VswitchWorker(config), lambda: None)
    yield made
    made.close()


@pytest.fixture
def membership(config: AgentConfig, adapters: Adapters) -> Membership:
    return Membership(config, "one", adapters)
