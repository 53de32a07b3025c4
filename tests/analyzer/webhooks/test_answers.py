# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.webhooks.answers import Outcome, outcome_of, retry_after_ns

SECOND = 10**9
AT_NS = 1_445_412_480 * SECOND  # Wed, 21 Oct 2015 07:28:00 GMT


@pytest.mark.parametrize(
    ("outcome", "statuses"),
    [
        (Outcome.TAKEN, [200, 202, 204, 299]),
        (Outcome.LATER, [100, 301, 302, 307, 408, 425, 429, 500, 503, 599, 999]),
        (Outcome.UNWELCOME, [401, 403, 404, 405, 409, 410, 451]),
        (Outcome.REFUSED, [400, 413, 415, 422]),
    ],
)
def test_a_status_says_whether_an_event_is_sent_again(outcome, statuses):
    assert {outcome_of(status) for status in statuses} == {outcome}


@pytest.mark.parametrize(
    ("header", "ns"),
    [
        ("0", 0),
        (" 120 ", 120 * SECOND),
        ("Wed, 21 Oct 2015 07:28:07 GMT", 7 * SECOND),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:07 -0000", 7 * SECOND),
        (None, None),
        ("", None),
        ("-1", None),
        ("soon", None),
        ("Wed, 99 Oct 2015 07:28:07 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header, ns):
    assert retry_after_ns(header, AT_NS) == ns


@given(st.text() | st.from_regex(r"[0-9]{1,60}"))
def test_whatever_a_receiver_writes_there_is_none_or_not_negative(header):
    found = retry_after_ns(header, AT_NS)
    assert found is None or found >= 0
