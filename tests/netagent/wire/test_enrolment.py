# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.enrolment import Certified, Enrol, Renew

TEXT = st.text(max_size=200)


@pytest.mark.parametrize("form", [ContentType.JSON, ContentType.MSGPACK])
@given(
    message=st.one_of(
        st.builds(Enrol, secret=TEXT, request=TEXT),
        st.builds(Renew, request=TEXT),
        st.builds(Certified, certificate=TEXT, ca=TEXT, host=TEXT, address=TEXT),
    )
)
def test_what_is_sent_arrives(form, message):
    assert decode(encode(message, form), type(message), form) == message


@given(st.binary(max_size=100))
def test_other_bytes_are_no_message(data):
    with pytest.raises(RemoteProtocolError):
        decode(data, Enrol, ContentType.JSON)
