"""Model folders: exact, fast to open, and rejected with a reason if they are incomplete."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from cpu_time import limited_cpu_time
from planted import make_planted_corpus

from xmtc import Tagger, XmtcError
from xmtc import model_folder as store
from xmtc.classifier import Classifier
from xmtc.storage import atomic as disk
from xmtc.storage import folder as folders
from xmtc.text.string_index import StringIndex


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Classifier(n_trees=1).fit(*make_planted_corpus(100, seed=0)).tagger_


@pytest.fixture
def folder(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    return tmp_path / "model"


def test_about_describes_the_model(folder):
    about = json.loads((folder / "about.json").read_text())
    assert about["format"] == store.CURRENT_MODEL_FORMAT
    assert about["method"] == "parabel"
    assert about["parameters"]["n_trees"] == 1
    assert list(about["views"]) == ["tfidf"]
    assert about["n_docs"] == 100
    assert about["data"].startswith("blake2b:")
    assert about["xmtc"]
    assert sorted(path.name for path in folder.iterdir()) == ["about.json", "arrays.safetensors", "history.jsonl"]


def test_fingerprint_depends_on_the_data(tagger):
    texts, tags = make_planted_corpus(100, seed=0)
    again = Classifier(n_trees=1, C=0.5).fit(texts, tags).tagger_
    other = Classifier(n_trees=1).fit(texts, [*tags[:-1], []]).tagger_
    assert again.about["data"] == tagger.about["data"] != other.about["data"]


def test_large_folder_opens_in_milliseconds(tmp_path):
    """The folder has 200 MB; reading it would take far longer than the limit."""
    words = StringIndex(np.zeros(200_000_000, np.uint8), np.array([0, 200_000_000]), np.zeros(16, np.int32))
    store.save(tmp_path / "large", {}, {"words": words})
    with limited_cpu_time(0.1):
        for _ in range(5):
            _, parts = store.MODEL_FOLDER_KIND.load(tmp_path / "large")
    assert parts["words"].text.shape == (200_000_000,)


def test_saving_replaces_only_models(tagger, folder, tmp_path):
    tagger.save(folder)
    assert Tagger.load(folder).about == tagger.about
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter1.txt").write_text("years of work")
    with pytest.raises(XmtcError, match="exists and is not a model folder; choose another name"):
        tagger.save(precious)
    assert (precious / "chapter1.txt").read_text() == "years of work"
    with pytest.raises(XmtcError, match="exists and is not a model folder"):
        tagger.save(precious / "chapter1.txt")


def test_model_folder_with_other_files_is_not_replaced(tagger, folder):
    edit_about(folder, format=99)  # written by a later version
    tagger.save(folder)
    (folder / "notes.txt").write_text("which seed worked")
    with pytest.raises(
        XmtcError, match=r"holds notes.txt beside about.json, expected only a model; choose another name"
    ):
        tagger.save(folder)
    (folder / "notes.txt").unlink()
    for foreign in ('{"name": "bert"}', '{"format": "gguf"}', '{"format": true}', "{"):
        (folder / "about.json").write_text(foreign)
        with pytest.raises(XmtcError, match="exists and is not a model folder; choose another name"):
            tagger.save(folder)
    (folder / "about.json").write_text('{"format": 1}')
    (folder / "arrays.safetensors").unlink()
    with pytest.raises(XmtcError, match=r"holds about.json without arrays.safetensors, expected only a model"):
        tagger.save(folder)
    (folder / "about.json").unlink()
    (folder / "history.jsonl").unlink()
    tagger.save(folder)  # an empty folder can be replaced
    assert Tagger.load(folder).about == tagger.about


def test_link_to_a_model_folder_is_followed(tagger, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "disk" / "model")
    for _ in range(2):
        tagger.save(tmp_path / "model")
        assert (tmp_path / "model").is_symlink()
        assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["model"]
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(XmtcError, match="loop exists and is not a model folder"):
        tagger.save(tmp_path / "loop")


def test_check_target_leaves_no_files(tmp_path):
    assert store.check_target(tmp_path / "new" / "model") == tmp_path / "new" / "model"
    assert list(tmp_path.iterdir()) == []


def test_permissions_follow_the_umask(tagger, tmp_path):
    before = os.umask(0o027)
    try:
        tagger.save(tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "model", *(tmp_path / "model").iterdir())}
    files = ("about.json", "arrays.safetensors", "history.jsonl")
    assert modes == {"model": 0o750} | dict.fromkeys(files, 0o640)


@pytest.mark.parametrize("step", [1, 2])
def test_model_is_restored_if_its_replacement_is_interrupted(step, tagger, folder, monkeypatch):
    """On systems that cannot exchange two folders atomically."""
    before, steps, replace = (folder / "about.json").read_bytes(), [], os.replace

    def interrupted(source, target):
        steps.append(target)
        if len(steps) == step:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(disk, "exchange", lambda one, other: False)
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tagger.save(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert (folder / "about.json").read_bytes() == before


def test_interrupted_save_keeps_the_old_model(tagger, folder, monkeypatch):
    before = (folder / "about.json").read_bytes()

    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "compute_path_sha256", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tagger.save(folder)
    with pytest.raises(KeyboardInterrupt):
        tagger.save(folder.parent / "new")
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert (folder / "about.json").read_bytes() == before


def edit_about(folder, **changes):
    about = json.loads((folder / "about.json").read_text())
    about.update(changes)
    (folder / "about.json").write_text(json.dumps(about))


def cut_arrays(folder):
    arrays = folder / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-100])


def scramble_header(folder):
    arrays = folder / "arrays.safetensors"
    content = bytearray(arrays.read_bytes())
    content[8:40] = b"\xff" * 32
    arrays.write_bytes(content)


def claim_more_than_there_is(folder):
    arrays = folder / "arrays.safetensors"
    content = arrays.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["frequencies"]["data_offsets"] = [0, 10**9]
    new = json.dumps(header).encode()[:size].ljust(size)
    arrays.write_bytes(content[:8] + new + content[8 + size :])


def name_a_stranger(folder):
    about = json.loads((folder / "about.json").read_text())
    about["parts"]["model"]["form"] = "os.system"
    (folder / "about.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / "about.json").unlink(), "is not a model folder: it has no about.json"),
        (lambda f: (f / "about.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "about.json").write_bytes(b"\xff\xfe"), "cannot be read"),
        (lambda f: (f / "about.json").write_text("[]"), "is not from xmtc: it has no format number"),
        (lambda f: (f / "about.json").write_text('{"name": "bert"}'), "is not from xmtc: it has no format number"),
        (
            lambda f: edit_about(f, format=99),
            "has model format 99, but this version of xmtc reads format 3 and 4; upgrade xmtc.",
        ),
        (
            lambda f: edit_about(f, format=0),
            "has model format 0, but this version of xmtc reads format 3 and 4; train the model again.",
        ),
        (lambda f: edit_about(f, parts={}), "is damaged"),
        (lambda f: edit_about(f, files={}), "is damaged"),
        (lambda f: (f / "arrays.safetensors").unlink(), "arrays.safetensors is damaged"),
        (cut_arrays, "is damaged: it has"),
        (scramble_header, "arrays.safetensors is damaged"),
        (claim_more_than_there_is, "arrays.safetensors is damaged"),
        (name_a_stranger, "is damaged"),
    ],
)
def test_damaged_and_foreign_folders_are_rejected(folder, damage, sentence):
    damage(folder)
    with pytest.raises(XmtcError) as error:
        Tagger.load(folder)
    assert sentence in str(error.value)


def test_verify_detects_flipped_bits(folder):
    arrays = folder / "arrays.safetensors"
    content = bytearray(arrays.read_bytes())
    content[-10] ^= 1
    arrays.write_bytes(content)
    Tagger.load(folder)
    with pytest.raises(XmtcError, match="does not match its checksum"):
        Tagger.load(folder, verify=True)


def test_missing_folder_or_file_is_rejected(tmp_path):
    with pytest.raises(XmtcError, match="does not exist; expected a model folder"):
        Tagger.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(XmtcError, match="is a file; expected a model folder"):
        Tagger.load(tmp_path / "file")
