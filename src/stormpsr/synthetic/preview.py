"""Random frames of a set as a montage, with the state hidden and with it shown: can a person do the task?"""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stormpsr.data.labels import STATES_FILE, frame_name, read_states
from stormpsr.data.visibility import VISIBILITY_FILE, read_visibility
from stormpsr.errors import InputError
from stormpsr.files import replacing, write_text
from stormpsr.procedure.model import Procedure, StateBits
from stormpsr.synthetic.stats import recording_folders

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Sample:
    """One frame to look at."""

    folder: Path
    frame: int
    bits: StateBits
    missing: tuple[str, ...]  # components that are not mounted
    wrong: tuple[str, ...]
    readable: bool
    visible: float  # mean visible share of the mounted components

    def caption(self, n_components: int) -> str:
        present = sum(bit != 0 for bit in self.bits)
        text = f"{present}/{n_components}"
        if self.missing:
            text += f", without {', '.join(self.missing)}"
        return text + (f"; WRONG {', '.join(self.wrong)}" if self.wrong else "")


def draw_samples(root: Path, count: int, seed: int) -> list[Sample]:
    """Random frames, in equal numbers from randomly ordered recordings, readable ones and others."""
    if count < 1:
        raise InputError(f"{count} frames", cure="at least one is needed")
    folders = [folder for folder in recording_folders(root) if (folder / "rgb").is_dir()]
    if not folders:
        raise InputError("the recordings have no single frames", path=root, cure="generate them without --video")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(folders))
    samples = []
    for number in range(count):
        folder = folders[int(order[number % len(folders)])]
        procedure = Procedure.load(folder / "procedure.yaml")
        visibility = read_visibility(folder / VISIBILITY_FILE, procedure.n_components)
        frame = int(rng.integers(len(visibility.visible_FC)))
        bits = read_states(folder / STATES_FILE, procedure).at(frame)
        named = list(zip(procedure.components, bits, strict=True))
        samples.append(
            Sample(
                folder,
                frame,
                bits,
                tuple(component.name for component, bit in named if bit == 0),
                tuple(component.name for component, bit in named if bit == -1),
                bool(visibility.readable_F()[frame]),
                float(visibility.mean_visible_F()[frame]),
            )
        )
    return samples


def write_preview(root: Path, out: Path, *, count: int = 40, seed: int = 0, columns: int = 8) -> list[Path]:
    """Write `hidden.png`, `shown.png` and `preview.html`; returns their paths."""
    samples = draw_samples(root, count, seed)
    images = [_image(sample) for sample in samples]
    paths = []
    for name, shown in (("hidden.png", False), ("shown.png", True)):
        paths.append(out / name)
        with replacing(paths[-1]) as draft:
            _montage(samples, images, columns, shown).save(draft, optimize=True)
    paths.append(out / "preview.html")
    write_text(paths[-1], _page(root, samples, images))
    return paths


def _image(sample: Sample) -> Image:
    from PIL import Image

    path = sample.folder / "rgb" / frame_name(sample.frame)
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise InputError("the frame cannot be read", path=path, cure="generate the recording again") from error


def _montage(samples: list[Sample], images: list[Image], columns: int, shown: bool) -> Image:
    """A grid of the frames; with the state drawn as one square per component below each of them."""
    from PIL import Image, ImageDraw

    size = max(images[0].width, 96)
    strip = 22
    rows = -(-len(images) // columns)
    sheet = Image.new("RGB", (columns * size, rows * (size + strip)), (24, 24, 24))
    draw = ImageDraw.Draw(sheet)
    colours = {1: (60, 170, 90), 0: (70, 70, 70), -1: (220, 60, 50)}
    for number, (sample, image) in enumerate(zip(samples, images, strict=True)):
        x, y = (number % columns) * size, (number // columns) * (size + strip)
        sheet.paste(image.resize((size, size)), (x, y))
        draw.text((x + 3, y + size + 1), f"{number + 1}", fill=(230, 230, 230))
        if not shown:
            continue
        width = (size - 26) / len(sample.bits)
        for k, bit in enumerate(sample.bits):
            left = x + 22 + k * width
            draw.rectangle((left, y + size + 4, left + width - 2, y + size + 12), fill=colours[bit])
        note = f"{'clear' if sample.readable else ''}{'' if sample.readable else f'{sample.visible:.0%} visible'}"
        draw.text((x + 22, y + size + 11), note, fill=(200, 200, 120))
    return sheet


def _page(root: Path, samples: list[Sample], images: list[Image]) -> str:
    """A page of its own: the state of a frame appears when its image is clicked."""
    cells = []
    n = len(samples[0].bits)
    for number, (sample, image) in enumerate(zip(samples, images, strict=True), start=1):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=88)
        data = base64.b64encode(buffer.getvalue()).decode()
        clear = "clear view" if sample.readable else f"{sample.visible:.0%} visible"
        caption = html.escape(f"{sample.caption(n)} ({clear}; {sample.folder.name}, frame {sample.frame})")
        cells.append(
            f'<details><summary><img src="data:image/jpeg;base64,{data}" alt="frame {number}">'
            f"<b>{number}</b></summary><p>{caption}</p></details>"
        )
    return _PAGE.format(title=html.escape(f"Which state is this? {root.name}"), cells="\n".join(cells))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem; background: #1b1b1d; color: #ddd }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 14px }}
img {{ width: 100%; display: block; border-radius: 4px }}
summary {{ list-style: none; cursor: pointer }}
details p {{ margin: .3rem 0; color: #e6d98a }}
</style></head><body>
<h1>{title}</h1><p>Look at a frame, say which parts are mounted, then click it.</p>
<main>
{cells}
</main></body></html>
"""
