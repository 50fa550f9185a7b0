"""Routes of the review desk: review, administration, updates, and learning from feedback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from xmtc.review.agreement import collect_feedback, export_record, list_conflicts, measure_agreement
from xmtc.review.label_studio import build_task, parse_tasks
from xmtc.review.store import ORDERS, Decision, Person, ReviewDocument, StoredDecision
from xmtc.review.updating import roll_back, switch_model
from xmtc.server import desk_messages, messages
from xmtc.server.annif import PROBLEMS, find_project
from xmtc.server.batching import PredictQuery
from xmtc.server.desk import Desk
from xmtc.server.middleware import PERSON_KEY
from xmtc.server.models import ServedModel
from xmtc.server.request_bodies import LimitedRoute, run_in_body_thread
from xmtc.server.request_errors import RequestError
from xmtc.server.routes import ERRORS, encode_json, encode_tag, to_json_response
from xmtc.server.service import Service, check_filter_entries

MAX_SUGGESTIONS = 100
MAX_ALLOW_ENTRIES = 100
MAX_TASKS = 100  # of Label Studio, per request
JSON_LINES_TYPE = "application/jsonl"

Language = Annotated[str | None, Query(max_length=messages.MAX_LANGUAGE_CHARACTERS)]
Allow = Annotated[list[messages.LabelEntry], Query(max_length=MAX_ALLOW_ENTRIES)]
Threshold = Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)]
Suggestions = Annotated[int, Query(ge=1, le=MAX_SUGGESTIONS)]
DocumentNumber = Annotated[int, Path(ge=0, le=2**63 - 1)]  # as in SQLite


def get_person(request: Request) -> Person:
    """Return the person who sent a request; raise RequestError if the token is that of the service."""
    person: Person | None = request.scope.get(PERSON_KEY)
    if person is None:
        raise RequestError(403, "The desk requires the token of a person; `xmtc desk add` creates one.")
    return person


def get_administrator(request: Request) -> Person:
    """Return the person who sent a request; raise RequestError for a reviewer."""
    person = get_person(request)
    if not person.is_administrator:
        raise RequestError(403, f"{person.name} is a reviewer; only an administrator may do this.")
    return person


Reviewer = Annotated[Person, Depends(get_person)]
Administrator = Annotated[Person, Depends(get_administrator)]


def make_router(prefix: str, check: Callable[[Request], Person], **options: Any) -> APIRouter:
    """Return a router whose routes all require a person with the right role."""
    settings: dict[str, Any] = {"tags": ["review desk"], "responses": ERRORS, **options}
    return APIRouter(prefix=prefix, dependencies=[Depends(check)], route_class=LimitedRoute, **settings)


def build_review_routes(service: Service, desk: Desk) -> APIRouter:
    routes = make_router("/v1/desk", get_person)

    @routes.get("/me")
    async def me(person: Reviewer) -> Response:
        """Return the name and the role of the person."""
        return to_json_response({"name": person.name, "role": person.role})

    @routes.get("/{name}/summary")
    async def summary(name: str, request: Request, person: Reviewer) -> Response:
        """Return the numbers of documents and reviews, and the documents that the person reviewed last."""
        served = service.find_model(name, request)
        counts = await desk.run(desk.store.count_documents, name, person)
        recent = await desk.run(desk.store.list_recent, name, person)
        desk.schedule_estimates(served)
        return to_json_response({**counts, "recent": recent, "orders": ORDERS})

    @routes.get("/{name}/next")
    async def next_document(
        name: str,
        request: Request,
        person: Reviewer,
        order: str = "uncertainty",
        language: Language = None,
        k: Suggestions = 12,
        threshold: Threshold = 0.0,
        allow: Allow = [],  # noqa: B006  # FastAPI copies it
    ) -> Response:
        """Return the next document of the queue with its suggestions, and reserve it for the person."""
        served = service.find_model(name, request, 1)
        desk.schedule_estimates(served)
        number = await desk.run(desk.store.find_next, name, person, order, service.settings.reviewers)
        if number is None:
            return to_json_response({"document": None})
        return await show_document(service, desk, served, person, number, make_query(k, threshold, language, allow))

    @routes.get("/{name}/documents/{number}")
    async def one_document(
        name: str,
        number: DocumentNumber,
        request: Request,
        person: Reviewer,
        language: Language = None,
        k: Suggestions = 12,
        threshold: Threshold = 0.0,
        allow: Allow = [],  # noqa: B006
    ) -> Response:
        """Return a document with its suggestions and the person's decision."""
        served = service.find_model(name, request, 1)
        return await show_document(service, desk, served, person, number, make_query(k, threshold, language, allow))

    return routes


def build_decision_routes(service: Service, desk: Desk) -> APIRouter:
    routes = make_router("/v1/desk", get_person)

    @routes.post("/{name}/documents/{number}/decision")
    async def decide(
        name: str,
        number: DocumentNumber,
        body: desk_messages.DecisionRequest,
        request: Request,
        person: Reviewer,
    ) -> Response:
        """Store a decision about a document; a repeated key is stored once."""
        service.find_model(name, request)
        is_new = await desk.run(desk.store.record, name, number, person, body.key, to_decision(body))
        return to_json_response({"stored": is_new})

    @routes.get("/{name}/search")
    async def search(
        name: str,
        request: Request,
        search: Annotated[str, Query(max_length=messages.MAX_SEARCH_CHARACTERS)] = "",
        language: Language = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        allow: Allow = [],  # noqa: B006
    ) -> Response:
        """Search all concepts of the vocabulary, also those that the model has never seen, by any of their names."""
        served = service.find_model(name, request)
        check_filter_entries(allow)
        found = await desk.run(lambda: desk.get_search(served).search(search, language, limit, allow))
        return to_json_response({"labels": [match._asdict() for match in found]})

    return routes


def make_query(k: int, threshold: float, language: str | None, allow: Sequence[str]) -> PredictQuery:
    check_filter_entries(allow)
    return PredictQuery(k, threshold, language, tuple(allow), ())


def to_decision(body: desk_messages.DecisionRequest) -> Decision:
    shown = [(item.label, item.score) for item in body.shown]
    return Decision(shown, body.accepted, body.added, body.rejected, body.proposed, body.version, body.seconds)


async def show_document(
    service: Service, desk: Desk, served: ServedModel, person: Person, number: int, query: PredictQuery
) -> Response:
    """Return a document, its suggestions, and the decisions that the person may see: all for an administrator."""
    document: ReviewDocument = await desk.run(desk.store.get_document, served.name, number)
    if document.text is None:
        raise RequestError(404, f"The text of document {number} has been deleted.")
    model, language = served.model, query.language
    if language is not None:
        model.tagger.check_language(language)
    texts = service.check_texts([document.text])
    tags = (await served.batcher.predict(texts, query))[0]
    decisions: list[StoredDecision] = await desk.run(desk.store.list_decisions, served.name, number)
    visible = [each for each in decisions if person.is_administrator or each.person == person.name]

    def encode() -> Response:
        search = desk.get_search(served)
        labels = dict.fromkeys(
            label
            for each in visible
            for label in (*(shown for shown, _ in each.decision.shown), *each.final, *each.decision.rejected)
        )
        names = {label: search.describe_label(label, language) for label in [*labels, *(tag.label for tag in tags)]}
        return to_json_response(
            {
                "document": {"number": document.number, "id": document.id, "text": document.text},
                "version": model.facts["version"],
                "suggestions": [encode_tag(tag) | {"uri": names[tag.label].uri} for tag in tags],
                "names": {label: {"name": names[label].name, "uri": names[label].uri} for label in labels},
                "decisions": [encode_decision(each, each.person == person.name) for each in visible],
            }
        )

    return await desk.run(encode)


def encode_decision(stored: StoredDecision, is_own: bool) -> dict[str, Any]:
    decision = stored.decision
    lists = {"accepted": decision.accepted, "added": decision.added, "rejected": decision.rejected}
    person = {"person": stored.person, "role": stored.role, "is_own": is_own, "time": stored.time}
    return {**person, **lists, "proposed": decision.proposed, "seconds": decision.seconds}


def build_administration_routes(service: Service, desk: Desk) -> APIRouter:
    routes = make_router("/v1/desk", get_administrator)

    @routes.post("/{name}/documents")
    async def add_documents(name: str, body: desk_messages.QueueRequest, request: Request) -> Response:
        """Add texts to review."""
        served = service.find_model(name, request, len(body.documents))
        service.check_texts([document.text for document in body.documents])
        pairs = [(document.id, document.text) for document in body.documents]
        numbers = await desk.run(desk.store.add_documents, name, pairs)
        desk.schedule_estimates(served)
        return to_json_response({"documents": numbers})

    @routes.get("/{name}/export")
    async def export(name: str, request: Request) -> Response:
        """Return the reviewed documents as JSON Lines, a corpus with feedback for `xmtc update --feedback`."""
        service.find_model(name, request)

        def write() -> bytes:
            documents, decisions = desk.store.list_documents(name), desk.store.list_decisions(name)
            lines = [encode_json(export_record(*item)) + b"\n" for item in collect_feedback(documents, decisions)]
            return b"".join(lines)

        return Response(await desk.run(write), media_type=JSON_LINES_TYPE)

    @routes.get("/{name}/agreement")
    async def agreement(name: str, request: Request, language: Language = None) -> Response:
        """Return the agreement of each pair of reviewers, and the conflicts."""
        served = service.find_model(name, request)

        def measure() -> dict[str, Any]:
            decisions, search = desk.store.list_decisions(name), desk.get_search(served)
            conflicts = list_conflicts(decisions)
            labels = {item["label"] for conflict in conflicts for item in conflict["labels"]}
            names = {label: search.describe_label(label, language).name for label in labels}
            return {"pairs": measure_agreement(decisions), "conflicts": conflicts, "names": names}

        return to_json_response({**await desk.run(measure), "people": await desk.run(desk.store.list_people)})

    return routes


def build_label_studio_routes(service: Service, desk: Desk) -> APIRouter:
    routes = make_router("/v1/desk", get_administrator)

    @routes.get("/{name}/label-studio")
    async def label_studio_tasks(
        name: str,
        request: Request,
        k: Suggestions = 12,
        limit: Annotated[int, Query(ge=1, le=MAX_TASKS)] = MAX_TASKS,
        after: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """Return documents after a number as pre-annotated tasks of Label Studio."""
        served = service.find_model(name, request)
        version = served.model.facts["version"]
        documents = [
            document for document in await desk.run(desk.store.list_documents, name) if document.number > after
        ]
        limit = min(limit, service.settings.limits.texts)
        documents = [document for document in documents if document.text is not None][:limit]
        texts = service.check_texts([document.text for document in documents])
        tags = await served.batcher.predict(texts, PredictQuery(k)) if texts else []
        tasks = [
            build_task(document, [(tag.label, tag.score) for tag in each], version)
            for document, each in zip(documents, tags, strict=True)
        ]
        return await run_in_body_thread(to_json_response, tasks)

    @routes.post("/{name}/label-studio")
    async def import_label_studio(name: str, body: desk_messages.LabelStudioRequest, request: Request) -> Response:
        """Store the annotations of tasks that Label Studio exported, under the names of their annotators."""
        service.find_model(name, request, len(body.root))
        annotations = list(parse_tasks(body.root))
        service.check_texts([annotation.text for annotation in annotations])

        def store() -> int:
            names = dict.fromkeys(each.person for each in annotations)
            people = {person: desk.store.require_person(person) for person in names}
            documents = [(people[each.person], each.id, each.text, each.key, each.decision) for each in annotations]
            return desk.store.learn(name, documents)

        return to_json_response({"annotations": len(annotations), "stored": await desk.run(store)})

    return routes


def build_update_routes(service: Service, desk: Desk) -> APIRouter:
    routes = make_router("/v1/desk", get_administrator)

    @routes.get("/{name}/updates")
    async def updates(name: str, request: Request) -> Response:
        """List the updates of a model: states, progress and reports."""
        service.find_model(name, request)
        return to_json_response({"updates": await desk.run(desk.store.list_updates, name)})

    @routes.post("/{name}/updates")
    async def start_update(name: str, request: Request, person: Administrator) -> Response:
        """Start an update of the model from the decisions, in a process of its own."""
        served = service.find_model(name, request)
        return to_json_response({"number": await desk.run(desk.start_update, served, person)})

    @routes.post("/{name}/updates/{number}/switch")
    async def switch(name: str, number: int, request: Request) -> Response:
        """Serve the result of an update."""
        served = service.find_model(name, request)
        await desk.run(switch_model, desk.store, name, served.folder, number)
        await service.models.reload_changed(force=True)
        return to_json_response({"version": served.model.facts["version"]})

    @routes.post("/{name}/updates/{number}/rollback")
    async def rollback(name: str, number: int, request: Request) -> Response:
        """Serve the model before an update again."""
        served = service.find_model(name, request)
        await desk.run(roll_back, desk.store, name, served.folder, number)
        await service.models.reload_changed(force=True)
        return to_json_response({"version": served.model.facts["version"]})

    return routes


def build_learning_routes(service: Service, desk: Desk) -> APIRouter:
    routes = make_router("/v1", get_person, responses=PROBLEMS)

    @routes.post("/models/{name}/learn")
    async def learn(name: str, body: desk_messages.LearnRequest, request: Request, person: Reviewer) -> Response:
        """Store labelled documents in the desk; the next update learns them."""
        service.find_model(name, request, len(body.documents))
        service.check_texts([document.text for document in body.documents])
        documents = [
            make_learnt(person, each.id, each.text, each.labels, each.rejected, each.key) for each in body.documents
        ]
        stored = await desk.run(desk.store.learn, name, documents, person.is_administrator)
        return to_json_response({"documents": len(documents), "stored": stored})

    @routes.post("/projects/{project_id}/learn", status_code=204, tags=["Annif"])
    async def learn_in_project(
        project_id: str, body: desk_messages.AnnifLearnRequest, request: Request, person: Reviewer
    ) -> Response:
        """Learn from documents with subjects, as in Annif."""
        served = find_project(service, project_id, request, len(body.root))
        service.check_texts([document.text for document in body.root])

        def store() -> None:
            search = desk.get_search(served)
            labels = [[search.find_label(subject.uri) for subject in each.subjects] for each in body.root]
            documents = [
                make_learnt(person, each.document_id or "", each.text, own, [], None)
                for each, own in zip(body.root, labels, strict=True)
            ]
            desk.store.learn(project_id, documents, person.is_administrator)

        await desk.run(store)
        return Response(status_code=204)

    return routes


def make_learnt(
    person: Person, id: str, text: str, labels: Sequence[str], rejected: Sequence[str], key: str | None
) -> tuple[Person, str, str, str, Decision]:
    """Return a document and its labels as a decision, with the hash of both as the default key."""
    content = encode_json([id, text, list(labels), list(rejected)])
    return person, id, text, key or sha256(content).hexdigest(), Decision(added=labels, rejected=rejected)


ROUTE_BUILDERS = (
    build_review_routes,
    build_decision_routes,
    build_administration_routes,
    build_label_studio_routes,
    build_update_routes,
    build_learning_routes,
)
