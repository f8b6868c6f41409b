"""How many threads the networks compute with: measured on the frames themselves, and again when it gets slower.

More threads are faster on a machine with nothing else to do, and many times slower beside other work: they wait for
each other at every layer. Nobody knows which it is but who tries.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

Clock = Callable[[], float]
_TRIAL_FRAMES = 16  # networks run in every fourth frame or so
_WARM_UP_FRAMES = 8
_AGAIN_FRAMES = 6000
_SLOWER = 1.5  # than when it was chosen: time to try again
_GAIN = 0.85  # more threads must be so much faster: they take the cores from others


class MeasuredThreads:
    """A context around the work of each frame. It must be used by the thread that does the work."""

    def __init__(self, set_threads: Callable[[int], None], n_cores: int, clock: Clock) -> None:
        self._set, self._clock = set_threads, clock
        self.candidates = sorted({1, *(2**k for k in range(1, 6) if 2**k < n_cores), max(n_cores, 1)})
        self.chosen = 1
        self._began = 0.0
        self._skip = _WARM_UP_FRAMES
        self._begin_trial()

    def _begin_trial(self) -> None:
        self._trial, self._means = list(self.candidates), {}
        self._use(self._trial.pop(0))

    def _use(self, n: int) -> None:
        self._current, self._n_frames, self._seconds = n, 0, 0.0
        self._is_set = False

    _means: dict[int, float]

    def __enter__(self) -> None:
        if not self._is_set:
            self._set(self._current)
            self._is_set = True
        self._began = self._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._skip:  # the first frames also load and compile
            self._skip -= 1
            return
        self._seconds += self._clock() - self._began
        self._n_frames += 1
        if len(self._means) < len(self.candidates):
            if self._n_frames == _TRIAL_FRAMES or self._has_lost():
                self._end_of_trial()
        elif self._n_frames % (4 * _TRIAL_FRAMES) == 0:
            mean, self._seconds = self._seconds / (4 * _TRIAL_FRAMES), 0.0
            if mean > _SLOWER * self._means[self.chosen] or self._n_frames >= _AGAIN_FRAMES:
                self._begin_trial()

    def _has_lost(self) -> bool:
        """Whether it took too long already to be chosen: beside other work, more threads may take seconds a frame."""
        return 1 in self._means and self._seconds >= _GAIN * self._means[1] * _TRIAL_FRAMES

    def _end_of_trial(self) -> None:
        self._means[self._current] = self._seconds / self._n_frames
        if self._trial:
            self._use(self._trial.pop(0))
            return
        self.chosen = 1
        for n in self.candidates:
            if self._means[n] < _GAIN * self._means[self.chosen]:
                self.chosen = n
        self._use(self.chosen)
