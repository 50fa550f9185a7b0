"""Routes of the service's own interface."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import Response

from xmtc.core.child_worker import to_utf8_json
from xmtc.server import messages
from xmtc.server.files import CONTENT_TYPES, READ_TASK, WRITE_TASK, check_cells, check_upload
from xmtc.server.messages import locate_words
from xmtc.server.models import encode_json
from xmtc.server.request_bodies import LimitedRoute, run_in_body_thread
from xmtc.server.request_errors import RequestError, busy_error
from xmtc.server.request_memory import ACCOUNT_KEY
from xmtc.server.service import Service
from xmtc.tagger import Tag

MAX_INLINE_TAGS = 1000  # of an answer that the event loop encodes itself
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": messages.ErrorResponse} for status in (400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 503)
}


def to_json_response(value: Any) -> Response:
    return Response(encode_json(value), media_type="application/json")


def encode_tag(tag: Tag) -> dict[str, Any]:
    return {"label": tag.label, "name": tag.label if tag.name is None else tag.name, "score": round(tag.score, 6)}


def encode_predictions(name: str, found: list[list[Tag]]) -> Response:
    """Return the tags of each text as JSON, encoded text by text: other threads run between two texts."""
    results = b",".join(encode_json({"tags": [encode_tag(tag) for tag in tags]}) for tags in found)
    return Response(b'{"model":%s,"results":[%s]}' % (encode_json(name), results), media_type="application/json")


def build_model_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["models"], responses=ERRORS, route_class=LimitedRoute)

    @routes.get("", response_model=messages.ModelList)
    async def models() -> Response:
        """The models that are here."""
        damaged = {"damaged": service.models.damaged_names} if service.models.damaged_names else {}
        return to_json_response({"models": [served.describe(service.settings) for served in service.models], **damaged})

    @routes.post("/{name}/predict", response_model=messages.PredictResponse)
    async def predict(name: str, asked: messages.PredictRequest, request: Request) -> Response:
        """The best labels of one text or of several."""
        if (asked.text is None) == (asked.texts is None):
            raise RequestError(422, "Found both text and texts, or neither; send one of them.")
        texts = service.check_texts(asked.texts if asked.text is None else [asked.text])  # type: ignore[arg-type]
        served = service.find_model(name, request, len(texts))
        service.check_answer(len(texts), min(asked.k, len(served.tagger.labels)))
        found = await served.batcher.predict(texts, service.build_query(asked)) if texts else []
        if sum(map(len, found)) < MAX_INLINE_TAGS:
            return encode_predictions(name, found)
        return await run_in_body_thread(encode_predictions, name, found)

    @routes.post("/{name}/explain", response_model=messages.ExplainResponse)
    async def explain(name: str, asked: messages.ExplainRequest, request: Request) -> Response:
        """The words of a text that speak for a label, and those against it."""
        served = service.find_model(name, request, 1)
        text = service.check_texts([asked.text])[0]
        most = messages.MAX_EXPLAINED_CHARACTERS
        if len(text) > most:
            found = f"Found a text of {len(text):,} characters, expected {most:,} at most to be explained"
            raise RequestError(413, f"{found}; send a part of it.")
        opened = served.model

        def work() -> dict[str, Any]:
            found = opened.tagger.highlight(text, asked.label, n=len(text), run=opened.run, language=asked.language)[0]
            named = {"label": found.label, "name": found.name or found.label, "score": found.score}
            return {"model": name, **named, "words": locate_words(found)}

        return to_json_response(await served.batcher.run_task(work))

    @routes.get("/{name}/labels", response_model=messages.LabelList)
    async def labels(
        name: str,
        request: Request,
        search: Annotated[str, Query(max_length=messages.MAX_SEARCH)] = "",
        language: Annotated[str | None, Query(max_length=100)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Response:
        """Labels by any of their names, those that begin so first."""
        opened = service.find_model(name, request).model
        opened.tagger.check_language(language)
        return to_json_response({"labels": await service.run_in_thread(opened.search, search, language, limit)})

    return routes


def build_file_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["files"], responses=ERRORS, route_class=LimitedRoute)

    @routes.post("/{name}/file", response_model=messages.FileOut)
    async def file(
        name: str,
        request: Request,
        file: Annotated[UploadFile, File(description="txt, md, html, pdf, csv, tsv, xlsx, jsonl")],
        text: Annotated[str | None, Form(description="the column with the texts", max_length=1000)] = None,
    ) -> Response:
        """Return the texts in a file, to be sent to predict."""
        reading = service.find_model(name, request).tagger.about.get("reading", {})
        remembered = reading.get("text") if isinstance(reading, dict) else None
        content = await file.read()
        check_upload(file.filename or "", content)
        asked = {"name": file.filename or "", "column": text, "remembered": remembered}
        return Response(
            await service.run_in_child(request, READ_TASK, asked, lambda: content), media_type="application/json"
        )

    @routes.post("/{name}/table", response_class=Response)
    async def table(name: str, asked: messages.TableRequest, request: Request) -> Response:
        """Return documents and their tags as a file."""
        service.find_model(name, request, len(asked.rows))
        check_cells([len(row.tags) for row in asked.rows], asked.format)

        def rows() -> bytes:
            tags = ([(tag.label, tag.score, tag.name) for tag in row.tags] for row in asked.rows)
            found = [(row.id, row.text, each) for row, each in zip(asked.rows, tags, strict=True)]
            return to_utf8_json(found)

        made = await service.run_in_child(request, WRITE_TASK, {"format": asked.format}, rows)
        return Response(made, media_type=CONTENT_TYPES[asked.format])

    @routes.get("/{name}/report", response_class=Response)
    async def report(name: str, request: Request) -> Response:
        """What the model does well and where it fails: the page that `xmtc report` wrote."""
        page = await service.run_in_thread(service.find_model(name, request).read_report, service.settings)
        if page is None:
            raise RequestError(
                404, "This model has no report; `xmtc report` writes one, `xmtc serve --report` shows it."
            )
        request.scope[ACCOUNT_KEY].share_answer(len(page))
        return Response(page, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    return routes


def build_operator_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["operation"])

    @routes.get("/healthz")
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    @routes.get("/readyz", responses={503: ERRORS[503]})
    async def ready() -> dict[str, Any]:
        """Whether texts can be tagged now."""
        if not list(service.models):
            raise busy_error("No model can answer; the log of the service has the reason.")
        for served in service.models:
            if served.batcher.thread is None or not served.batcher.thread.is_alive():
                raise busy_error(f"The model {served.name} is not at work.")
        damaged = {"damaged": service.models.damaged_names} if service.models.damaged_names else {}
        return {"status": "ready", "models": [served.name for served in service.models], **damaged}

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(
            await service.run_in_thread(service.metrics.render), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return routes
