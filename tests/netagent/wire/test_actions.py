# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import ValidationError, convert

from netagent.wire.actions import ActionRequest
from netagent.wire.codec import decode, encode

ODD = [
    "../../etc",
    "/etc/passwd",
    "br-int/../x",
    "-x",
    "",
    "a b",
    "br-int\n",
    "a" * 200,
    "b;reboot",
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("field", ["bridge", "id"])
def test_a_name_that_is_a_path_or_an_option_is_no_message(odd, field):
    plain = {"id": "i1", "verb": "recompute", "bridge": "br-int"}
    convert(plain, ActionRequest)
    with pytest.raises(ValidationError):
        convert(plain | {field: odd}, ActionRequest)


@pytest.mark.parametrize("verb", ["delete", "cordon", "exit", "", "RECOMPUTE", None])
def test_there_is_no_other_verb(verb):
    with pytest.raises(ValidationError):
        convert({"id": "i1", "verb": verb, "bridge": "br-int"}, ActionRequest)


def test_a_request_says_nothing_more_than_it_is_asked_for():
    """By default it is a dry run: who forgets to say so does nothing."""
    made = decode(encode({"id": "a", "verb": "reinstall", "bridge": "br-int"}), ActionRequest)
    assert made.dry_run
