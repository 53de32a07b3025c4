# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.localize.saved import COLUMNS
from analyzer.localize.topology import LearnedTopology
from netagent.model.errors import RemoteProtocolError
from tests.analyzer.localize.test_topology import BACK, WAY, W, row, told


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_columns_that_do_not_agree_are_refused(name):
    topology = told(LearnedTopology(), 1, row(WAY), row(BACK, reply=True))
    told(topology, 2, row(("L0", "S1", "L1")))
    saved = topology.save(3 * W)
    saved.check()
    with pytest.raises(RemoteProtocolError, match="not"):
        replace(saved, columns={**saved.columns, name: saved.columns[name][:-1]}).check()
    if not name.endswith("_ns") and name != "port":
        column = saved.columns[name].copy()
        column[0] = np.iinfo(column.dtype).max if name != "lengths" else 0
        with pytest.raises(RemoteProtocolError):
            replace(saved, columns={**saved.columns, name: column}).check()
