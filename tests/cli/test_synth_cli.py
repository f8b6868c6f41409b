"""`stormpsr synth`, from the command line to the files."""

import json
from pathlib import Path

import pytest

import stormpsr
from stormpsr.cli.main import main

TINY = ["--profile", "quick", "--train", "1", "--val", "0", "--test", "0", "--size", "48", "--max-seconds", "3"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "set"
    assert main(["synth", "generate", str(out), *TINY, "--workers", "1", "--train-error-rate", "0.5"]) == 0
    return out


def test_a_generated_set_says_what_it_was_made_from(made: Path) -> None:
    description = json.loads((made / "dataset.json").read_text())
    assert description["rates"]["train"]["error_rate"] == 0.5
    assert description["rates"]["test"]["error_rate"] == 0.12


def test_a_second_run_has_nothing_to_do(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "generate", str(made), *TINY, "--train-error-rate", "0.5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["made"] == []
    assert len(answer["skipped"]) == 1


def test_other_rates_are_another_set(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "generate", str(made), *TINY]) == 2
    assert "holds another set: rates" in capsys.readouterr().err


def test_statistics_stand_beside_the_real_ones(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "stats", str(made), "--against", "industreal", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["comparison"]}
    assert rows["share of clear frames"]["real"] == 0.14
    assert main(["synth", "stats", str(made), "--against", "industreal"]) == 0
    assert "share of clear frames" in capsys.readouterr().out
    assert main(["synth", "stats", str(made), "--against", "ikea"]) == 2
    assert "no real metrics of 'ikea'" in capsys.readouterr().err


def test_a_preview_is_a_page_and_two_images(made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["synth", "preview", str(made), "--out", str(tmp_path), "--count", "5", "--json"]) == 0
    names = {Path(name).name for name in json.loads(capsys.readouterr().out)["files"]}
    assert names == {"hidden.png", "shown.png", "preview.html"}
    page = (tmp_path / "preview.html").read_text()
    assert page.count("<details>") == 5
    assert "http" not in page  # needs no network


def test_where_there_is_no_terminal_a_line_says_now_and_then_how_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stormpsr.cli.output._SECONDS_BETWEEN_LINES", 0.0)
    words = ["synth", "states", str(tmp_path / "images"), "--per-state", "0", "--walks", "2", "--size", "48"]
    assert main(words) == 0
    assert "images: 2 of 2\n" in capsys.readouterr().err
    assert main([*words[:2], str(tmp_path / "again"), *words[3:], "--json"]) == 0
    assert not capsys.readouterr().err


def test_every_so_many_frames_can_be_drawn(tmp_path: Path) -> None:
    out = tmp_path / "set"
    assert main(["synth", "generate", str(out), *TINY, "--every", "10", "--workers", "1"]) == 0
    assert json.loads((out / "dataset.json").read_text())["frame_step"] == 10
    assert sorted(path.name for path in out.rglob("*.jpg")) == ["000000.jpg", "000010.jpg", "000020.jpg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "image size is 0"),
        (["--product", "spaceship"], "spaceship"),
        (["--profile", "slow"], "no profile 'slow'"),
        (["--occlusion", "7"], "--occlusion"),
        (["--every", "0"], "--every"),
        (["--every", "4", "--video"], "a video cannot leave frames out"),
        (["--train", "0", "--val", "0", "--test", "0"], "no recordings are asked for"),
    ],
)
def test_bad_input_is_one_line_with_the_cure(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synth", "generate", str(tmp_path / "out"), *arguments]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert message in errors[0]
    assert not (tmp_path / "out").exists()


def test_faults_kept_from_training_need_a_product_that_has_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vehicle.yaml"
    text = (Path(stormpsr.__file__).parent / "synthetic" / "products" / "vehicle.yaml").read_text()
    path.write_text(text.replace(", unseen: true", ""))
    words = ["--product", str(path), "--train", "0", "--val", "0", "--test", "1", "--unseen-faults"]
    assert main(["synth", "generate", str(tmp_path / "world"), *words]) == 2
    assert "keeps no faults from training" in capsys.readouterr().err


def test_a_preview_of_every_fourth_frame_shows_those_that_were_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--every", "4", "--train", "0", "--val", "0", "--test", "1", "--size", "32", "--max-seconds", "2"]
    assert main(["synth", "generate", str(tmp_path / "world"), *words, "--json"]) == 0
    assert main(["synth", "preview", str(tmp_path / "world"), "--count", "8", "--json"]) == 0


# ---------------------------------------------------------------------- a product of one's own
def changed_vehicle(folder: Path, *changes: tuple[str, str]) -> Path:
    from stormpsr.synthetic.product import product_path

    text = product_path("vehicle").read_text(encoding="utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_product_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "check", "vehicle"]) == 0
    assert ": fine (" in capsys.readouterr().out
    odd = changed_vehicle(tmp_path, ("unit: mm", "unit: cm"))
    assert main(["synth", "check", str(odd), "--json"]) == 0  # odd, but allowed
    (warning, *_) = json.loads(capsys.readouterr().out)["warnings"]
    assert "mm long: the camera is made for 30 to 600 mm; see 'unit'" in warning


def test_errors_of_a_product_have_a_line_and_a_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = changed_vehicle(tmp_path, ("unit: mm", "unit: parsec"))
    assert main(["synth", "check", str(broken)]) == 1
    line = next(n for n, text in enumerate(broken.read_text().splitlines(), start=1) if text.startswith("unit:"))
    assert capsys.readouterr().out.startswith(f"{broken}:{line}: ")


def test_a_sheet_shows_every_state_and_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    from stormpsr.procedure.model import StateKind
    from stormpsr.synthetic.product import Product

    vehicle = Product.load("vehicle")
    assert main(["synth", "sheet", "vehicle", "--out", str(tmp_path / "sheet.png"), "--size", "48", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["images"]
    states = sum(state.kind is StateKind.ASSEMBLY for state in vehicle.procedure.states)
    faults = sum(len(part.wrong_poses) for part in vehicle.parts)
    assert shown == states + faults
    with Image.open(tmp_path / "sheet.png") as image:
        assert image.width * image.height >= shown * 48 * 48
