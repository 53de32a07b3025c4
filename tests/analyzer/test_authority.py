# SPDX-License-Identifier: Apache-2.0
import os
import stat

import pytest

from analyzer.authority import MOST_VALID, Authority, fingerprint, owned_by
from netagent.model.errors import ConfigError, RemoteProtocolError
from netagent.trust import names_of, new_request, validity, write_whole


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "ca", "test authority")


def test_the_names_that_a_request_asks_for_do_not_count(authority, tmp_path):
    _, request = new_request("admin")
    path = tmp_path / "cert.pem"
    write_whole(path, authority.sign(request, "h0", ["10.0.0.1", "fd00::1"]))
    assert names_of(path) == ("h0", ["10.0.0.1", "FD00:0:0:0:0:0:0:1"], ["h0"])


@pytest.mark.parametrize("name", ["", "h0/CN=admin", "h0,DNS:admin", "-x", "h 0", "h0\n", "a" * 64])
def test_what_is_no_name_is_not_signed(authority, name):
    _, request = new_request("x")
    with pytest.raises(RemoteProtocolError, match="no name of a host"):
        authority.sign(request, name, [])
    with pytest.raises(RemoteProtocolError, match="no name of a host"):
        authority.invite(name, until_ns=2, now_ns=1)


@pytest.mark.parametrize(
    "request_", ["", "nonsense", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"]
)
def test_what_is_no_request_is_not_signed(authority, request_):
    with pytest.raises(RemoteProtocolError, match="not signed"):
        authority.sign(request_, "h0", [])


def test_a_request_that_its_key_did_not_sign_is_refused(authority):
    _, request = new_request("x")
    lines = request.splitlines()
    lines[-2] = lines[-2][::-1]
    with pytest.raises(RemoteProtocolError, match="not signed"):
        authority.sign("\n".join(lines), "h0", [])


def test_a_host_whose_clock_is_behind_takes_its_certificate(authority, tmp_path):
    _, request = new_request("x")
    path = tmp_path / "cert.pem"
    write_whole(path, authority.sign(request, "h0", [], days=30))
    began_s, expires_s = validity(path)
    assert 30 * 86_400 < expires_s - began_s < 30 * 86_400 + 900


def test_all_certificates_of_a_name_are_revoked_and_those_of_others_are_not(authority):
    _, request = new_request("x")
    for name in ("h0", "h0", "h00", "h1"):
        authority.sign(request, name, [])
    before = authority.crl_version
    assert authority.revoke("h0") == 2
    assert [(each.name, each.state) for each in authority.issued()] == [
        ("h0", "revoked"), ("h0", "revoked"), ("h00", "valid"), ("h1", "valid"),
    ]  # fmt: skip
    assert authority.crl_version != before
    assert authority.revoke("h0") == 0
    assert Authority(authority.folder).crl_version == authority.crl_version


def test_only_a_certificate_that_holds_is_renewed(authority, tmp_path):
    _, request = new_request("x")
    for name in ("h0", "h1"):
        authority.sign(request, name, [])
    one, other = (each.serial for each in authority.issued())
    assert "BEGIN CERTIFICATE" in authority.renew(request, "h0", one, ["10.0.0.1"])
    for serial in (other, "", "0", "12345"):
        with pytest.raises(PermissionError, match="revoked, or not signed here"):
            authority.renew(request, "h0", serial, [])
    authority.revoke("h0")
    with pytest.raises(PermissionError, match="revoked, or not signed here"):
        authority.renew(request, "h0", one, [])


def test_who_has_a_key_makes_no_more_certificates_than_are_revoked_at_once(authority):
    _, request = new_request("x")
    authority.sign(request, "h0", [])
    serial = next(authority.issued()).serial
    for _ in range(MOST_VALID - 1):
        authority.renew(request, "h0", serial, [])
    with pytest.raises(PermissionError, match=f"{MOST_VALID} certificates of h0 hold"):
        authority.renew(request, "h0", serial, [])
    assert authority.revoke("h0") == MOST_VALID


def test_a_link_that_somebody_put_there_leads_to_nobody_s_file(authority, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    (authority.folder / "link").symlink_to(elsewhere)
    if os.geteuid() == 0:
        owned_by(authority.folder, "nobody")
        assert elsewhere.stat().st_uid == 0
        assert authority.ca.stat().st_uid != 0


def test_a_token_enrols_its_host_once_also_after_a_restart(authority):
    _, request = new_request("x")
    token = authority.invite("h0", until_ns=100, now_ns=1)
    secret, _, known = token.partition(".")
    assert known == fingerprint(authority.ca.read_text())
    again = Authority(authority.folder)
    host, certificate, address = again.enrol(secret, request, "10.0.0.1", now_ns=2)
    assert (host, address) == ("h0", "10.0.0.1")
    assert certificate.startswith("-----BEGIN CERTIFICATE-----")
    for each in (again, Authority(authority.folder)):
        with pytest.raises(PermissionError, match="was used"):
            each.enrol(secret, request, "10.0.0.1", now_ns=2)


def test_an_invitation_may_say_for_which_address(authority, tmp_path):
    _, request = new_request("x")
    token = authority.invite("h0", "10.9.9.9", until_ns=100, now_ns=1)
    _, certificate, address = authority.enrol(token.split(".")[0], request, "10.0.0.1", now_ns=2)
    assert address == "10.9.9.9"
    write_whole(tmp_path / "cert.pem", certificate)
    assert names_of(tmp_path / "cert.pem")[1] == ["10.9.9.9"]


def test_its_key_and_its_invitations_are_for_its_owner_alone(authority):
    authority.invite("h0", until_ns=100, now_ns=1)
    for name in ("ca.key", "invitations.json"):
        assert stat.S_IMODE((authority.folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(authority.folder.stat().st_mode) == 0o700


def test_an_authority_is_made_once(authority):
    with pytest.raises(ConfigError, match="not empty"):
        Authority.create(authority.folder, "again")


def test_where_none_is_that_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no authority is here"):
        Authority(tmp_path)


def test_a_folder_that_cannot_be_looked_into_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        Authority(tmp_path / ("x" * 300))


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made: Not a directory"):
        Authority.create(tmp_path / "file" / "ca", "an authority")


def test_invitations_that_cannot_be_read_are_told_with_their_file(authority):
    (authority.folder / "invitations.json").write_text("[{")
    with pytest.raises(ConfigError, match=r"invitations\.json"):
        Authority(authority.folder)


def test_a_user_that_is_not_there_owns_nothing(authority):
    with pytest.raises(LookupError):
        owned_by(authority.folder, "nobody-by-this-name")
