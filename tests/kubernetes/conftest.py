# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes API server on etcd: no kubelet, no controllers, loopback only."""

import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.analyzer.certificates import Authority
from tests.conftest import KUBERNETES, KUBERNETES_FOLDER, require
from tests.waiting import wait_until

STARTS_S = 300.0
"""Seconds within which both start. Chosen: four on a machine that is idle."""
ACCOUNT = "system:serviceaccount:netagent:netagent-analyzer"
ADMIN, OURS = "of-admin", "of-netagent"
"""Tokens."""
DOCUMENT = Path(__file__).parents[2] / "docs" / "kubernetes.md"


class Cluster:
    """An API server that can be stopped and started again, and a client that may do anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "certs" / "apiserver.crt"
        self.authority = Authority(folder, "clients")
        """Who signs certificates that are shown in place of tokens."""
        self.token = folder / "token"
        self.token.write_text(f"{OURS}\n")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        ports = [_free() for _ in range(3)]
        self._etcd, peers, self._port = ports
        self.url = f"https://127.0.0.1:{self._port}"
        (folder / "tokens.csv").write_text(
            f'{ADMIN},admin,1,"system:masters"\n{OURS},{ACCOUNT},2\n'
        )
        private, public = str(folder / "sa.key"), str(folder / "sa.pub")
        for command in (
            ["openssl", "genrsa", "-out", private, "2048"],
            ["openssl", "rsa", "-in", private, "-pubout", "-out", public],
        ):
            subprocess.run(command, check=True, capture_output=True)
        store = f"http://127.0.0.1:{self._etcd}"
        listen = f"http://127.0.0.1:{peers}"
        self._start(
            "etcd", "--data-dir", folder / "etcd", "--log-level", "error",
            "--listen-client-urls", store, "--advertise-client-urls", store,
            "--listen-peer-urls", listen, "--initial-advertise-peer-urls", listen,
            "--initial-cluster", f"default={listen}",
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start the API server, and wait until it is ready."""
        self._start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            f"--cert-dir={self.folder / 'certs'}", "--bind-address=127.0.0.1",
            f"--secure-port={self._port}", "--service-cluster-ip-range=10.96.0.0/24",
            "--advertise-address=127.0.0.1", "--service-account-issuer=https://tests",
            f"--service-account-key-file={self.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            f"--client-ca-file={self.authority.ca}",
            "--anonymous-auth=false", "--disable-admission-plugins=ServiceAccount",
        )  # fmt: skip
        wait_until(self._is_ready, "the API server", STARTS_S)

    def stop(self, name: str = "kube-apiserver") -> None:
        """Kill one of both."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Kill both."""
        for name in list(self._running):
            self.stop(name)

    def ask(self, method: str, path: str, body: Any = None, *, who: str = ADMIN) -> Any:
        """Ask with a token; return what is answered, of which the status is 2xx."""
        answer = self.answer(method, path, body, who=who)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def answer(self, method: str, path: str, body: Any = None, *, who: str) -> httpx.Response:
        """Ask, and return whatever is answered."""
        kind = "application/yaml" if isinstance(body, str) else "application/json"
        if method == "PATCH":
            kind = "application/strategic-merge-patch+json"
        headers = {"authorization": f"Bearer {who}", "content-type": kind}
        tls = ssl.create_default_context(cafile=self.ca)
        with httpx.Client(verify=tls, trust_env=False, timeout=60) as client:
            if isinstance(body, str):
                return client.request(method, self.url + path, content=body, headers=headers)
            return client.request(method, self.url + path, json=body, headers=headers)

    def apply(self, document: str) -> None:
        """Make what a manifest describes."""
        for part in document.split("\n---\n"):
            kind = re.search(r"^kind: (\w+)$", part, re.MULTILINE)
            assert kind, part
            where = "/apis/rbac.authorization.k8s.io/v1" if "rbac" in part else "/api/v1"
            if kind[1] == "ServiceAccount":
                where += "/namespaces/netagent"
            self.ask("POST", f"{where}/{kind[1].lower()}s", part)

    def _is_ready(self) -> bool:
        process = self._running["kube-apiserver"]
        assert process.poll() is None, (self.folder / "kube-apiserver.log").read_text()[-3000:]
        try:
            return self.answer("GET", "/readyz", who=ADMIN).text == "ok"
        except (OSError, httpx.HTTPError):
            return False

    def _start(self, name: str, *arguments: object) -> None:
        command = [str(KUBERNETES_FOLDER / name), *map(str, arguments)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)


def manifests() -> list[str]:
    """Return the manifests that the documentation has: to read, and to tell."""
    return re.findall(r"^```yaml\n(.*?)\n```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


def _free() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield an API server to which netagent has the rights that the documentation says."""
    require(KUBERNETES)
    cluster = Cluster(tmp_path_factory.mktemp("kubernetes"))
    try:
        for manifest in manifests():
            cluster.apply(manifest)
        yield cluster
    finally:
        cluster.close()
