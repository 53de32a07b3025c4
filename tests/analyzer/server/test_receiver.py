# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.config import Webhook
from analyzer.server.receiver import Receiver
from analyzer.webhooks.answers import Outcome
from analyzer.webhooks.outbox import DOWN, Letter, Outbox
from analyzer.webhooks.wanted import Wanted


@pytest.fixture
def receiver():
    outbox = Outbox(most_letters=9, most_bytes=999, jitter=lambda: 1.0)
    webhook = Webhook(name="pager", url="https://pager.example:8443/hooks/T0K3N?key=s")
    return Receiver(webhook, None, outbox, Wanted())


def test_where_it_goes_is_told_without_what_may_be_a_secret(receiver):
    assert receiver.to == "https://pager.example:8443"


def test_how_it_stands_is_one_word(receiver):
    outbox, now_ns, states = receiver.outbox, 0, [receiver.state]
    outbox.take(Letter("pager", 1, "i1", "opened", "", 5, b"x"), now_ns)
    states.append(receiver.state)
    for _ in range(DOWN):
        now_ns = max(now_ns, outbox.deadline())
        [letter] = outbox.due(now_ns)
        outbox.answered(letter, Outcome.LATER, now_ns)
        states.append(receiver.state)
    now_ns = outbox.deadline()
    outbox.answered(*outbox.due(now_ns), Outcome.TAKEN, now_ns)
    states.append(receiver.state)
    assert states == ["ok", "waiting", *["retrying"] * (DOWN - 1), "down", "ok"]


def test_the_age_is_that_of_the_oldest_event_that_waits(receiver):
    assert receiver.oldest_age_ns(100) == 0
    for seq, wall_ns in enumerate((30, 40)):
        receiver.outbox.take(Letter("pager", seq, f"i{seq}", "opened", "", wall_ns, b"x"), 0)
    assert receiver.oldest_age_ns(100) == 70
    assert receiver.oldest_age_ns(1) == 0  # the clock was set back
