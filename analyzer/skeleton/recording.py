# SPDX-License-Identifier: Apache-2.0
"""Recordings of a task's traffic: NumPy archives. `SHAPE` says what is in one."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.skeleton.series import TrafficSeries
from netagent.model.errors import ConfigError, RemoteProtocolError

SHAPE = """\
A recording is a NumPy archive (.npz) of one task:
  rate      (endpoints, ticks) bytes that each endpoint sent in each tick; NaN
            where that is not known
  tick_s    seconds per tick
  host      (endpoints,) number of each endpoint's host
  rail      (endpoints,) number of its rail
  endpoint  (endpoints,) names; optional
  container (endpoints,) number of its container; optional: hosts have one each
  ordered   whether hosts are numbered in the order of ranks; optional: yes
"""

ARRAYS = ("rate", "tick_s", "host", "rail")
UNREADABLE = (
    OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, NotImplementedError,
    RuntimeError, zipfile.BadZipFile, zlib.error, RemoteProtocolError,
)  # fmt: skip
"""What numpy and zipfile raise at files that are no such archive, and ours at what it holds."""


def load(path: str) -> TrafficSeries:
    """Read a recording; ConfigError where it is none."""
    try:
        return unpack(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    except RemoteProtocolError as error:
        raise ConfigError(path, str(error)) from error


def unpack(content: bytes) -> TrafficSeries:
    """Return the series of a recording; RemoteProtocolError where it is none."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise RemoteProtocolError("it is no NumPy archive (.npz)")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return _series(archive)
    except UNREADABLE as error:
        raise RemoteProtocolError(str(error)) from error


def pack(series: TrafficSeries) -> bytes:
    """Return a recording of a series."""
    arrays: dict[str, Any] = {
        "rate": series.rate.astype(np.float32),
        "tick_s": np.float64(series.tick_s),
        "host": series.host,
        "rail": series.rail,
    }
    if series.names:
        arrays["endpoint"] = np.asarray(series.names)
    if series.container.size:
        arrays["container"] = series.container
    if not series.ordered:
        arrays["ordered"] = np.bool_(False)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def _series(archive: Mapping[str, Any]) -> TrafficSeries:
    missing = [name for name in ARRAYS if name not in archive]
    if missing:
        raise RemoteProtocolError(f"it lacks {', '.join(missing)}")
    rate = _numbers(archive, "rate")
    if not rate.size:
        raise RemoteProtocolError(f"rate is empty: {rate.shape}")
    tick_s = _numbers(archive, "tick_s")
    if tick_s.size != 1:
        raise RemoteProtocolError("tick_s is not one number")
    return TrafficSeries(
        rate,
        float(tick_s.ravel()[0]),
        _whole(archive, "host"),
        _whole(archive, "rail"),
        tuple(map(str, archive["endpoint"].tolist())) if "endpoint" in archive else (),
        _whole(archive, "container") if "container" in archive else np.empty(0, np.int64),
        ordered="ordered" not in archive or bool(_whole(archive, "ordered").all()),
    )


def _numbers(archive: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    array = np.asarray(archive[name])
    if array.dtype.kind not in "iufb":
        raise RemoteProtocolError(f"{name} holds no numbers but {array.dtype}")
    return array.astype(np.float64)


def _whole(archive: Mapping[str, Any], name: str) -> NDArray[np.int64]:
    numbers = _numbers(archive, name)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        raise RemoteProtocolError(f"{name} holds more than whole numbers")
    return numbers.astype(np.int64)
