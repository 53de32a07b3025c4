# SPDX-License-Identifier: Apache-2.0
"""Where messages end, against Python's own parser and python-ovs'."""

import json

import ovs.json
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.controllers.parsing import MessageParser

TEXTS = st.text(alphabet='ab{}"\\[]:, \n\u00e9\U0001f600')
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
MESSAGES = st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), min_size=1, max_size=4)


def read(stream, sizes, made):
    """Return the messages of a stream that comes in pieces, as `ovs.jsonrpc.Connection` reads."""
    found, held, parser = [], "", made()
    while stream or held:
        if not held:
            size = next(sizes)
            held, stream = stream[:size], stream[size:]
        held = held[parser.feed(held) :]
        if parser.is_done():
            found.append(parser.finish())
            parser = made()
    return found


@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1), st.booleans())
def test_a_stream_in_any_pieces_gives_the_messages_that_were_sent(sent, sizes, ascii_only):
    stream = "".join(json.dumps(each, ensure_ascii=ascii_only) for each in sent)
    assert read(stream, cycle(sizes), MessageParser) == sent


@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1))
def test_it_reads_what_the_parser_reads_whose_place_it_takes(sent, sizes):
    stream = "".join(map(ovs.json.to_string, sent))
    assert read(stream, cycle(sizes), MessageParser) == read(stream, cycle(sizes), ovs.json.Parser)


def cycle(sizes):
    while True:
        yield from sizes


@pytest.mark.parametrize("text", ["}", '{"a" 1}', "{]}", "HTTP/1.1 400 Bad Request", '"{"'])
def test_what_is_no_message_is_a_text_that_says_so(text):
    parser = MessageParser()
    assert parser.feed(text) == len(text)
    assert parser.is_done()
    assert isinstance(parser.finish(), str)
