"""Models on a hub: push and pull through the real client, on a hub that runs on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_hub import TOKEN, LoopbackHub, run_hub

from xmtc import Classifier
from xmtc.errors import XmtcError
from xmtc.hub import render_card
from xmtc.hub.model_card import hide_folders
from xmtc.methods import Lexical

pytest.importorskip("huggingface_hub")
TEXTS = ["apples and pears", "pears grow on trees", "a trip to the moon", "the moon and the stars"]
LABELS = [["fruit"], ["fruit", "garden"], ["space", "travel"], ["space"]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "model"
    Classifier("parabel", min_df=1).fit(TEXTS, LABELS).save(folder)
    return folder


@pytest.fixture(scope="module")
def hub() -> Iterator[LoopbackHub]:
    with run_hub() as running:
        yield running


@pytest.fixture
def environment(hub: LoopbackHub, tmp_path: Path) -> dict[str, str]:
    """Variables of a process whose hub is on loopback. The client reads them when it is imported."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    return os.environ | own | {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}


def run(environment: dict[str, str], *arguments: str, code: int = 0) -> str:
    command = [sys.executable, *(("-m", "xmtc") if arguments[0] != "-c" else ()), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_a_pulled_model_has_the_files_that_were_pushed(model, hub, environment, tmp_path):
    address = run(environment, "push", str(model), "hf:library/first", "--license", "cc-by-4.0")
    assert address.strip() == f"{hub.endpoint}/library/first"
    (files,) = hub.commits["library/first"].values()
    assert sorted(files) == ["README.md", "about.json", "arrays.safetensors", "history.jsonl"]
    assert "license: cc-by-4.0" in files["README.md"].decode()

    pulled = tmp_path / "pulled"
    assert "Tagger(parabel, 4 labels" in run(environment, "pull", "hf:library/first", "-o", str(pulled))
    assert {path.name: path.read_bytes() for path in pulled.iterdir()} == {
        name: content for name, content in files.items() if name != "README.md"
    }
    answer = Classifier.load(pulled).predict_labels(["the moon"], k=2)
    assert answer == Classifier.load(model).predict_labels(["the moon"], k=2)


def test_classifier_is_pushed_and_opened_from_the_cache(model, hub, environment):
    first = f"""from xmtc import Classifier
classifier = Classifier.from_pretrained({str(model)!r})
print(classifier.push_to_hub("hf:library/second", intended_use="Tests only."))"""
    run(environment, "-c", first)
    again = """from xmtc import Classifier
print(Classifier.from_pretrained("hf:library/second").predict(["the moon"], k=1))"""
    assert run(environment, "-c", again).strip() == "[['space']]"
    n_requests = sum("arrays.safetensors" in request for request in hub.requests)
    assert run(environment, "-c", again).strip() == "[['space']]"
    assert sum("arrays.safetensors" in request for request in hub.requests) == n_requests
    (files,) = hub.commits["library/second"].values()
    assert "## Intended use\n\nTests only.\n" in files["README.md"].decode()


def test_kept_training_documents_are_not_shared(hub, environment, tmp_path):
    Classifier("parabel", min_df=1).fit(TEXTS, LABELS, keep_training=True).save(tmp_path / "model")
    assert (tmp_path / "model" / "training.safetensors").exists()
    run(environment, "push", str(tmp_path / "model"), "hf:library/private")
    (files,) = hub.commits["library/private"].values()
    assert "training.safetensors" not in files
    run(environment, "pull", "hf:library/private", "-o", str(tmp_path / "pulled"))
    assert Classifier.load(tmp_path / "pulled").tagger_.training is None


def test_a_revision_is_pulled(model, hub, environment, tmp_path):
    run(environment, "push", str(model), "hf:library/third")
    (commit,) = hub.commits["library/third"]
    hub.add_commit("library/third", {"about.json": b"{}"})
    run(environment, "pull", "hf:library/third", "-o", str(tmp_path / "old"), "--revision", commit)
    assert (tmp_path / "old" / "about.json").read_bytes() == (model / "about.json").read_bytes()
    assert "hf:library/third/about.json is not from xmtc" in run(
        environment, "pull", "hf:library/third", "-o", str(tmp_path / "new"), code=2
    )
    assert not (tmp_path / "new").exists()


def test_a_failed_pull_leaves_the_old_model(model, hub, environment, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    broken = {"about.json": (model / "about.json").read_bytes(), "arrays.safetensors": b"broken"}
    hub.add_commit("library/broken", broken)
    run(environment, "pull", "hf:library/broken", "-o", str(tmp_path / "model"), code=2)
    assert (tmp_path / "model" / "arrays.safetensors").read_bytes() == (model / "arrays.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("repository", "message"),
    [
        ("library/first", "'library/first' is no repository of the Hugging Face Hub; expected hf:USER/NAME."),
        ("hf:../../etc", "'hf:../../etc' is no repository"),
        ("hf:library/missing", "hf:library/missing: it does not exist, or needs an access token (hf auth login)."),
        ("hf:library/other", "hf:library/other has no model of xmtc: about.json or arrays.safetensors is missing."),
    ],
)
def test_pull_refuses_what_is_no_model(repository, message, hub, environment, tmp_path):
    hub.add_commit("library/other", {"README.md": b"# other"})
    assert message in run(environment, "pull", repository, "-o", str(tmp_path / "x"), code=2)


def test_push_without_permission_says_so(model, environment):
    environment["HF_TOKEN"] = "hf_wrong"
    assert "hf:library/denied: " in run(environment, "push", str(model), "hf:library/denied", code=2)


def test_the_card_shows_the_metrics_of_a_report(model, environment, tmp_path):
    corpus = tmp_path / "test.jsonl"
    rows = [{"text": text, "labels": labels} for text, labels in zip(TEXTS, LABELS, strict=True)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = str(tmp_path / "report.json")
    run(environment, "report", str(model), str(corpus), "-o", report)
    options = ["--report", report, "--dry-run"]
    card = run(environment, "push", str(model), "hf:library/dry", *options)
    mean = json.loads(Path(report).read_text())["metrics"]["P@1"]["mean"]
    assert f"| P@1 | {100 * mean:.2f} |" in card
    assert "library_name: xmtc" in card
    assert "min_df=1" in card
    assert "library/dry" in card


def test_the_card_shows_no_folders(tmp_path):
    names = tmp_path / "names.tsv"
    names.write_text("".join(f"{label}\tname of {label}\n" for label in ("fruit", "garden", "space", "travel")))
    classifier = Classifier("parabel", min_df=1, vocabulary=str(names), name_documents="never").fit(TEXTS, LABELS)
    classifier.save(tmp_path / "model")
    card = render_card(tmp_path / "model", "hf:library/dry")
    assert "`vocabulary=names.tsv`" in card
    assert str(tmp_path) not in card


def test_folders_are_hidden_in_members_and_their_views():
    assert hide_folders("vectors", "/home/me/a.vec+C:\\data\\b.vec") == "a.vec+b.vec"
    assert hide_folders("member_views", ("dismec.dense=/home/me/encoder/", "parabel.token_pattern=a/b")) == (
        "dismec.dense=encoder",
        "parabel.token_pattern=a/b",
    )
    assert hide_folders("members", (Lexical(vocabulary="/home/me/v.ttl"),)) == (Lexical(vocabulary="v.ttl"),)


def test_the_card_refuses_invalid_parameters(model, tmp_path):
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps(about | {"names": {"nothing": 1}}))
    with pytest.raises(XmtcError, match="is damaged: NameTraining has no parameter 'nothing'"):
        render_card(folder, "hf:library/dry")


def test_push_refuses_a_file_that_is_no_report(model, environment, tmp_path):
    (tmp_path / "other.json").write_text("[]")
    options = ["--report", str(tmp_path / "other.json"), "--dry-run"]
    assert "is no report; write one with" in run(environment, "push", str(model), "hf:library/dry", *options, code=2)


def test_from_pretrained_opens_a_folder(model):
    assert Classifier.from_pretrained(model).predict(["the moon"], k=1) == [["space"]]
    with pytest.raises(XmtcError):
        Classifier.from_pretrained(model / "missing")
