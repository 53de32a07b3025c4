# SPDX-License-Identifier: Apache-2.0
"""A certificate authority made by `openssl`, for servers and clients on 127.0.0.1."""

import ssl
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_NEW = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


class Authority:
    """Signs certificates as operators do: CN and subjectAltName are the host's name."""

    def __init__(
        self, folder: Path, name: str = "ca", environ: Mapping[str, str] | None = None
    ) -> None:
        """Make the authority; `environ` is that of `openssl`, with the clock that it sees."""
        self._folder, self._environ = folder, environ
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        self._run(
            *(*_NEW, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", str(self._key), "-out", str(self.ca)),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def sign(self, name: str, others: Sequence[str] = ()) -> tuple[Path, Path]:
        """Return certificate and key of `name`, and of others, at 127.0.0.1, made on first use."""
        cert, key = self._folder / f"{self.ca.stem}-{name}.pem", self._folder / f"{name}.key"
        if not cert.exists():
            names = [f"DNS:{other}" for other in others]
            self._run(
                *(*_NEW, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
                *("-CA", str(self.ca), "-CAkey", str(self._key)),
                *("-keyout", str(key), "-out", str(cert)),
                *("-addext", "basicConstraints=critical,CA:FALSE"),
                *("-addext", ",".join([f"subjectAltName=DNS:{name}", *names, "IP:127.0.0.1"])),
            )
        return cert, key

    def client(self, name: str | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts this authority and shows `name`'s certificate."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if name is not None:
            context.load_cert_chain(*map(str, self.sign(name)))
        return context

    def server(self, name: str) -> ssl.SSLContext:
        """Return a server's context that shows `name`'s certificate and wants one of ours."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(*map(str, self.sign(name)))
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, env=self._environ)
