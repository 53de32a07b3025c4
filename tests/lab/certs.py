# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for one lab, made with the `openssl` command.

By `openssl ca`, of whose commands it alone says when a certificate begins and ends, to the second.
"""

import tempfile
import time
from pathlib import Path

from tests.lab.commands import in_parallel, run
from tests.lab.shape import ANALYZER_ADDRESS, Shape, host_number, management_address

ADMIN, ANALYZER = "admin", "analyzer"
READER = "prometheus"
"""Who may read everything, and change nothing."""
AUTHORITY = "ca"
_VALID_S = 30 * 86_400.0
_BEGAN_S = 6 * 3600.0
"""A lab's clock may be set back."""
_SETTINGS = """\
[ca]
default_ca = lab
[lab]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
unique_subject = no
policy = any
[any]
commonName = supplied
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[party]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = {names}
"""


class Certificates:
    """Where the certificates lie: ``<name>.pem`` and ``<name>.key`` for each party."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca = directory / f"{AUTHORITY}.pem"

    def cert(self, name: str) -> Path:
        """Return the certificate of ``h0``, ``analyzer`` or ``admin``."""
        return self._directory / f"{name}.pem"

    def key(self, name: str) -> Path:
        """Return the private key that goes with `cert`."""
        return self._directory / f"{name}.key"

    def make(self, shape: Shape) -> None:
        """Make the authority, and certificates of hosts, analyzer, admin and Prometheus."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._make(AUTHORITY, "netagent lab", valid_s=_VALID_S)
        in_parallel(self.sign, (ADMIN, READER, ANALYZER, *shape.host_names))

    def sign(self, name: str, *, valid_s: float = _VALID_S) -> None:
        """Give a party a new key and certificate, which ends in `valid_s`."""
        self._make(name, name, _alternative_names(name), valid_s=valid_s)

    def _make(self, name: str, subject: str, names: str = "", *, valid_s: float) -> None:
        with tempfile.TemporaryDirectory(dir=self._directory) as folder:
            work = Path(folder)
            key, request, made = work / "key", work / "csr", work / "pem"
            (work / "index").write_text("")
            (work / "cnf").write_text(_SETTINGS.format(folder=work, names=names or "DNS:none"))
            run(
                *("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-nodes", "-subj", f"/CN={subject}", "-keyout", str(key), "-out", str(request)),
            )
            by = ("-cert", str(self.ca), "-keyfile", str(self.key(AUTHORITY)))
            now_s = time.time()
            run(
                *("openssl", "ca", "-batch", "-notext", "-config", str(work / "cnf")),
                *(by if names else ("-selfsign", "-keyfile", str(key))),
                *("-startdate", _instant(now_s - _BEGAN_S), "-enddate", _instant(now_s + valid_s)),
                *("-extensions", "party" if names else "authority"),
                *("-in", str(request), "-out", str(made)),
            )
            key.replace(self.key(name))
            made.replace(self.cert(name))


def _instant(unix_s: float) -> str:
    return time.strftime("%y%m%d%H%M%SZ", time.gmtime(unix_s))


def _alternative_names(name: str) -> str:
    if name in {ADMIN, READER}:
        return f"DNS:{name}"
    address = ANALYZER_ADDRESS if name == ANALYZER else management_address(host_number(name))
    return f"DNS:{name}, IP:{address}"
