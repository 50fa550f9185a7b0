"""The application: addresses, and what is answered there."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, File, Form, Query, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import xmtc
from xmtc.errors import XmtcError
from xmtc.server import annif, messages
from xmtc.server.batching import Question
from xmtc.server.explaining import placed_words
from xmtc.server.files import TYPES, table_of, texts_in
from xmtc.server.limits import Door
from xmtc.server.metrics import Metrics
from xmtc.server.models import Models, Served, in_json
from xmtc.server.refusals import Refused, busy, of_error, unknown_model
from xmtc.server.refusals import in_json as refusal_in_json
from xmtc.server.settings import Settings
from xmtc.tagger import Tag
from xmtc.vocab.filters import FILE

PAGE = Path(__file__).parent / "page"
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": messages.ErrorOut} for status in (401, 404, 408, 413, 422, 429, 503)
}
IN_THREADS, WAITING_FOR_THREADS = 2, 32  # files and searches at a time, and that may wait


class Service:
    """What the addresses share."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.models = Models(settings, self.metrics)
        self.threads = ThreadPoolExecutor(IN_THREADS, "files")
        self.n_in_threads = 0

    def served(self, name: str, request: Request, n_texts: int | None = None) -> Served:
        found = self.models.served.get(name)
        if found is None:
            raise unknown_model(name, self.models.served)
        request.scope["xmtc"] = {"model": name} | ({} if n_texts is None else {"texts": n_texts})
        return found

    async def in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Work beside the models. One that takes too long is left alone: its asker does not wait any more."""
        if self.n_in_threads >= WAITING_FOR_THREADS:
            raise busy("Too many files wait here; send it again in a moment.")
        self.n_in_threads += 1
        future = self.threads.submit(work, *arguments)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._left_thread))
        return await asyncio.wrap_future(future)

    def _left_thread(self) -> None:
        self.n_in_threads -= 1

    def question(self, asked: messages.Asked) -> Question:
        if asked.k > self.settings.limits.k:
            raise Refused(422, f"k={asked.k} is more than {self.settings.limits.k:,} labels, the most here.")
        if any(entry.strip().startswith(f"{FILE}:") for entry in (*asked.allow, *asked.deny)):
            raise Refused(422, "Files of this machine cannot be named from outside; send the labels themselves.")
        return Question(
            asked.k, asked.threshold or 0.0, asked.decide, asked.language, tuple(asked.allow), tuple(asked.deny)
        )

    def check_texts(self, texts: list[str]) -> list[str]:
        limits = self.settings.limits
        if len(texts) > limits.texts:
            raise Refused(413, f"Found {len(texts):,} texts, expected {limits.texts:,} at most; send them in parts.")
        longest = max(map(len, texts), default=0)
        if longest > limits.text:
            raise Refused(413, f"Found a text of {longest:,} characters, expected {limits.text:,} at most; shorten it.")
        return texts


def create_app(settings: Settings) -> FastAPI:
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if not service.models.served:
            service.models.open()
        service.models.start()
        with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):  # elsewhere, or within a thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, renew_now, service.models)
        yield
        await service.models.stop()
        service.threads.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="xmtc",
        version=xmtc.__version__,
        summary="Tags for texts.",
        lifespan=lifespan,
        docs_url=None,  # whose pages take scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    add_routes(app, service)
    app.add_middleware(Door, settings=settings, metrics=service.metrics)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def renew_now(models: Models) -> None:
    models.renewing = asyncio.ensure_future(models.renew(anyway=True))  # kept, or it might be collected before its end


def add_routes(app: FastAPI, service: Service) -> None:
    app.include_router(model_routes(service))
    app.include_router(annif.routes(service))
    app.include_router(operator_routes(service))
    if PAGE.is_dir():
        app.mount("/static", StaticFiles(directory=PAGE), name="static")

        @app.get("/", include_in_schema=False)
        async def page() -> Response:
            return FileResponse(PAGE / "index.html")

    for error in (Refused, XmtcError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, refuse)


async def refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        refused = Refused(422, in_a_sentence(error))
    elif isinstance(error, HTTPException):
        refused = Refused(error.status_code, f"{error.detail}.".replace("..", "."))
    else:
        refused = of_error(error)
    status, body, kind = refusal_in_json(refused, request.url.path)
    return Response(body, status, headers=refused.headers, media_type=kind)


def in_a_sentence(error: RequestValidationError) -> str:
    """What is wrong first, without what was sent."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")[:100]
    return f"{where}: {first['msg']}." if where else f"{first['msg']}."


def shown(tag: Tag) -> dict[str, Any]:
    return {"label": tag.label, "name": tag.label if tag.name is None else tag.name, "score": round(tag.score, 6)}


def model_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["models"], responses=ERRORS)

    @routes.get("", response_model=messages.ModelList)
    async def models() -> Response:
        """The models that are here."""
        return answer({"models": [served.about(service.settings) for served in service.models]})

    @routes.post("/{name}/predict", response_model=messages.Answer)
    async def predict(name: str, asked: messages.Asked, request: Request) -> Response:
        """The best labels of one text or of several."""
        if (asked.text is None) == (asked.texts is None):
            raise Refused(422, "Found both text and texts, or neither; send one of them.")
        texts = service.check_texts(asked.texts if asked.text is None else [asked.text])  # type: ignore[arg-type]
        served = service.served(name, request, len(texts))
        found = await served.batcher.ask(texts, service.question(asked)) if texts else []
        return answer({"model": name, "results": [{"tags": [shown(tag) for tag in tags]} for tags in found]})

    @routes.post("/{name}/explain", response_model=messages.Explained)
    async def explain(name: str, asked: messages.ToExplain, request: Request) -> Response:
        """The words of a text that speak for a label, and those against it."""
        served = service.served(name, request, 1)
        text = service.check_texts([asked.text])[0]
        opened = served.opened

        def work() -> dict[str, Any]:
            found = opened.tagger.highlight(text, asked.label, n=len(text), run=opened.run, language=asked.language)[0]
            named = {"label": found.label, "name": found.name or found.label, "score": found.score}
            return {"model": name, **named, "words": placed_words(found)}

        return answer(await served.batcher.run(work))

    @routes.get("/{name}/labels", response_model=messages.LabelList)
    async def labels(
        name: str,
        request: Request,
        search: Annotated[str, Query(max_length=200)] = "",
        language: Annotated[str | None, Query(max_length=100)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Response:
        """Labels by any of their names, those that begin so first."""
        opened = service.served(name, request).opened
        opened.tagger.check_language(language)
        return answer({"labels": await service.in_thread(opened.search, search, language, limit)})

    @routes.post("/{name}/file", response_model=messages.FileOut)
    async def file(
        name: str,
        request: Request,
        file: Annotated[UploadFile, File(description="txt, md, html, pdf, csv, tsv, xlsx, jsonl")],
        text: Annotated[str | None, Form(description="the column with the texts", max_length=1000)] = None,
    ) -> Response:
        """The texts in a file, to be sent to predict."""
        reading = service.served(name, request).tagger.about.get("reading", {})
        content = await file.read()
        return answer(await service.in_thread(texts_in, file.filename or "", content, text, reading))

    @routes.post("/{name}/table", response_class=Response)
    async def table(name: str, asked: messages.ToWrite, request: Request) -> Response:
        """Documents and their tags as a file."""
        service.served(name, request, len(asked.rows))
        rows = [(row.id, row.text, [Tag(each.label, each.score, each.name) for each in row.tags]) for row in asked.rows]
        return Response(await service.in_thread(table_of, rows, asked.format), media_type=TYPES[asked.format])

    @routes.get("/{name}/report", response_class=Response)
    async def report(name: str, request: Request) -> Response:
        """What the model does well and where it fails: the page that `xmtc report` wrote."""
        file = service.served(name, request).report(service.settings)
        if file is None:
            raise Refused(404, "This model has no report; `xmtc report` writes one, `xmtc serve --report` shows it.")
        return FileResponse(file, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    return routes


def operator_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["operation"])

    @routes.get("/healthz")
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    @routes.get("/readyz", responses={503: ERRORS[503]})
    async def ready() -> dict[str, Any]:
        """Whether texts can be tagged now."""
        for served in service.models:
            if served.batcher.thread is None or not served.batcher.thread.is_alive():
                raise busy(f"The model {served.name} is not at work.")
        return {"status": "ready", "models": list(service.models.served)}

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return routes


def answer(value: Any) -> Response:
    return Response(in_json(value), media_type="application/json")
