"""The recording of the demo: drawn by a process of its own, and watched while it is being drawn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stormpsr.data.images import Image
    from stormpsr.data.sources import Frame
    from stormpsr.synthetic.recording_spec import DatasetSpec


_PRODUCT, _PROFILE, _SIZE = "vehicle", "quick", 160  # as the shipped model knows them


def demo_spec(seed: int, seconds: float | None) -> DatasetSpec:
    """A set of one recording. The model learned from another seed, so it has not seen it."""
    from stormpsr.synthetic.operator import default_rates
    from stormpsr.synthetic.product import Product
    from stormpsr.synthetic.profiles import profile_named
    from stormpsr.synthetic.recording_spec import SPLITS, DatasetSpec, product_digest

    return DatasetSpec(
        product=_PRODUCT,
        product_digest=product_digest(Product.load(_PRODUCT)),
        profile=_PROFILE,
        size=_SIZE,
        seed=seed,
        counts={"train": 0, "val": 0, "test": 1},
        occlusion=0.5,
        rates=dict.fromkeys(SPLITS, default_rates(profile_named(_PROFILE))),
        max_seconds=seconds,
    )


class DrawnRecording:
    """Use it as a context: it draws from the beginning of the context on, and stops with it.

    What will happen is planned before it is drawn, so the labels are known from the first frame on.
    """

    def __init__(self, folder: Path, dataset: DatasetSpec) -> None:
        from stormpsr.data.labels import StateTimeline, steps_from_states
        from stormpsr.files import draft_of
        from stormpsr.synthetic.generate import recording_folder
        from stormpsr.synthetic.operator import simulate
        from stormpsr.synthetic.product import Product
        from stormpsr.synthetic.profiles import profile_named

        product = Product.load(dataset.product)
        self.folder, self.dataset, self.procedure = folder, dataset, product.procedure()
        self.spec = dataset.recordings(product)[0]
        _, timeline, _ = simulate(
            product,
            self.procedure.variant(self.spec.variant),
            profile_named(self.spec.profile),
            seed=self.spec.seed,
            occlusion=self.spec.occlusion,
            rates=self.spec.rates,
            max_seconds=self.spec.max_seconds,
        )
        states = StateTimeline.from_dense(timeline.states_FC())
        self.n_frames, self.fps = timeline.n_frames, timeline.fps
        self.labels = tuple(steps_from_states(states, self.procedure, with_errors=False))
        self.labels_with_errors = tuple(steps_from_states(states, self.procedure, with_errors=True))
        self.path = recording_folder(folder, self.spec)
        self._draft = draft_of(self.path)  # where `generate` draws
        self._changed = threading.Condition()
        self._drawn = 0  # frames that are written completely, as far as we were told
        self._ended = self._abandoned = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._draw, name="drawing", daemon=True)

    @property
    def drawn(self) -> int:
        """Frames that have been drawn."""
        return self._drawn

    # ------------------------------------------------------------------ drawing
    def __enter__(self) -> DrawnRecording:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned = True  # heard at the next report of progress
        self._thread.join()

    def _draw(self) -> None:
        from stormpsr.synthetic.generate import generate

        try:
            generate(self.folder, self.dataset, workers=1, only=[self.spec.id], on_progress=self._progress)
        except _AbandonedError:
            pass
        except Exception as error:  # said where the frames are awaited
            self._error = error
        with self._changed:
            self._ended = True
            if self._error is None and not self._abandoned:
                self._drawn = self.n_frames
            self._changed.notify_all()

    def _progress(self, _: str, done: int, of: int) -> None:
        if self._abandoned:
            raise _AbandonedError  # ends the process that draws
        with self._changed:
            self._drawn = done
            self._changed.notify_all()

    # ------------------------------------------------------------------ watching
    def frames(self) -> Iterator[Frame]:
        """All frames in order, each as soon as it is there."""
        from stormpsr.data.sources import Frame

        for index in range(self.n_frames):
            yield Frame(self._image(index), index, index / self.fps)

    def wait(self) -> None:
        """Until everything is written, labels too."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended)
        if self._error is not None:
            raise self._error

    def _image(self, index: int) -> Image:
        from stormpsr.data.images import read_image
        from stormpsr.data.labels import frame_name
        from stormpsr.errors import InputError

        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._drawn > index or self._ended)
                ended = self._ended
            if self._error is not None:
                raise self._error
            for place in (self.path, self._draft):
                file = place / "rgb" / frame_name(index)
                try:
                    return read_image(file)
                except InputError as error:
                    if not isinstance(error.__cause__, FileNotFoundError):
                        raise
            if ended:
                cure = f"delete {self.folder} and start again"
                raise InputError(f"frame {index} of the recording is missing", path=self.path, cure=cure)
            with self._changed:
                # The process died and what it drew was thrown away, or the recording got its name just now: wait for
                # the next report. What is drawn again is the same, bit for bit.
                self._drawn = self._drawn if self._ended else 0


class _AbandonedError(Exception):
    """Nobody waits for the recording any more."""
