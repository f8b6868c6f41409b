"""What the annotator's pages talk to: recordings, images by frame, changes, and news of them."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from stormpsr import __version__
from stormpsr.annotate.frames import RecordingFrames
from stormpsr.annotate.proposals import Background, Proposer
from stormpsr.annotate.session import Session, StaleError, read_status
from stormpsr.data.layouts import RecordingFolder, find_recordings
from stormpsr.data.recording import Recording
from stormpsr.procedure.model import Procedure
from stormpsr.web.app import News, answer, json_body, make_app, page
from stormpsr.web.security import Access

PAGES = Path(__file__).parent / "pages"
_MOST_OPEN_FRAMES = 3  # recordings whose images are kept ready
_MOST_OFTEN_SECONDS, _AT_LEAST_SECONDS = 0.2, 10.0


class Annotator:
    """The recordings of a data set, opened when somebody looks at them."""

    def __init__(self, root: Path, procedure: Procedure, *, title: str = "", proposer: Proposer | None = None) -> None:
        self.root, self.procedure, self.title = root, procedure, title or root.resolve().name
        self.news = News()
        self._lock = threading.RLock()
        self._sessions: dict[str, Session] = {}
        self._frames: OrderedDict[str, RecordingFrames] = OrderedDict()
        self._folders = self._find()
        self.background = (
            None
            if proposer is None
            else Background(proposer, self._recording, lambda: list(self._folders), self.news.tell)
        )

    def _find(self) -> dict[str, RecordingFolder]:
        """By the path from the root: what a page names is looked up here, and never becomes a path by itself.

        Finished ones come last.
        """
        found: dict[str, RecordingFolder] = {}
        folders = find_recordings(self.root)
        for folder in sorted(folders, key=lambda folder: bool(read_status(folder.path).get("finished"))):
            inner = folder.path.resolve().relative_to(self.root.resolve()).as_posix()
            found[folder.name if inner == "." else inner] = folder
        return found

    def close(self) -> None:
        if self.background is not None:
            self.background.close()
        with self._lock:
            for frames in self._frames.values():
                frames.close()
            self._frames.clear()

    # ------------------------------------------------------------------ recordings
    def _folder(self, key: str) -> RecordingFolder:
        if key not in self._folders:
            self._folders = self._find()  # it may have been recorded meanwhile
        if key not in self._folders:
            raise HTTPException(404, f"there is no recording {key[:80]!r}")
        return self._folders[key]

    def session(self, key: str) -> Session:
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = Session(self._folder(key), self.procedure)
            return self._sessions[key]

    def _recording(self, key: str) -> Recording:
        return self.session(key).recording

    def frames(self, key: str) -> RecordingFrames:
        recording = self._recording(key)
        with self._lock:
            if key not in self._frames:
                self._frames[key] = RecordingFrames(recording)
            self._frames.move_to_end(key)
            while len(self._frames) > _MOST_OPEN_FRAMES:
                self._frames.popitem(last=False)[1].close()
            return self._frames[key]

    def proposals(self, key: str) -> Any:
        return None if self.background is None else self.background.of(key)

    # ------------------------------------------------------------------ what pages ask for
    def overview(self) -> dict[str, Any]:
        self._folders = self._find()
        rows = []
        for key, folder in self._folders.items():
            status = read_status(folder.path)
            proposals = self.proposals(key)
            unsure = None if proposals is None else round(proposals.mean_unsure, 4)
            row = {"key": key, "name": folder.name, "split": folder.split, "has_labels": folder.has_labels}
            rows.append({**row, **status, "n_frames": status.get("n_frames"), "unsure": unsure})
        # what is not finished comes first, and of that what the model is least sure of
        rows.sort(key=lambda row: (bool(row.get("finished")), -(row["unsure"] or 0.0)))
        return {"title": self.title, "procedure": self.procedure.name, "recordings": rows, "model": self.progress()}

    def progress(self) -> dict[str, Any] | None:
        return None if self.background is None else self.background.progress()

    def about(self, key: str) -> dict[str, Any]:
        """Everything about a recording that a page needs once."""
        session, frames = self.session(key), self.frames(key)
        if self.background is not None:
            self.background.want(key)
        recording, numbers = session.recording, session.numbers
        step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
        even = all(number == numbers[0] + i * step for i, number in enumerate(numbers))
        procedure = self.procedure
        return {
            "key": key,
            "name": recording.name,
            "split": recording.split,
            "version": frames.version,
            "width": session.width,
            "height": session.height,
            "n_frames": recording.n_frames,
            "fps": recording.fps,
            "times": frames.times(),
            "numbers": {"first": numbers[0], "step": step, "count": len(numbers)} if even else list(numbers),
            "components": [{"name": c.name, "colour": c.colour} for c in procedure.components],
            "states": [state.name for state in procedure.states],
            "classes": [[*bits, number] for bits, number in procedure.class_of_bits.items()],
            "error_class": procedure.error_class,
            "has_model": self.background is not None,
            "document": session.to_json(),
        }

    def document(self, key: str) -> dict[str, Any]:
        return self.session(key).to_json()

    def proposed(self, key: str) -> dict[str, Any]:
        found = self.proposals(key)
        return {"ready": found is not None, **(found.to_json() if found is not None else {})}

    def change(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.session(key).change(body, self.proposals(key))
        finally:
            self.news.tell()

    def told(self) -> dict[str, Any]:
        """What is new: revisions of what is open, and how far the model is."""
        with self._lock:
            revisions = {key: session.revision for key, session in self._sessions.items()}
        ready = [key for key in revisions if self.proposals(key) is not None]
        return {"revisions": revisions, "model": self.progress(), "ready": ready}


# ---------------------------------------------------------------------- endpoints
def annotator_app(annotator: Annotator, access: Access) -> Starlette:
    """The application: two pages and what they ask for."""

    def key_of(request: Request) -> str:
        return str(request.path_params["key"])

    async def recordings(request: Request) -> Response:
        found = await run_sync(annotator.overview)
        return answer({**found, "read_only": request.state.role == "viewer"})

    async def about(request: Request) -> Response:
        found = await run_sync(annotator.about, key_of(request))
        return answer({**found, "read_only": request.state.role == "viewer"})

    async def document(request: Request) -> Response:
        return answer(await run_sync(annotator.document, key_of(request)))

    async def proposals(request: Request) -> Response:
        return answer(await run_sync(annotator.proposed, key_of(request)))

    async def frame(request: Request) -> Response:
        def read() -> tuple[bytes, str]:
            return annotator.frames(key_of(request)).get(int(request.path_params["number"]))

        content, kind = await run_sync(read)
        # the address names the version of the images: what it shows never changes
        return Response(content, media_type=kind, headers={"cache-control": "private, max-age=31536000, immutable"})

    async def change(request: Request) -> Response:
        body = await json_body(request)
        try:
            return answer(await run_sync(partial(annotator.change, key_of(request), body)))
        except StaleError as error:
            raise HTTPException(409, error.problem) from error

    async def stream(_: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            async for _ in annotator.news.stream(_MOST_OFTEN_SECONDS, _AT_LEAST_SECONDS):
                yield f"event: news\ndata: {json.dumps(await run_sync(annotator.told))}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def health(_: Request) -> Response:
        return answer({"status": "ok", "version": __version__})

    async def icon(_: Request) -> Response:
        return RedirectResponse("/static/icon.svg")

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        annotator.news.open()
        if annotator.background is not None:
            annotator.background.start()
        yield
        annotator.news.close()
        annotator.close()

    routes = [
        Route("/", page(PAGES, "recordings.html")),
        Route("/recordings/{key:path}", page(PAGES, "annotate.html")),
        Route("/api/recordings", recordings),
        Route("/api/recordings/{key:path}/frames/{number:int}", frame),
        Route("/api/recordings/{key:path}/document", document),
        Route("/api/recordings/{key:path}/proposals", proposals),
        Route("/api/recordings/{key:path}/change", change, methods=["POST"]),
        Route("/api/recordings/{key:path}/about", about),
        Route("/api/stream", stream),
        Route("/health", health),
        Route("/favicon.ico", icon),
    ]
    return make_app(routes, PAGES, access, lifespan)
