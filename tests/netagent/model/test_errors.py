# SPDX-License-Identifier: Apache-2.0
import pickle

import pytest

from netagent.model.errors import (
    MISUSE,
    PROBLEM,
    CapabilityMissing,
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    Unreachable,
    exit_code,
    plain_of,
)


@pytest.mark.parametrize(
    ("line", "text"), [(3, "a.toml:3: bad"), (None, "a.toml: bad"), (0, "a.toml:0: bad")]
)
def test_an_error_of_a_configuration_names_file_and_line(line, text):
    assert str(ConfigError("a.toml", "bad", line)) == text


def test_only_what_the_operator_can_mend_is_misuse():
    others = [
        *(LocalProtocolError(), RemoteProtocolError()),
        *(CapabilityMissing("x", "y"), Unreachable("h0", "timeout")),
    ]
    assert exit_code(ConfigError("a", "b")) == MISUSE
    assert {exit_code(error) for error in others} == {PROBLEM}


def test_an_error_keeps_what_it_was_made_of():
    error = Unreachable("h0", "refused")
    assert (error.peer, error.reason, str(error)) == ("h0", "refused", "h0: refused")


def test_a_program_reads_an_error_s_remedy_where_it_has_one():
    assert plain_of(CapabilityMissing("x", "y"))["remedy"] == "y"
    assert plain_of(Unreachable("h0", "refused")) == {"error": "h0: refused", "remedy": ""}


def test_a_missing_capability_passes_from_one_process_to_another():
    passed = pickle.loads(pickle.dumps(CapabilityMissing("x", "y")))  # noqa: S301 - of our own
    assert (passed.capability, passed.remedy, str(passed)) == ("x", "y", "x unavailable: y")
