"""Published schemas against what the commands read and write."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "tools/schemas.py").exists():
    pytest.skip("schemas are published from the checkout alone", allow_module_level=True)
jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
sys.path.insert(0, str(ROOT / "tools"))

from commands import xmtc  # noqa: E402
from planted import make_planted_corpus  # noqa: E402
from schemas import build_schemas  # noqa: E402


@pytest.fixture(scope="module")
def schemas():
    return build_schemas()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schemas")
    texts, labels = make_planted_corpus(200, seed=0)
    lines = [
        json.dumps({"id": str(i), "text": t, "labels": tags})
        for i, (t, tags) in enumerate(zip(texts, labels, strict=True))
    ]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    for command in (
        "train corpus.jsonl -o model",
        "predict model corpus.jsonl -o predictions.jsonl",
        "report model corpus.jsonl -o report.json",
    ):
        done = xmtc(*command.split(), cwd=folder)
        assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.mark.parametrize(
    ("name", "schema"),
    [("corpus.jsonl", "corpus-line.schema.json"), ("predictions.jsonl", "prediction-line.schema.json")],
)
def test_lines_are_valid(folder, schemas, name, schema):
    validator = jsonschema.Draft202012Validator(schemas[schema])
    for line in (folder / name).read_text().splitlines():
        validator.validate(json.loads(line))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"id": "1", "labels": "a"})


def test_reports_are_valid(folder, schemas):
    validator = jsonschema.Draft202012Validator(schemas["report.schema.json"])
    report = json.loads((folder / "report.json").read_text())
    validator.validate(report)
    assert report.keys() - {"title", "about"} == set(schemas["report.schema.json"]["required"])
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(report | {"documents": "many"})


def test_the_service_is_described(schemas):
    described = schemas["openapi.json"]
    assert {"/v1/models/{name}/predict", "/v1/models/{name}/reconcile", "/v1/projects"} <= described["paths"].keys()
    assert described["openapi"].startswith("3.")
