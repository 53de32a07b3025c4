# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.tomography.flowfile import (
    COLUMNS,
    Row,
    links_of,
    observed,
    rows_of_csv,
    rows_of_msgpack,
)
from netagent.model.errors import RemoteProtocolError

HEADER = ",".join(COLUMNS)


def rows(*lines):
    return list(rows_of_csv(lines, []))


def imported(*lines, beside=None):
    return observed(rows_of_csv([HEADER, *lines], []), beside)


def ways(seen, flow=0):
    leg = int(seen.legs[flow, 0])
    return [[seen.components[c] for c in seen.crossed(way)] for way in seen.alternatives(leg)]


def test_a_row_is_a_flow():
    wanted = (2, Row("h1", "h2", "h1|s1|h2", 100, 3, 12.5, 0.7))
    assert rows(HEADER, "h1,h2,h1|s1|h2,100,3,12.5,0.7") == [wanted]
    assert rows(HEADER, "", "h1, h2 ,h1|s1|h2,100,3.0,12.5,0.7") == [(3, wanted[1])]


def test_without_a_header_the_columns_are_in_order():
    assert rows("h1,h2,s1,100,3") == [(1, Row("h1", "h2", "s1", 100, 3))]
    assert rows("h1,h2,s1,100,3,,")[0][1].lat_mean_us is None


def test_a_header_may_be_in_any_order_and_what_means_nothing_is_told():
    ignored = []
    made = list(rows_of_csv(["lost,sent,when,path,dst,src", "3,100,now,s1,b,a"], ignored))
    assert made == [(2, Row("a", "b", "s1", 100, 3))]
    assert ignored == ["when"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a,b,s1,ten,0,,", "line 2: sent is 'ten', no number"),
        ("a,b,s1,10.5,0,,", "line 2: sent is '10.5', no count"),
        ("a,b,s1,10,,,", "line 2: lost is '', no count"),
        ("a,b,s1", "line 2: 3 fields, not 7"),
        ("a,b,s1,10,0,,,,", "line 2: 9 fields, not 7"),
        ("a,b,s1,10,11,,", "line 2: 11 lost of 10 sent"),
        ("a,b,s1,10,-1,,", "line 2: -1 lost of 10 sent"),
        ("a,b,s1,10,0,inf,", "line 2: a latency of inf us"),
        ("a,b,s1,10,0,nan,", "line 2: a latency of nan us"),
        ("a,b,s1||s2,10,0,,", "line 2: an empty id in path 's1||s2'"),
        ("a,b,s1;,10,0,,", "line 2: an empty id in path ''"),
        ("a,b," + ";".join(map(str, range(5000))) + ",1,0,,", "line 2: more than 4096 ways"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(line, told):
    with pytest.raises(RemoteProtocolError, match=told.replace("|", r"\|")):
        imported(line)


def test_a_header_without_a_column_and_an_empty_file_are_refused():
    with pytest.raises(RemoteProtocolError, match="line 1: no column lost"):
        rows("src,dst,path,sent")
    with pytest.raises(RemoteProtocolError, match="empty"):
        rows()


def test_two_nodes_beside_each_other_have_a_link_of_that_direction():
    seen = imported("h1,h2,h1|s1|h2,10,0,,").loss
    assert ways(seen) == [["h1", "s1", "h2", "h1->s1", "s1->h2"]]


def test_listed_links_are_taken_as_they_are_and_cross_their_ends():
    seen = imported("h1,h2,h1->s1|s1->h2,10,0,,").loss
    assert ways(seen) == [["h1->s1", "s1->h2", "h1", "s1", "h2"]]


def test_alternatives_are_ways_of_one_leg():
    seen = imported("h1,h2,a|b;a|c,10,0,,").loss
    assert ways(seen) == [["a", "b", "a->b"], ["a", "c", "a->c"]]


def test_without_a_path_a_flow_takes_one_of_the_shortest_ways():
    beside = links_of(["h1,s1", "h1 s2", "s1,h2", "s2 , h2", "# none", "", "s1->s2"])
    seen = imported("h1,h2,,10,0,,", beside=beside).loss
    assert [way[:3] for way in ways(seen)] == [["h1", "s1", "h2"], ["h1", "s2", "h2"]]


def test_a_flow_without_any_way_is_left_out_and_counted():
    got = imported("h1,h9,,10,0,,", "h1,h2,s1,10,0,,", beside=links_of(["h1,h2"]))
    assert (got.loss.flows, got.pathless) == (1, 1)


@pytest.mark.parametrize("line", ["a", "a,b,c", "a,a", "a->"])
def test_an_edge_that_is_none_is_named(line):
    with pytest.raises(RemoteProtocolError, match=r"line 2: .* is no edge"):
        links_of(["x,y", line])


def test_a_flow_that_is_slow_among_its_like_counts_as_one_lost_probe():
    lines = [f"h1,h2,a|s{n},10,0,{15 + n % 3},1" for n in range(20)]
    got = imported(*lines, "h1,h2,a|x,10,0,27,1", "h1,h2,a|y,10,0,16,9", "h1,h2,long,10,0,90,1")
    assert got.slow is not None
    assert got.slow.lost.tolist() == [0] * 20 + [1, 1, 0]
    assert got.slow.sent.tolist() == [1] * 22 + [0]  # nothing is like the last one


def test_without_latencies_nothing_is_slow():
    assert imported("h1,h2,s1,10,0,,").slow is None


def test_msgpack_is_an_array_of_maps():
    packed = msgspec.msgpack.encode(
        [{"src": "a", "dst": "b", "path": "s1", "sent": 10, "lost": 1, "lat_mean_us": 3.5}]
    )
    assert list(rows_of_msgpack(packed)) == [(1, Row("a", "b", "s1", 10, 1, 3.5))]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    try:
        made = list(rows_of_msgpack(data))
    except RemoteProtocolError:
        return
    assert all(isinstance(row, Row) for _, row in made)


@given(st.lists(st.text(alphabet="ab,;|->\"'0129.\r", max_size=30), max_size=4))
def test_any_text_is_read_or_refused(lines):
    try:
        observed(rows_of_csv(lines, []))
    except RemoteProtocolError as error:
        told = str(error)
    else:
        told = "line"
    assert "line" in told
