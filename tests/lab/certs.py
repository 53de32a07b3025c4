# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for one lab, made with the `openssl` command."""

from pathlib import Path

from tests.lab.commands import in_parallel, run
from tests.lab.shape import ANALYZER_ADDRESS, Shape, host_number, management_address

ADMIN, ANALYZER = "admin", "analyzer"
_DAYS = "30"
_NEW_KEY = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


class Certificates:
    """Where the certificates lie: ``<name>.pem`` and ``<name>.key`` for each party."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca = directory / "ca.pem"

    def cert(self, name: str) -> Path:
        """Return the certificate of ``h0``, ``analyzer`` or ``admin``."""
        return self._directory / f"{name}.pem"

    def key(self, name: str) -> Path:
        """Return the private key that goes with `cert`."""
        return self._directory / f"{name}.key"

    def make(self, shape: Shape) -> None:
        """Make the authority and one certificate per host, for the analyzer and the admin."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._make_authority()
        in_parallel(self._sign, (ADMIN, ANALYZER, *shape.host_names))

    def _make_authority(self) -> None:
        run(
            *(*_NEW_KEY, "-nodes", "-days", _DAYS, "-subj", "/CN=netagent lab"),
            *("-keyout", str(self.key("ca")), "-out", str(self.ca)),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def _sign(self, name: str) -> None:
        run(
            *(*_NEW_KEY, "-nodes", "-days", _DAYS, "-subj", f"/CN={name}"),
            *("-CA", str(self.ca), "-CAkey", str(self.key("ca"))),
            *("-keyout", str(self.key(name)), "-out", str(self.cert(name))),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-addext", "keyUsage=critical,digitalSignature"),
            *("-addext", "extendedKeyUsage=serverAuth,clientAuth"),
            *("-addext", f"subjectAltName={_alternative_names(name)}"),
        )


def _alternative_names(name: str) -> str:
    if name == ADMIN:
        return f"DNS:{name}"
    address = ANALYZER_ADDRESS if name == ANALYZER else management_address(host_number(name))
    return f"DNS:{name},IP:{address}"
