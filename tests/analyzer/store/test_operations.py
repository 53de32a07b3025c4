# SPDX-License-Identifier: Apache-2.0
import gzip

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.operators.sources import table
from analyzer.store import operations
from analyzer.store.operations import is_table, read_table, without_columns
from netagent.model.errors import RemoteProtocolError

TEXT = """\
step,rank,kind,op,group,peer,microbatch,bytes,start_us,end_us,dp,odd
0,0,compute,forward,,,3,,0.5,10.25,0,x
0,1,collective,all_reduce,dp0,,,4096,10.25,,1,y
0,1,send,send,,0,,512,11,12,1,
"""


def written(tmp_path, text, name="a.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def parquet(tmp_path, query, name="a.parquet"):
    path = tmp_path / name
    duckdb.sql(query).write_parquet(str(path))
    return path


def same(one, other):
    for kind in ("numbers", "times"):
        mine, theirs = getattr(one, kind), getattr(other, kind)
        assert mine.keys() == theirs.keys()
        for name, column in mine.items():
            assert np.array_equal(column, theirs[name], equal_nan=True), name
    for name, column in one.texts.items():
        assert column.words == other.texts[name].words
        assert column.place.tolist() == other.texts[name].place.tolist()


def test_csv_is_read_into_columns(tmp_path):
    found = read_table([written(tmp_path, TEXT)])
    assert found.numbers["rank"].tolist() == [0, 1, 1]
    assert found.numbers["peer"].tolist() == [-1, -1, 0]
    assert found.numbers["bytes"].tolist() == [-1, 4096, 512]
    assert found.times["start_us"].tolist() == [0.5, 10.25, 11]
    assert np.isnan(found.times["end_us"]).tolist() == [False, True, False]
    assert found.texts["group"].words == ("dp0",)
    assert found.texts["group"].place.tolist() == [-1, 0, -1]
    assert "odd" not in found.numbers
    assert len(table.log(found)) == 3


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.zst", "b.parquet"])
def test_what_is_compressed_or_parquet_is_the_same(tmp_path, name):
    plain = written(tmp_path, TEXT)
    if name.endswith("gz"):
        other = written(tmp_path, gzip.compress(TEXT.encode()), name)
    elif name.endswith("zst"):
        other = tmp_path / name
        duckdb.sql(
            f"COPY (FROM read_csv('{plain}', all_varchar=true)) TO '{other}' (COMPRESSION zstd)"
        )
    else:
        other = parquet(tmp_path, f"FROM read_csv('{plain}')", name)
    same(read_table([plain]), read_table([other]))


def test_several_files_are_one_table(tmp_path):
    paths = [written(tmp_path, TEXT, f"{number}.csv") for number in (1, 2)]
    assert len(read_table(paths).numbers["rank"]) == 6
    mixed = [paths[0], parquet(tmp_path, "SELECT 1 AS rank")]
    with pytest.raises(RemoteProtocolError, match="side by side"):
        read_table(mixed)


def test_which_files_are_no_tables_of_operators_is_told(tmp_path):
    other = written(tmp_path, "host,rack\nh1,r2\n", "hosts.csv")
    parted = parquet(tmp_path, "SELECT 1 AS rank", "b.parquet")
    assert without_columns([written(tmp_path, TEXT), other, parted]) == {
        other: "no column rank, kind, op, start_us, end_us; there are host, rack",
        parted: "no column kind, op, start_us, end_us; there are rank",
    }


def test_titles_may_be_in_capitals_and_what_is_missing_is_named(tmp_path):
    upper = TEXT.replace("step,rank,kind", "\ufeffStep, RANK ,Kind")
    assert read_table([written(tmp_path, upper)]).numbers["rank"].tolist() == [0, 1, 1]
    with pytest.raises(RemoteProtocolError, match="no column op, end_us; there are rank, kind"):
        read_table([written(tmp_path, "rank,kind,start_us\n1,send,2\n")])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("0,1,send", "0,one,send", "'one' to INT64 when casting from source column rank"),
        ("11,12", "11,late", "'late' to DOUBLE when casting from source column end_us"),
        ("0,1,send", "0,1,send,9,9,9,9,9", "unequal length"),
        ("0,1,send", '0,1,"send', "a quote that never ends"),
    ],
)
def test_a_value_that_is_not_what_its_column_holds_is_named(tmp_path, old, new, reason):
    with pytest.raises(RemoteProtocolError, match=reason):
        read_table([written(tmp_path, TEXT.replace(old, new))])


def test_columns_of_parquet_may_be_of_other_types(tmp_path):
    query = (
        "SELECT '3' AS rank, 'send' AS kind, 'x' AS op, 1 AS start_us, 2.5 AS end_us,"
        " CAST('nan' AS DOUBLE) AS peer, CAST(7.0 AS FLOAT) AS bytes"
    )
    found = read_table([parquet(tmp_path, query)])
    assert found.numbers["rank"].tolist() == [3]
    assert found.numbers["peer"].tolist() == [-1]
    assert found.numbers["bytes"].tolist() == [7]
    bad = query.replace("'3' AS rank", "[1, 2] AS rank")
    with pytest.raises(RemoteProtocolError, match=r"rank|INTEGER"):
        read_table([parquet(tmp_path, bad)])


def test_there_are_limits(tmp_path, monkeypatch):
    path = written(tmp_path, TEXT)
    monkeypatch.setattr(operations, "MAX_WORDS", 1)
    with pytest.raises(RemoteProtocolError, match="column kind: more than 1 names"):
        read_table([path])
    monkeypatch.setattr(operations, "MAX_ROWS", 2)
    with pytest.raises(RemoteProtocolError, match="more than 2 rows"):
        read_table([path])


def test_a_name_is_no_pattern_and_no_file_is_an_error_of_the_system(tmp_path):
    written(tmp_path, TEXT, "x1.csv")
    named = written(tmp_path, TEXT, "x[1].csv")
    assert len(read_table([named]).numbers["rank"]) == 3
    with pytest.raises(FileNotFoundError):
        read_table([tmp_path / "none.csv"])


def test_a_table_is_known_by_its_name_or_its_titles(tmp_path):
    assert is_table(tmp_path / "a.CSV.gz", b"")
    assert is_table(tmp_path / "a", b"PAR1")
    assert is_table(tmp_path / "a", TEXT.encode())
    assert not is_table(tmp_path / "a.json", b'{"rank": 1, "start_us": 2}')


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.data(), st.booleans())
def test_damage_is_an_error_of_ours(tmp_path, data, is_parquet):
    whole = tmp_path / "whole.parquet"
    if not whole.exists():
        parquet(tmp_path, f"FROM read_csv('{written(tmp_path, TEXT)}')", whole.name)
    content = bytearray(whole.read_bytes() if is_parquet else TEXT.encode())
    for _ in range(3):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        table.log(read_table([written(tmp_path, bytes(content), "damaged.csv")]))
    except RemoteProtocolError:
        return
