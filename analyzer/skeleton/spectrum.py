# SPDX-License-Identifier: Apache-2.0
"""Spectra of traffic that carry phase, so that endpoints that send the same later are told apart.

Theory of operation. When an endpoint sends matters more than how much: rates are compressed to
ln(1 + rate / mean). Each endpoint's short-time Fourier transform is computed and, over the
windows, its complex coherence with a few landmarks (endpoints unlike each other):

    gamma(f) = sum_w F(w, f) conj L(w, f) / sqrt(sum_w |F(w, f)|^2 sum_w |L(w, f)|^2)

A shift by tau turns gamma by exp(-2 pi i f tau), and noise makes it smaller. Jitter that differs
from iteration to iteration averages out before distances are taken; in distances of the transforms
themselves it would not. The transform's magnitude alone, which section 5.1 of SkeletonHunter uses,
does not change with tau at all.

Coherences of the earlier and of the later half of the windows have independent noise, so that

    Re <a_early - b_early, a_late - b_late>

estimates the squared distance of two endpoints without the bias that noise adds to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.skeleton.series import Floats, Ints

WINDOW_TICKS = 128
"""Ticks in a window of the short-time Fourier transform. Chosen: longer resolves slower iterations,
shorter gives more windows to average over."""
LANDMARKS = 6
"""Endpoints that coherence is taken with. Chosen: more tell more stages apart, and cost time and
noise."""

SURE_RHYTHM = 0.3
"""Mean squared coherence from which the rhythm no longer lowers the confidence. Chosen: clear of
what noise has, and noisy jobs still reach it."""

Complexes = NDArray[np.complex64]


def compress(rate: Floats) -> Floats:
    """Return ln(1 + rate / mean rate), whose noise is the same in bursts and between them."""
    mean = float(np.nanmean(rate)) if rate.size else 0.0
    return np.log1p(rate / mean) if mean > 0 else np.zeros_like(rate)


def filled(values: Floats) -> Floats:
    """Return (n, ticks) `values` with unknown ticks interpolated between their neighbours."""
    unknown = np.isnan(values)
    if not unknown.any():
        return values
    made = values.copy()
    ticks = np.arange(values.shape[1])
    for row in np.flatnonzero(unknown.any(axis=1)):
        known = ~unknown[row]
        made[row] = np.interp(ticks, ticks[known], values[row, known]) if known.any() else 0.0
    return made


def stft(values: Floats, window_ticks: int = WINDOW_TICKS) -> Complexes:
    """Return (n, windows, frequencies): Hann windows overlapping by half, without frequency 0."""
    window_ticks = min(window_ticks, 1 << (values.shape[1].bit_length() - 3))
    hop = window_ticks // 2
    views = np.lib.stride_tricks.sliding_window_view(values, window_ticks, axis=1)[:, ::hop]
    views = views - views.mean(axis=2, keepdims=True)
    hann = np.hanning(window_ticks + 1)[:-1]
    return np.fft.rfft(views * hann, axis=2)[:, :, 1:].astype(np.complex64)


@dataclass(frozen=True, slots=True)
class Features:
    """Coherences with the landmarks: real and imaginary parts, weighted."""

    early: Floats
    """(n, dimensions): features from the earlier half of the windows."""
    late: Floats
    """(n, dimensions): features from the later half of the windows."""
    rhythm: float
    """Mean squared coherence with the nearest landmark: 0 for noise, 1 for a common rhythm."""

    @property
    def pooled(self) -> Floats:
        """Return the features from all windows: the mean of both halves."""
        return (self.early + self.late) / 2

    def squared_distances(self) -> Floats:
        """Return (n, n) unbiased squared distances; small ones may come out negative."""
        return _cross_distances(self.early, self.late)


def _cross_distances(early: Floats, late: Floats) -> Floats:
    inner = early @ late.T
    own = np.diag(inner)
    return own[:, None] + own[None, :] - inner - inner.T


def features(values: Floats) -> Features:
    """Return the features of compressed (n, ticks) `values` without gaps."""
    spectra = stft(values)
    marks = landmarks(spectra)
    half = spectra.shape[1] // 2
    early = _coherence(spectra[:, :half], marks)
    late = _coherence(spectra[:, spectra.shape[1] - half :], marks)
    # The part of each coherence on which the halves agree is signal, the rest is chance.
    agreed = (early * late.conj()).real
    weight = np.sqrt(np.maximum(np.mean(agreed, axis=0), 0))
    by_mark = agreed.reshape(len(values), len(marks), -1).mean(axis=2)
    rhythm = float(np.median(by_mark.max(axis=1)))
    return Features(_real(early * weight), _real(late * weight), rhythm)


def landmarks(spectra: Complexes, count: int = LANDMARKS) -> Ints:
    """Return rows of endpoints unlike each other: each is the most unlike those chosen before."""
    flat = _real(spectra.reshape(len(spectra), -1))
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)
    mean = flat.mean(axis=0)
    chosen = [int(np.argmax(flat @ mean))]
    nearest = flat @ flat[chosen[0]]
    while len(chosen) < min(count, len(flat)):
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, flat @ flat[chosen[-1]])
    return np.asarray(chosen)


def _coherence(spectra: Complexes, marks: Ints) -> Complexes:
    power = np.sqrt(np.sum(np.abs(spectra) ** 2, axis=1)) + 1e-12
    made = [
        np.einsum("nwf,wf->nf", spectra, spectra[mark].conj()) / (power * power[mark])
        for mark in marks
    ]
    return np.concatenate(made, axis=1)


def _real(values: Complexes) -> Floats:
    return np.concatenate([values.real, values.imag], axis=1).astype(np.float64)


Describe = Callable[[Floats], Features]
"""Function that makes features of compressed (n, ticks) series."""
