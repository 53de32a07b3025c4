# SPDX-License-Identifier: Apache-2.0
import contextlib
import ssl
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.authority import Authority
from netagent import trust as module
from netagent.model.errors import ConfigError
from netagent.trust import (
    Trust,
    due,
    names_of,
    new_request,
    openssl,
    revoked_in,
    validity,
    write_whole,
)


@dataclass
class Files:
    ca: str
    cert: str
    key: str
    crl: str = ""


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "ca", "test authority")


def signed(authority, name, folder):
    """Return files of a name with a new certificate."""
    key, request = new_request(name)
    path = folder / f"{name}.pem"
    write_whole(path, key + authority.sign(request, name, ["127.0.0.1"]))
    return Files(str(authority.ca), str(path), str(path), str(authority.crl))


def shaken(client, server):
    """Shake hands in memory; return what each knows of the other. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    left = list(ends)
    for _ in range(10):
        for end in list(left):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(end)
        if not left:
            return ends[0].getpeercert(), ends[1].getpeercert()
    raise AssertionError("no end of it")


def test_both_sides_know_each_other_and_speak_tls_1_3_alone(authority, tmp_path):
    one, other = (Trust(signed(authority, name, tmp_path)) for name in ("h0", "h1"))
    of_server, of_client = shaken(one.client, other.server)
    assert of_server["subject"] == ((("commonName", "h1"),),)
    assert of_client["subject"] == ((("commonName", "h0"),),)
    one.client.minimum_version = ssl.TLSVersion.TLSv1_2
    one.client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol|version"):
        shaken(one.client, other.server)


def test_who_shows_no_certificate_gets_in_at_the_bare_side_alone(authority, tmp_path):
    trust = Trust(signed(authority, "h0", tmp_path))
    stranger = ssl.create_default_context(cafile=str(authority.ca))
    _, of_client = shaken(stranger, trust.bare)
    assert not of_client
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        shaken(stranger, trust.server)


def test_at_the_optional_side_a_certificate_may_be_left_out_and_has_to_be_good(authority, tmp_path):
    trust = Trust(signed(authority, "h0", tmp_path))
    stranger = ssl.create_default_context(cafile=str(authority.ca))
    _, of_client = shaken(stranger, trust.optional)
    assert not of_client
    known = Trust(signed(authority, "h1", tmp_path))
    _, of_client = shaken(known.client, trust.optional)
    assert of_client["subject"] == ((("commonName", "h1"),),)
    trust.revoked = frozenset({of_client["serialNumber"].lstrip("0")})
    with pytest.raises(ssl.SSLError, match="revoked"):
        shaken(known.client, trust.optional)
    (tmp_path / "other").mkdir()
    other = Authority.create(tmp_path / "other" / "ca", "another")
    foreign = ssl.create_default_context(cafile=str(authority.ca))
    foreign.load_cert_chain(signed(other, "h1", tmp_path / "other").cert)
    with pytest.raises(ssl.SSLError):
        shaken(foreign, trust.optional)


def test_a_new_certificate_is_shown_by_the_contexts_there_are(authority, tmp_path):
    files = signed(authority, "h0", tmp_path)
    trust, other = Trust(files), Trust(signed(authority, "h1", tmp_path))
    before, _ = shaken(other.client, trust.server)
    assert not trust.look()
    signed(authority, "h0", tmp_path)
    assert trust.look()
    now, _ = shaken(other.client, trust.server)
    assert before["serialNumber"] != now["serialNumber"]
    assert not trust.look()


@pytest.mark.parametrize("which", ["client", "server"])
def test_what_is_revoked_is_refused_by_the_other_side(authority, tmp_path, which):
    bad, good = (Trust(signed(authority, name, tmp_path)) for name in ("h0", "h1"))
    sides = (bad.client, good.server) if which == "client" else (good.client, bad.server)
    shaken(*sides)
    assert authority.revoke("h0") == 1
    assert good.look()
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        shaken(*sides)
    shaken(good.client, good.server)  # others are as well off as before


def test_files_that_cannot_be_used_leave_what_was_there(authority, tmp_path):
    files = signed(authority, "h0", tmp_path)
    trust, other = Trust(files), Trust(signed(authority, "h1", tmp_path))
    whole = Path(files.cert).read_text()
    Path(files.cert).write_text(whole[:300])
    assert not trust.look()
    assert "TLS files cannot be used" in trust.problem
    shaken(other.client, trust.server)
    Path(files.cert).write_text(whole)
    assert trust.look()
    assert trust.problem == ""


def test_a_list_that_another_authority_signed_is_not_taken(authority, tmp_path):
    other = Authority.create(tmp_path / "other", "another")
    files = signed(authority, "h0", tmp_path)
    trust = Trust(files)
    own = Path(files.crl).read_text()
    assert revoked_in(own, files.ca).serials == frozenset()
    with pytest.raises(ConfigError, match="list of revoked"):
        revoked_in(other.crl.read_text(), files.ca)
    Path(files.crl).write_text(other.crl.read_text())
    assert not trust.look()
    assert "list of revoked" in trust.problem


def test_a_list_of_another_key_is_not_taken_whatever_it_calls_itself(authority, tmp_path):
    other = Authority.create(tmp_path / "other", "test authority")
    with pytest.raises(ConfigError, match="did not sign it"):
        revoked_in(other.crl.read_text(), str(authority.ca))


def test_an_authority_that_was_replaced_is_trusted_no_more(authority, tmp_path):
    files = signed(authority, "h0", tmp_path)
    trust, other = Trust(files), Authority.create(tmp_path / "other", "another")
    trusting = signed(authority, "h1", tmp_path)  # both, but shows a certificate of the old one
    trusting.ca, trusting.crl = str(tmp_path / "both.pem"), ""
    Path(trusting.ca).write_text(authority.ca.read_text() + other.ca.read_text())
    old = Trust(trusting)
    (tmp_path / "new").mkdir()
    new = Trust(signed(other, "h2", tmp_path / "new"))
    key, request = new_request("h0")
    write_whole(Path(files.cert), key + other.sign(request, "h0", ["127.0.0.1"]))
    Path(files.ca).write_text(other.ca.read_text())
    Path(files.crl).write_text(other.crl.read_text())
    assert trust.look(), trust.problem
    shaken(new.client, trust.server)
    shaken(trust.client, new.server)
    for sides in ((old.client, trust.server), (trust.client, old.server)):
        with pytest.raises(ssl.SSLError, match="trusted no more"):
            shaken(*sides)


def test_a_certificate_that_ended_is_refused_on_connections_that_stand(
    authority, tmp_path, monkeypatch
):
    trust = Trust(signed(authority, "h0", tmp_path))
    _, of_client = shaken(trust.client, trust.server)
    assert not trust.refuses(of_client)
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 91 * 86_400)
    assert trust.refuses(of_client)


def test_without_a_list_nobody_is_revoked(authority, tmp_path):
    files = signed(authority, "h0", tmp_path)
    authority.crl.unlink()
    assert Trust(files).revoked == frozenset()


@pytest.mark.parametrize("missing", ["ca", "cert", "key"])
def test_a_file_that_is_missing_is_named(authority, tmp_path, missing):
    files = signed(authority, "h0", tmp_path)
    setattr(files, missing, str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match=r"none\.pem: does not exist"):
        Trust(files)


def test_a_file_that_cannot_be_looked_for_is_named(authority, tmp_path):
    files = signed(authority, "h0", tmp_path)
    files.ca = str(tmp_path / ("x" * 300))
    with pytest.raises(ConfigError, match=r"xxx: cannot be read: File name too long"):
        Trust(files)


def test_a_key_that_others_may_read_is_told_of(authority, tmp_path):
    files = signed(authority, "h0", tmp_path)
    assert not Trust(files).key_is_open
    Path(files.key).chmod(0o640)
    assert Trust(files).key_is_open


def test_names_and_time_of_a_certificate(authority, tmp_path):
    path = Path(signed(authority, "h0", tmp_path).cert)
    assert names_of(path) == ("h0", ["127.0.0.1"], ["h0"])
    began_s, expires_s = validity(path)
    assert 89 * 86_400 < expires_s - began_s < 91 * 86_400


@given(st.text(max_size=20), st.floats(0, 1e9), st.floats(1, 1e8))
def test_a_third_of_the_time_is_left_when_a_certificate_is_renewed(name, began_s, lasts_s):
    share = (due(name, began_s, began_s + lasts_s) - began_s) / lasts_s
    assert 0.59 < share < 0.71


def test_hosts_of_one_hour_renew_at_different_times():
    assert len({due(f"h{n}", 0.0, 100.0) for n in range(50)}) > 30


def test_what_openssl_says_is_told_with_the_file(tmp_path):
    with pytest.raises(ConfigError, match="x509"):
        openssl("x509", "-in", str(tmp_path / "none"), "-noout")


def test_a_file_is_written_whole_and_for_its_owner(tmp_path):
    path = tmp_path / "key"
    path.write_text("before")
    path.chmod(0o644)
    write_whole(path, "now")
    assert path.read_text() == "now"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_what_failed_for_a_moment_is_tried_again(authority, tmp_path, monkeypatch):
    trust = Trust(signed(authority, "h0", tmp_path))
    signed(authority, "h0", tmp_path)
    monkeypatch.setattr(module, "OPENSSL_S", 0.0)
    assert not trust.look()
    assert "not done in" in trust.problem
    monkeypatch.undo()
    assert trust.look()
    assert trust.problem == ""


def test_a_list_that_is_no_text_is_told_with_its_file(authority, tmp_path):
    files = signed(authority, "h0", tmp_path)
    Path(files.crl).write_bytes(b"\x30\x82\xff\xfe")
    with pytest.raises(ConfigError, match=r"crl\.pem: no list in PEM"):
        Trust(files)


def test_no_session_is_resumed(authority, tmp_path):
    one, other = (Trust(signed(authority, name, tmp_path)) for name in ("h0", "h1"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = one.client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = other.server.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    server.write(b"x")
    assert client.read(1) == b"x"  # tickets come before
    assert client.session is None or not client.session.has_ticket
