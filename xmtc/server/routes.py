"""Routes of the HTTP API under /v1/models, and of the health and metrics endpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import Response

from xmtc.core.child_worker import to_utf8_json
from xmtc.server import messages
from xmtc.server.files import CONTENT_TYPES, READ_TASK, WRITE_TASK, check_cells, check_upload
from xmtc.server.models import RatedTags
from xmtc.server.request_bodies import LimitedRoute, run_in_body_thread
from xmtc.server.request_errors import RequestError, busy_error
from xmtc.server.request_memory import ACCOUNT_KEY
from xmtc.server.service import Service
from xmtc.tagger import Tag

MAX_INLINE_TAGS = 1000  # larger responses are encoded in a thread
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": messages.ErrorResponse} for status in (400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 503)
}


def encode_json(value: Any) -> bytes:
    """Return compact JSON in ASCII, so that any label name is valid in it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def to_json_response(value: Any) -> Response:
    return Response(encode_json(value), media_type="application/json")


def encode_tag(tag: Tag) -> dict[str, Any]:
    return {"label": tag.label, "name": tag.label if tag.name is None else tag.name, "score": round(tag.score, 6)}


def encode_tags(tags: list[Tag]) -> dict[str, Any]:
    quality = {"quality": tags.quality} if isinstance(tags, RatedTags) else {}
    return {"tags": [encode_tag(tag) for tag in tags], **quality}


def encode_predictions(name: str, predictions: list[list[Tag]]) -> Response:
    """Encode the tags one text at a time, so that other threads run in between."""
    results = b",".join(encode_json(encode_tags(tags)) for tags in predictions)
    return Response(b'{"model":%s,"results":[%s]}' % (encode_json(name), results), media_type="application/json")


def build_model_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["models"], responses=ERRORS, route_class=LimitedRoute)

    @routes.get("", response_model=messages.ModelList)
    async def models() -> Response:
        """List the models."""
        damaged = {"damaged": service.models.damaged_names} if service.models.damaged_names else {}
        return to_json_response({"models": [served.describe(service.settings) for served in service.models], **damaged})

    @routes.get("/{name}/labels", response_model=messages.LabelList)
    async def labels(
        name: str,
        request: Request,
        search: Annotated[str, Query(max_length=messages.MAX_SEARCH_CHARACTERS)] = "",
        language: Annotated[str | None, Query(max_length=messages.MAX_LANGUAGE_CHARACTERS)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Response:
        """Search the labels by any of their names."""
        model = service.find_model(name, request).model
        model.tagger.check_language(language)
        return to_json_response({"labels": await service.run_in_thread(model.search, search, language, limit)})

    return routes


def build_prediction_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["models"], responses=ERRORS, route_class=LimitedRoute)

    @routes.post("/{name}/predict", response_model=messages.PredictResponse)
    async def predict(name: str, body: messages.PredictRequest, request: Request) -> Response:
        """Predict the labels of one text or of several texts."""
        if (body.text is None) == (body.texts is None):
            raise RequestError(422, "Found both text and texts, or neither; send one of them.")
        texts = service.check_texts(body.texts if body.text is None else [body.text])  # type: ignore[arg-type]
        served = service.find_model(name, request, len(texts))
        service.check_answer(len(texts), min(body.k, len(served.model.tagger.labels)))
        predictions = await served.batcher.predict(texts, service.build_query(body)) if texts else []
        if sum(map(len, predictions)) < MAX_INLINE_TAGS:
            return encode_predictions(name, predictions)
        return await run_in_body_thread(encode_predictions, name, predictions)

    @routes.post("/{name}/explain", response_model=messages.ExplainResponse)
    async def explain(name: str, body: messages.ExplainRequest, request: Request) -> Response:
        """Return the words of a text with their weights for a label."""
        served = service.find_model(name, request, 1)
        text = service.check_texts([body.text])[0]
        max_length = messages.MAX_EXPLAINED_CHARACTERS
        if len(text) > max_length:
            raise RequestError(
                413,
                f"Found a text of {len(text):,} characters, expected {max_length:,} at most for an explanation; send a "
                "part of it.",
            )
        model = served.model

        def explain_label() -> dict[str, Any]:
            highlight = model.tagger.highlight(text, body.label, n=len(text), run=model.run, language=body.language)[0]
            return {"model": name, **messages.encode_explanation(highlight)}

        return to_json_response(await served.batcher.run_task(explain_label))

    return routes


UploadedFile = Annotated[
    UploadFile, File(description="File of type txt, md, html, pdf, docx, csv, tsv, xlsx or jsonl.")
]
TextColumn = Annotated[str | None, Form(description="Column with the texts.", max_length=1000)]
UploadEncoding = Annotated[
    str | None, Form(description="Encoding of a text or table; detected by default.", max_length=100)
]


def build_file_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models", tags=["files"], responses=ERRORS, route_class=LimitedRoute)

    @routes.post("/{name}/file", response_model=messages.FileOut)
    async def file(
        name: str,
        request: Request,
        file: UploadedFile,
        text: TextColumn = None,
        encoding: UploadEncoding = None,
    ) -> Response:
        """Return the documents of a file."""
        remembered = service.find_model(name, request).model.tagger.about.get("reading", {}).get("text")
        content = await file.read()
        check_upload(file.filename or "", content)
        task_request = {"name": file.filename or "", "column": text, "remembered": remembered, "encoding": encoding}
        documents = await service.run_in_child(request, READ_TASK, task_request, lambda: content)
        return Response(documents, media_type="application/json")

    @routes.post("/{name}/table", response_class=Response)
    async def table(name: str, body: messages.TableRequest, request: Request) -> Response:
        """Return a file with documents and their tags."""
        service.find_model(name, request, len(body.rows))
        check_cells([len(row.tags) for row in body.rows], body.format)
        rows = partial(encode_rows, body.rows)
        file = await service.run_in_child(request, WRITE_TASK, {"format": body.format}, rows)
        return Response(file, media_type=CONTENT_TYPES[body.format])

    @routes.get("/{name}/report", response_class=Response)
    async def report(name: str, request: Request) -> Response:
        """Return the HTML report of the model, as written by `xmtc report`."""
        page = await service.run_in_thread(service.find_model(name, request).read_report, service.settings)
        if page is None:
            raise RequestError(
                404, "This model has no report; `xmtc report` writes one, `xmtc serve --report` shows it."
            )
        request.scope[ACCOUNT_KEY].share_answer(len(page))
        return Response(page, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    return routes


def encode_rows(rows: Sequence[messages.TableRow]) -> bytes:
    return to_utf8_json([(row.id, row.text, [(tag.label, tag.score, tag.name) for tag in row.tags]) for row in rows])


def build_operator_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["operation"])

    @routes.get("/healthz")
    async def health() -> dict[str, str]:
        """Return 200 if the process is alive."""
        return {"status": "alive"}

    @routes.get("/readyz", responses={503: ERRORS[503]})
    async def ready() -> dict[str, Any]:
        """Return 200 if at least one model is ready, and 503 otherwise."""
        if not list(service.models):
            raise busy_error("No model is available; see the log of the service.")
        for served in service.models:
            if served.batcher.thread is None or not served.batcher.thread.is_alive():
                raise busy_error(f"The thread of the model {served.name} has stopped; restart the service.")
        damaged = {"damaged": service.models.damaged_names} if service.models.damaged_names else {}
        return {"status": "ready", "models": [served.name for served in service.models], **damaged}

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return the metrics in the Prometheus text format."""
        return Response(
            await service.run_in_thread(service.metrics.render), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return routes
