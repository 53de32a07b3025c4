# SPDX-License-Identifier: Apache-2.0
from analyzer.skeleton.judging import S
from analyzer.skeleton.sampling import SAY_NS, Sampling


def test_a_request_is_said_for_a_while_with_what_is_left_of_it():
    sampling = Sampling()
    sampling.ask({"h0": 180.0, "h1": 3.0}, 10 * S)
    assert (sampling.of("h0", 10 * S).tick_ms, sampling.of("h0", 10 * S).seconds) == (100, 180)
    assert sampling.of("h0", 15 * S).seconds == 175
    assert sampling.of("h1", 14 * S) is None
    assert sampling.of("h2", 10 * S) is None
    assert sampling.of("h0", 10 * S + SAY_NS) is None
    assert sampling._wanted == {}


def test_asked_again_it_is_said_anew():
    sampling = Sampling()
    sampling.ask({"h0": 180.0}, 0)
    sampling.ask({"h0": 180.0}, 60 * S)
    assert sampling.of("h0", 61 * S).seconds == 179
