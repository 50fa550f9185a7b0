"""Tasks of Label Studio: predictions to correct there, and annotations to store as decisions here.

The labelling configuration has `<Text name="text" value="$text"/>` and `<Choices name="subjects" toName="text">` or
`<Taxonomy …>`; annotations of other names are read too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from xmtc.errors import XmtcError
from xmtc.review.store import MAX_NAME_CHARACTERS, Decision, ReviewDocument

TEXT_FIELDS = ("text", "html", "content", "body")
CHOICES, TAXONOMY = "choices", "taxonomy"  # types of results
MAX_LABEL_CHARACTERS, MAX_KEY_CHARACTERS, MAX_ID_CHARACTERS = 1000, 200, 1000
MAX_SECONDS = 86_400.0
PERSON_PREFIX = "label-studio:"  # before the name of an annotator


class Annotation(NamedTuple):
    """Annotation of one task by one person."""

    id: str  # of the document; empty if the task has none
    text: str
    person: str
    key: str
    decision: Decision


def build_task(document: ReviewDocument, tags: Sequence[tuple[str, float]], version: str) -> dict[str, Any]:
    """Return a task with a document and the predicted labels as pre-annotations."""
    task: dict[str, Any] = {"data": {"text": document.text, "document_id": document.id}}
    if tags:
        result = {"from_name": "subjects", "to_name": "text", "type": CHOICES}
        result["value"] = {"choices": [label for label, _ in tags]}  # type: ignore[assignment]
        score = sum(score for _, score in tags) / len(tags)
        task["predictions"] = [{"model_version": version, "score": round(score, 6), "result": [result]}]
    return task


def parse_tasks(tasks: Sequence[Any]) -> Iterator[Annotation]:
    """Yield the annotations of exported tasks (Label Studio's format JSON); cancelled ones are left out."""
    for number, task in enumerate(tasks):
        data = task.get("data") if isinstance(task, dict) else None
        text = next((data[name] for name in TEXT_FIELDS if name in data), None) if isinstance(data, dict) else None
        annotations = task.get("annotations") if isinstance(task, dict) else None
        if not isinstance(text, str) or not text or not isinstance(annotations, list):
            raise XmtcError(
                f"Task {number} is no annotated text; expected an object with data.text and annotations, as in Label "
                "Studio's export format JSON."
            )
        shown = read_labels(next(iter(read_list(task.get("predictions"))), {}))
        for annotation in annotations:
            if isinstance(annotation, dict) and not annotation.get("was_cancelled"):
                labels = read_labels(annotation)
                id = data.get("document_id", "")  # type: ignore[union-attr]
                check_id(id, number)
                yield Annotation(
                    id=id if isinstance(id, str) else "",
                    text=text,
                    person=get_annotator(annotation),
                    key=make_key(task.get("id", number), annotation),
                    decision=Decision(
                        shown=[(label, None) for label in shown],
                        accepted=[label for label in labels if label in shown],
                        added=[label for label in labels if label not in shown],
                        rejected=[label for label in shown if label not in labels],
                        seconds=get_seconds(annotation),
                    ),
                )


def check_id(id: Any, number: int) -> None:
    """Raise XmtcError if the id of a document is too long."""
    if isinstance(id, str) and len(id) > MAX_ID_CHARACTERS:
        raise XmtcError(
            f"Task {number} has a document_id of {len(id):,} characters, expected {MAX_ID_CHARACTERS:,} at most; "
            "shorten it."
        )


def make_key(task: Any, annotation: dict[str, Any]) -> str:
    """Return the key of an annotation; a changed annotation has another one."""
    return f"{PERSON_PREFIX}{task}-{annotation.get('id', '')}-{annotation.get('updated_at', '')}"[:MAX_KEY_CHARACTERS]


def read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def read_labels(annotation: Any) -> list[str]:
    """Return the labels of an annotation or prediction; of a path in a taxonomy, the last part."""
    labels = []
    for result in read_list(annotation.get("result") if isinstance(annotation, dict) else None):
        value = result.get("value") if isinstance(result, dict) else None
        if isinstance(value, dict):
            paths = [path[-1] for path in read_list(value.get(TAXONOMY)) if isinstance(path, list) and path]
            labels += [*read_list(value.get(CHOICES)), *paths]
    return list(dict.fromkeys(label for label in labels if isinstance(label, str) and is_label(label)))


def is_label(label: str) -> bool:
    return 0 < len(label) <= MAX_LABEL_CHARACTERS


def get_annotator(annotation: dict[str, Any]) -> str:
    """Return the name under which the decisions of an annotator are stored."""
    person = annotation.get("completed_by", "")
    if isinstance(person, dict):
        person = person.get("email") or person.get("id", "")
    name = "".join(character for character in str(person) if character.isprintable())
    return f"{PERSON_PREFIX}{name}"[:MAX_NAME_CHARACTERS]


def get_seconds(annotation: dict[str, Any]) -> float:
    seconds = annotation.get("lead_time")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return 0.0
    return float(min(max(seconds, 0.0), MAX_SECONDS))
