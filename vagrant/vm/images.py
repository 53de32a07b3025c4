# SPDX-License-Identifier: Apache-2.0
"""Images of guests: which there are, and which one the present inputs ask for.

An image is a folder ``<cache>/<distribution>-<hash of its inputs>`` that holds ``root.ext4``,
``vmlinuz`` and ``vmlinux`` (the same, decompressed), ``initrd`` and ``image.json``. It is never
changed after it was built.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from vagrant.vm.distributions import Distribution

TREE = Path(__file__).resolve().parents[2]
PROVISION = TREE / "vagrant" / "provision"

BUILDER = 1
"""To be raised when `build` does something else with the same inputs."""

BAKED = ("packages.txt", "system.sh", "venv.sh", "boot.sh", "init.sh")
"""The provisioning files that end up in an image; the others are taken from the tree at boot."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image."""

    distribution: str
    path: Path
    kernel: str
    """Release, such as ``6.1.0-56-amd64``."""
    own_venv: bool
    """It holds a virtual environment, because the tree's is made for another Python."""
    built_s: float
    """Seconds since the Unix epoch."""
    build_s: float
    """Seconds that building it took."""

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes on disk; its root is sparse."""
        return sum(file.stat().st_blocks * 512 for file in self.path.iterdir())


def cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of all images."""
    if ours := environment.get("NETAGENT_VM_CACHE"):
        return Path(ours)
    home = environment.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(home, "netagent", "vm")


def venv_python(tree: Path = TREE) -> str:
    """Return the minor version of the Python that ``tree/.venv`` is made of, such as ``3.11``.

    Where there is none yet: of the Python that runs this.
    """
    settings = tree / ".venv" / "pyvenv.cfg"
    if settings.exists():
        for line in settings.read_text().splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "version":
                return ".".join(value.strip().split(".")[:2])
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def needs_own_venv(distribution: Distribution, tree: Path = TREE) -> bool:
    """Return whether the tree's virtual environment is of no use in a guest of `distribution`."""
    return distribution.python != venv_python(tree)


def digest(distribution: Distribution, tree: Path = TREE) -> str:
    """Return the hash of all that a new image of `distribution` would be made from."""
    hashed = blake2b(digest_size=6)
    for name, content in _inputs(distribution, tree):
        hashed.update(f"{name}\0{len(content)}\0".encode() + content)
    return hashed.hexdigest()


def _inputs(distribution: Distribution, tree: Path) -> Iterator[tuple[str, bytes]]:
    yield "builder", str(BUILDER).encode()
    yield "suite", distribution.suite.encode()
    for name in BAKED:
        yield name, (tree / "vagrant" / "provision" / name).read_bytes()
    if needs_own_venv(distribution, tree):
        yield "requirements.lock", (tree / "requirements.lock").read_bytes()


def wanted(distribution: Distribution) -> Path:
    """Return where the image that the present inputs ask for is, or will be."""
    return cache() / f"{distribution.name}-{digest(distribution)}"


def find(distribution: Distribution) -> Image | None:
    """Return the image that the present inputs ask for, or None if it must be built first."""
    return load(wanted(distribution))


def load(path: Path) -> Image | None:
    """Return the image in the folder `path`, or None."""
    try:
        values = json.loads((path / "image.json").read_text())
    except FileNotFoundError:
        return None
    return Image(path=path, **values)


def describe(image: Image) -> str:
    """Return what `load` reads from ``image.json``."""
    values = asdict(image)
    del values["path"]
    return json.dumps(values, indent=1) + "\n"


def prune(keep: Image) -> list[Path]:
    """Remove the other images of the distribution of `keep`; return where they were."""
    folders = keep.path.parent.glob(f"{keep.distribution}-*")
    old = sorted(folder for folder in folders if folder != keep.path)
    for folder in old:
        shutil.rmtree(folder)
    return old
