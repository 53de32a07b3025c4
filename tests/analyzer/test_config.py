# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.actions.broker import Limits, Mode
from analyzer.config import (
    Config,
    is_loopback,
    line_of,
    load,
    load_topology,
    parse,
    split_address,
)
from analyzer.detect.latency.floors import Floor, Sensitivity
from netagent.model.errors import ConfigError
from netagent.model.path import Kind
from netagent.model.topology import DeclaredTopology, Fabric, Uplink
from netagent.model.verdict import IncidentState

FULL = """\
listen = "198.18.0.1:8420"
database = "state/netagent.duckdb"
topology = "/etc/netagent/topology.toml"
admins = ["admin", "scheduler"]

[tls]
ca = "ca.pem"
cert = "analyzer.pem"
key = "analyzer.key"

[retention]
age_s = 3600
bytes = 1000000
"""

TOPOLOGY = """\
[switches]
"leaf-s0-r0" = "10.254.0.1"
spine-0 = ["10.254.1.1", "10.254.1.2"]

[[links]]
a = "spine-0"
b = "leaf-s0-r0"

[[uplinks]]
host = "h0"
rnic = "rnic0"
leaf = "leaf-s0-r0"
"""


@pytest.fixture
def write(tmp_path):
    def _write(text, name="analyzer.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return _write


def refusal(function, path):
    with pytest.raises(ConfigError) as caught:
        function(path)
    assert caught.value.path == path
    return caught.value


def test_a_full_file_is_read_with_paths_relative_to_it(write, tmp_path):
    config = load(write(FULL))
    assert config.address == ("198.18.0.1", 8420)
    assert config.database == str(tmp_path / "state/netagent.duckdb")
    assert config.topology == "/etc/netagent/topology.toml"
    assert config.tls.key == str(tmp_path / "analyzer.key")
    assert config.admins == ("admin", "scheduler")
    assert (config.retention.age_s, config.retention.bytes) == (3600, 1000000)


def test_an_empty_file_listens_on_loopback(write):
    config = load(write(""))
    assert config.address == ("127.0.0.1", 8420)
    assert config.tls is None


def test_a_task_may_be_watched_more_or_less_closely_and_inherits_the_rest(write):
    text = "[slowness]\nshift_us = 8\n[slowness.tasks.train-a]\nfactor = 1.1\n"
    asked = load(write(text)).slowness.sensitivity
    assert asked == Sensitivity(Floor(1.3, 8_000.0), (("train-a", Floor(1.1, 8_000.0)),))


TWO_PUSHED = (
    "[controllers.pushed.a]\nclients = ['x']\naway_after_s = 60\n"
    "[controllers.pushed.b]\nclients = ['x']\naway_after_s = 1\n"
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[tasks]\nmissing_after_s = 0\n", 2, "tasks.missing_after_s: expected int >= 1"),
        ("[slowness]\nfactor = 0.5\n", 2, "slowness.factor: expected float >= 1.0"),
        ("[slowness.tasks.x]\nshift_ms = 1\n", None, "unknown key 'shift_ms'"),
        ('listen = "127.0.0.1:1"\nlissten = 3\n', 2, "unknown key 'lissten'"),
        ('[actions]\nmode = "on"\n', 2, "mode"),
        ('[actions]\nverbs = ["delete"]\n', 2, "delete"),
        ('[actions]\nverbs = ["cordon"]\n', 1, "needs cordon_command"),
        ('[actions]\ncordon_command = ["cordon"]\n', 1, "no absolute path"),
        ('[actions]\nport_command = ["port"]\n', 1, "port_command: 'port' is no absolute path"),
        ('[actions]\nverbs = ["disable-port"]\n', 1, "by a person alone"),
        (
            '[actions]\nport_command = ["/p"]\nnorthbound = {remotes = ["unix:/n"]}\n',
            1,
            "one of them",
        ),
        ("[actions.northbound]\nremotes = []\n", 2, "names no remote"),
        ('[actions.northbound]\nremotes = ["ssl:10.0.0.1:6641"]\n', 1, "needs ca, cert and key"),
        ("[actions]\nshare = 2\n", 2, "share"),
        ("[actions]\nper_day = 2\n", 2, "unknown key 'per_day'"),
        ("[retention]\nage_s = 5\n\nages = 3\n", 4, "unknown key 'ages'"),
        ("[retention]\nage_s = 'long'\n", 2, "retention.age_s: expected int, got str"),
        ("[history]\nminutes = 5\n", 2, "unknown key 'minutes'"),
        ("[history]\nminute_age_s = 60\n", 2, "history.minute_age_s: expected int >= 7200"),
        ("[tls]\nca = 'x'\n", 1, "key 'cert' is missing"),
        ("listen = 'nowhere'\n", 1, "is not ADDRESS:PORT"),
        ("\nlisten = 'fd00::5:8420'\n", 2, "needs brackets, as in [fd00::11]:8420"),
        ("[enrolment]\nauthority = 'a'\nlisten = '::1:8422'\n", 3, "needs brackets"),
        ("[page]\n", 1, "key 'listen' is missing"),
        ("[page]\nlisten = '8443'\n", 2, "page.listen: '8443' is not ADDRESS:PORT"),
        ("[page]\nlisten = '0.0.0.0:8443'\n", 2, "page.listen: plain HTTP on 0.0.0.0"),
        ("[tenants]\na = ['*']\nreaders = ['b']\n", 3, "'readers' is a setting of its own"),
        ("[tenants]\nadmins = ['b']\n", 2, "it belongs above the first [section]"),
        ("readers = ['b']\n[tenants]\nb = ['*']\n", 3, "'b' is among readers too"),
        ("[tenants]\nadmin = ['*']\n", 2, "'admin' is among admins too"),
        ("insecure = true\nlisten = \n", 2, "Invalid value"),
        ("database = 'x'\nlisten = '0.0.0.0:8420'\n", 2, "not loopback"),
        ("x", None, "after"),
        (b"listen = '\xff'", None, "not UTF-8"),
        ("[controllers.pushed.onos]\naway_after_s = 60\n", 1, "key 'clients' is missing"),
        (
            "[controllers.pushed.onos]\nclients = ['sdn']\naway_after_s = 1\n",
            3,
            "controllers.pushed.NAME.away_after_s: expected int >= 10",
        ),
        (
            TWO_PUSHED,
            None,  # which of the two it is, nobody says
            "controllers.pushed.NAME.away_after_s: expected int >= 10",
        ),
        (
            "[controllers.pushed.b]\nclient = ['x']\n",
            2,
            "unknown key 'client'; is 'clients' meant?",
        ),
        (
            "[controllers.ovn]\nzones = 'agent'\n",
            2,
            "controllers.ovn.zones: invalid enum value 'agent'; write one of \"agents\"",
        ),
        ("[[webhooks]]\nname = 'a'\nurl = 'x'\nkinds = ['swich']\n", 4, '"switch"'),
        ("[actions]\nmode = 'auto'\n", 2, '; write one of "observe", "advise", "act"'),
        (
            "[actions]\nmodes = 'act'\n",
            2,
            "unknown key 'modes'; is 'mode' meant?",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(write, text, line, words):
    error = refusal(load, write(text))
    assert words in error.message
    if line is not None:
        assert error.line == line
        assert f":{line}: " in str(error)


OVN = "[controllers.ovn]\nnorthbound = ['unix:/run/ovn/nb.sock']\nsouthbound = %s\n"


def test_where_a_controller_is_read_is_said_with_files_relative_to_it(write, tmp_path):
    files = "ca = 'ca.pem'\ncert = 'ours.pem'\nkey = '/etc/ours.key'\n"
    remotes = "['ssl:10.0.0.1:6642', 'ssl:[fd00::1]:6642', 'tcp:ovn-central:6642']"
    ovn = load(write(OVN % remotes + files)).controllers.ovn
    assert ovn.northbound == ("unix:/run/ovn/nb.sock",)
    assert ovn.southbound == ("ssl:10.0.0.1:6642", "ssl:[fd00::1]:6642", "tcp:ovn-central:6642")
    assert (ovn.ca, ovn.cert, ovn.key) == (
        str(tmp_path / "ca.pem"), str(tmp_path / "ours.pem"), "/etc/ours.key",
    )  # fmt: skip
    assert load(write(OVN % "['tcp:10.0.0.1:6642']")).controllers.ovn.ca == ""
    assert load(write("")).controllers.ovn is None
    assert load(write("[controllers.ovn]\nzones = 'agents'\n")).controllers.ovn.zones == "agents"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (OVN % "[]", 3, "controllers.ovn.southbound: names no remote"),
        (OVN % "'tcp:10.0.0.1:6642'", 3, "expected array, got str"),
        (OVN % "['10.0.0.1:6642']", 3, "is none of unix:/FILE"),
        (OVN % "['unix:sock']", 3, "is none of unix:/FILE"),
        (OVN % "['ptcp:6642']", 3, "is none of unix:/FILE"),
        (OVN % "['tcp:10.0.0.1:6642,tcp:10.0.0.2:6642']", 3, "is none of unix:/FILE"),
        (OVN % "['tcp:10.0.0.1']", 3, "is not ADDRESS:PORT"),
        (OVN % "['tcp:fd00::1:6642']", 3, "needs brackets"),
        (OVN % "['ssl:10.0.0.1:6642']", 1, "needs ca, cert and key"),
        (OVN % "['tcp:10.0.0.1:6642']" + "ca = 'x'\n", 1, "go together"),
        (OVN % "['tcp:10.0.0.1:6642']" + "crl = 'x'\n", 4, "unknown key 'crl'"),
        ("[controllers.ovn]\nnorthbound = ['unix:/x']\n", 1, "southbound: names no remote"),
        ("[controllers.ovn]\nzones = 'agents'\nca = 'x'\n", 1, "with zones there are no remotes"),
        ("[controllers.ovn]\nzones = 'hosts'\n", 2, "invalid enum value"),
        ("[controllers.onos]\nurl = 'x'\n", 1, "unknown key 'onos'"),
        ("[controllers.pushed.onos]\nclients = []\n", 1, "clients names nobody"),
        ("[controllers.pushed.ovn]\nclients = ['sdn']\n", 1, "[controllers.ovn]"),
        ("[controllers.pushed.'a b']\nclients = ['sdn']\n", 1, "a name has letters"),
    ],
)
def test_what_is_wrong_of_a_controller_is_named_with_its_line(write, text, line, words):
    error = refusal(load, write(text))
    assert words in error.message
    assert error.line == line


def test_a_missing_file_is_a_config_error(tmp_path):
    message = refusal(load, str(tmp_path / "none.toml")).message
    assert "No such file or directory; `netagent-analyzer ca init` writes one" in message


def test_a_setting_of_the_file_that_is_below_a_section_is_told_where_it_belongs(write):
    error = refusal(load, write('[enrolment]\nauthority = "a"\nreaders = ["prometheus"]\n'))
    assert "unknown key 'readers'; it belongs above the first [section]" in error.message
    assert error.line == 3


def test_plain_http_beyond_loopback_needs_the_operators_word(write):
    assert load(write("insecure = true\nlisten = '0.0.0.0:1'\n")).insecure
    assert load(write("listen = '[::1]:1'\n")).address == ("::1", 1)


@pytest.mark.parametrize("text", ["", "host", ":80", "host:", "host:x", "h:99999", "h:٣"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError):
        split_address(text)


def test_loopback_is_known_by_address_and_by_name():
    assert [is_loopback(h) for h in ("127.9.9.9", "::1", "localhost", "10.0.0.1", "example")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@given(st.text())
def test_any_text_is_a_configuration_or_a_config_error(text):
    try:
        parse(text, Config, "f")
    except ConfigError as error:
        line = error.line
    else:
        line = None
    assert line is None or 1 <= line <= text.count("\n") + 1


def test_lines_are_found_in_tables_arrays_of_tables_and_quoted_keys():
    assert line_of(TOPOLOGY, ("switches", "leaf-s0-r0")) == 2
    assert line_of(TOPOLOGY, ("links", 0, "b")) == 7
    assert line_of(TOPOLOGY, ("uplinks", 0, "nothing")) == 9
    assert line_of(TOPOLOGY, ("nothing",)) is None


def test_a_declared_topology_names_addresses_links_and_uplinks(write):
    topology = load_topology(write(TOPOLOGY))
    assert topology.name("10.254.1.2") == "spine-0"
    assert topology.name("192.0.2.1") == "192.0.2.1"
    assert topology.links == {("leaf-s0-r0", "spine-0")}
    assert topology.uplinks == (Uplink("h0", "rnic0", "leaf-s0-r0"),)
    assert topology.leaf("h0", "rnic0") == "leaf-s0-r0"
    assert topology.leaf("h0", "rnic1") is None
    assert load_topology(write("")) == DeclaredTopology()


def test_a_switch_is_known_by_its_ipv6_address_however_that_is_written(write):
    topology = load_topology(write(TOPOLOGY.replace("10.254.1.2", "FD00:0254:0::2")))
    assert topology.name("fd00:254::2") == "spine-0"


@pytest.mark.parametrize("fabric", Fabric)
def test_a_fabric_says_how_it_chooses_among_ways(write, fabric):
    assert load_topology(write(f'fabric = "{fabric}"\n{TOPOLOGY}')).fabric is fabric
    assert load_topology(write(TOPOLOGY)).fabric is Fabric.ECMP
    with pytest.raises(ConfigError, match="fabric: invalid enum value 'mesh'"):
        load_topology(write('fabric = "mesh"\n'))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (TOPOLOGY.replace('"10.254.0.1"', '"leaf"'), 2, "'leaf' is no address"),
        (TOPOLOGY.replace("10.254.0.1", "fe80::1"), 2, "'fe80::1' is no address of a switch"),
        (TOPOLOGY.replace("10.254.0.1", "10.254.1.2"), 3, "the address of leaf-s0-r0 too"),
        (TOPOLOGY.replace('b = "leaf-s0-r0"', 'b = "leaf-9"'), 7, "not among [switches]"),
        (TOPOLOGY.replace('leaf = "leaf-s0-r0"', 'leaf = "x"'), 12, "not among [switches]"),
        (TOPOLOGY.replace("rnic =", "nic ="), 11, "unknown key 'nic'"),
    ],
)
def test_a_topology_that_does_not_add_up_is_refused_with_its_line(write, text, line, words):
    error = refusal(load_topology, write(text))
    assert words in error.message
    assert error.line == line


def test_by_default_nothing_is_done_nor_proposed():
    assert Config().actions.limits == Limits()
    assert Config().actions.mode is Mode.OBSERVE


KUBERNETES = '[controllers.kubernetes]\nurl = "https://10.0.0.1:6443"\n'


def test_an_api_server_is_read_with_its_files_and_rules(write, tmp_path):
    text = KUBERNETES + 'ca = "ca.pem"\ntoken_file = "/t"\nnamespaces = ["ml"]\nfirst_rail = 1\n'
    of = load(write(text)).controllers.kubernetes
    assert (of.ca, of.token_file, of.cert) == (str(tmp_path / "ca.pem"), "/t", "")
    assert (of.rules.first_rail, of.rules.container, of.tell) == (1, "{namespace}.{pod}", False)


def test_several_controllers_are_read_beside_each_other(write, tmp_path):
    files = "ca = 'ca.pem'\ncert = 'ours.pem'\nkey = 'ours.key'\n"
    text = OVN % "['ssl:10.0.0.1:6642']" + files + KUBERNETES + 'token_file = "token"\n'
    controllers = load(write(text)).controllers
    assert controllers.ovn.key == str(tmp_path / "ours.key")
    assert controllers.kubernetes.token_file == str(tmp_path / "token")


def test_who_may_push_is_named_for_each_controller(write):
    text = "[controllers.pushed.acme]\nclients = ['sdn-1', 'sdn-2']\n[controllers.pushed.b]\n"
    pushed = load(write(text + "clients = ['c']\naway_after_s = 60\n")).controllers.pushed
    assert {name: (p.clients, p.away_after_s) for name, p in pushed.items()} == {
        "acme": (("sdn-1", "sdn-2"), 180),
        "b": (("c",), 60),
    }


@pytest.mark.parametrize(("host", "url"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")])
def test_a_pod_finds_the_api_server_of_its_cluster(write, monkeypatch, host, url):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    of = load(write("[controllers.kubernetes]\n")).controllers.kubernetes
    assert (of.url, of.ca, of.token_file) == (
        f"https://{url}:6443",
        "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
    )
    other = load(write(KUBERNETES)).controllers.kubernetes
    assert (other.url, other.ca) == ("https://10.0.0.1:6443", "")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[controllers.kubernetes]\n", 1, "this is no pod"),
        ('[controllers.kubernetes]\nurl = "http://10.0.0.1"\n', 2, "not such as https"),
        ('[controllers.kubernetes]\nurl = "https://[::1"\n', 2, "Invalid IPv6"),
        ('[controllers.kubernetes]\nurl = "https://a:99999"\n', 2, "out of range"),
        (KUBERNETES + 'key = "x"\n', 1, "go together"),
        (KUBERNETES + 'namespaces = ["../x"]\n', 3, "no names"),
        (KUBERNETES + 'container = "same"\n', 3, "keys in braces"),
        (KUBERNETES + 'rail = "rail"\n', 3, "no group"),
        (KUBERNETES + "taint = true\n", 3, "unknown key"),
    ],
)
def test_an_api_server_that_cannot_be_is_named_with_its_line(write, monkeypatch, text, line, words):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match=words) as error:
        load(write(text))
    assert error.value.line == line


# --- webhooks -------------------------------------------------------------------------------------

HOOK = '[[webhooks]]\nname = "pager"\nurl = "https://pager.example/netagent"\n'


def test_webhooks_are_read_with_their_files_relative_to_the_configuration(write, tmp_path):
    text = HOOK + 'secret = "pager.secret"\nca = "/etc/ssl/ours.pem"\nstate = "confirmed"\n'
    loaded = load(
        write(
            text + 'kinds = ["link", "switch"]\n[[webhooks]]\nname = "b"\nurl = "http://[::1]:1/"\n'
        )
    )
    pager, other = loaded.webhooks
    assert (pager.secret, pager.ca) == (str(tmp_path / "pager.secret"), "/etc/ssl/ours.pem")
    assert (pager.state, pager.kinds) == (IncidentState.CONFIRMED, (Kind.LINK, Kind.SWITCH))
    assert (other.secret, other.ca, other.state) == ("", "", IncidentState.OPEN)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (HOOK.replace("https", "http"), 3, "plain HTTP to pager.example, which is not loopback"),
        (HOOK.replace("https", "ftp"), 3, "is no URL such as https://"),
        (HOOK.replace("https://pager.example/netagent", "https://"), 3, "is no URL"),
        (HOOK.replace("pager.example", "me:pw@pager.example"), 3, "without user, password"),
        (HOOK.replace("pager.example", "pager.example:99999"), 3, "99999"),
        (HOOK.replace("pager.example", "pager.ex ample"), 3, "is no URL"),
        (HOOK.replace('"pager"', '"a b"'), 2, "a name has letters"),
        (HOOK + HOOK, 5, "another one has that name"),
        (HOOK + 'state = "recovered"\n', 4, "use open or confirmed"),
        (HOOK + 'state = "odd"\n', 4, "state"),
        (HOOK + 'kinds = ["cable"]\n', 4, "kinds"),
        (HOOK + 'source = ""\n', 4, "is no URI reference"),
        (HOOK + "timeout_s = 0\n", 4, "timeout_s"),
        (HOOK + "retries = 3\n", 4, "unknown key 'retries'"),
        ('[[webhooks]]\nname = "a"\n', 1, "'url' is missing"),
    ],
)
def test_a_webhook_that_cannot_be_used_is_told_with_its_line(write, text, line, words):
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        load(write(text))
    assert caught.value.line == line


def test_plain_http_to_a_receiver_elsewhere_needs_the_operators_word(write):
    loaded = load(write(HOOK.replace("https", "http") + "insecure = true\n"))
    assert loaded.webhooks[0].insecure


@pytest.mark.parametrize("url", ["https://w.example/n", "/srv/pages", "http://w/{name}?x=1", ""])
def test_runbooks_are_on_this_disk_unless_it_is_said_where_else(write, url):
    pages = load(write(f'[runbooks]\nurl = "{url}"\n')).runbooks.pages
    named = pages.of("link-slow")
    if url:
        assert named == (
            url.replace("{name}", "link-slow") if "{" in url else f"{url}/link-slow.md"
        )
    else:
        assert Path(named).read_text().startswith("# A link delays packets\n")


@pytest.mark.parametrize("url", ["javascript:x", "docs", "https://a b", f"/{'x' * 500}"])
def test_runbooks_are_at_a_url_or_an_absolute_path(write, url):
    with pytest.raises(ConfigError) as caught:
        load(write(f'\n[runbooks]\nurl = "{url}"\n'))
    assert caught.value.line == 3
