# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.server.page.streams import MAX_OF_NAME, MAX_STREAMS, Streams
from netagent.model.errors import CapabilityMissing


def test_of_a_name_and_of_all_there_are_so_many():
    streams = Streams()
    for _ in range(MAX_OF_NAME):
        streams.check("a")
        streams.begin("a")
    with pytest.raises(CapabilityMissing):
        streams.check("a")
    streams.check("b")
    streams.end("a")
    streams.check("a")
    for n in range(MAX_STREAMS):
        streams.begin(f"name {n}")
    with pytest.raises(CapabilityMissing):
        streams.check("c")
