"""Routes of the service's own interface."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import Response

from xmtc.core.child_worker import to_utf8_json
from xmtc.server import explaining, messages
from xmtc.server.explaining import placed_words
from xmtc.server.files import READ, TYPES, WRITE, check_cells, check_upload
from xmtc.server.memory import ACCOUNT
from xmtc.server.models import in_json
from xmtc.server.refusals import Refused, busy
from xmtc.server.request_bodies import LimitedRoute, in_body_thread
from xmtc.server.service import Service
from xmtc.tagger import Tag

INLINE_TAGS = 1000  # of an answer that the event loop encodes itself
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": messages.ErrorOut} for status in (400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 503)
}


def answer(value: Any) -> Response:
    return Response(in_json(value), media_type="application/json")


def shown(tag: Tag) -> dict[str, Any]:
    return {"label": tag.label, "name": tag.label if tag.name is None else tag.name, "score": round(tag.score, 6)}


def tagged(name: str, found: list[list[Tag]]) -> Response:
    """Return the tags of each text as JSON, encoded text by text: other threads run between two texts."""
    results = b",".join(in_json({"tags": [shown(tag) for tag in tags]}) for tags in found)
    return Response(b'{"model":%s,"results":[%s]}' % (in_json(name), results), media_type="application/json")


def model_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["models"], responses=ERRORS, route_class=LimitedRoute)

    @routes.get("", response_model=messages.ModelList)
    async def models() -> Response:
        """The models that are here."""
        damaged = {"damaged": service.models.damaged} if service.models.damaged else {}
        return answer({"models": [served.about(service.settings) for served in service.models], **damaged})

    @routes.post("/{name}/predict", response_model=messages.Answer)
    async def predict(name: str, asked: messages.Asked, request: Request) -> Response:
        """The best labels of one text or of several."""
        if (asked.text is None) == (asked.texts is None):
            raise Refused(422, "Found both text and texts, or neither; send one of them.")
        texts = service.check_texts(asked.texts if asked.text is None else [asked.text])  # type: ignore[arg-type]
        served = service.served(name, request, len(texts))
        service.check_answer(len(texts), min(asked.k, len(served.tagger.labels)))
        found = await served.batcher.ask(texts, service.question(asked)) if texts else []
        if sum(map(len, found)) < INLINE_TAGS:
            return tagged(name, found)
        return await in_body_thread(tagged, name, found)

    @routes.post("/{name}/explain", response_model=messages.Explained)
    async def explain(name: str, asked: messages.ToExplain, request: Request) -> Response:
        """The words of a text that speak for a label, and those against it."""
        served = service.served(name, request, 1)
        text = service.check_texts([asked.text])[0]
        most = explaining.MOST_CHARACTERS
        if len(text) > most:
            found = f"Found a text of {len(text):,} characters, expected {most:,} at most to be explained"
            raise Refused(413, f"{found}; send a part of it.")
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
        search: Annotated[str, Query(max_length=messages.MAX_SEARCH)] = "",
        language: Annotated[str | None, Query(max_length=100)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Response:
        """Labels by any of their names, those that begin so first."""
        opened = service.served(name, request).opened
        opened.tagger.check_language(language)
        return answer({"labels": await service.in_thread(opened.search, search, language, limit)})

    return routes


def file_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["files"], responses=ERRORS, route_class=LimitedRoute)

    @routes.post("/{name}/file", response_model=messages.FileOut)
    async def file(
        name: str,
        request: Request,
        file: Annotated[UploadFile, File(description="txt, md, html, pdf, csv, tsv, xlsx, jsonl")],
        text: Annotated[str | None, Form(description="the column with the texts", max_length=1000)] = None,
    ) -> Response:
        """Return the texts in a file, to be sent to predict."""
        reading = service.served(name, request).tagger.about.get("reading", {})
        remembered = reading.get("text") if isinstance(reading, dict) else None
        content = await file.read()
        check_upload(file.filename or "", content)
        asked = {"name": file.filename or "", "column": text, "remembered": remembered}
        return Response(await service.in_child(request, READ, asked, lambda: content), media_type="application/json")

    @routes.post("/{name}/table", response_class=Response)
    async def table(name: str, asked: messages.ToWrite, request: Request) -> Response:
        """Return documents and their tags as a file."""
        service.served(name, request, len(asked.rows))
        check_cells([len(row.tags) for row in asked.rows], asked.format)

        def rows() -> bytes:
            tags = ([(tag.label, tag.score, tag.name) for tag in row.tags] for row in asked.rows)
            found = [(row.id, row.text, each) for row, each in zip(asked.rows, tags, strict=True)]
            return to_utf8_json(found)

        made = await service.in_child(request, WRITE, {"format": asked.format}, rows)
        return Response(made, media_type=TYPES[asked.format])

    @routes.get("/{name}/report", response_class=Response)
    async def report(name: str, request: Request) -> Response:
        """What the model does well and where it fails: the page that `xmtc report` wrote."""
        page = await service.in_thread(service.served(name, request).read_report, service.settings)
        if page is None:
            raise Refused(404, "This model has no report; `xmtc report` writes one, `xmtc serve --report` shows it.")
        request.scope[ACCOUNT].share_answer(len(page))
        return Response(page, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

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
        if not list(service.models):
            raise busy("No model can answer; the log of the service has the reason.")
        for served in service.models:
            if served.batcher.thread is None or not served.batcher.thread.is_alive():
                raise busy(f"The model {served.name} is not at work.")
        damaged = {"damaged": service.models.damaged} if service.models.damaged else {}
        return {"status": "ready", "models": [served.name for served in service.models], **damaged}

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(
            await service.in_thread(service.metrics.page), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return routes
