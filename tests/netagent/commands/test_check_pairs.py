# SPDX-License-Identifier: Apache-2.0
"""Pairs over a bundle of one host whose ports a controller plugged in."""

import json

import pytest

from netagent.cli import main
from netagent.model.errors import Unreachable
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.bundle import Recorder, pack

FLOWS = "".join(
    f" cookie=0x{n}, table=0, priority=5,dl_dst=02:00:00:00:00:0{n} actions=output:{n}\n"
    for n in (1, 2)
)


def pod(n, **changes):
    """Return what ovn-kubernetes writes at the port of a pod."""
    ids = {"sandbox": f"abc{n}", "iface-id": f"ml_pod{n}"}
    ids |= {"attached_mac": f"02:00:00:00:00:0{n}", "ip_addresses": f"10.0.0.{n}/24"}
    return {key: value for key, value in (ids | changes).items() if value}


class Told:
    """A host with a port for each of `plugged`, whose external_ids these are."""

    def __init__(self, plugged, *, on_port=False):
        named = [(f"pod{n}", n, ids) for n, ids in enumerate(plugged, start=1)]
        numbers = [["uuid", f"p{n}"] for _, n, _ in named]
        self._rows = {
            "Bridge": [{"name": "br-int", "ports": ["set", numbers]}],
            "Port": [
                {"_uuid": ["uuid", f"p{n}"], "name": name, "interfaces": ["uuid", f"i{n}"],
                 "tag": ["set", []], "trunks": ["set", []], "vlan_mode": ["set", []],
                 **({"external_ids": pairs(ids)} if on_port else {})}
                for name, n, ids in named
            ],
            "Interface": [
                {"_uuid": ["uuid", f"i{n}"], "name": name, "type": "", "ofport": n,
                 "options": pairs({}), "external_ids": pairs({} if on_port else ids),
                 "link_state": "up", "mac_in_use": "00:00:00:00:00:01", "mtu": 1500}
                for name, n, ids in named
            ],
        }  # fmt: skip

    def rows(self):
        return self._rows

    def command(self, name, *_arguments):
        raise Unreachable("h0", f"no {name}")

    def ofctl(self, command, _bridge):
        if command != "dump-flows":
            raise Unreachable("h0", f"no {command}")
        return FLOWS


def pairs(ids):
    return ["map", [list(each) for each in ids.items()]]


@pytest.fixture
def ask(tmp_path, capsys):
    """Return what `netagent check --bundle` says, by the rules of a controller if there is one."""

    def asked(*plugged, rules="", on_port=False, words=("--all",)):
        recorder = Recorder(Told(plugged, on_port=on_port), "h0", lambda: 7)
        assemble(recorder, "h0")
        bundle, config = tmp_path / "h0.tar.gz", tmp_path / "agent.toml"
        bundle.write_bytes(pack(recorder.bundle(), version="1"))
        config.write_text(
            f'host = "x"\n[analyzer]\nurl = "http://127.0.0.1:1"\n[endpoints]\n{rules}\n'
        )
        named = ("--config", str(config)) if rules else ()
        code = main(["check", *words, "--bundle", str(bundle), *named])
        said = capsys.readouterr()
        return code, said.out + said.err

    return asked


OVN_KUBERNETES = 'controller = "ovn-kubernetes"\nrail = "0"'


def test_pods_of_a_controller_are_walked_by_the_rules_of_the_agents_file(ask):
    code, text = ask(pod(1), pod(2), rules=OVN_KUBERNETES)
    assert (code, "1 of 1 pairs arrive, there and back" in text) == (0, True)
    words = ("abc1/rail0", "abc2/rail0", "--json")
    code, text = ask(pod(1), pod(2), rules=OVN_KUBERNETES, words=words)
    assert [(one["source"], one["target"]) for one in json.loads(text)["pairs"]] == [words[:2]]


def test_without_the_agents_file_it_is_said_what_would_read_them(ask):
    code, text = ask(pod(1), pod(2))
    assert (code, "a controller's external_ids are read with --config" in text) == (2, True)


def test_a_port_that_the_rules_cannot_use_is_named(ask):
    _, text = ask(pod(1), pod(2), pod(3, attached_mac="?"), pod(4, ip_addresses=""),
                  rules=OVN_KUBERNETES)  # fmt: skip
    assert "not read on h0: port pod3: cannot use '?' as hardware address\n" in text
    assert "not read on h0: address or hardware address of port pod4: no external_ids\n" in text


@pytest.mark.parametrize("words", [("--all",), ("a/rail0", "b/rail0")])
@pytest.mark.parametrize(
    ("rules", "plugged", "on_port", "expected"),
    [
        (
            'controller = "kube-ovn"\nrail = "0"',
            {"pod_namespace": "ml", "pod_name": "x", "ip": "10.0.0.9"},
            False,
            "address or hardware address of port pod1",
        ),
        (
            'controller = "ovs-cni"\ntask = "t"',
            {"contPodUid": "u", "contIface": "net1", "contNetns": "/run/netns/u"},
            True,
            "address or hardware address of port pod1",
        ),
        (
            'controller = "ovn-kubernetes"',
            pod(1),
            False,
            "rail of port pod1: it is that of an RNIC",
        ),
    ],
)
def test_what_external_ids_never_say_is_the_reason_told(
    ask, rules, plugged, on_port, expected, words
):
    code, text = ask(plugged, rules=rules, on_port=on_port, words=words)
    assert (code, f"not read on h0: {expected}" in text) == (2, True)


def test_of_many_ports_three_are_named(ask):
    code, text = ask(*map(pod, range(1, 6)), rules='controller = "ovn-kubernetes"')
    assert (code, "rail of port pod1, pod2, pod3 and 2 more: " in text) == (2, True)
