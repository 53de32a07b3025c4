# SPDX-License-Identifier: Apache-2.0
import io
import json
import sys

import msgspec
import pytest

from analyzer import cli
from analyzer.simulate.fattree import FatTree, Silent

HEADER = "src,dst,path,sent,lost,lat_mean_us,lat_std_us"


@pytest.fixture
def flows(tmp_path):
    """Write rows, or a text as it is; return the file's name."""

    def written(*rows, name="flows.csv"):
        path = tmp_path / name
        path.write_text("\n".join([HEADER, *rows, ""]))
        return str(path)

    return written


def tree_rows(bad=2, seed=1):
    tree = FatTree(4, Silent(bad, least=0.01, most=0.02), seed=seed)
    rows = [
        f"{f.source},{f.target},{'|'.join(f.ways[f.taken])},{f.sent},{f.lost},,"
        for f in tree.flows(2000)
    ]
    return rows, {f"{a}->{b}" for a, b in tree.bad}


def test_bad_links_of_a_tree_are_named_as_json(flows, capsys):
    rows, bad = tree_rows()
    assert cli.main(["localize", flows(*rows), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["decided"] is True
    assert told["missing"] == []
    named = [each for each in told["ranked"] if each["blamed"]]
    assert {each["component"] for each in named} == bad
    assert {each["kind"] for each in named} == {"link"}
    assert all(each["confidence"] > 0.8 and each["explains"] > 0 for each in named)


def test_people_get_a_table(flows, capsys):
    rows, bad = tree_rows()
    assert cli.main(["localize", flows(*rows)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2000 flows, ")
    assert lines[2].split() == ["rank", "component", "kind", "symptom", "confidence", "explains"]
    assert {line.split()[1] for line in lines if line.split()[:1] in (["1*"], ["2*"])} == bad
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize("baseline", ["maxcount", "007"])
def test_baselines_rank_links_only(flows, capsys, baseline):
    rows, _ = tree_rows()
    assert cli.main(["localize", flows(*rows), "--baseline", baseline, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["kind"] for each in told["ranked"]} == {"link"}


def test_nothing_wrong_is_nothing_named(flows, capsys):
    assert cli.main(["localize", flows("a,b,s1,100,0,,", "a,c,s2,100,0,,")]) == 1
    assert "no packet is lost" in capsys.readouterr().out


def test_a_tie_is_insufficient_evidence(flows, capsys):
    rows = ["a,b,a|s1|b;a|s2|b,100,50,,", *["c,d,c|s3|d,100,0,,"] * 9]
    assert cli.main(["localize", flows(*rows)]) == 1
    told = capsys.readouterr().out
    assert "insufficient evidence" in told
    assert "missing: flows whose path is known" in told


def test_slow_flows_accuse_what_they_share(flows, capsys):
    rows = [f"a,b,a|s{n % 5}|b,100,0,{15 + (n % 5 == 2) * 30 + n % 3 / 10},1" for n in range(50)]
    assert cli.main(["localize", flows(*rows), "--json"]) == 1  # node or one of its links: a tie
    told = json.loads(capsys.readouterr().out)
    assert {each["component"] for each in told["ranked"][:3]} == {"s2", "a->s2", "s2->b"}
    assert {each["symptom"] for each in told["ranked"][:3]} == {"latency"}


def test_a_topology_gives_paths_to_flows_without(flows, tmp_path, capsys):
    edges = tmp_path / "edges.txt"
    edges.write_text("a,s1\ns1,b\nc,s2\ns2,d\n")
    rows = ["a,b,,1000,300,,", "b,a,,1000,0,,", *["c,d,,1000,0,,"] * 5, "x,y,,10,0,,"]
    cli.main(["localize", flows(*rows), "--topology", str(edges), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["ranked"][0]["component"] in {"a->s1", "s1->b"}
    assert "the paths of 1 flows" in told["missing"]


def test_msgpack_and_standard_input_are_read_too(tmp_path, capsys, monkeypatch):
    row = {"src": "a", "dst": "b", "path": "a|b", "sent": 10, "lost": 0}
    packed = tmp_path / "flows.msgpack"
    packed.write_bytes(msgspec.msgpack.encode([row]))
    assert cli.main(["localize", str(packed)]) == 1
    text = io.TextIOWrapper(io.BytesIO(b"a,b,a|b,10,0\n"))
    monkeypatch.setattr(sys, "stdin", text)
    assert cli.main(["localize", "-"]) == 1
    assert capsys.readouterr().out.count("1 flows, 0 of 10 packets lost") == 2


def test_what_cannot_be_read_is_named(flows, tmp_path, capsys):
    assert cli.main(["localize", flows("a,b,s1,10,11,,")]) == 2
    assert "flows.csv: line 2: 11 lost of 10 sent" in capsys.readouterr().err
    assert cli.main(["localize", str(tmp_path / "none.csv")]) == 2
    edges = tmp_path / "edges.txt"
    edges.write_text("a\n")
    assert cli.main(["localize", flows("a,b,s1,10,1,,"), "--topology", str(edges)]) == 2
    assert "edges.txt: line 1: 'a' is no edge" in capsys.readouterr().err
    (tmp_path / "odd.csv").write_bytes(b"a,b,\xff,10,1\n")
    assert cli.main(["localize", str(tmp_path / "odd.csv")]) == 2


def test_what_is_lost_everywhere_is_not_called_well(flows, capsys):
    rows = [f"h{n},h{m},s{n}|s{m},10000,30,," for n in range(6) for m in range(6) if n != m]
    assert cli.main(["localize", flows(*rows)]) == 1
    assert "no component stands out" in capsys.readouterr().out


def test_flows_without_any_path_cannot_be_ranked(flows, tmp_path, capsys):
    edges = tmp_path / "edges.txt"
    edges.write_text("x,y\n")
    assert cli.main(["localize", flows("a,b,,100,5,,"), "--topology", str(edges)]) == 2
    assert "none of its 1 flows has a path, and the topology" in capsys.readouterr().err


def test_three_ends_make_no_link(flows, capsys):
    assert cli.main(["localize", flows("a,b,s1->s2->s3,100,5,,")]) == 2
    assert "line 2: 's1->s2->s3' is no link" in capsys.readouterr().err
