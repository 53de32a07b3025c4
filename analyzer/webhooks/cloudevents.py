# SPDX-License-Identifier: Apache-2.0
"""Events as CloudEvents 1.0 has them, in its JSON format; and how they are signed. Pure.

References
----------
https://github.com/cloudevents/spec, v1.0.2: spec.md (attributes), formats/json-format.md,
bindings/http-protocol-binding.md (3.2, structured content mode).
"""

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TIMESTAMP, SIGNATURE = "Netagent-Timestamp", "Netagent-Signature"


def cloud_event(
    type_: str, id_: str, *, source: str, subject: str, wall_ns: int, data: Mapping[str, object]
) -> bytes:
    """Return an event as it is sent; without a subject where that is empty.

    `wall_ns` is when it happened, Unix nanoseconds.
    """
    attributes: dict[str, object] = {
        "specversion": "1.0",
        "id": id_,
        "source": source,
        "type": f"netagent.{type_}",
        "time": _rfc_3339(wall_ns),
        "datacontenttype": "application/json",
        "data": data,
    }
    if subject:
        attributes["subject"] = subject
    return msgspec.json.encode(attributes)


def signed(secret: bytes, wall_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that prove who sent a body, and when, Unix seconds."""
    digest = hmac.digest(secret, b"%d.%b" % (wall_s, body), "sha256").hex()
    return {TIMESTAMP: str(wall_s), SIGNATURE: f"sha256={digest}"}


def _rfc_3339(wall_ns: int) -> str:
    seconds, ns = divmod(wall_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"
