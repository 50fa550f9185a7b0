"""JSON Schemas of corpus lines, predictions and reports, and the OpenAPI description of the service, from the code.

`python tools/schemas.py FOLDER` writes them; the documentation site publishes them. Requires the extra `serve`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from xmtc.analysis.report.statistics import Report
from xmtc.data.records import Fields
from xmtc.output.table import PredictionTable
from xmtc.server.app import create_app
from xmtc.server.settings import Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {str: "string", int: "integer", float: "number"}
LABEL = {"type": ["string", "integer"]}
# Keys of `xmtc report --json` that are named otherwise in Report, or have names in place of numbers.
REPORT_KEYS = {"n_docs": "documents"}
RENDERED_PARTS = ("labels", "worst", "unknown")  # as_json writes names in place of numbers


def describe_corpus_line() -> dict[str, Any]:
    """Return the schema of a line of a corpus in JSON Lines, with the default names of its fields."""
    properties = {
        Fields.id: {"type": ["string", "integer"]},
        Fields.text: {"type": "string"},
        Fields.labels: {"type": "array", "items": {"anyOf": [LABEL, {"type": "object", "required": ["label"]}]}},
    }
    return {
        "title": "Line of a corpus",
        "type": "object",
        "properties": properties,
        "required": [Fields.text, Fields.labels],
    }


def describe_prediction_line() -> dict[str, Any]:
    """Return the schema of a line that `xmtc predict` writes as JSON Lines."""
    table = PredictionTable(has_names=True)
    label = {column.name: {"type": TYPES[column.kind]} for column in table.label_columns if column.name != "rank"}
    label["broader"] = {"type": "array", "items": {"type": "string"}}
    items = {"type": "object", "properties": label, "required": ["label", "score"]}
    properties = {column.name: {"type": TYPES[column.kind]} for column in table.document_columns}
    return {
        "title": "Predicted labels of a document",
        "type": "object",
        "properties": properties | {"labels": {"type": "array", "items": items}},
        "required": ["id", "labels"],
    }


def describe_report() -> dict[str, Any]:
    """Return the schema of the JSON file of `xmtc report`."""
    schema = TypeAdapter(Report).json_schema()
    properties = {REPORT_KEYS.get(name, name): value for name, value in schema["properties"].items()}
    properties |= {name: {"type": "array"} for name in RENDERED_PARTS}
    properties["made by"] = {"const": "xmtc report"}
    definitions = schema.get("$defs", {})
    assigned = definitions["AssignmentMetrics"]
    assigned["properties"]["tags"] = assigned["properties"].pop("labels_per_document")
    assigned["required"] = ["tags" if name == "labels_per_document" else name for name in assigned["required"]]
    return {
        "title": "Report of a model",
        "type": "object",
        "properties": allow_null(properties),
        "required": sorted(properties),
        "$defs": allow_null(definitions),
    }


def allow_null(value: Any) -> Any:
    """Return a schema whose numbers may be null, because JSON has no nan."""
    if isinstance(value, list):
        return [allow_null(each) for each in value]
    if not isinstance(value, dict):
        return value
    is_number = value.get("type") == "number"
    return {key: ["number", "null"] if is_number and key == "type" else allow_null(each) for key, each in value.items()}


def describe_service() -> dict[str, Any]:
    """Return the OpenAPI description of `xmtc serve`."""
    return create_app(Settings((), hosts=("localhost",))).openapi()


def build_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by file name."""
    schemas = {
        "corpus-line.schema.json": describe_corpus_line(),
        "prediction-line.schema.json": describe_prediction_line(),
        "report.schema.json": describe_report(),
    }
    return {name: {"$schema": DIALECT, **schema} for name, schema in schemas.items()} | {
        "openapi.json": describe_service()
    }


def main(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, schema in build_schemas().items():
        Path(folder, name).write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
