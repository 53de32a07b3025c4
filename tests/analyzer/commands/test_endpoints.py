# SPDX-License-Identifier: Apache-2.0
from analyzer.commands.endpoints import report, report_unprobed


def item(what, name, why, **more):
    keys = ("task", "bridge", "logical_port", "container", "pod")
    return {
        "what": what, "name": name, "host": "gpu-0417", "why": why, "text": "because " * 12,
        **dict.fromkeys(keys, ""), **more,
    }  # fmt: skip


def test_what_is_not_probed_is_told_by_kind_and_why_within_a_terminal():
    answer = {
        "unprobed": [
            item("endpoint", "a/rail0", "one-host", task="train-a"),
            item("endpoint", "b/rail0", "alone", task="train-b"),
            item("port", "veth0", "no-rail", logical_port="ml_bert-0", container="0f2c" * 16),
            item("port", "veth1", "no-task", container="0f2c" * 16),
            item("intent", "ml_bert-1", "not-plugged", pod="ml/bert-1"),
        ],
        "unnamed": [{"host": "gpu-0417", "count": 9}],
        "unsaid": [{"host": "gpu-0418", "version": "0.9"}, {"host": "gpu-0419", "version": ""}],
    }
    lines = list(report_unprobed(answer))
    assert max(map(len, lines)) < 80
    assert lines[0] == "endpoints that nobody probes: 2 (1 alone, 1 one-host)"
    assert lines[1].startswith("  gpu-0417 b/rail0 of train-b: alone: because")
    assert "ports that are no endpoint: 2 (1 no-rail, 1 no-task)" in lines
    assert any(line.startswith("  gpu-0417 veth0 (ml_bert-0): no-rail:") for line in lines)
    assert any("ml_bert-1 (ml/bert-1): not-plugged:" in line for line in lines)
    assert lines[-3:] == [
        "more ports that are no endpoint on gpu-0417: 9",
        "not said by gpu-0418 (0.9)",
        "not said by gpu-0419 (version unknown)",
    ]


def test_where_all_is_probed_that_is_said():
    assert list(report_unprobed({"unprobed": [], "unnamed": [], "unsaid": []})) == [
        "endpoints that nobody probes: 0",
        "ports that are no endpoint: 0",
        "logical ports that no host has: 0",
    ]


def endpoint(name, **more):
    return {
        "id": name, "state": "up", "since_ns": 10**18, "deregistered_ns": None, "host": "h0",
        "rnic": "rnic0", "address": "10.0.0.10", "task": "t", "rail": 0, "bridge": "br-int", **more,
    }  # fmt: skip


def test_endpoints_are_a_table_and_what_does_not_add_up_follows():
    conflict = {"wall_ns": 10**18, "endpoint": "a/rail0", "winner": "h0", "loser": "h1"}
    answer = {
        "endpoints": [
            endpoint("a/rail0"),
            endpoint("b/rail0", address="fd00::1", bridge=""),
            endpoint("c/rail0", task="", state="gone", deregistered_ns=2 * 10**18),
        ],
        "conflicts": [conflict],
    }
    lines = list(report(answer))
    assert max(map(len, lines)) < 80
    assert lines[0].split() == [
        "ENDPOINT", "STATE", "SINCE", "UTC", "HOST", "RNIC", "OVERLAY", "TASK",
    ]  # fmt: skip
    assert lines[1].split()[2] == "2001-09-09"
    assert lines[3].split()[2:4] == ["03:33:20", "h0"]
    assert lines[3].split()[-1] == "-"
    text = " ".join(line.strip() for line in lines[4:])
    assert "a/rail0 was claimed by h0 while h1 still had it" in text
    assert "t rail 0: some endpoints have IPv4 addresses, others IPv6" in text
    assert "b/rail0: paths are not traced" in text
    assert list(report({"endpoints": [], "conflicts": []})) == ["no endpoints registered"]
    said = list(report({"endpoints": [], "conflicts": []}, " of that task or host"))
    assert said == ["no endpoints of that task or host registered"]
