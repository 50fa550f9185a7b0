"""Pydantic models of the request and response bodies."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from xmtc.explain.highlights import Highlight

MAX_LABEL_CHARACTERS, MAX_LANGUAGE_CHARACTERS, MAX_SEARCH_CHARACTERS = 1000, 100, 200  # maximum lengths in characters

Item = TypeVar("Item")
LabelEntry = Annotated[str, Field(max_length=MAX_LABEL_CHARACTERS)]  # a label, or a set of labels such as branch:…
ScoreThreshold = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
FailFastList = Annotated[list[Item], Field(fail_fast=True)]  # reports one error per list, not one per item


def make_config(**values: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [values]})


class PredictRequest(BaseModel):
    model_config = make_config(text="Regulation on the import of citrus fruit", k=3)

    text: str | None = Field(None, description="A single text.")
    texts: FailFastList[str] | None = Field(None, description="Several texts; send either `text` or `texts`.")
    k: int = Field(5, ge=1, description="Maximum number of labels per text.")
    threshold: ScoreThreshold | Literal["tuned"] | None = Field(
        None, description='Minimum score, or "tuned" for the thresholds that `xmtc thresholds` tuned.'
    )
    language: str | None = Field(
        None, max_length=MAX_LANGUAGE_CHARACTERS, description="Language of the label names; needs a vocabulary."
    )
    allow: FailFastList[LabelEntry] = Field(
        [], max_length=1000, description="Only these labels are predicted; also `branch:…` and `scheme:…`."
    )
    deny: FailFastList[LabelEntry] = Field(
        [], max_length=1000, description="These labels are never predicted; same syntax as `allow`."
    )


class TagOut(BaseModel):
    label: str
    name: str = Field(description="Name of the label in the vocabulary, or the label itself.")
    score: float


class QualityOut(BaseModel):
    precision: float = Field(description="Estimated share of the tags that are correct.")
    recall: float = Field(description="Estimated share of the correct tags that were found.")
    f1: float
    publish: bool = Field(description="Whether the gate of the model lets the tags pass without a person.")


class TextResult(BaseModel):
    tags: list[TagOut]
    quality: QualityOut | None = Field(
        None, description="With tuned thresholds, if the model has a gate (`xmtc thresholds --publish`)."
    )


class PredictResponse(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "eurlex",
                    "results": [{"tags": [{"label": "1309", "name": "citrus fruit", "score": 0.93}]}],
                }
            ]
        }
    )

    model: str
    results: list[TextResult]


class ExplainRequest(BaseModel):
    model_config = make_config(text="Regulation on the import of citrus fruit", label="1309")

    text: str
    label: str = Field(max_length=MAX_LABEL_CHARACTERS)
    language: str | None = Field(None, max_length=MAX_LANGUAGE_CHARACTERS)


class ExplainedWord(BaseModel):
    word: str
    weight: float = Field(description="Sum of the weights of all occurrences; negative: evidence against the label.")
    spans: list[tuple[int, int]] = Field(description="Start and end of each occurrence, in characters.")
    weights: list[float] = Field(description="Weight of each occurrence.")
    parts: list[tuple[int, int] | None] = Field(
        description="Start and end of the strongest part of each occurrence; null: the whole word."
    )


class ExplainingMember(BaseModel):
    name: str
    share: float = Field(description="Part of the combined score, from 0 to 1.")


class ExplainResponse(BaseModel):
    model: str
    label: str
    name: str
    score: float | None
    bias: float | None = Field(
        description="Base without any word: weights and bias sum to the margin, log probability or logit; null: no sum."
    )
    members: list[ExplainingMember] = Field(description="Members of a combination that found the label.")
    words: list[ExplainedWord]


class ModelOut(BaseModel):
    name: str
    method: str
    n_labels: int
    languages: list[str]
    decision: dict[str, Any] | None
    calibrated: bool
    report: bool
    explains: bool
    version: str = Field(description="Changes when the model is replaced.")


class ModelList(BaseModel):
    models: list[ModelOut]
    damaged: list[str] = Field([], description="Names of the damaged models; missing if there are none.")


class LabelOut(BaseModel):
    label: str
    name: str
    others: list[str]


class LabelList(BaseModel):
    labels: list[LabelOut]


class DocumentOut(BaseModel):
    id: str
    text: str


class FileOut(BaseModel):
    documents: list[DocumentOut]
    columns: list[str]
    column: str | None
    note: str
    encoding: str | None = None  # of a text or table that is not in UTF-8


class TagIn(BaseModel):
    model_config = ConfigDict(extra="ignore")

    label: str
    name: str | None = None
    score: float = Field(0.0, allow_inf_nan=False)


class TableRow(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    text: str = ""
    tags: FailFastList[TagIn]


class TableRequest(BaseModel):
    model_config = make_config(
        rows=[{"id": "1", "text": "…", "tags": [{"label": "1309", "score": 0.93}]}], format="csv"
    )

    max_json_values: ClassVar[int] = 2_000_000  # enough for 10,000 rows with 14 tags each

    rows: FailFastList[TableRow] = Field(max_length=100_000)
    format: Annotated[Literal["xlsx", "csv", "jsonl"], Field(description="File format.")] = "xlsx"


class ErrorDetail(BaseModel):
    status: int
    message: str


class ErrorResponse(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": {"status": 422, "message": "k: Input should be a valid integer."}}]}
    )

    error: ErrorDetail


MAX_EXPLAINED_WORDS = 100  # words per explanation
MAX_WORD_SPANS = 1000  # occurrences per word
MAX_EXPLAINED_CHARACTERS = 100_000  # a text of this length blocks its model for 0.1 s


def encode_explanation(highlight: Highlight) -> dict[str, Any]:
    """Return the label, its score, the members and the base of an explanation, and its words."""
    return {
        "label": highlight.label,
        "name": highlight.name or highlight.label,
        "score": highlight.score,
        "bias": highlight.bias,
        "members": [member._asdict() for member in highlight.members],
        "words": locate_words(highlight),
    }


def locate_words(highlight: Highlight) -> list[dict[str, Any]]:
    """Return the words with non-zero weights and their occurrences, by decreasing absolute weight.

    The weight of a word is the sum over its occurrences.
    """
    words: dict[str, dict[str, Any]] = {}
    start = 0
    for number, piece in enumerate(highlight.pieces):
        end = start + len(piece.text)
        if piece.weight:
            empty = {"word": piece.text, "weight": 0.0, "spans": [], "weights": [], "parts": []}
            word = words.setdefault(piece.text.casefold(), empty)
            word["weight"] += piece.weight
            if len(word["spans"]) < MAX_WORD_SPANS:
                part = highlight.parts.get(number)
                word["spans"].append([start, end])
                word["weights"].append(piece.weight)
                word["parts"].append(None if part is None else [start + part[0], start + part[1]])
        start = end
    return sorted(words.values(), key=lambda word: -abs(word["weight"]))[:MAX_EXPLAINED_WORDS]
