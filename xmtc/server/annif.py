"""Annif's REST interface, version 1, with its addresses, fields and names, so that its clients only change the address
of the server. A model is a project; `learn` is refused, as Annif does where it is not allowed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

import xmtc
from xmtc.server.batching import PredictQuery
from xmtc.server.messages import FailFastList
from xmtc.server.models import LoadedModel, ServedModel, encode_json
from xmtc.server.request_bodies import LimitedRoute, run_in_body_thread
from xmtc.server.request_errors import RequestError
from xmtc.server.routes import to_json_response
from xmtc.server.service import Service
from xmtc.tagger import Tag

MAX_ANNIF_DOCUMENTS = 32  # of a batch, as Annif has it
DEFAULT_LIMIT, UNKNOWN_LANGUAGE = 10, "und"  # suggestions; the language of what does not say it


class AnnifDocument(BaseModel):
    text: str = Field(examples=["A quick brown fox jumped over the lazy dog."])
    document_id: str | None = Field(None, examples=["doc-1234"])
    metadata: dict[str, Any] | None = None  # accepted, as Annif does, and not used


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


def build_annif_routes(service: Service) -> APIRouter:
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

    @router.post("/projects/{project_id}/suggest")
    async def suggest(
        project_id: str,
        request: Request,
        text: Annotated[str, Form()] = "",  # which may be empty, but not left out
        limit: Annotated[int, Form(ge=0)] = DEFAULT_LIMIT,
        threshold: Annotated[float, Form(ge=0, le=1, allow_inf_nan=False)] = 0.0,
        language: Annotated[str | None, Form(max_length=100)] = None,
    ) -> Response:
        """Suggest subjects for a given text."""
        if "text" not in await request.form():
            raise RequestError(400, "text: Field required.")
        served = find_project(service, project_id, request, 1)
        asked = build_project_query(service, limit, threshold, language)
        opened, tags = await suggest_subjects(service, served, [text], asked)
        return to_json_response({"results": [encode_suggestion(opened, tag) for tag in tags[0]]})

    @router.post("/projects/{project_id}/suggest-batch")
    async def suggest_batch(
        project_id: str,
        batch: AnnifBatch,
        request: Request,
        limit: Annotated[int, Query(ge=0)] = DEFAULT_LIMIT,
        threshold: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = 0.0,
        language: Annotated[str | None, Query(max_length=100)] = None,
    ) -> Response:
        """Suggest subjects for the given batch of up to 32 documents."""
        served = find_project(service, project_id, request, len(batch.documents))
        asked = build_project_query(service, limit, threshold, language)
        opened, tags = await suggest_subjects(service, served, [document.text for document in batch.documents], asked)
        ids = [document.document_id for document in batch.documents]
        return await run_in_body_thread(encode_batch, opened, ids, tags)

    @router.post("/projects/{project_id}/learn", include_in_schema=False)
    async def learn(project_id: str, request: Request) -> Response:
        find_project(service, project_id, request)
        raise RequestError(403, "Models do not learn here; train a new one, which takes the place of this one.")

    return router


def find_project(service: Service, project_id: str, request: Request, n_texts: int | None = None) -> ServedModel:
    if project_id not in service.models.by_name:
        raise RequestError(404, f"Project '{project_id[:100]}' not found")
    return service.find_model(project_id, request, n_texts)


def build_project_query(service: Service, limit: int, threshold: float, language: str | None) -> PredictQuery:
    return PredictQuery(min(limit, service.settings.limits.k), threshold, language=language)


async def suggest_subjects(
    service: Service, served: ServedModel, texts: list[str], asked: PredictQuery
) -> tuple[LoadedModel, list[list[Tag]]]:
    """Return the model that answered, and its tags for each text."""
    opened = served.model  # the one that ask() takes, too
    service.check_texts(texts)
    if not texts or not asked.k:
        return opened, [[] for _ in texts]
    return opened, await served.batcher.predict(texts, asked)


def encode_batch(opened: LoadedModel, ids: list[str | None], tags: list[list[Tag]]) -> Response:
    """Encode the suggestions document by document: other threads run between two of them."""
    pairs = zip(ids, tags, strict=True)
    found = [
        encode_json({"document_id": id, "results": [encode_suggestion(opened, tag) for tag in each]})
        for id, each in pairs
    ]
    return Response(b"[%s]" % b",".join(found), media_type="application/json")


def encode_suggestion(opened: LoadedModel, tag: Tag) -> dict[str, Any]:
    uri, notation = find_concept(opened, tag.label)
    return {"label": tag.label if tag.name is None else tag.name, "notation": notation, "score": tag.score, "uri": uri}


def find_concept(opened: LoadedModel, label: str) -> tuple[str, str | None]:
    """Return the URI of a label's concept and its notation; without a vocabulary, the label itself."""
    tagger = opened.tagger
    number = tagger.labels.find(label)
    concept = -1 if tagger.concepts is None or number < 0 else int(tagger.concepts.concepts[number])
    if tagger.concepts is None or concept < 0:
        return label, None
    vocabulary = tagger.concepts.vocabulary
    return vocabulary.uri(concept), next(iter(vocabulary.notations(concept)), None)


def describe_project(served: ServedModel) -> dict[str, Any]:
    tagger, languages = served.tagger, served.model.languages
    own = "" if tagger.concepts is None else tagger.concepts.language
    language = own or next(iter(languages), UNKNOWN_LANGUAGE)
    changed = datetime.fromtimestamp(served.model.modification_time, UTC)
    vocab = {"vocab_id": served.name, "languages": languages, "size": len(tagger.labels), "loaded": True}
    return {
        "project_id": served.name,
        "name": served.name,
        "language": language,
        "backend": {"backend_id": served.model.facts["method"]},
        "vocab": vocab,
        "vocab_language": language,
        "is_trained": True,
        "modification_time": changed.isoformat(),
    }
