"""Agreement between reviewers of the same documents, and the labels that their decisions leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from xmtc.data.document import Document, LineNumber
from xmtc.maintenance.document_changes import Feedback
from xmtc.review.store import ADMINISTRATOR, ReviewDocument, StoredDecision


class ReviewedDocument(NamedTuple):
    """Labels of a document after all decisions about it."""

    labels: list[str]
    rejected: list[str]
    disputed: list[str]  # as many reviewers for as against; in neither list
    proposed: list[str]


def group_decisions(decisions: Iterable[StoredDecision]) -> dict[int, list[StoredDecision]]:
    """Return the decisions about each document."""
    groups = defaultdict(list)
    for decision in decisions:
        groups[decision.document].append(decision)
    return dict(groups)


def resolve_decisions(decisions: Sequence[StoredDecision]) -> ReviewedDocument:
    """Return the labels of a document: those of the last administrator, otherwise those of the majority.

    A reviewer votes for the labels that they gave and against all others. A label that nobody gave and somebody
    rejected is rejected."""
    by_administrators = [decision for decision in decisions if decision.role == ADMINISTRATOR]
    voters = by_administrators[-1:] or decisions
    votes = {label: sum(label in voter.final for voter in voters) for voter in voters for label in voter.final}
    labels = [label for label, n in votes.items() if 2 * n > len(voters)]
    disputed = [label for label, n in votes.items() if 2 * n == len(voters)]
    rejected = dict.fromkeys(
        label
        for voter in voters
        for label in (*voter.decision.rejected, *voter.final)
        if label not in labels and label not in disputed
    )
    proposed = list(dict.fromkeys(name for voter in voters for name in voter.decision.proposed))
    return ReviewedDocument(labels, list(rejected), disputed, proposed)


def compute_consistency(one: Sequence[str], other: Sequence[str]) -> float:
    """Return Rolling's inter-indexer consistency 2c / (a + b), which is the F1 of one set of labels for the other."""
    size = len(set(one)) + len(set(other))
    return 2 * len(set(one) & set(other)) / size if size else 1.0


def measure_agreement(decisions: Iterable[StoredDecision]) -> list[dict[str, Any]]:
    """Return the number of common documents and the mean consistency of each pair of reviewers."""
    values = defaultdict(list)
    for group in group_decisions(decisions).values():
        for one, other in combinations(sorted(group, key=lambda decision: decision.person), 2):
            values[one.person, other.person].append(compute_consistency(one.final, other.final))
    return [
        {"people": list(people), "documents": len(each), "consistency": round(sum(each) / len(each), 4)}
        for people, each in sorted(values.items())
    ]


def list_conflicts(decisions: Iterable[StoredDecision]) -> list[dict[str, Any]]:
    """Return the documents that people gave different labels, until an administrator has decided."""
    conflicts = []
    for document, group in group_decisions(decisions).items():
        if len(group) < 2 or any(decision.role == ADMINISTRATOR for decision in group):
            continue
        labels = dict.fromkeys(label for decision in group for label in decision.final)
        votes = [
            {"label": label, "yes": [d.person for d in group if label in d.final], "no": absent}
            for label in labels
            if (absent := [d.person for d in group if label not in d.final])
        ]
        if votes:
            conflicts.append({"document": document, "labels": votes})
    return conflicts


def collect_feedback(
    documents: Iterable[ReviewDocument], decisions: Iterable[StoredDecision]
) -> Iterator[tuple[ReviewDocument, Feedback, ReviewedDocument]]:
    """Yield the reviewed documents whose text is stored, with what people accepted and rejected."""
    groups = group_decisions(decisions)
    for document in documents:
        group = [decision for decision in groups.get(document.number, ()) if decision.hash == document.hash]
        if not group or document.text is None:
            continue
        reviewed = resolve_decisions(group)
        if reviewed.labels or reviewed.rejected:
            id = LineNumber(document.id) if document.has_generated_id else document.id
            feedback = Feedback(Document(id, document.text, reviewed.labels), reviewed.rejected)
            yield document, feedback, reviewed


def export_record(document: ReviewDocument, feedback: Feedback, reviewed: ReviewedDocument) -> dict[str, Any]:
    """Return a line of a corpus with feedback, which `xmtc update --feedback` reads."""
    proposed = {"proposed": reviewed.proposed} if reviewed.proposed else {}
    labels = feedback.document.labels
    own_id = {} if document.has_generated_id else {"id": document.id}
    return {**own_id, "text": document.text, "labels": labels, "rejected": list(feedback.rejected), **proposed}
