"""What networks and the decoding method make of parts that sit wrongly: by visibility, by part and by kind of fault.

    python benchmarks/wrong_parts.py MODEL DATA [--split test] [--cache DIR]

DATA is a generated set (`visibility.csv` says how much of each part shows, `recording.json` which fault it was). In
every frame that the networks looked at, each reader says of each part whether it is absent, correct or wrong: the
detector's parts, the encoder's reading of the frame, the temporal model's word on the window's end, and the belief of
the model's method where it has one. "found": of frames in which a part sits wrongly, those in which the reader says so.
"false": of frames in which it sits correctly, those in which the reader says wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from script import errors_in_one_line, make_parser, print_table
from stormpsr.data.dataset import Dataset
from stormpsr.data.layouts import RECORDING_FILE
from stormpsr.data.visibility import VISIBILITY_FILE, read_visibility
from stormpsr.decoding.predictions import OUTPUT_COLUMNS
from stormpsr.files import read_json_object
from stormpsr.recognizer.model_folder import RecognizerModel, load_model
from stormpsr.recognizer.offline import LabelledPredictions, predict_recordings

CORRECT, WRONG = 1, 2
VIEWS = {"more than 75 % shows": (0.75, 1.01), "25 to 75 %": (0.25, 0.75), "less than 25 %": (0.0, 0.25)}
READERS = {"detector": "part", "encoder": "read", "window's end": "last"}
Counts = dict[tuple[str, ...], NDArray[np.int64]]  # found, of wrong ones; false, of correct ones


def readings(model: RecognizerModel, labelled: LabelledPredictions) -> tuple[list[int], dict[str, NDArray[np.int64]]]:
    """The frames that were looked at, and what each reader says of every part there: 0 absent, 1 correct, 2 wrong."""
    decoder = model.decoder(None, labelled.variant)
    frames, said = [], defaultdict(list)
    for prediction in labelled.predictions:
        decoder.update(prediction)
        belief_C3 = getattr(decoder.decoder, "state_probabilities", None)
        if prediction.outputs_CF is None:
            continue
        frames.append(prediction.index)
        for reader, name in READERS.items():
            column = OUTPUT_COLUMNS.index(f"{name} absent")
            said[reader].append(np.nan_to_num(prediction.outputs_CF[:, column : column + 3], nan=-9.0).argmax(axis=1))
        if belief_C3 is not None:
            said["belief"].append(belief_C3.argmax(axis=1))
    return frames, {reader: np.stack(rows) for reader, rows in said.items()}


def count(model: RecognizerModel, labelled: LabelledPredictions, counts: Counts) -> None:
    recording, procedure = labelled.recording, model.procedure
    frames, said = readings(model, labelled)
    state_FC = recording.states_FC[frames] % 3
    visible_FC = read_visibility(recording.path / VISIBILITY_FILE, procedure.n_components).visible_FC[frames]
    described = read_json_object(recording.path / RECORDING_FILE, "a recording", cure="generate it again")
    faults = described.get("faults", [])
    kind_FC = np.full(state_FC.shape, "", dtype=object)
    for frame, part, fault in faults:
        kind_FC[np.asarray(frames) >= frame, procedure.component_index[part]] = fault
    for reader, said_FC in said.items():
        for view, (low, high) in VIEWS.items():
            inside_FC = (visible_FC >= low) & (visible_FC < high)
            keys = {(reader, view): inside_FC}
            if low == 0.75:
                for k, component in enumerate(procedure.components):
                    only_FC = inside_FC & (np.arange(state_FC.shape[1]) == k)
                    keys[reader, "part", component.name] = only_FC
                    for kind in {fault for _, part, fault in faults if part == component.name}:
                        keys[reader, "fault", f"{component.name}: {kind}"] = only_FC & (kind_FC == kind)
            for key, where_FC in keys.items():
                wrong, right = where_FC & (state_FC == WRONG), where_FC & (state_FC == CORRECT)
                told = said_FC == WRONG
                counts[key] += [(told & wrong).sum(), wrong.sum(), (told & right).sum(), right.sum()]


def shares(counts: Counts, readers: Sequence[str], *key: str) -> list[str]:
    found = []
    for reader in readers:
        hits, wrong, false, right = counts[(reader, *key)]
        found.append(f"{hits / wrong:.2f} / {false / max(right, 1):.3f}" if wrong else "–")
    return [*found, str(counts[(readers[0], *key)][1])]


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--cache", type=Path, default=Path(".cache/predictions"))
    options = parser.parse_args(words)
    model = load_model(options.model)
    counts: Counts = defaultdict(lambda: np.zeros(4, dtype=np.int64))
    for recording, table in predict_recordings(model, Dataset.open(options.data, options.split), options.cache):
        count(model, LabelledPredictions.of(recording, table, model.procedure), counts)
    readers = list(dict.fromkeys(key[0] for key in counts))
    head = [f"{reader}: found / false" for reader in readers]
    print_table(("parts", *head, "frames"), [(view, *shares(counts, readers, view)) for view in VIEWS])
    for what in ("part", "fault"):
        names = sorted({key[2] for key in counts if key[1] == what})
        rows = [(name, *shares(counts, readers, what, name)) for name in names if counts[readers[0], what, name][1]]
        print()
        print_table((f"{what}, more than 75 % shows", *head, "frames"), rows)


if __name__ == "__main__":
    with errors_in_one_line():
        main()
