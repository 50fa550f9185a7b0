"""Hostile model, vocabulary, checkpoint and encoder folders: no code is run, no other file is opened, and nothing
blocks."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from planted import make_planted_corpus
from safetensors.numpy import save

import xmtc
from xmtc import Classifier, Form, Method, Model, Tagger, XmtcError
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.registry import find_subclasses, get_class_address
from xmtc.features import view_class
from xmtc.methods import method_class
from xmtc.storage.form_types import FORM_TYPES, OLD_NAMES, get_form_class, get_form_name
from xmtc.storage.json_types import parse_json
from xmtc.storage.regular_files import NotRegularError, open_regular, read_regular, resolve_links
from xmtc.vocabulary import Vocabulary

FIXTURES = Path(__file__).parent.parent / "fixtures"
OLD = FIXTURES / "models" / "format-3"
TEXTS, TAGS = make_planted_corpus(40, seed=0)
sys.path.append(str(FIXTURES))
needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
CALLS: list[str] = []


class ForbiddenClass:
    """Class of an imported module that no model folder may call."""

    def __init__(self, **given: Any) -> None:
        CALLS.append(f"called with {given}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD / "parabel", tmp_path / "model"))


@pytest.fixture(autouse=True)
def nothing_is_called() -> Iterator[None]:
    CALLS.clear()
    yield
    assert CALLS == []


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    about = json.loads((folder / "about.json").read_text())
    change(about)
    (folder / "about.json").write_text(json.dumps(about))


def place(about: dict[str, Any], path: str, value: Any) -> None:
    *outer, last = path.split("/")
    for name in outer:
        about = about[name]
    about[last] = value


def get_error(load: Callable[[Path], Any], folder: Path) -> str:
    """Return the error message for a folder, after the name of the folder."""
    with pytest.raises(XmtcError) as raised:
        load(folder)
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(str(folder))


# --- code execution

HOSTILE = {"method": f"{__name__}:ForbiddenClass", "parameters": {"args": ["id"]}}


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("calibrate", HOSTILE, f" is damaged: its calibrate is {HOSTILE!r}, expected true or false"),
        ("parameters/n_trees", HOSTILE, f" is damaged: Parabel: n_trees={HOSTILE!r} is invalid; expected"),
        ("views/tfidf/min_df", HOSTILE, f" is damaged: Tfidf: min_df={HOSTILE!r} is invalid; expected"),
        ("views/tfidf/min_df", [HOSTILE], f" is damaged: Tfidf: min_df={[HOSTILE]!r} is invalid; expected"),
        (
            "method",
            f"{__name__}:ForbiddenClass",
            f"The method {__name__}:ForbiddenClass is not defined; import its module first, or",
        ),
        ("method", "subprocess:Popen", "The method subprocess:Popen is not defined; import its module first, or"),
        ("method", "xmtc.cli:main", "The method xmtc.cli:main is not defined; import its module first, or"),
        ("parameters", {"seed": -1}, " is damaged: Parabel: seed=-1 is invalid; expected"),
        ("names", {"name_documents": 7}, " is damaged: NameTraining: name_documents=7 is invalid; expected"),
        ("names", {"nothing": 1}, " is damaged: NameTraining has no parameter 'nothing'"),
        ("parameters", {"nothing": 1}, " is damaged: Parabel has no parameter 'nothing'"),
        (
            "views",
            {f"{__name__}:ForbiddenClass": {}},
            f"The view {__name__}:ForbiddenClass is not defined; import its module first, or",
        ),
    ],
)
def test_description_cannot_call_code(folder: Path, path: str, value: Any, sentence: str) -> None:
    edit(folder, lambda about: place(about, path, value))
    assert get_error(Classifier.load, folder).startswith(sentence)


def test_members_must_be_methods(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "consensus", tmp_path / "model"))
    edit(folder, lambda about: place(about, "parameters/members", [HOSTILE, HOSTILE]))
    assert get_error(Classifier.load, folder).startswith(
        f"The method {__name__}:ForbiddenClass is not defined; import its module"
    )
    edit(folder, lambda about: place(about, "parameters/members", [{"method": "parabel"}] * 2))
    assert get_error(Classifier.load, folder) == (
        " is damaged: a method of it has no parameters; copy or train it again."
    )


@pytest.mark.parametrize(
    "name",
    [
        f"{__name__}:ForbiddenClass",
        f"{__name__}:HOSTILE",
        "subprocess:Popen",
        "builtins:eval",
        "os:system",
        "xmtc.cli:main",
        "xmtc.core.hyperparameters:ParameterSet",
        "xmtc.tagger:Tagger",
        "tests",
        "os.system",
        "",
        ":",
        7,
        None,
        ["parabel"],
    ],
)
def test_registry_finds_only_registered_classes(name: Any) -> None:
    before = set(sys.modules)
    for find in (method_class, view_class):
        with pytest.raises(
            XmtcError, match=r"^(There is no (method|view) |The (method|view) .* is not defined; import)"
        ):
            find(name)
    with pytest.raises((KeyError, TypeError)):
        get_form_class(name)
    assert set(sys.modules) == before


def test_method_and_form_names_are_separate() -> None:
    for name in ("xmtc.methods.label_tree.parabel:Parabel", "parabel"):
        method_class(name)
        with pytest.raises(XmtcError, match="view"):
            view_class(name)
        with pytest.raises(KeyError):
            get_form_class(name)
    with pytest.raises(XmtcError, match="no method 'linear-tree'"):
        method_class("linear-tree")


@dataclass(frozen=True, kw_only=True)
class OwnModel(Model):
    power: float = 1.0

    def _predict(self, data: Any, k: int, run: Any) -> Any:
        raise NotImplementedError

    def _explain(self, document: Any, label: int) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class OwnMethod(Method):
    quick_parameters: ClassVar[dict[str, Any]] = {}

    def _fit(self, data: Any, valid: Any, run: Any) -> OwnModel:
        return OwnModel(n_labels=data.n_labels, views=data.sizes)


def test_classes_of_a_program_are_found_after_their_definition(tmp_path: Path) -> None:
    assert method_class(f"{__name__}:OwnMethod") is OwnMethod
    assert get_form_class(f"{__name__}:OwnModel") is OwnModel
    Classifier(OwnMethod()).fit(TEXTS, TAGS).save(tmp_path / "model")
    assert isinstance(Classifier.load(tmp_path / "model").tagger_.model, OwnModel)


def test_entry_point_must_be_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(xmtc.METHODS, "touch", f"{__name__}:ForbiddenClass")
    with pytest.raises(
        XmtcError, match=r"^The method touch is not a subclass of Method; fix the package that adds it\.$"
    ):
        method_class("touch")


# --- names of forms


def test_every_form_has_a_type_name() -> None:
    pytest.importorskip("torch")
    for module in pkgutil.walk_packages(xmtc.__path__, "xmtc."):
        if module.name not in ("xmtc.__main__", "xmtc.nn.lstm_kernels"):
            importlib.import_module(module.name)
    ours = {where: kind for where, kind in find_subclasses(Form).items() if where.startswith("xmtc.")}
    concrete = {where for where, kind in ours.items() if not inspect.isabstract(kind) and "<locals>" not in where}
    assert sorted(FORM_TYPES.values()) == sorted(concrete)
    for name, where in FORM_TYPES.items():
        assert get_class_address(get_form_class(name)) == where
        assert get_form_name(get_form_class(name)) == name
    assert set(OLD_NAMES.values()) <= FORM_TYPES.keys()


def test_new_folders_name_types_and_no_modules(tmp_path: Path) -> None:
    Tagger.load(OLD / "consensus").save(tmp_path / "model")
    text = (tmp_path / "model" / "about.json").read_text()
    assert '"form": "linear-tree-model"' in text
    assert "xmtc." not in text
    assert json.loads(text)["format"] == 4


@pytest.mark.parametrize(
    "name", ["xmtc.cli:main", "xmtc.text.string_index", "os:system", "no-such-form", ["a"], 7, None]
)
def test_form_without_a_type_name_is_rejected(folder: Path, name: Any) -> None:
    edit(folder, lambda about: place(about, "parts/model/form", name))
    assert get_error(Tagger.load, folder).startswith(" is damaged: about.json and arrays.safetensors are inconsistent")


# --- content of about.json


@pytest.mark.parametrize(
    ("path", "value", "phrase"),
    [
        ("scores", "x", "its scores is 'x', expected an object"),
        ("scores", {"are": [], "because": ""}, "its scores.are is [], expected one of probabilities, raw"),
        ("scores", {"are": "raw"}, "its scores.because is missing"),
        ("package", 7, "its package is 7, expected text"),
        ("package", "x --index-url=http://evil", "its package 'x --index-url=http://evil' is not a valid package name"),
        ("reading", [], "its reading is [], expected an object"),
        ("reading", {"text": True}, "its reading.text is True, expected text"),
        ("reading", {"encoding": 1}, "its reading.encoding is 1, expected text"),
        ("xmtc", None, "its xmtc is None, expected text"),
        ("data", {}, "its data is {}, expected text"),
        ("sizes", {"tfidf": "x"}, "its sizes.tfidf is 'x', expected a whole number of 64 bits"),
        ("n_docs", True, "its n_docs is True, expected a whole number of 64 bits"),
        ("n_docs", 10**30, f"its n_docs is {10**30}, expected a whole number of 64 bits"),
        ("n_labels", 1.5, "its n_labels is 1.5, expected a whole number of 64 bits"),
        ("target", {"kind": "x", "numbers": True}, "its target.kind is 'x', expected one of lists, column, vector,"),
        ("target", {"kind": "lists"}, "its target.numbers is missing"),
        ("vocabulary", {"n_concepts": "x"}, "its vocabulary.n_concepts is 'x', expected a whole number"),
        ("filter", {"allow": "x", "deny": []}, "its filter.allow is 'x', expected a list"),
        ("filter", {"allow": [1], "deny": []}, "its filter.allow[0] is 1, expected text"),
        ("decision", {"for": 1}, "its decision.for is 1, expected text"),
        ("chosen", {"analyzer": 1}, "its chosen.analyzer is 1, expected text"),
        ("names", "x", "its names is 'x', expected an object"),
        ("chosen_names", {"weight": "x"}, "its chosen_names.weight is 'x', expected a number"),
        ("chosen_names", {"weight": 1.0, "length": 1.0}, "its chosen_names.because is missing"),
        ("views", {"tfidf": 1}, "its views.tfidf is 1, expected an object"),
        ("parameters", None, "its parameters is None, expected an object"),
    ],
)
def test_description_is_checked_on_loading(folder: Path, path: str, value: Any, phrase: str) -> None:
    edit(folder, lambda about: place(about, path, value))
    assert get_error(Tagger.load, folder).startswith(f" is damaged: {phrase}")


def test_label_numbers_are_checked(folder: Path) -> None:
    edit(folder, lambda about: place(about, "target", {"kind": "lists", "numbers": True}))
    assert get_error(Classifier.load, folder).startswith(" is damaged: invalid literal for int()")


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        (b'{"format": 4, "format": 3}', "the key 'format' occurs twice in an object"),
        (b'{"format": NaN}', "NaN is not a JSON number"),
        (b'{"format": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"format": 1e999}', "a number is too large"),
        (b'{"format": ' + b"9" * 5000 + b"}", "Exceeds the limit (4300 digits) for integer string conversion"),
        (b'{"format": ' + b"[" * 100 + b"]" * 100 + b"}", "it is nested more than 100 levels deep"),
        (b"[" * 100_000, "it is nested more than 100 levels deep"),
        (b'{"format": "\xff"}', "'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_ambiguous_json_is_rejected(folder: Path, content: bytes, phrase: str) -> None:
    (folder / "about.json").write_bytes(content)
    assert get_error(Tagger.load, folder).startswith(f"/about.json cannot be read ({phrase}")


# --- header of the arrays


def with_header(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = (folder / "arrays.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    changed = change(header)
    text = changed if isinstance(changed, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = len(text).to_bytes(8, "little") + text + content[8 + size :]
    (folder / "arrays.safetensors").write_bytes(content)
    edit(folder, lambda about: place(about, "files", {"arrays.safetensors": {"bytes": len(content), "sha256": ""}}))


def set_entry(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda header: header["frequencies"].update({key: value})


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (set_entry("shape", [-1]), "the shape of an array is not a list of sizes"),
        (set_entry("shape", [True] * 5), "the shape of an array is not a list of sizes"),
        (set_entry("shape", [5.0]), "the shape of an array is not a list of sizes"),
        (set_entry("shape", [2**70]), "the shape of an array is not a list of sizes"),
        (set_entry("shape", "5"), "the shape of an array is not a list of sizes"),
        (set_entry("shape", [1] * 40 + [5]), "the shape of an array is not a list of sizes"),
        (
            set_entry("shape", [2**62, 2**62]),
            "an array of shape [4611686018427387904, 4611686018427387904] does not fit",
        ),
        (set_entry("data_offsets", [8, 48]), "its arrays overlap, or do not follow each other"),
        (set_entry("data_offsets", [0.0, 40.0]), "the offsets of an array are not whole numbers"),
        (set_entry("data_offsets", [-40, 0]), "the offsets of an array are not whole numbers"),
        (set_entry("data_offsets", [False, True]), "the offsets of an array are not whole numbers"),
        (set_entry("dtype", "O"), "'O'"),
        (set_entry("dtype", ["I64"]), "unhashable type: 'list'"),
        (lambda header: header.pop("frequencies") and None, "its arrays overlap, or do not follow each other"),
        (lambda _: b"[]", "its header is not an object"),
        (lambda _: b'{"a": 1, "a": 2}', "the key 'a' occurs twice in an object"),
        (lambda _: b"[" * 100_000, "it is nested more than 100 levels deep"),
        (lambda _: b" " * (2**24 + 8), "its header has 16,777,224 bytes, expected at most 16,777,216"),
    ],
)
def test_headers_are_checked(folder: Path, change: Callable[[dict[str, Any]], Any], phrase: str) -> None:
    with_header(folder, change)
    assert get_error(Tagger.load, folder).startswith(f"/arrays.safetensors is damaged: {phrase}")


def test_header_longer_than_its_file_is_rejected(folder: Path) -> None:
    content = (folder / "arrays.safetensors").read_bytes()
    (folder / "arrays.safetensors").write_bytes((2**63).to_bytes(8, "little") + content[8:])
    assert get_error(Tagger.load, folder).startswith(
        "/arrays.safetensors is damaged: its header has 9,223,372,036,854,"
    )


# --- files that are not regular


@needs_fifo
@pytest.mark.parametrize("name", ["about.json", "arrays.safetensors"])
def test_fifo_does_not_block(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert f"{name} is not a regular file" in get_error(Tagger.load, folder)


@needs_fifo
def test_history_that_is_a_fifo_is_ignored(folder: Path) -> None:
    (folder / "history.jsonl").unlink()
    os.mkfifo(folder / "history.jsonl")
    assert Tagger.load(folder).history == ()


@pytest.mark.parametrize("name", ["about.json", "arrays.safetensors"])
@pytest.mark.parametrize("target", ["/dev/zero", "elsewhere", "nowhere"])
def test_link_out_of_a_folder_is_rejected(folder: Path, name: str, target: str) -> None:
    shutil.copyfile(folder / name, folder.parent / "elsewhere")
    (folder / name).unlink()
    (folder / name).symlink_to(folder.parent / target)
    assert f"{name} is a link, expected a regular file" in get_error(Tagger.load, folder)


def test_history_that_is_a_link_is_ignored(folder: Path) -> None:
    shutil.move(folder / "history.jsonl", folder.parent / "history.jsonl")
    (folder / "history.jsonl").symlink_to(folder.parent / "history.jsonl")
    assert Tagger.load(folder).history == ()


def test_folder_can_be_a_link(folder: Path) -> None:
    (folder.parent / "current").symlink_to(folder)
    assert Tagger.load(folder.parent / "current", verify=True).about["method"] == "parabel"
    assert Tagger.load(folder.parent / "current").history


def test_size_of_the_description_is_limited(folder: Path) -> None:
    with (folder / "about.json").open("r+b") as file:
        file.truncate(2**40)  # a sparse file, which uses no disk space
    assert get_error(Tagger.load, folder) == (
        "/about.json cannot be read (about.json has 1,099,511,627,776 bytes, expected at most 67,108,864); copy or "
        "train the model again."
    )


@needs_fifo
def test_vocabulary_folders_are_checked_likewise(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURES / "vocabularies" / "format-1", tmp_path / "vocabulary"))
    assert Vocabulary.load(folder).name(0, "en")
    (folder / "about.json").unlink()
    os.mkfifo(folder / "about.json")
    assert get_error(Vocabulary.load, folder) == (
        "/about.json cannot be read (about.json is not a regular file); copy or import the vocabulary again."
    )


@needs_fifo
def test_folder_with_a_fifo_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    tagger = Tagger.load(folder)
    shutil.copytree(folder, tmp_path / "other")
    (tmp_path / "other" / "about.json").unlink()
    os.mkfifo(tmp_path / "other" / "about.json")
    with pytest.raises(XmtcError, match="exists and is not a model folder; choose another name"):
        tagger.save(tmp_path / "other")


@needs_fifo
@pytest.mark.parametrize("name", ["training.txt", "piece.npz"])
def test_checkpoints_are_checked_likewise(tmp_path: Path, name: str) -> None:
    checkpoint = Checkpoint(tmp_path)
    if name == "training.txt":
        os.mkfifo(tmp_path / name)
        with pytest.raises(XmtcError, match=r"cannot be written \(it is not a regular file\)"):
            checkpoint.claim("this")
    else:
        os.mkfifo(tmp_path / name)
        with pytest.raises(XmtcError, match=r"piece\.npz cannot be read \(piece\.npz is not a regular file\)"):
            checkpoint.load_piece("piece")


# --- reading and parsing


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_regular(tmp_path, "file", 7) == b"content"
    with pytest.raises(NotRegularError, match=r"^file has 7 bytes, expected at most 6$"):
        read_regular(tmp_path, "file", 6)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path, "nothing")
    (tmp_path / "inner").mkdir()
    with pytest.raises(NotRegularError, match=r"^inner is not a regular file$"):
        open_regular(tmp_path, "inner")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(NotRegularError, match=r"^link is a link, expected a regular file$"):
        open_regular(tmp_path, "link")


def test_links_must_stay_in_their_folder_or_in_the_hub_cache(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a" / "blobs", tmp_path / "models--a" / "snapshots" / "1"
    for each in (blobs, snapshot):
        each.mkdir(parents=True)
    (blobs / "abc").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    (snapshot / "out").symlink_to(tmp_path)
    assert resolve_links(snapshot, "config.json") == (blobs.resolve(), "abc")
    for name in ("out", "out/x", "../../../x"):
        with pytest.raises(NotRegularError, match="is a link that leads out of its folder"):
            resolve_links(snapshot, name)


def test_json_is_parsed_strictly() -> None:
    assert parse_json(b'{"a": [1, 2.5, null, "\\ud800"]}') == {"a": [1, 2.5, None, "\ud800"]}
    for wrong in (b"", b"\xef\xbb\xbf{}", b"{} {}", b"NaN", b"1e400", b'{"a": {"b": 1, "b": 1}}'):
        with pytest.raises(ValueError):  # noqa: PT011
            parse_json(wrong)


# --- encoder folders


def encoder(tmp_path: Path) -> Path:
    pytest.importorskip("transformers")
    from tiny_encoders import tiny

    return Path(shutil.copytree(tiny("bert", width=8), tmp_path / "encoder"))


def train_with(folder: Path) -> Any:
    return Classifier("aplc_xlnet", encoder=str(folder), epochs=1, max_subwords=20).fit(TEXTS, TAGS)


@needs_fifo
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json"])
def test_encoder_folder_with_a_fifo_is_rejected(tmp_path: Path, name: str) -> None:
    folder = encoder(tmp_path)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(XmtcError) as raised:
        train_with(folder)
    because = f"it has no {name}" if name == "config.json" else f"{name} is not a regular file"
    assert str(raised.value).startswith(
        f"The encoder {folder} cannot be loaded ({because}); give the folder of an encoder"
    )


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling"])
def test_link_out_of_an_encoder_folder_is_rejected(tmp_path: Path, name: str) -> None:
    folder = encoder(tmp_path)
    if name == "1_Pooling":
        (tmp_path / "elsewhere").mkdir()
    else:
        shutil.move(folder / name, tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(XmtcError, match=f"cannot be loaded \\({name} is a link that leads out of its folder\\); give"):
        train_with(folder)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/../../x.safetensors", "x.bin", 7, ""])
def test_weight_index_must_name_files_of_its_folder(tmp_path: Path, name: Any) -> None:
    folder = encoder(tmp_path)
    shutil.move(folder / "model.safetensors", tmp_path / "x.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"a": name}}))
    phrase = (
        r"\(model\.safetensors\.index\.json names files that are not in the folder\); give the folder of an encoder"
    )
    with pytest.raises(XmtcError, match=phrase):
        train_with(folder)


def test_encoder_in_the_hub_cache_is_accepted(tmp_path: Path) -> None:
    folder, blobs = encoder(tmp_path), tmp_path / "models--tiny" / "blobs"
    snapshot = tmp_path / "models--tiny" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.move(path, blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert train_with(snapshot).predict(TEXTS[:1])


def test_arrays_of_a_saved_model_are_accepted(tmp_path: Path) -> None:
    """All files of safetensors: empty arrays, all types, odd sizes."""
    from xmtc.storage.array_file import DTYPES, map_arrays

    kinds = [np.dtype(kind) for kind in DTYPES.values()]
    arrays = {f"{kind}{n}": np.ones(n, kind) for kind in kinds for n in (0, 1, 3, 7)}
    (tmp_path / "arrays").write_bytes(save(arrays))
    with open_regular(tmp_path, "arrays") as file:
        found = map_arrays(file, (tmp_path / "arrays").stat().st_size)
    assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in arrays.items()}


# --- replacement of models


@pytest.mark.parametrize(
    "words",
    [
        ("calibrate", "MODEL", "CORPUS"),
        ("thresholds", "MODEL", "CORPUS"),
        ("vocab", "attach", "MODEL", "VOCAB"),
        ("vocab", "filter", "MODEL", "--deny", "food"),
        ("combine", "MODEL", "MODEL", "-o", "MODEL"),
        ("train", "CORPUS", "-o", "MODEL", "-p", "n_trees=1"),
    ],
)
def test_commands_never_write_to_existing_files_of_a_model(folder: Path, words: tuple[str, ...]) -> None:
    """Processes that have them memory-mapped would be killed (SIGBUS)."""
    from make_models import LABELS, documents
    from typer.testing import CliRunner

    from xmtc.cli import app

    corpus, table = folder.parent / "corpus.jsonl", folder.parent / "subjects.tsv"
    rows = zip(*documents(110), strict=True)
    corpus.write_text("".join(json.dumps({"text": text, "labels": tags}) + "\n" for text, tags in rows))
    table.write_text("id\tprefLabel@en\n" + "".join(f"{name}\tthe {name}\n" for name in LABELS))
    known = {"MODEL": str(folder), "CORPUS": str(corpus), "VOCAB": str(table)}
    with (folder / "arrays.safetensors").open("rb") as file:
        before = file.read()
        opened = Tagger.load(folder)
        done = CliRunner().invoke(app, [known.get(word, word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert not os.path.samestat(os.fstat(file.fileno()), (folder / "arrays.safetensors").stat())
        assert os.fstat(file.fileno()).st_nlink == 0
        file.seek(0)
        assert file.read() == before
    assert opened.predict_labels(["the dog"])[0]


def test_damaged_vocabulary_of_a_model_gives_a_one_line_error(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from xmtc.cli import app

    folder = Path(shutil.copytree(OLD / "vocabulary", tmp_path / "model"))
    edit(folder, lambda about: place(about, "parts/concepts/vocabulary/terms/of", {"array": "frequencies"}))
    with pytest.raises(XmtcError, match=r"is damaged: .*; copy or train it again\.$"):
        CliRunner().invoke(app, ["vocab", "check", str(folder)], catch_exceptions=False)


# --- service


def test_damaged_model_is_rejected_and_others_are_listed(folder: Path) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from xmtc.server.app import create_app
    from xmtc.server.settings import Settings

    good = shutil.copytree(folder, folder.parent / "good")
    settings = Settings((("good", str(good)), ("m", str(folder))), hosts=("testserver",))
    with TestClient(create_app(settings)) as client:
        edit(folder, lambda about: place(about, "scores", "x"))
        client.portal.call(client.app.state.service.models.reload_changed, True)
        listed = client.get("/v1/models")
        assert listed.status_code == 200
        assert [each["name"] for each in listed.json()["models"]] == ["good", "m"]
    with pytest.raises(
        XmtcError, match=r"is damaged: its scores is 'x', expected an object; copy or train it again\.$"
    ):
        create_app(settings).state.service.models.open_all()


def test_report_that_is_a_link_is_not_served(folder: Path) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from xmtc.server.app import create_app
    from xmtc.server.settings import Settings

    secret = folder.parent / "secret.html"
    secret.write_text("<p>secret</p>")
    (folder / "report.html").symlink_to(secret)
    with TestClient(create_app(Settings((("m", str(folder)),), hosts=("testserver",)))) as client:
        found = client.get("/v1/models/m/report")
        assert found.status_code == 404
        assert found.json()["error"]["message"].startswith("This model has no report; `xmtc report` writes one")
        assert client.get("/v1/models").json()["models"][0]["report"] is False
        (folder / "report.html").unlink()
        shutil.copyfile(secret, folder / "report.html")
        assert client.get("/v1/models/m/report").text == "<p>secret</p>"
    named = Settings((("m", str(folder)),), hosts=("testserver",), reports=(("m", str(folder.parent / "current")),))
    (folder.parent / "current").symlink_to(secret)  # the operator can pass a link
    with TestClient(create_app(named)) as client:
        assert client.get("/v1/models/m/report").text == "<p>secret</p>"


@pytest.mark.parametrize(("name", "value"), [("has", 100), ("named", 100), ("right", 40)])
def test_more_calibration_hits_than_documents_are_rejected(tmp_path: Path, name: str, value: int) -> None:
    """Scores would be above 1."""
    from test_damaged_models import set_array

    folder = Path(shutil.copytree(OLD / "lexical", tmp_path / "model"))
    set_array(folder, f"model.evidence.{name}", lambda counts: np.full_like(counts, value))
    assert get_error(lambda path: Tagger.load(path).predict_labels(["music"]), folder) == (
        " is damaged: has, named and right of the match classifier count more documents than n_docs; "
        "copy or train it again."
    )
