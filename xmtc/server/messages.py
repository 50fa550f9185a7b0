"""Bodies of requests and answers, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from xmtc.explain.highlights import Highlight

MAX_LABEL, MAX_LANGUAGE, MAX_SEARCH = 1000, 100, 200  # characters

Item = TypeVar("Item")
LabelEntry = Annotated[str, Field(max_length=MAX_LABEL)]  # label, or several labels such as branch:…
ScoreThreshold = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
FailFastList = Annotated[list[Item], Field(fail_fast=True)]  # one error for a list, not one for each of its items


def make_config(**values: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [values]})


class PredictRequest(BaseModel):
    model_config = make_config(text="Regulation on the import of citrus fruit", k=3)

    text: str | None = Field(None, description="one text")
    texts: FailFastList[str] | None = Field(None, description="or several; expected: either of them")
    k: int = Field(5, ge=1, description="labels of a text, at most")
    threshold: ScoreThreshold | Literal["tuned"] | None = Field(
        None, description='Minimum score, or "tuned" for the thresholds that `xmtc thresholds` tuned.'
    )
    language: str | None = Field(None, max_length=MAX_LANGUAGE, description="of the names, with a vocabulary")
    allow: FailFastList[LabelEntry] = Field(
        [], max_length=1000, description="labels to choose from, or branch:…, scheme:…"
    )
    deny: FailFastList[LabelEntry] = Field([], max_length=1000, description="labels never to give")


class TagOut(BaseModel):
    label: str
    name: str = Field(description="what the label is called; the label itself where no vocabulary tells")
    score: float


class TextResult(BaseModel):
    tags: list[TagOut]


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
    label: str = Field(max_length=MAX_LABEL)
    language: str | None = Field(None, max_length=MAX_LANGUAGE)


class ExplainedWord(BaseModel):
    word: str
    weight: float = Field(description="what it adds to the score of the label; below 0: against it")
    spans: list[tuple[int, int]] = Field(description="where it stands in the text, in characters")


class ExplainResponse(BaseModel):
    model: str
    label: str
    name: str
    score: float | None
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


class ModelList(BaseModel):
    models: list[ModelOut]
    damaged: list[str] = Field([], description="names of models whose folders are damaged; left out if there are none")


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

    max_json_values: ClassVar[int] = 2_000_000  # such as 10,000 rows with 14 tags

    rows: FailFastList[TableRow] = Field(max_length=100_000)
    format: Annotated[Literal["xlsx", "csv", "jsonl"], Field(description="of the file")] = "xlsx"


class ErrorDetail(BaseModel):
    status: int
    message: str


class ErrorResponse(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": {"status": 422, "message": "k: Input should be a valid integer."}}]}
    )

    error: ErrorDetail


MAX_EXPLAINED_WORDS = 100  # of an explanation
MAX_WORD_SPANS = 1000  # of a word
MAX_EXPLAINED_CHARACTERS = 100_000  # of a text; one takes 0.1 s, for which its model answers nobody else


def locate_words(found: Highlight) -> list[dict[str, Any]]:
    """Return the words that have a weight, the strongest first. A word that occurs several times has the weight of all
    its occurrences; a word that has a weight only as part of a longer term has the weight of the term."""
    in_all = {word.casefold(): weight for word, weight in found.words}
    words: dict[str, dict[str, Any]] = {}
    begin = 0
    for piece in found.pieces:
        end = begin + len(piece.text)
        if piece.weight:
            key = piece.text.casefold()
            word = words.setdefault(key, {"word": piece.text, "weight": in_all.get(key, piece.weight), "spans": []})
            if len(word["spans"]) < MAX_WORD_SPANS:
                word["spans"].append([begin, end])
        begin = end
    return sorted(words.values(), key=lambda word: -abs(word["weight"]))[:MAX_EXPLAINED_WORDS]
