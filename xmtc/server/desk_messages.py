"""Pydantic models of the requests to the review desk."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, RootModel

from xmtc.server.messages import MAX_LABEL_CHARACTERS, FailFastList, LabelEntry, make_config

MAX_DECISION_LABELS = 1000
MAX_KEY_CHARACTERS = 200
MAX_ID_CHARACTERS = 1000
MAX_LEARNT_DOCUMENTS = 1000  # per request
MAX_SECONDS = 86_400.0
IMPORTED_ITEM_VALUES = 500  # JSON values of a document of Label Studio

LabelEntries = Annotated[FailFastList[LabelEntry], Field(max_length=MAX_DECISION_LABELS)]
Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARACTERS)]
DocumentId = Annotated[str, Field(max_length=MAX_ID_CHARACTERS)]


class ShownLabel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    label: str = Field(max_length=MAX_LABEL_CHARACTERS)
    score: float | None = Field(None, allow_inf_nan=False)


class DecisionRequest(BaseModel):
    model_config = make_config(key="5b6e…", accepted=["1309"], rejected=["77"], seconds=12.5)

    key: Key = Field(description="Key of this decision, chosen by the client; a repeated key is stored once.")
    shown: FailFastList[ShownLabel] = Field([], max_length=MAX_DECISION_LABELS, description="Labels that were shown.")
    accepted: LabelEntries = Field([], description="Shown labels that are correct.")
    added: LabelEntries = Field([], description="Further correct labels.")
    rejected: LabelEntries = Field([], description="Labels that are wrong.")
    proposed: LabelEntries = Field([], description="Names of subjects outside the vocabulary.")
    version: str = Field("", max_length=MAX_KEY_CHARACTERS, description="Version of the model.")
    seconds: float = Field(0.0, ge=0, le=MAX_SECONDS, allow_inf_nan=False, description="Time that the review took.")


class QueuedDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: DocumentId = ""
    text: str = Field(min_length=1)


class QueueRequest(BaseModel):
    model_config = make_config(documents=[{"id": "7", "text": "Herring in the North Sea"}])

    documents: FailFastList[QueuedDocument]


class LearntDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field(min_length=1)
    id: DocumentId = ""
    labels: LabelEntries = []
    rejected: LabelEntries = []
    key: Key | None = Field(None, description="Key of this feedback; the hash of its content by default.")


class LearnRequest(BaseModel):
    model_config = make_config(documents=[{"text": "Herring in the North Sea", "labels": ["fish"], "rejected": []}])

    max_json_values: ClassVar[int] = 100_000

    documents: FailFastList[LearntDocument] = Field(max_length=MAX_LEARNT_DOCUMENTS)


class AnnifSubject(BaseModel):
    uri: str = Field(max_length=MAX_LABEL_CHARACTERS)
    label: str | None = None


class AnnifLearntDocument(BaseModel):
    text: str = Field(min_length=1)
    subjects: FailFastList[AnnifSubject] = Field(max_length=MAX_DECISION_LABELS)
    document_id: str | None = Field(None, max_length=MAX_ID_CHARACTERS)
    metadata: dict[str, Any] | None = None  # accepted as in Annif, but not used


class AnnifLearnRequest(RootModel[FailFastList[AnnifLearntDocument]]):
    max_json_values: ClassVar[int] = 100_000


class LabelStudioRequest(RootModel[FailFastList[dict[str, Any]]]):
    max_json_values: ClassVar[int] = 500_000
