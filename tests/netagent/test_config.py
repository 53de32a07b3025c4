# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.config import AgentConfig, is_loopback, load, parse, split_listen
from netagent.host.controllers import CONTROLLERS, Rule, Rules
from netagent.model.errors import ConfigError

FULL = """\
host = "h0"
state_dir = "/run/netagent-lab/h0/agent"

[analyzer]
url = "https://198.18.0.1:8420"

[tls]
ca = "tls/ca.pem"
cert = "/abs/h0.pem"
key = "/abs/h0.key"

[rpc]
listen = "198.18.0.10:8421"

[ovs]
rundir = "ovs"
"""
SMALL = 'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:8420"\n'
REMOTE = (
    'host = "h0"\n[analyzer]\nurl = "https://198.18.0.1:8420"\n'
    '[tls]\nca = "ca"\ncert = "c"\nkey = "k"\n'
)


def problem(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text, "agent.toml")
    return caught.value


def test_a_small_file_gets_the_documented_defaults():
    config = parse(SMALL)
    assert config.probe.rate_per_endpoint == 20
    assert config.probe.rate_per_host == 400
    assert config.probe.bytes_per_second_per_endpoint == 4 * 65536
    assert config.probe.sizes == (64, 1100, "mtu")
    assert (config.probe.flows_per_pair, config.probe.pings_per_visit) == (4, 4)
    assert config.probe.rotate_s == 180
    assert (config.probe.timeout_ms, config.probe.port, config.probe.window_s) == (500, 18515, 5)
    assert (config.trace.packets_per_second, config.trace.refresh_s) == (50, 5)
    assert (config.trace.max_hops, config.limits.spool_mib) == (6, 64)
    assert config.rpc.peers == ("analyzer", "admin")
    assert config.rpc_url == "http://127.0.0.1:8421"


def test_relative_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "agent.toml").write_text(FULL)
    config = load(tmp_path / "agent.toml")
    assert config.tls is not None
    assert config.tls.ca == f"{tmp_path}/tls/ca.pem"
    assert config.tls.cert == "/abs/h0.pem"
    assert config.ovs.rundir == f"{tmp_path}/ovs"
    assert config.ovs.ovn_rundir == "/var/run/ovn"
    assert config.ovs.ovn_databases == ""
    assert config.rpc_url == "https://198.18.0.10:8421"
    assert config.rpc.address == ("198.18.0.10", 8421)


@pytest.mark.parametrize(
    ("said", "means"), [("none", "none"), ("/x", "/x"), ("ovn-ic", "{}/ovn-ic"), ("", "")]
)
def test_where_ovn_s_databases_are_is_a_folder_or_that_there_are_none(tmp_path, said, means):
    (tmp_path / "agent.toml").write_text(f'{SMALL}\n[ovs]\novn_databases = "{said}"\n')
    assert load(tmp_path / "agent.toml").ovs.ovn_databases == means.format(tmp_path)


@pytest.mark.parametrize("make", ["missing", "folder", "binary"])
def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path, make):
    path = tmp_path / "agent.toml"
    if make == "folder":
        path.mkdir()
    elif make == "binary":
        path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load(path)
    assert ("`netagent enroll` writes one" in str(caught.value)) == (make == "missing")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (SMALL + "[probe]\n\n# why\nspeed = 3\n", 7, "unknown key 'probe.speed'"),
        (SMALL + "\n[prob]\nport = 1\n", 5, "unknown key 'prob'"),
        ("unknown = 1\n" + SMALL, 1, "unknown key 'unknown'"),
        (SMALL + "[probe]\nport = 0\n", 5, "probe.port: Expected `int` >= 1"),
        (SMALL + "[probe]\nport = '1'\n", 5, "probe.port: Expected `int`, got `str`"),
        (SMALL + "[probe]\nsizes = [\n  64,\n  3,\n]\nport = 1\n", 4, "sizes: 3 is not within"),
        (SMALL + "[probe]\nrotate_s = 9\n", 4, "rotate_s: 9 is neither 0 nor at least 10"),
        (SMALL + '[probe]\nsizes = [64, "big"]\n', 5, "Invalid enum value 'big'"),
        (SMALL + "[probe]\nrate_per_host = nan\n", 5, "rate_per_host"),
        ('host = "h0"\n', None, "key 'analyzer' is missing"),
        ('host = "h0"\n[analyzer]\n', 2, "key 'analyzer.url' is missing"),
        ('host = "../x"\n[analyzer]\nurl = "http://127.0.0.1"\n', 1, "host"),
        (SMALL + "[probe\n", 4, "Expected ']'"),
        (SMALL + "x =", 4, "Invalid value"),
        ('host = "h0"\n[analyzer]\nurl = "198.18.0.1"\n', 2, "write https://"),
        ('host = "h0"\n[analyzer]\nurl = "http://a?b"\n', 2, "no user, query or fragment"),
        (SMALL + '[rpc]\nlisten = "198.18.0.10"\n', 4, "no ADDRESS:PORT"),
        (SMALL + '[rpc]\nlisten = "host:1"\n', 4, "no IP address"),
        (SMALL + '[rpc]\nlisten = "fd00::11:8421"\n', 4, "needs brackets, as in [fd00::11]:8421"),
        (SMALL + '[rpc]\nadvertise = "fd00::11:8421"\n', 4, "an IPv6 address needs brackets"),
        (SMALL + '[rpc]\nlisten = "[fd00::11:8421"\n', 4, "an IPv6 address needs brackets"),
        (SMALL + '[rpc]\nlisten = "0.0.0.0:1"\n', None, "rpc.listen is not on loopback"),
        (SMALL + '[metrics]\nlisten = "198.18.0.10"\n', 4, "no ADDRESS:PORT"),
        (SMALL + '[metrics]\nlisten = "0.0.0.0:9421"\n', None, "metrics.listen is not on loopback"),
        (SMALL.replace("http:", "https:"), None, "(`netagent enroll` writes it)"),
        (SMALL + '[endpoints]\nfolder = "endpoints"\n', 4, "'endpoints' is no absolute path"),
        (
            f'{SMALL}[ovs]\nintegration_bridge = ""\n[endpoints]\ncontroller = "ovn-kubernetes"\n',
            None, "endpoints.controller needs a bridge",
        ),
        (SMALL.replace("127.0.0.1", "198.18.0.1"), None, "must be https:// beyond loopback"),
        (REMOTE + '[rpc]\nlisten = "127.0.0.1:1"\n', None, "rpc.advertise is needed"),
        (REMOTE + '[rpc]\nlisten = "0.0.0.0:1"\n', None, "rpc.advertise is needed"),
        (REMOTE + '[rpc]\nadvertise = "nowhere"\n', 8, "no ADDRESS:PORT"),
    ],
)  # fmt: skip
def test_every_mistake_is_told_with_its_line(text, line, message):
    error = problem(text)
    assert message in error.message
    assert error.line == line
    assert str(error).startswith(f"agent.toml:{line}:" if line else "agent.toml: ")


def test_plain_http_beyond_loopback_needs_the_word_insecure():
    text = "insecure = true\n" + SMALL.replace("127.0.0.1", "198.18.0.1")
    config = parse(text + '[rpc]\nlisten = "[::]:8421"\n')
    assert config.insecure
    assert config.rpc.address == ("::", 8421)


def test_the_whole_configuration_is_frozen():
    with pytest.raises(AttributeError):
        parse(SMALL).host = "h1"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("host", "answer"), [("127.0.0.2", True), ("::1", True), ("localhost", True), ("h", False)]
)
def test_loopback_is_recognised(host, answer):
    assert is_loopback(host) is answer


@pytest.mark.parametrize("text", ["", ":", "1.2.3.4:", "1.2.3.4:70000", "1.2.3.4:²", "x:1"])
def test_what_is_no_address_and_port_is_refused(text):
    with pytest.raises(ValueError):
        split_listen(text)


KEYS = st.sampled_from(["host", "probe", "port", "x", "analyzer", "url", '"a.b"', "sizes"])
VALUES = st.sampled_from(["1", '"s"', "[1,\n2]", "nan", "{}", '"""a\nb"""', "1979-05-27", "-1"])
LINES = st.one_of(
    st.builds("{} = {}\n".format, KEYS, VALUES), KEYS.map("[{}]\n".format), st.just("# c\n")
)


def attempt(text: str) -> tuple[AgentConfig | None, ConfigError | None]:
    try:
        return parse(text), None
    except ConfigError as error:
        return None, error


@given(st.lists(LINES, max_size=12).map("".join) | st.text())
def test_any_text_is_a_configuration_or_a_config_error_within_the_file(text):
    config, error = attempt(text)
    if config is not None:
        assert msgspec.convert(msgspec.to_builtins(config), AgentConfig) == config
    if error is not None and error.line is not None:
        assert 1 <= error.line <= text.count("\n") + 1


@given(st.integers(0, 8))
def test_the_line_of_an_unknown_key_is_where_its_statement_starts(above):
    text = SMALL + "[probe]\n" + "# comment\n" * above + "nonsense = [\n  1,\n]\nport = 1\n"
    assert problem(text).line == 4 + above + 1


def test_the_advertised_address_is_what_the_analyzer_is_told():
    text = REMOTE + '[rpc]\nlisten = "0.0.0.0:8421"\nadvertise = "198.18.0.10:8421"\n'
    assert parse(text).rpc_url == "https://198.18.0.10:8421"


# --- who plugs containers in ----------------------------------------------------------------------


def rules_of(text: str) -> Rules | None:
    return parse(f"{SMALL}[endpoints]\n{text}\n").endpoints.rules()


def test_without_a_controller_only_our_own_external_ids_are_read():
    assert parse(SMALL).endpoints.rules() is None


def test_a_controller_has_rules_of_its_own():
    assert rules_of('controller = "ovn-kubernetes"') == CONTROLLERS["ovn-kubernetes"]


def test_a_host_may_have_no_open_vswitch_and_tunnels_may_name_no_rail():
    ovs = parse(f'{SMALL}[ovs]\nintegration_bridge = ""\nrails = ["p0", "p1"]\n').ovs
    assert (ovs.integration_bridge, ovs.rails) == ("", ("p0", "p1"))
    assert "twice" in problem(f'{SMALL}[ovs]\nrails = ["p0", "p0"]\n').message


def test_rules_may_be_a_text_or_have_a_regular_expression():
    rules = rules_of(
        'controller = "kube-ovn"\ncontainer = "{pod_name}"\nrail = "0"\n'
        "task = { text = '{pod_name}', match = '(.+)-worker-[0-9]+' }"
    )
    assert rules is not None
    assert (rules.container, rules.rail) == (Rule("{pod_name}"), Rule("0"))
    assert rules.task == Rule("{pod_name}", "(.+)-worker-[0-9]+")
    assert rules.netns == CONTROLLERS["kube-ovn"].netns


def test_the_rail_of_the_uplink_is_a_word():
    own = rules_of('controller = "ovs-cni"\ntask = "t"')
    by_uplink = rules_of('controller = "ovs-cni"\ntask = "t"\nrail = "uplink"')
    assert (own.rail, by_uplink.rail) == (CONTROLLERS["ovs-cni"].rail, None)
    assert rules_of('controller = "ovn"\ntask = "uplink"').task == Rule("uplink")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('controller = "nsx"', "controller: 'nsx' is none of ovn, ovn-kubernetes, kube-ovn"),
        ('task = "t"', "rules need a controller"),
        ('controller = "neutron"', "task is needed: neutron writes none"),
        ('controller = "ovn"\ntask = "{"', "'{' is no text with keys in braces"),
        ("controller = 'ovn'\ntask = { text = '{a}', match = '(' }", "is no regular expression"),
        ("controller = 'ovn'\ntask = { text = '{a}', match = '.*' }", "'.*' has no group"),
        ("controller = 'ovn'\ntask = 't'\nrail = 'uplnk'", "rail: 'uplnk' has no {KEY}"),
        ("controller = 'ovn'\ntask = 't'\nrail = { text = '0', first = 1 }", "'0' has no {KEY}"),
        ("controller = 'ovn'\ntask = { txt = '{a}' }", "unknown key 'endpoints.task.txt'"),
        ("controller = 'ovn'\ntask = { text = 'a' }\nrail = { text = '1', first = 256 }", "<= 255"),
    ],
)
def test_rules_that_nothing_can_be_read_with_are_refused(text, message):
    assert message in problem(f"{SMALL}[endpoints]\n{text}\n").message


def test_by_default_nobody_has_this_host_do_anything():
    assert parse(SMALL).actions.allow == ()
    made = parse(FULL + '[actions]\nallow = ["recompute", "reinstall"]\n')
    assert (made.actions.per_hour, made.actions.peers) == (4, ("analyzer",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + '[actions]\nallow = ["recompute"]\n', "anybody could ask"),
        ("insecure = true\n" + SMALL + '[actions]\nallow = ["recompute"]\n', "anybody could ask"),
        (REMOTE + '[actions]\nallow = ["delete"]\n', "delete"),
        (REMOTE + '[actions]\nallow = ["cordon"]\n', "cordon"),
        (REMOTE + "[actions]\nper_hour = 61\n", "per_hour"),
        (REMOTE + "[actions]\nallowed = []\n", "unknown key"),
        (REMOTE + '[actions]\nallow = ["recompute"]\n[ovs]\nintegration_bridge = ""\n', "needs a"),
    ],
)
def test_actions_that_nobody_may_ask_for_or_that_are_none_are_refused(text, message):
    assert message in str(problem(text))
