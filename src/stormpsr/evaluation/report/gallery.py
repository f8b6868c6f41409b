"""The section on what went wrong: a film strip and a few sentences per case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from stormpsr.evaluation.report.cases import Case, CaseKind, worst_cases
from stormpsr.evaluation.report.content import Content
from stormpsr.evaluation.report.images import Album
from stormpsr.evaluation.report.markup import Html, clock, counted, element, join, listed, seconds

OnProgress = Callable[[int, int], None]  # recordings whose images are read, of how many

_TITLES: dict[CaseKind, str] = {
    "missed": "Missed steps",
    "late": "Latest recognitions",
    "false": "False alarms",
}
_NONE: dict[CaseKind, str] = {
    "missed": "No step was missed.",
    "late": "No step was recognised more than 2 seconds late.",
    "false": "There was no false alarm.",
}
_AROUND_SECONDS: dict[CaseKind, tuple[float, ...]] = {
    "missed": (-2.0, -1.0, 0.0, 1.0, 3.0, 8.0),
    "late": (-2.0, 0.0, 1.0, 3.0),  # and the moment of recognition
    "false": (-6.0, -3.0, -1.0, 0.0, 1.0, 4.0),
}
_APART_SECONDS = 0.6


def gallery(content: Content, data: Path, on_progress: OnProgress | None = None) -> Html:
    """The worst cases of the main method, with images where they can be had."""
    cases = worst_cases(content)
    albums = _albums(cases, data, on_progress)
    numbers = {view.name: place for place, view in enumerate(content.recordings)}
    parts: list[Html] = [_problems(albums)]
    for kind, title in _TITLES.items():
        cards = [_card(content, case, albums[case.view.name], numbers[case.view.name]) for case in cases[kind]]
        inside = cards or [element("p", _NONE[kind], class_="note")]
        parts.append(element("h3", title))
        parts.append(element("div", *inside, class_="cases"))
    return join(parts)


def _frames(case: Case) -> list[int]:
    """The frames of a film strip: the moments that matter, and others that are not nearly the same image."""
    fps, last = case.view.run.fps, case.view.run.n_frames - 1
    moments = [case.frame] if case.until is None else [case.frame, case.until]
    around = [case.frame + round(offset * fps) for offset in _AROUND_SECONDS[case.kind]]
    if case.until is not None:
        around.append(case.until - round(fps))
    chosen = [frame for frame in moments if 0 <= frame <= last]
    for frame in around:
        if 0 <= frame <= last and all(abs(frame - other) >= _APART_SECONDS * fps for other in chosen):
            chosen.append(frame)
    return sorted(chosen)


def _albums(cases: Mapping[CaseKind, list[Case]], data: Path, on_progress: OnProgress | None) -> dict[str, Album]:
    """Every recording's frames are read in one go, because a video is decoded from its beginning."""
    wanted: dict[str, set[int]] = {}
    views = {case.view.name: case.view for found in cases.values() for case in found}
    for found in cases.values():
        for case in found:
            wanted.setdefault(case.view.name, set()).update(_frames(case))
    albums: dict[str, Album] = {}
    for done, (name, frames) in enumerate(wanted.items(), start=1):
        run = views[name].run
        albums[name] = Album.of(run.frames_in(data) if run.frames_path else None, frames)
        if on_progress:
            on_progress(done, len(wanted))
    return albums


def _problems(albums: Mapping[str, Album]) -> Html:
    """Say why images are missing; one reason stands for all of its kind."""
    lacking = {name: album.problem for name, album in albums.items() if album.problem}
    if not lacking:
        return Html("")
    shown = listed(list(lacking)[:3])
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    some = any(albums[name].images for name in lacking)
    what = "Some images are" if some or len(lacking) < len(albums) else "There are no images: they are"
    text = f"{what} missing for {counted(len(lacking), 'recording')} ({shown}{more}): {next(iter(lacking.values()))}."
    return element("p", text, class_="note warning")


# ---------------------------------------------------------------------- one case
def _card(content: Content, case: Case, album: Album, number: int) -> Html:
    name = f"{case.step_id} {content.step_name(case.step_id)}"
    verb = "reported" if case.kind == "false" else "completed"
    link = element("a", case.view.name, href=f"#recording-{number}")
    where = f", {verb} at {clock(case.view.time(case.frame))} (frame {case.frame})"
    said = [
        element("li", element("span", method.title, class_=f"method look-{method.look}"), f" {text}")
        for method, text in case.said
    ]
    return element(
        "article",
        element("h4", name),
        element("p", link, where, ". ", " ".join(case.why)),
        _film(content, case, album),
        element("ul", *said, class_="said"),
        class_=f"case {case.kind}",
    )


def _film(content: Content, case: Case, album: Album) -> Html:
    shots = []
    for frame in _frames(case):
        picture = album.images.get(frame)
        if picture is None:
            continue
        offset = case.view.time(frame - case.frame)
        words = _words(case, frame)
        alt = f"{case.view.name}, frame {frame}: {words or 'around'} {content.step_name(case.step_id)}, {offset:+.1f} s"
        image = element("img", src=picture.uri, alt=alt, width=str(picture.width), height=str(picture.height))
        under = element("span", words or f"{offset:+.1f}\N{NO-BREAK SPACE}s".replace("-", "−"))
        shots.append(element("div", image, under, class_="shot moment" if words else "shot"))
    return element("div", *shots, class_="film") if shots else Html("")


def _words(case: Case, frame: int) -> str:
    """What a frame of the strip is the moment of, if of anything."""
    if frame == case.frame:
        return "reported" if case.kind == "false" else "completed"
    if frame == case.until:
        return f"recognised, {seconds(case.view.time(frame - case.frame))}"
    return ""
