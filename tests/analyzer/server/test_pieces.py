# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from analyzer.server.pieces import in_pieces


def test_between_two_pieces_others_are_served():
    said = []

    def work():
        for n in range(3):
            said.append(n)
            yield
        return "done"

    async def other():
        for _ in range(3):
            said.append("other")
            await asyncio.sleep(0)

    async def inside():
        return (await asyncio.gather(in_pieces(work()), other()))[0]

    assert asyncio.run(inside()) == "done"
    assert said == [0, "other", 1, "other", 2, "other"]


def test_what_it_raises_is_raised():
    def work():
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(in_pieces(work()))
