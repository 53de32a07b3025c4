# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.actions.verbs import PortWay, Verb, remedies
from netagent.model.path import Component, Kind, controller, flow_table, link, rnic
from netagent.model.verdict import Symptom, Verdict

BRIDGES = {"h1": "br-int"}


def of(component, symptom=Symptom.LOSS):
    verdict = Verdict(component, component and component.layer, symptom, 0.9, "why")
    return remedies(verdict, bridge_of=lambda host: BRIDGES.get(host, ""))


@pytest.mark.parametrize(
    ("component", "verb", "host", "is_undone"),
    [
        (controller("h1"), Verb.RECOMPUTE, "h1", False),
        (flow_table("h1", "br-int", 33), Verb.REINSTALL, "h1", False),
        (rnic("h2", "rnic0"), Verb.CORDON, "h2", True),
        (Component(Kind.HOST, "h2"), Verb.CORDON, "h2", True),
    ],
)
def test_a_part_has_its_remedy(component, verb, host, is_undone):
    (remedy,) = of(component)
    assert (remedy.verb, remedy.host, bool(remedy.undo)) == (verb, host, is_undone)
    assert remedy.command


@pytest.mark.parametrize(
    "component",
    [
        None,
        controller("northd"),
        controller("port p1-0"),
        flow_table("h2", "br-int", 33),
        flow_table("h1", "br-phy", 0),
        link("a", "b"),
    ],
)
def test_what_is_nobodys_to_mend_has_none(component):
    assert of(component) == ()


def test_a_host_that_is_merely_not_heard_is_left_alone():
    assert of(Component(Kind.HOST, "h2"), Symptom.SILENCE) == ()


def test_who_cordons_is_told_the_host_as_one_word():
    verdict = Verdict(rnic("h2", "rnic0"), None, Symptom.LOSS, 0.9, "why")
    (remedy,) = remedies(verdict, bridge_of=lambda _: "", cordon=("/opt/my hook", "-q"))
    assert remedy.command == "'/opt/my hook' -q cordon h2"
    assert remedy.undo == "'/opt/my hook' -q uncordon h2"


@pytest.mark.parametrize(
    ("way", "do", "undo"),
    [
        (PortWay(("/opt/port", "-q")), "/opt/port -q disable p1-0", "/opt/port -q enable p1-0"),
        (
            PortWay(),
            "ovn-nbctl lsp-set-enabled p1-0 disabled",
            "ovn-nbctl lsp-set-enabled p1-0 enabled",
        ),
    ],
)
def test_a_port_is_disabled_where_somebody_said_how(way, do, undo):
    verdict = Verdict(controller("port p1-0"), None, Symptom.LOSS, 0.9, "why")
    (remedy,) = remedies(verdict, bridge_of=lambda _: "br-int", port=way)
    assert (remedy.verb, remedy.host, remedy.object) == (Verb.DISABLE_PORT, "p1-0", "p1-0")
    assert (remedy.command, remedy.undo) == (do, undo)


@pytest.mark.parametrize(
    "odd", ["../../x", "-h", "a;reboot", "$(reboot)", "a b", "", "x" * 129, "ü"]
)
def test_a_name_that_is_more_than_a_word_has_no_remedy(odd):
    """Hosts say it, and operators paste it."""

    def of_any(component):
        verdict = Verdict(component, None, Symptom.LOSS, 0.9, "why")
        bridge = {"h1": odd}
        return remedies(verdict, bridge_of=lambda host: bridge.get(host, "br-int"), port=PortWay())

    assert of_any(controller("h1")) == ()
    assert of_any(flow_table("h1", odd, 3)) == ()
    assert of_any(Component(Kind.HOST, odd)) == ()
    assert of_any(Component(Kind.CONTROLLER, odd)) == ()
    assert of_any(controller(f"port {odd}")) == ()
