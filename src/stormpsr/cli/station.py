"""`stormpsr station`: a live page that ticks off the work instruction, warns, and keeps the record of every unit."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from stormpsr.cli import options
from stormpsr.cli.output import JsonFlag, counted, print_json
from stormpsr.errors import InputError

if TYPE_CHECKING:
    from stormpsr.data.sources import FrameSource
    from stormpsr.recognizer.model_folder import RecognizerModel
    from stormpsr.station.api import StationApi
    from stormpsr.station.service import Station
    from stormpsr.web.security import Access

DEFAULT_PORT = 8765


class _WithDefault(TyperGroup):
    """`station verify DIR` and `station export DIR` are commands; everything else is `station [MODEL] [SOURCE]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["watch", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_WithDefault, help="A live page that ticks off the work instruction.")


@app.command("verify")
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --data folder of a station.")],
    as_json: JsonFlag = False,
) -> int:
    """Check that nobody changed a station's records, and that its images and clips are those that were recorded.

    The station may be running. The hash that is printed is that of the latest record: who noted an earlier one, or
    got it in a message, can tell whether records were cut off at the end.

    Example: stormpsr station verify line-3
    """
    from stormpsr.station.records import verify

    found = verify(folder)
    if as_json:
        print_json(
            {
                "records": found.n_records,
                "last_hash": found.last_hash,
                "problems": found.problems,
                "evidence": found.n_evidence,
                "evidence_deleted": found.n_deleted,
            }
        )
    else:
        for problem in found.problems:
            typer.echo(problem, err=True)
        files = f"{counted(found.n_evidence, 'file')} of evidence as recorded, {found.n_deleted} deleted since"
        state = "all in order" if not found.problems else counted(len(found.problems), "problem")
        typer.echo(f"{counted(found.n_records, 'record')}: {state}; {files}; latest hash {found.last_hash}")
    return 1 if found.problems else 0


@app.command("export")
def export_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --data folder of a station.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the data set; it must not exist yet.")],
    procedure: Annotated[
        str | None, typer.Option("--procedure", "-p", help="Procedure of the station.", show_default="that in DIR")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make labelled recordings of what operators corrected.

    The station keeps a clip of each correction. Each becomes a short training recording, labelled by the operator's
    word, which corrections.csv and recording.json name as such. The station may be running.

    Example: stormpsr station export line-3 --out data/corrections
    """
    options.need("exporting clips", "detect", "cv2", "av")
    from stormpsr.procedure.model import Procedure
    from stormpsr.station.export import PROCEDURE_FILE, export_corrections

    if procedure is None and not (folder / PROCEDURE_FILE).is_file() and folder.is_dir():
        cure = "give --procedure; a station writes it beside its records when it is started"
        raise InputError(f"there is no {PROCEDURE_FILE}", path=folder, cure=cure)
    loaded = Procedure.load(procedure or folder / PROCEDURE_FILE)
    found = export_corrections(folder, out, loaded)
    if as_json:
        left_out = [{"record": number, "why": why} for number, why in found.left_out.items()]
        print_json({"corrections": found.n_corrections, "recordings": found.recordings, "left_out": left_out})
        return
    for number, why in found.left_out.items():
        typer.echo(f"note: correction {number} is left out: {why}", err=True)
    written = f": {out}" if found.recordings else "; nothing was written"
    corrections, recordings = counted(found.n_corrections, "correction"), counted(len(found.recordings), "recording")
    typer.echo(f"{corrections}, {recordings} made{written}")


@app.command("watch", hidden=True)
def watch_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [SOURCE]",
            help="SOURCE is a camera (0, 1, rtsp://...), a video file, a folder of frames or a recording. MODEL is the "
            "folder of a model. Without both, the shipped model watches a recording of the synthetic world, again "
            "and again. A single YAML file names several stations.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at. Any but this machine's own asks for a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any that is free.")] = DEFAULT_PORT,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of records, images and clips.", show_default="station, or one in the cache"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the station.", show_default="the machine's")] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="STORMPSR_TOKEN", help="Token that is asked for.", show_default="one is made if needed"),
    ] = None,
    mqtt: Annotated[
        str | None, typer.Option(envvar="STORMPSR_MQTT", help="MQTT broker: mqtt://user:password@host:1883/prefix.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(envvar="STORMPSR_WEBHOOK", help="Address to which every event is posted.")
    ] = None,
    keep_days: Annotated[float, typer.Option(min=0, help="Images and clips are deleted after so many days.")] = 30,
    too_long: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds after which a step takes too long.", show_default="learned from units"),
    ] = None,
    method: options.MethodOption = None,
    variant: options.VariantOption = None,
    threads: options.MeasuredThreadsOption = None,
    device: options.DeviceOption = "auto",
    only: Annotated[str | None, typer.Option(help="Run only this station of the file.", hidden=True)] = None,
) -> None:
    """Show a page that ticks off the work instruction, warns, and keeps the record of every unit.

    It runs on this machine and sends nothing elsewhere. Without a token it listens to this machine alone. After a crash
    or a power cut, start it again: the unit in work goes on from its state. Ctrl-C stops it.

    'stormpsr station verify DIR' checks the records, 'stormpsr station export DIR' makes recordings of corrections.

    Examples: stormpsr station; stormpsr station models/mine 0 --data line-3 --host 0.0.0.0
    """
    options.need("the station", "station")
    plan = _Plan(
        tuple(words or ()), host, port, data, name, token, mqtt, webhook, keep_days, too_long, method, variant, threads
    )
    if len(plan.words) > 2:
        cure = "give [MODEL] [SOURCE], then the options"
        raise InputError(f"{len(plan.words)} arguments", cure=cure)
    if plan.words and plan.words[-1].endswith((".yaml", ".yml")):
        file = Path(plan.words[-1])
        if only is None:
            _run_several(plan, file, device)
        else:
            _run(plan.of_entry(file, only), device)
    else:
        _run(plan, device)


@dataclass(frozen=True)
class _Plan:
    """The options of one station."""

    words: Sequence[str]
    host: str
    port: int
    data: Path | None
    name: str | None
    token: str | None
    mqtt: str | None
    webhook: str | None
    keep_days: float
    too_long: float | None
    method: str | None
    variant: str | None
    threads: int | None

    def of_entry(self, file: Path, name: str) -> _Plan:
        """That of a station in a file: what stands there counts first."""
        from stormpsr.station.hub import read_stations

        entry = next((entry for entry in read_stations(file) if entry.name == name), None)
        if entry is None:
            raise InputError(f"there is no station {name!r}", path=file)
        own = {field: getattr(entry, field) for field in ("variant", "method", "too_long", "mqtt", "webhook")}
        given = {field: value for field, value in own.items() if value is not None}
        return replace(self, words=(entry.model, str(entry.source)), name=name, **given)

    @property
    def is_demo(self) -> bool:
        return not self.words

    @property
    def folder(self) -> Path:
        if self.data is not None:
            return self.data
        return options.cache_folder(None).parent / "station-demo" if self.is_demo else Path("station")


def _run(plan: _Plan, device: str) -> None:
    """One station, until it is stopped."""
    from stormpsr.data.sources import LatestOnly
    from stormpsr.station.api import StationApi, station_app
    from stormpsr.station.records import Records
    from stormpsr.web.app import News
    from stormpsr.web.security import access_for
    from stormpsr.web.server import make_server, serve

    plan.folder.mkdir(parents=True, exist_ok=True)
    access, new_tokens = access_for(plan.host, plan.token, plan.folder)
    options.need("recognising steps", "detect")
    loaded = options.load(_model_of(plan), None, None, plan.threads or 1, device)
    source = _source_of(plan, loaded)
    records = Records(plan.folder, loaded.digest())
    loaded.procedure.save(plan.folder / "procedure.yaml")  # what the records mean, for who reads them later
    station = _station(plan, loaded, source, records)
    api = StationApi(station, News())
    _channels(plan, api)
    server = make_server(station_app(api, access), plan.host, plan.port)
    stopped = threading.Event()
    frames = LatestOnly(source, wait_for_first=True)
    failed: list[BaseException] = []

    def watch() -> None:
        try:
            station.watch(frames, stopped)
        except BaseException as error:  # a defect: better to end and be started again than to show what is old
            failed.append(error)
            server.should_exit = True

    watching = threading.Thread(target=watch, name="watch", daemon=True)
    watching.start()
    tidying = threading.Thread(target=_tidy, args=(station, stopped), name="tidy", daemon=True)
    tidying.start()
    try:
        serve(server, partial(_tell_where, plan, access, new_tokens))
    finally:
        stopped.set()
        frames.close()
        watching.join(timeout=5)
        for channel in api.channels:
            channel.stop()
        station.close()
        records.close()
    if failed:
        raise failed[0]


def _run_several(plan: _Plan, file: Path, device: str) -> None:
    """A process per station, and a page that lists them."""
    from stormpsr.station.hub import Processes, hub_app, read_stations
    from stormpsr.web.security import access_for
    from stormpsr.web.server import make_server, serve

    entries = read_stations(file)
    plan.folder.mkdir(parents=True, exist_ok=True)
    access, new_tokens = access_for(plan.host, plan.token, plan.folder)
    ports = {entry.name: plan.port + number for number, entry in enumerate(entries, start=1)}
    # what is secret stays in the file and in the environment: others can read the arguments of a process
    environment = {**os.environ, **({} if access.operator is None else {"STORMPSR_TOKEN": access.operator})}
    environment |= {"STORMPSR_VIEWER_TOKEN": access.viewer} if access.viewer else {}
    commands = {
        name: [
            *(sys.executable, "-m", "stormpsr", "station", str(file), "--only", name, "--host", plan.host),
            *("--port", str(port), "--data", str(plan.folder / name), "--keep-days", str(plan.keep_days)),
            *("--device", device),
            *(() if plan.threads is None else ("--threads", str(plan.threads))),
        ]
        for name, port in ports.items()
    }
    server = make_server(hub_app(ports, access), plan.host, plan.port)
    processes = Processes(commands, environment)
    processes.start()
    try:
        serve(server, partial(_tell_where, plan, access, new_tokens))
    finally:
        processes.stop()


def _model_of(plan: _Plan) -> str:
    from stormpsr.recognizer.recognizer import DEFAULT_MODEL

    return plan.words[0] if len(plan.words) == 2 else DEFAULT_MODEL


def _source_of(plan: _Plan, model: RecognizerModel) -> FrameSource:
    from stormpsr.data.sources import InRealTime, open_source

    if plan.is_demo:
        return InRealTime(_demo_recording(plan.folder / "assembly"), repeat=True)
    opened = open_source(plan.words[-1], model.procedure)
    return opened if opened.is_live else InRealTime(opened)


def _station(plan: _Plan, model: RecognizerModel, source: FrameSource, records: Any) -> Station:
    from stormpsr.data.sources import InRealTime
    from stormpsr.recognizer.offline import check_variant
    from stormpsr.recognizer.recognizer import Recognizer
    from stormpsr.station.alarms import Durations
    from stormpsr.station.service import Station, StationSettings, step_pictures

    name = Path(source.name).resolve().name if isinstance(source, InRealTime) else source.name
    chosen, _ = check_variant(model.procedure, "" if not isinstance(source, InRealTime) else name, plan.variant)

    threads = options.measured_threads() if plan.threads is None else None

    def make(variant: str | None) -> Recognizer:
        recognizer = Recognizer.of(model, plan.method, variant or chosen)
        if threads is not None:
            recognizer.threads = threads
        return recognizer

    settings = StationSettings(
        name=_clean(plan.name or ("demo" if plan.is_demo else socket.gethostname())),
        is_demo=plan.is_demo,
        is_recording=isinstance(source, InRealTime),
        model=model.path.name,
        source=name,
        evidence_days=plan.keep_days,
        pictures=step_pictures(model.path, model.procedure),
    )
    return Station(make, records, settings, durations=Durations(fixed_for_all=plan.too_long))


def _clean(name: str) -> str:
    """A name that may stand in addresses and topics."""
    found = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")
    return found or "station"


def _channels(plan: _Plan, api: StationApi) -> None:
    from stormpsr.station.publish import Mqtt, Webhook, brief_state

    station = api.station
    own = station.records, station.settings.name
    if plan.mqtt:
        state = lambda: brief_state(api.snapshot(read_only=True))  # noqa: E731
        api.channels.append(Mqtt(plan.mqtt, *own, state, lambda: station.clips_due))
    if plan.webhook:
        api.channels.append(Webhook(plan.webhook, *own, lambda: station.clips_due))
    for channel in api.channels:
        channel.start()


def _tidy(station: Station, stopped: threading.Event) -> None:
    """Delete old images and clips, now and every hour."""
    while True:
        station.records.forget_evidence(station.settings.evidence_days)
        if stopped.wait(3600):
            return


def _tell_where(plan: _Plan, access: Access, new_tokens: bool, address: str) -> None:
    from stormpsr.web.security import where_to_open

    lines = where_to_open("the station", address, access, new_tokens, plan.folder, "operator")
    typer.echo("\n".join([*lines, f"records are kept in {plan.folder}"]))


# ---------------------------------------------------------------------- without a camera
def _demo_recording(folder: Path) -> FrameSource:
    """A recording of the synthetic world: it is drawn once, and can be watched while it is drawn."""
    options.need("drawing a recording", "synth")
    from stormpsr.cli.demo import demo_spec
    from stormpsr.data.layouts import RecordingFolder
    from stormpsr.data.recording import open_recording
    from stormpsr.data.sources import Frame, FrameSource
    from stormpsr.synthetic.generate import RecordingBeingDrawn

    spec = replace(demo_spec(), frame_step=1)  # the assembly of `stormpsr demo`, with all its frames
    drawn = RecordingBeingDrawn(folder, spec)

    class Demo(FrameSource):
        name, fps, n_frames = drawn.name, drawn.fps, None

        def frames(self, start: int = 0) -> Iterator[Frame]:
            if drawn.path.is_dir():
                place = RecordingFolder(drawn.path.name, None, drawn.path)
                yield from open_recording(place, drawn.procedure).frames(start)
                return
            with RecordingBeingDrawn(folder, spec) as drawing:
                yield from drawing.frames(start)

    return Demo()
