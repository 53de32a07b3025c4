# SPDX-License-Identifier: Apache-2.0

import math

import pytest

from analyzer.simulate.agents import WIDTH_NS, Agents, Noise
from analyzer.simulate.clos import Clos, Shape
from analyzer.store import raw as room
from analyzer.store.parquet import Parquet
from analyzer.store.raw import OF_INCIDENT, Windows, write_incidents
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.wire.codec import decode, encode
from netagent.wire.messages import FlowColumns, Summary
from tests.oracles.rows import rows_of

CLOS = Clos(Shape(hosts=4, rails=2, hosts_per_segment=2, spines=2, replicas=4, stages=1), seed=1)
READ = "SELECT * FROM read_parquet($files) ORDER BY start_ns, host, source, target, source_port"


@pytest.fixture
def parquet(tmp_path):
    with Parquet(tmp_path / "spill") as opened:
        yield opened


@pytest.mark.parametrize("most", [1, 50, 1_000_000])
def test_each_flow_of_each_window_is_a_row(tmp_path, parquet, monkeypatch, most):
    monkeypatch.setattr(room, "ROWS", most)
    agents = Agents(CLOS, seed=1, noise=Noise(loss=0.05))
    out, expected = Windows(tmp_path, parquet), []
    for n in range(3):
        for summary in (decode(encode(each), Summary) for each in agents.window()):
            out.add(summary)
            for row in rows_of(summary):
                mean = int(math.exp(row["mean_ln"])) if row["count"] else 0
                ends = str(row["flow"].source), str(row["flow"].target), row["flow"].source_port
                expected.append(
                    (
                        agents.start_ns + n * WIDTH_NS, WIDTH_NS, summary.host, *ends,
                        row["sent"], row["lost"], row["refused"], row["sent_large"],
                        row["lost_large"], row["count"], row["min_ns"], mean, row["max_ns"],
                        row["prober_ns"], row["responder_ns"],
                    )
                )  # fmt: skip
    out.flush()
    assert out.files == len(list(tmp_path.glob("*.parquet")))
    assert (out.files == 1) == (most == 1_000_000)
    found = parquet.rows(READ, {"files": [str(tmp_path / "*.parquet")]})
    assert out.rows == len(found) == len(expected)
    assert sum(row[7] for row in found) > 0
    assert found == sorted(expected)


def test_an_odd_summary_leaves_what_was_taken(tmp_path, parquet):
    good, *_ = Agents(CLOS, seed=1).window()
    odd = Summary(host="h", instance="i", start_ns=0, width_ns=WIDTH_NS,
                  flows=FlowColumns(source_port=b"\1"))  # fmt: skip
    out = Windows(tmp_path, parquet)
    out.add(good)
    with pytest.raises(RemoteProtocolError):
        out.add(odd)
    out.flush()
    assert out.rows == len(rows_of(good))


def test_of_nothing_there_is_no_file(tmp_path, parquet):
    out = Windows(tmp_path, parquet)
    out.flush()
    assert (out.files, out.rows, list(tmp_path.iterdir())) == (0, 0, [])


def test_a_disk_that_refuses_is_told(tmp_path, parquet):
    out = Windows(tmp_path / "file" / "windows", parquet)
    (tmp_path / "file").touch()
    for summary in Agents(CLOS, seed=1).window():
        out.add(summary)
    with pytest.raises(CapabilityMissing):
        out.flush()


@pytest.mark.parametrize("count", [0, 2])
def test_an_incident_is_a_row_also_where_nobody_is_named(tmp_path, parquet, count):
    path = tmp_path / "incidents.parquet"
    rows = [
        dict.fromkeys(OF_INCIDENT, None) | {"id": f"i{n}", "confidence": 0.5, "detected_ns": n}
        for n in range(count)
    ]
    write_incidents(path, parquet, rows)
    query = "SELECT id, component, confidence, detected_ns FROM read_parquet($files) ORDER BY id"
    assert parquet.rows(query, {"files": [str(path)]}) == [
        (f"i{n}", None, 0.5, n) for n in range(count)
    ]
