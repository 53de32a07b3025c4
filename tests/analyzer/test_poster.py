# SPDX-License-Identifier: Apache-2.0
"""One event, to receivers of every kind, by real sockets."""

import asyncio
import gc
import hmac
import itertools
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from analyzer import poster
from analyzer.config import Webhook
from analyzer.poster import MOST_SAID, Poster
from analyzer.webhooks.answers import Answer, Outcome
from analyzer.webhooks.cloudevents import cloud_event, signed
from netagent.model.errors import ConfigError
from tests.analyzer.certificates import Authority
from tests.analyzer.receiver import Receiver, free_port, hangs, hangs_up, raw, status
from tests.waiting import until, wait_until

ROOT = Path(__file__).parents[2]
BODY = b'{"id":"1"}'
OK = status(204)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


def server_context(authority, name="receiver"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, authority.sign(name)))
    return context


def posted(url, body=BODY, **fields) -> Answer:
    async def work():
        way = Poster(Webhook(name="pager", url=url, **fields), "analyzer.toml")
        try:
            async with asyncio.timeout(100):
                return await way.post(body)
        finally:
            await way.close()

    return asyncio.run(work())


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def secret_in(folder, text=b"0123456789abcdef0123\n", mode=0o600):
    path = folder / "secret"
    path.write_bytes(text)
    path.chmod(mode)
    return str(path)


def test_an_event_is_sent_whole_as_its_form_says_and_signed(tmp_path):
    with Receiver(OK) as receiver:
        began_s = int(time.time())
        answer = posted(receiver.url, secret=secret_in(tmp_path))
    assert (answer.outcome, answer.status) == (Outcome.TAKEN, 204)
    [attempt] = receiver.attempts
    assert (attempt.path, attempt.body) == ("/events", BODY)
    assert attempt.headers["content-type"].startswith("application/cloudevents+json")
    at = attempt.headers["netagent-timestamp"]
    assert began_s <= int(at) <= time.time()
    digest = hmac.new(b"0123456789abcdef0123", at.encode() + b"." + BODY, "sha256").hexdigest()
    assert attempt.headers["netagent-signature"] == f"sha256={digest}"


def test_without_a_secret_nothing_is_signed():
    with Receiver(OK) as receiver:
        posted(receiver.url)
    assert not [name for name in receiver.attempts[0].headers if name.startswith("netagent")]


def test_only_a_receiver_of_the_authority_named_gets_anything(authority, tmp_path):
    other = Authority(tmp_path, "other")
    with Receiver(OK, tls=server_context(authority)) as receiver:
        assert posted(receiver.url, ca=str(authority.ca)).outcome is Outcome.TAKEN
        for ca in (str(other.ca), ""):
            answer = posted(receiver.url, ca=ca)
            assert answer.outcome is Outcome.LATER
            assert "certificate" in answer.text
        elsewhere = receiver.url.replace("127.0.0.1", "127.0.0.2")
        assert len(receiver.attempts) == 1
        assert posted(elsewhere, ca=str(authority.ca)).outcome is Outcome.LATER


def endless():
    yield b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
    yield from itertools.repeat(b"more " * 10_000)


def dripping():
    yield b"HTTP/1.1 200 OK\r\nx: "
    for _ in range(600):
        yield b"x"
        threading.Event().wait(0.05)


def head_without_end():
    yield b"HTTP/1.1 200 OK\r\n"
    yield from (b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(100_000))


def informing():
    yield from itertools.repeat(b"HTTP/1.1 103 Early Hints\r\n\r\n")


@pytest.mark.parametrize(
    ("behaviour", "words", "timeout_s"),
    [
        (hangs, "no answer within 0.5 s", 0.5),
        (hangs_up, "disconnected", 60.0),
        (raw(lambda: iter([b"\x00\xff garbage \r\n\r\n"])), "", 60.0),
        (raw(lambda: iter([b"HTTP/1.1 2000 OK\r\n\r\n"])), "", 60.0),
        (raw(lambda: iter([b"SSH-2.0-OpenSSH_9.2\r\n"])), "", 60.0),
        (raw(dripping), "no answer within 0.5 s", 0.5),
        (raw(head_without_end), "", 60.0),
        (raw(informing), "", 0.5),
        (status(500, "out of disk"), "HTTP 500", 60.0),
        (status(307, location="http://127.0.0.1:1/"), "not followed", 60.0),
    ],
    ids=["hangs", "hangs up", "garbage", "odd status", "not HTTP", "drips", "head", "informs",
         "500", "redirect"],
)  # fmt: skip
def test_what_is_no_taking_is_sent_again_in_time_and_without_harm(behaviour, words, timeout_s):
    """What has to be given up is so after half a second; `posted` has no patience without end."""
    with Receiver(behaviour) as receiver:
        answer = posted(receiver.url, timeout_s=timeout_s)
        assert answer.outcome is Outcome.LATER
        assert words in answer.text
        wait_until(lambda: receiver.attempts, "the request is read")
        assert len(receiver.attempts) == 1


def test_nobody_there_is_an_answer_too():
    answer = posted(f"http://127.0.0.1:{free_port()}/")
    assert (answer.outcome, answer.status) == (Outcome.LATER, None)
    assert answer.text


def test_an_answer_without_end_is_taken_by_its_status_and_not_read():
    with Receiver(raw(endless, takes=True)) as receiver:
        answer = posted(receiver.url)
    assert answer.outcome is Outcome.TAKEN
    assert len(answer.said) <= MOST_SAID


def test_what_a_receiver_says_reaches_people_without_control_characters():
    with Receiver(status(422, "no \x1b[31mred\nlines \u00e9", retry_after="7")) as receiver:
        answer = posted(receiver.url)
    assert (answer.outcome, answer.status) == (Outcome.REFUSED, 422)
    assert answer.retry_after_ns == 7 * 10**9
    assert answer.said.isprintable()
    assert answer.said.startswith("no  [31mred lines")


def test_no_proxy_of_the_environment_sees_an_event(monkeypatch):
    with Receiver(OK) as receiver, Receiver(OK) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert posted(receiver.url).outcome is Outcome.TAKEN
        assert not proxy.attempts


def test_cookies_of_a_receiver_are_not_kept():
    async def work():
        way = Poster(Webhook(name="pager", url=receiver.url), "analyzer.toml")
        for _ in range(3):
            await way.post(BODY)
        await way.close()

    with Receiver(status(204, set_cookie="a=b")) as receiver:
        asyncio.run(work())
    assert len(receiver.attempts) == 3
    assert not [each for each in receiver.attempts if "cookie" in each.headers]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_secret_that_others_may_read_is_no_secret(tmp_path, mode):
    with pytest.raises(ConfigError, match="chmod 600"):
        Poster(Webhook(name="p", url="http://[::1]/", secret=secret_in(tmp_path, mode=mode)), "f")


def test_files_that_cannot_be_used_are_told_with_the_webhooks_name(tmp_path):
    for fields in (
        {"secret": secret_in(tmp_path, b"short\n")},
        {"secret": str(tmp_path / "none")},
        {"ca": str(tmp_path / "none")},
        {"ca": __file__},
    ):
        with pytest.raises(ConfigError, match="webhook p: "):
            Poster(Webhook(name="p", url="https://r.example/", **fields), "analyzer.toml")


def test_a_secret_that_changes_is_taken_with_the_next_event_and_one_that_is_gone_waits(tmp_path):
    async def work():
        way = Poster(Webhook(name="p", url=receiver.url, secret=secret_in(tmp_path)), "f")
        outcomes = [(await way.post(BODY)).outcome]
        secret_in(tmp_path, b"another secret of ours")
        outcomes.append((await way.post(BODY)).outcome)
        (tmp_path / "secret").unlink()
        outcomes.append((await way.post(BODY)).outcome)
        await way.close()
        return outcomes

    with Receiver(OK) as receiver:
        assert asyncio.run(work()) == [Outcome.TAKEN, Outcome.TAKEN, Outcome.LATER]
    assert len({each.headers["netagent-signature"] for each in receiver.attempts}) == 2


def test_name_servers_that_do_not_answer_hold_one_thread_and_no_other_work(monkeypatch):
    asked, answer = [], threading.Event()

    def never(*args, **_):
        asked.append(args)
        answer.wait(30)
        return []

    async def work():
        way = Poster(Webhook(name="p", url="https://r.example/", timeout_s=0.1), "analyzer.toml")
        monkeypatch.setattr(poster.socket, "getaddrinfo", never)
        answers = await asyncio.gather(*(way.post(BODY) for _ in range(20)))
        answers.append(await way.post(BODY))
        assert {each.outcome for each in answers} == {Outcome.LATER}
        assert len(asked) == 1
        assert await asyncio.to_thread(os.getpid) == os.getpid()
        answer.set()
        await until(way._found.done)
        await way.close()

    asyncio.run(work())


def test_a_name_that_is_none_is_told(monkeypatch):
    def none(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(poster.socket, "getaddrinfo", none)
    answer = posted("https://r.example/")
    assert answer.outcome is Outcome.LATER
    assert "r.example: " in answer.text
    assert "not known" in answer.text


def test_handshakes_that_never_end_leak_no_socket():
    """A listener that accepts and says nothing, as a host that is stuck does."""

    async def work():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            way = Poster(Webhook(name="p", url=f"https://127.0.0.1:{port}/", timeout_s=0.2), "f")
            before = open_files()
            for _ in range(4):
                answer = await way.post(BODY)
                assert answer.outcome is Outcome.LATER
                assert "no answer" in answer.text
            gc.collect()
            await until(lambda: open_files() <= before)
            await way.close()

    asyncio.run(work())


# --- the receiver in docs/operating.md ------------------------------------------------------------


def documented():
    """Return the program, and the URL at which it listens once it runs."""
    text = (ROOT / "docs" / "operating.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    port = free_port()
    assert program.count("8080") == 1
    return program.replace("8080", str(port)), f"http://127.0.0.1:{port}/"


def test_the_receiver_in_the_documentation_takes_what_is_signed_and_nothing_else(tmp_path):
    program, url = documented()
    assert len([line for line in program.splitlines() if line.strip()]) == 15
    secret = secret_in(tmp_path)
    Path(secret).rename(tmp_path / "pager.secret")
    event = cloud_event(
        "incident.opened", "i1.7", source="/a", subject="switch s", wall_ns=0, data={}
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as running:  # fmt: skip
        try:
            wait_until(lambda: posted(url).status == 403, "the receiver", 30)  # not signed
            good = str(tmp_path / "pager.secret")
            assert posted(url, event, secret=good).outcome is Outcome.TAKEN
            assert running.stdout.readline().split() == [
                "1970-01-01T00:00:00.000000000Z", "i1.7", "netagent.incident.opened", "switch", "s",
            ]  # fmt: skip
            other = secret_in(tmp_path, b"some other secret")
            assert posted(url, event, secret=other).status == 403
            old = signed(Path(good).read_bytes().strip(), int(time.time()) - 301, event)
            assert httpx.post(url, content=event, headers=old, trust_env=False).status_code == 403
        finally:
            running.kill()


def test_the_client_is_httpx_and_follows_nothing():
    async def work():
        way = Poster(Webhook(name="p", url="https://r.example/"), "f")
        assert isinstance(way._client, httpx.AsyncClient)
        assert not way._client.follow_redirects
        assert not way._client.trust_env
        await way.close()

    asyncio.run(work())
