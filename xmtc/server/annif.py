"""Annif's REST API, version 1: same paths, fields and names, so that Annif clients only change the server URL.

Each model is a project. `learn` (xmtc/server/desk_routes.py) stores documents in the review desk; without one it
answers 403, as in Annif where it is not allowed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

import xmtc
from xmtc.server.batching import PredictQuery
from xmtc.server.messages import MAX_LANGUAGE_CHARACTERS, FailFastList
from xmtc.server.models import LoadedModel, ServedModel
from xmtc.server.request_bodies import LimitedRoute, run_in_body_thread
from xmtc.server.request_errors import RequestError
from xmtc.server.routes import encode_json, to_json_response
from xmtc.server.service import Service
from xmtc.tagger import Tag

MAX_ANNIF_DOCUMENTS = 32  # per batch, as in Annif
DEFAULT_LIMIT = 10  # suggestions per document
UNKNOWN_LANGUAGE = "und"  # language code of models without a vocabulary


class AnnifDocument(BaseModel):
    text: str = Field(examples=["A quick brown fox jumped over the lazy dog."])
    document_id: str | None = Field(None, examples=["doc-1234"])
    metadata: dict[str, Any] | None = None  # accepted as in Annif, but not used


class AnnifBatch(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"documents": [{"text": "A quick brown fox"}]}]})

    documents: FailFastList[AnnifDocument] = Field(max_length=MAX_ANNIF_DOCUMENTS)


class AnnifProblem(BaseModel):
    detail: str
    status: int
    title: str
    type: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": AnnifProblem} for status in (400, 401, 403, 404, 408, 413, 415, 429, 503)
}


def build_project_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Annif"], responses=PROBLEMS, route_class=LimitedRoute)

    @router.get("/", include_in_schema=False)
    async def info() -> dict[str, str]:
        return {"title": "xmtc, with the interface of Annif", "version": xmtc.__version__}

    @router.get("/projects")
    async def projects() -> Response:
        """Get a list of projects."""
        return to_json_response({"projects": [describe_project(served) for served in service.models]})

    @router.get("/projects/{project_id}")
    async def one_project(project_id: str, request: Request) -> Response:
        """Show project information."""
        return to_json_response(describe_project(find_project(service, project_id, request)))

    if service.desk is None:

        @router.post("/projects/{project_id}/learn", include_in_schema=False)
        async def refuse_learning(project_id: str, request: Request) -> Response:
            find_project(service, project_id, request)
            raise RequestError(403, "This service has no review desk; `xmtc serve --desk FILE` adds one.")

    return router


def build_suggestion_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Annif"], responses=PROBLEMS, route_class=LimitedRoute)

    @router.post("/projects/{project_id}/suggest")
    async def suggest(
        project_id: str,
        request: Request,
        text: Annotated[str, Form()] = "",  # may be empty, but is required (checked below)
        limit: Annotated[int, Form(ge=0)] = DEFAULT_LIMIT,
        threshold: Annotated[float, Form(ge=0, le=1, allow_inf_nan=False)] = 0.0,
        language: Annotated[str | None, Form(max_length=MAX_LANGUAGE_CHARACTERS)] = None,
    ) -> Response:
        """Suggest subjects for a given text."""
        if "text" not in await request.form():
            raise RequestError(400, "text: Field required.")
        served = find_project(service, project_id, request, 1)
        query = build_project_query(service, limit, threshold, language)
        model, tags = await suggest_subjects(service, served, [text], query)
        return to_json_response({"results": [encode_suggestion(model, tag) for tag in tags[0]]})

    @router.post("/projects/{project_id}/suggest-batch")
    async def suggest_batch(
        project_id: str,
        batch: AnnifBatch,
        request: Request,
        limit: Annotated[int, Query(ge=0)] = DEFAULT_LIMIT,
        threshold: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = 0.0,
        language: Annotated[str | None, Query(max_length=MAX_LANGUAGE_CHARACTERS)] = None,
    ) -> Response:
        """Suggest subjects for the given batch of up to 32 documents."""
        served = find_project(service, project_id, request, len(batch.documents))
        query = build_project_query(service, limit, threshold, language)
        model, tags = await suggest_subjects(service, served, [document.text for document in batch.documents], query)
        ids = [document.document_id for document in batch.documents]
        return await run_in_body_thread(encode_batch, model, ids, tags)

    return router


def find_project(service: Service, project_id: str, request: Request, n_texts: int | None = None) -> ServedModel:
    if project_id not in service.models.by_name:
        raise RequestError(404, f"Project '{project_id[:100]}' not found")
    return service.find_model(project_id, request, n_texts)


def build_project_query(service: Service, limit: int, threshold: float, language: str | None) -> PredictQuery:
    return PredictQuery(min(limit, service.settings.limits.k), threshold, language=language)


async def suggest_subjects(
    service: Service, served: ServedModel, texts: list[str], query: PredictQuery
) -> tuple[LoadedModel, list[list[Tag]]]:
    """Return the model that answers, and the tags of each text."""
    model = served.model  # read before the await: a reload may replace it
    service.check_texts(texts)
    if not texts or not query.k:
        return model, [[] for _ in texts]
    return model, await served.batcher.predict(texts, query)


def encode_batch(model: LoadedModel, ids: list[str | None], tags: list[list[Tag]]) -> Response:
    """Encode the suggestions one document at a time, so that other threads run in between."""
    documents = [
        encode_json({"document_id": id, "results": [encode_suggestion(model, tag) for tag in document_tags]})
        for id, document_tags in zip(ids, tags, strict=True)
    ]
    return Response(b"[%s]" % b",".join(documents), media_type="application/json")


def encode_suggestion(model: LoadedModel, tag: Tag) -> dict[str, Any]:
    uri, notation = find_concept(model, tag.label)
    return {"label": tag.label if tag.name is None else tag.name, "notation": notation, "score": tag.score, "uri": uri}


def find_concept(model: LoadedModel, label: str) -> tuple[str, str | None]:
    """Return the URI and notation of a label's concept; the label and None without a vocabulary."""
    tagger = model.tagger
    number = tagger.labels.find(label)
    concept = -1 if tagger.concepts is None or number < 0 else int(tagger.concepts.concepts[number])
    if tagger.concepts is None or concept < 0:
        return label, None
    vocabulary = tagger.concepts.vocabulary
    return vocabulary.uri(concept), next(iter(vocabulary.notations(concept)), None)


def describe_project(served: ServedModel) -> dict[str, Any]:
    tagger, languages = served.model.tagger, served.model.languages
    own_language = "" if tagger.concepts is None else tagger.concepts.language
    language = own_language or next(iter(languages), UNKNOWN_LANGUAGE)
    modification_time = datetime.fromtimestamp(served.model.modification_time, UTC)
    vocab = {"vocab_id": served.name, "languages": languages, "size": len(tagger.labels), "loaded": True}
    return {
        "project_id": served.name,
        "name": served.name,
        "language": language,
        "backend": {"backend_id": served.model.facts["method"]},
        "vocab": vocab,
        "vocab_language": language,
        "is_trained": True,
        "modification_time": modification_time.isoformat(),
    }
