# SPDX-License-Identifier: Apache-2.0
import hashlib
import hmac
import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from analyzer.webhooks.cloudevents import cloud_event, signed

AT_NS = 1_795_154_400_123_456_789
FIELDS = {"source": "/netagent/analyzer", "subject": "switch spine-0", "wall_ns": AT_NS}


def test_an_event_has_the_attributes_that_the_specification_requires():
    body = cloud_event("incident.opened", "i1.7", **FIELDS, data={"id": "i1"})
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": "i1.7",
        "source": "/netagent/analyzer",
        "type": "netagent.incident.opened",
        "subject": "switch spine-0",
        "time": "2026-11-20T06:00:00.123456789Z",
        "datacontenttype": "application/json",
        "data": {"id": "i1"},
    }


def test_where_nobody_knows_the_component_there_is_no_subject():
    body = cloud_event("test", "1", **FIELDS | {"subject": ""}, data={})
    assert "subject" not in json.loads(body)  # an empty one is none (spec.md, subject)


@given(st.integers(0, 2**62))
def test_times_are_read_as_written(wall_ns):
    body = cloud_event("test", "1", **FIELDS | {"wall_ns": wall_ns}, data={})
    text = json.loads(body)["time"]
    read = datetime.strptime(f"{text[:-4]}+0000", "%Y-%m-%dT%H:%M:%S.%f%z")
    since = read - datetime.fromtimestamp(0, UTC)
    read_us = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
    assert read_us * 1000 + int(text[-4:-1]) == wall_ns


@given(st.binary(min_size=1), st.integers(0, 2**33), st.binary())
def test_a_signature_is_of_the_time_and_the_body(secret, wall_s, body):
    headers = signed(secret, wall_s, body)
    digest = hmac.new(secret, f"{wall_s}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers == {
        "Netagent-Timestamp": str(wall_s),
        "Netagent-Signature": f"sha256={digest}",
    }
    assert signed(secret, wall_s + 1, body) != headers != signed(secret, wall_s, body + b"x")
