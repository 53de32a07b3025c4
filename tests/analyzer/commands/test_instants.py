# SPDX-License-Identifier: Apache-2.0

import pytest

from analyzer.commands.instants import instant_of, span_of
from netagent.model.errors import ConfigError

NOW_NS = 1_795_666_500 * 10**9  # 2026-11-26 04:15 UTC


@pytest.mark.parametrize(
    ("text", "instant_ns"),
    [
        ("90s", NOW_NS - 90 * 10**9),
        ("1.5h", NOW_NS - 5400 * 10**9),
        ("2d", NOW_NS - 172_800 * 10**9),
        ("100000d", 0),
        ("2026-11-26T04:15", NOW_NS),
        ("2026-11-26 04:15:00", NOW_NS),
        ("2026-11-26T05:15+01:00", NOW_NS),
        ("2026-11-26", NOW_NS - 15_300 * 10**9),
        (str(NOW_NS), NOW_NS),
    ],
)
def test_an_instant_is_written_as_people_do(text, instant_ns):
    assert instant_of(text, "--since", now_ns=NOW_NS) == instant_ns


@pytest.mark.parametrize("text", ["", "yesterday", "5", "5w", "-2h", "2026-13-01", "04:15"])
def test_what_is_none_is_refused_with_what_it_may_be(text):
    with pytest.raises(ConfigError, match=r"--since.*2h"):
        instant_of(text, "--since", now_ns=NOW_NS)


def test_a_time_ends_after_it_began_and_now_where_nobody_says():
    assert span_of("1s", None, now_ns=NOW_NS) == (NOW_NS - 10**9, NOW_NS)
    assert span_of("2s", "1s", now_ns=NOW_NS) == (NOW_NS - 2 * 10**9, NOW_NS - 10**9)
    with pytest.raises(ConfigError, match="--since, --until"):
        span_of("1s", "1s", now_ns=NOW_NS)
