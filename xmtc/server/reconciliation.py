"""Reconciliation API 0.2 of the W3C Entity Reconciliation Community Group, as OpenRefine and other clients use it.

Each model is a service whose entities are its labels. Candidates are labels whose names have the text of the query, and
labels that the model predicts for it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

import xmtc
from xmtc.server.batching import PredictQuery
from xmtc.server.messages import MAX_SEARCH_CHARACTERS
from xmtc.server.models import LoadedModel, ServedModel
from xmtc.server.request_bodies import (
    LimitedRoute,
    decode_json,
    format_validation_error,
    run_in_thread_if_large,
)
from xmtc.server.request_errors import RequestError
from xmtc.server.routes import ERRORS, to_json_response
from xmtc.server.service import Service
from xmtc.tagger import Tag

VERSIONS = ("0.2",)
LABEL_TYPE = {"id": "label", "name": "Label"}  # the only type of the entities
SCHEMA_SPACE = "http://www.w3.org/2004/02/skos/core#Concept"
MAX_QUERIES, MAX_CANDIDATES, MAX_QUERY_VALUES = 100, 100, 10_000
DEFAULT_LIMIT = 5

PropertyValue = str | float | bool | dict[str, Any]


class QueryProperty(BaseModel):
    """Value of another column. Texts are read together with the query."""

    pid: str
    v: PropertyValue | list[PropertyValue]


class ReconciliationQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: str | None = None
    type: str | list[str] | None = None  # accepted; all entities have one type
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_CANDIDATES)
    properties: list[QueryProperty] = []
    type_strict: Literal["any", "should", "all"] | None = None

    @model_validator(mode="after")
    def require_content(self) -> ReconciliationQuery:
        if self.query is None and not self.properties:
            raise ValueError("expected a query, or properties")
        return self

    @property
    def text(self) -> str:
        """The query and the texts among its properties."""
        values = [value for part in self.properties for value in (part.v if isinstance(part.v, list) else [part.v])]
        return " ".join([self.query or "", *(value for value in values if isinstance(value, str))]).strip()


QUERIES = TypeAdapter(dict[str, ReconciliationQuery])


def build_reconciliation_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1/models", tags=["reconciliation"], responses=ERRORS, route_class=LimitedRoute)

    @router.get("/{name}/reconcile")
    async def manifest(name: str, request: Request, queries: Annotated[str | None, Query()] = None) -> Response:
        """Describe the reconciliation service of a model, or answer a batch of queries."""
        if queries is not None:
            return await answer(name, queries, request)
        service.find_model(name, request)
        return to_json_response(describe_service(name, str(request.base_url)))

    @router.post("/{name}/reconcile")
    async def reconcile(name: str, request: Request, queries: Annotated[str, Form()]) -> Response:
        """Return candidate labels for a batch of queries."""
        return await answer(name, queries, request)

    @router.get("/{name}/reconcile/suggest")
    async def suggest_labels(
        name: str,
        request: Request,
        prefix: Annotated[str, Query(max_length=MAX_SEARCH_CHARACTERS)],
        cursor: Annotated[int, Query(ge=0, le=1000)] = 0,
    ) -> Response:
        """Complete the name of a label."""
        model = service.find_model(name, request).model
        found = await service.run_in_thread(model.search, prefix, None, cursor + 10)
        results = [
            {"id": each["label"], "name": each["name"], "notable": [LABEL_TYPE["id"]]}
            | ({"description": ", ".join(each["others"])} if each["others"] else {})
            for each in found[cursor:]
        ]
        return to_json_response({"result": results})

    async def answer(name: str, queries: str, request: Request) -> Response:
        batch = await run_in_thread_if_large(parse_queries, queries.encode("utf-8", "replace"))
        served = service.find_model(name, request, len(batch))
        return to_json_response(await answer_queries(service, served, batch))

    return router


def describe_service(name: str, base_url: str) -> dict[str, Any]:
    """Return the manifest."""
    model_address = f"{base_url}v1/models/{quote(name)}"
    return {
        "versions": VERSIONS,
        "name": f"{name} (xmtc)",
        "identifierSpace": f"{model_address}/labels",
        "schemaSpace": SCHEMA_SPACE,
        "serviceVersion": xmtc.__version__,
        "defaultTypes": [LABEL_TYPE],
        "view": {"url": "{{id}}"},
        "suggest": {"entity": {"service_url": f"{model_address}/reconcile", "service_path": "/suggest"}},
    }


def parse_queries(body: bytes) -> dict[str, ReconciliationQuery]:
    """Return the queries of a batch by their keys. Raise RequestError for an invalid batch."""
    value = decode_json(body, MAX_QUERY_VALUES)
    try:
        batch = QUERIES.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise RequestError(422, f"queries: {format_validation_error(first)}") from None
    if len(batch) > MAX_QUERIES:
        raise RequestError(413, f"Found {len(batch):,} queries, expected {MAX_QUERIES} at most; send them in parts.")
    return batch


async def answer_queries(
    service: Service, served: ServedModel, batch: dict[str, ReconciliationQuery]
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the candidates of each query, best first."""
    model = served.model  # read before the await: a reload may replace it
    texts = service.check_texts([query.text for query in batch.values()])
    most = max((query.limit for query in batch.values()), default=0)
    predict_query = PredictQuery(min(most, service.settings.limits.k), is_document=False)
    predictions = await served.batcher.predict(texts, predict_query) if texts else []
    answers = {}
    for (key, query), tags in zip(batch.items(), predictions, strict=True):
        search = (query.query or "").strip()[:MAX_SEARCH_CHARACTERS]
        found = await service.run_in_thread(model.search, search, None, query.limit) if search else []
        answers[key] = {"result": rank_candidates(model, search, found, tags[: query.limit])[: query.limit]}
    return answers


def rank_candidates(
    model: LoadedModel, search: str, found: list[dict[str, Any]], tags: list[Tag]
) -> list[dict[str, Any]]:
    """Return candidates by the larger of two scores from 0 to 100: the share of a name that the query is, and the score
    of the prediction. A single label with exactly this name is a certain match."""
    names = {each["label"]: measure_overlap(search, [each["name"], *each["others"]]) for each in found}
    scores = {tag.label: min(max(tag.score, 0.0), 1.0) for tag in tags}
    exact = [label for label, share in names.items() if share == 1]
    candidates = [
        {
            "id": label,
            "name": model.tagger.label_name(label) or label,
            "type": [LABEL_TYPE],
            "score": round(100 * max(names.get(label, 0.0), scores.get(label, 0.0)), 4),
            "match": exact == [label],
            "features": [
                {"id": "name", "value": round(names.get(label, 0.0), 6)},
                {"id": "prediction", "value": round(scores.get(label, 0.0), 6)},
            ],
        }
        for label in dict.fromkeys([*names, *scores])
    ]
    return sorted(candidates, key=lambda candidate: -candidate["score"])


def measure_overlap(search: str, names: list[str]) -> float:
    """Return the largest share of a name that the text is, 0 if no name has it."""
    search = search.casefold()
    return max((len(search) / len(name) for name in map(str.casefold, names) if name and search in name), default=0.0)
