"""Out-of-distribution (OOD) detection: whether an image looks like those that a detector learned from.

A network that never saw an image without the assembly reads one into whatever it is shown. What its queries find in
such an image, however, lies far from all that they found in recordings: the distance is Mahalanobis's, from a Gaussian
that is fitted on training images (Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples
and Adversarial Attacks", 2018). `known_views.npz` in the detector's folder holds it.

Shape legend: N images, Q queries, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError
from stormpsr.files import read_arrays, write_arrays

KNOWN_VIEWS_FILE = "known_views.npz"
_RIDGE = 1e-6
_FEWEST_PER_DIMENSION = 3  # images; a Gaussian of fewer says nothing
_KNOWN_SHARE, _MARGIN = 0.99, 1.1  # the limit is a tenth further away than so many of the images


@dataclass(frozen=True, eq=False)
class KnownViews:
    """A Gaussian of what queries find on the average, and how far from its middle is too far."""

    mean_D: NDArray[np.float64]
    whiten_DD: NDArray[np.float64]
    limit: float

    def __post_init__(self) -> None:
        n = len(self.mean_D)
        finite = np.isfinite(self.mean_D).all() and np.isfinite(self.whiten_DD).all() and np.isfinite(self.limit)
        if self.mean_D.shape != (n,) or self.whiten_DD.shape != (n, n) or not finite or self.limit <= 0:
            raise InputError("these are no known views")

    @classmethod
    def fit(cls, found: Sequence[NDArray[np.floating]]) -> KnownViews | None:
        """Of what was found in images, (Q, D) each; None where there are too few."""
        if not found or len(found) < _FEWEST_PER_DIMENSION * found[0].shape[-1]:
            return None
        found_ND = np.stack([found_QD.mean(axis=0, dtype=np.float64) for found_QD in found])
        covariance_DD = np.cov(found_ND.T) + _RIDGE * np.eye(found_ND.shape[1])
        whiten_DD = np.linalg.inv(np.linalg.cholesky(covariance_DD)).T
        unscaled = cls(found_ND.mean(axis=0), whiten_DD, 1.0)
        far_N = [unscaled.strangeness(found_D[None]) for found_D in found_ND]
        return cls(unscaled.mean_D, whiten_DD, _MARGIN * float(np.quantile(far_N, _KNOWN_SHARE)))

    def strangeness(self, found_QD: NDArray[np.floating]) -> float:
        """How far an image is from what is known, as a share of the limit."""
        if found_QD.shape[-1] != len(self.mean_D):
            problem = f"{KNOWN_VIEWS_FILE} is of {len(self.mean_D)} dimensions, but queries have {found_QD.shape[-1]}"
            raise InputError(problem, cure="it belongs to another detector: delete it, or train again")
        away_D = (found_QD.mean(axis=0, dtype=np.float64) - self.mean_D) @ self.whiten_DD
        return float(np.sqrt(away_D @ away_D)) / self.limit

    def save(self, folder: Path) -> None:
        write_arrays(folder / KNOWN_VIEWS_FILE, mean=self.mean_D, whiten=self.whiten_DD, limit=np.array(self.limit))

    @classmethod
    def load(cls, folder: Path) -> KnownViews | None:
        """Those of a detector's folder; None where it has none."""
        path = folder / KNOWN_VIEWS_FILE
        if not path.is_file():
            return None
        cure = "delete it, and the detector does without; or train it again"
        arrays = read_arrays(path, cure)
        try:
            mean, whiten, limit = (np.asarray(arrays[name], np.float64) for name in ("mean", "whiten", "limit"))
            return cls(mean, whiten, float(limit))
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise InputError("these are no known views", path=path, cure=cure) from error


class Familiarity:
    """Whether the camera shows what the detector knows: by the mean strangeness of the latest images.

    One image may be odd, and many in a row are not. While they are, nobody believes what networks read in them.
    """

    _LOOKS = 30  # so many count

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._n, self._mean = 0, 0.0

    def take(self, strangeness: float | None) -> None:
        """Look at the next image; None: the detector cannot tell."""
        if strangeness is not None:
            self._n = min(self._n + 1, self._LOOKS)
            self._mean += (strangeness - self._mean) / self._n

    @property
    def is_foreign(self) -> bool:
        return self._mean > 1
