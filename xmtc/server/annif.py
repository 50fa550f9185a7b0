"""Annif's REST interface, version 1, with its addresses, fields and names, so that its clients only change the address
of the server. A model is a project; `learn` is refused, as Annif does where it is not allowed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

import xmtc
from xmtc.server.batching import Question
from xmtc.server.messages import FailFastList
from xmtc.server.models import Opened, Served, in_json
from xmtc.server.refusals import Refused
from xmtc.server.request_bodies import LimitedRoute, in_body_thread
from xmtc.server.routes import answer
from xmtc.server.service import Service
from xmtc.tagger import Tag

MOST_DOCUMENTS = 32  # of a batch, as Annif has it
LIMIT, UNKNOWN = 10, "und"  # suggestions; the language of what does not say it


class Document(BaseModel):
    text: str = Field(examples=["A quick brown fox jumped over the lazy dog."])
    document_id: str | None = Field(None, examples=["doc-1234"])
    metadata: dict[str, Any] | None = None  # accepted, as Annif does, and not used


class Batch(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"documents": [{"text": "A quick brown fox"}]}]})

    documents: FailFastList[Document] = Field(max_length=MOST_DOCUMENTS)


class Problem(BaseModel):
    detail: str
    status: int
    title: str
    type: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 413, 415, 429, 503)
}


def routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Annif"], responses=PROBLEMS, route_class=LimitedRoute)

    @router.get("/", include_in_schema=False)
    async def info() -> dict[str, str]:
        return {"title": "xmtc, with the interface of Annif", "version": xmtc.__version__}

    @router.get("/projects")
    async def projects() -> Response:
        """Get a list of projects."""
        return answer({"projects": [project(served) for served in service.models]})

    @router.get("/projects/{project_id}")
    async def one_project(project_id: str, request: Request) -> Response:
        """Show project information."""
        return answer(project(found(service, project_id, request)))

    @router.post("/projects/{project_id}/suggest")
    async def suggest(
        project_id: str,
        request: Request,
        text: Annotated[str, Form()] = "",  # which may be empty, but not left out
        limit: Annotated[int, Form(ge=0)] = LIMIT,
        threshold: Annotated[float, Form(ge=0, le=1, allow_inf_nan=False)] = 0.0,
        language: Annotated[str | None, Form(max_length=100)] = None,
    ) -> Response:
        """Suggest subjects for a given text."""
        if "text" not in await request.form():
            raise Refused(400, "text: Field required.")
        served = found(service, project_id, request, 1)
        asked = question(service, limit, threshold, language)
        opened, tags = await suggestions(service, served, [text], asked)
        return answer({"results": [suggestion(opened, tag) for tag in tags[0]]})

    @router.post("/projects/{project_id}/suggest-batch")
    async def suggest_batch(
        project_id: str,
        batch: Batch,
        request: Request,
        limit: Annotated[int, Query(ge=0)] = LIMIT,
        threshold: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = 0.0,
        language: Annotated[str | None, Query(max_length=100)] = None,
    ) -> Response:
        """Suggest subjects for the given batch of up to 32 documents."""
        served = found(service, project_id, request, len(batch.documents))
        asked = question(service, limit, threshold, language)
        opened, tags = await suggestions(service, served, [document.text for document in batch.documents], asked)
        ids = [document.document_id for document in batch.documents]
        return await in_body_thread(batch_answer, opened, ids, tags)

    @router.post("/projects/{project_id}/learn", include_in_schema=False)
    async def learn(project_id: str, request: Request) -> Response:
        found(service, project_id, request)
        raise Refused(403, "Models do not learn here; train a new one, which takes the place of this one.")

    return router


def found(service: Service, project_id: str, request: Request, n_texts: int | None = None) -> Served:
    if project_id not in service.models.served:
        raise Refused(404, f"Project '{project_id[:100]}' not found")
    return service.served(project_id, request, n_texts)


def question(service: Service, limit: int, threshold: float, language: str | None) -> Question:
    return Question(min(limit, service.settings.limits.k), threshold, language=language)


async def suggestions(
    service: Service, served: Served, texts: list[str], asked: Question
) -> tuple[Opened, list[list[Tag]]]:
    """Return the model that answered, and its tags for each text."""
    opened = served.opened  # the one that ask() takes, too
    service.check_texts(texts)
    if not texts or not asked.k:
        return opened, [[] for _ in texts]
    return opened, await served.batcher.ask(texts, asked)


def batch_answer(opened: Opened, ids: list[str | None], tags: list[list[Tag]]) -> Response:
    """Encode the suggestions document by document: other threads run between two of them."""
    pairs = zip(ids, tags, strict=True)
    found = [in_json({"document_id": id, "results": [suggestion(opened, tag) for tag in each]}) for id, each in pairs]
    return Response(b"[%s]" % b",".join(found), media_type="application/json")


def suggestion(opened: Opened, tag: Tag) -> dict[str, Any]:
    uri, notation = identity(opened, tag.label)
    return {"label": tag.label if tag.name is None else tag.name, "notation": notation, "score": tag.score, "uri": uri}


def identity(opened: Opened, label: str) -> tuple[str, str | None]:
    """Return the URI of a label's concept and its notation; without a vocabulary, the label itself."""
    tagger = opened.tagger
    number = tagger.labels.number(label)
    concept = -1 if tagger.concepts is None or number < 0 else int(tagger.concepts.concepts[number])
    if tagger.concepts is None or concept < 0:
        return label, None
    vocabulary = tagger.concepts.vocabulary
    return vocabulary.uri(concept), next(iter(vocabulary.notations(concept)), None)


def project(served: Served) -> dict[str, Any]:
    tagger, languages = served.tagger, served.opened.languages
    own = "" if tagger.concepts is None else tagger.concepts.language
    language = own or next(iter(languages), UNKNOWN)
    changed = datetime.fromtimestamp(served.opened.changed, UTC)
    vocab = {"vocab_id": served.name, "languages": languages, "size": len(tagger.labels), "loaded": True}
    return {
        "project_id": served.name,
        "name": served.name,
        "language": language,
        "backend": {"backend_id": served.opened.facts["method"]},
        "vocab": vocab,
        "vocab_language": language,
        "is_trained": True,
        "modification_time": changed.isoformat(),
    }
