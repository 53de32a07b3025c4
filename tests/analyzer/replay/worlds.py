# SPDX-License-Identifier: Apache-2.0
"""Recordings of simulated clusters."""

import io
from typing import Any

from analyzer.replay import records
from analyzer.replay.frames import frame
from analyzer.replay.tape import TapedDiagnosis, TapedRegistry
from netagent.model.path import link, switch
from netagent.model.topology import DeclaredTopology
from netagent.wire.messages import Registration
from tests.analyzer.diagnosis.world import HOSTS, START, World

LINK, SPINE = link("leaf-s1-r1", "spine-0"), switch("spine-1")


class Recorded(World):
    """A world that is recorded from its beginning."""

    def __init__(self, seed: int = 1, **shape: Any) -> None:
        self.file, self.count = io.BytesIO(), 0
        super().__init__(seed, **shape)
        self.write(records.Header(netagent="test", window_s=5, probe_port=18515))
        self.registry = registry = TapedRegistry()
        self.write(registry.roster())
        registry.tape = self.write
        for host in HOSTS:
            endpoints = tuple(e for e in self.fabric.endpoints.values() if e.host == host)
            message = Registration(
                host=host, instance="1", generation=1, rpc_url="https://x", endpoints=endpoints
            )
            registry.apply(message, START - 60 * 10**9)
        self.diagnosis = TapedDiagnosis(
            registry, DeclaredTopology(), window_s=5, probe_port=18515, tape=self.write
        )

    def write(self, record: records.Record) -> None:
        """Add a record."""
        self.file.write(frame(records.pack(record)))
        self.count += 1

    def recording(self) -> bytes:
        """Return the recording so far, ended."""
        end = frame(records.pack(records.End(records=self.count)))
        return self.file.getvalue() + end


def eventful(seed: int = 1, **shape: Any) -> Recorded:
    """Return a world in which a link loses, heals, and a spine dies while an agent is silent."""
    world = Recorded(seed, **shape)
    world.live(4)
    world.fabric.loss = {LINK: 0.2}
    world.live(3)
    world.fabric.loss = {}
    world.live(2)
    world.fabric.loss = {SPINE: 1.0}
    world.silent = {"h2": "refused"}
    world.live(3)
    return world
