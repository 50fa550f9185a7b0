"""Hostile model folders, opened through Python, every command and the service, while an audit hook watches.

    python tests/campaigns/folders.py --cases 20000 --seed 0

A case takes a good model of `tests/fixtures/models`, changes what about.json says (types, names, nesting, references,
parameters), the numbers of its arrays, the bytes of its files, or the files themselves (links, FIFOs, devices), and
opens it. Allowed are answers that are finite, or one sentence. It is a finding if anything else comes out, or if a
module is imported, a process started, a connection opened, or a file outside the folder opened because of the case."""

from __future__ import annotations

import base64
import copy
import importlib
import json
import math
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "fixtures")]
if __name__ == "__main__":  # before numba is imported; its cache is separate
    os.environ["NUMBA_BOUNDSCHECK"] = "1"
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path.home() / ".cache" / "xmtc" / "campaigns"))
    os.environ["TQDM_DISABLE"] = "1"

import cases  # noqa: E402
import make_models  # noqa: E402
import numpy as np  # noqa: E402
from audit_watch import CANARY, Watch, create_outside_file  # noqa: E402
from odd_tokenizers import charsmap  # noqa: E402
from safetensors.numpy import load, save  # noqa: E402

MODELS = HERE.parent / "fixtures" / "models" / "format-3"
NETWORKS = (
    "attention_xml", "xml_rnn", "xml_cnn", "bow_cnn", "rank_ae", "rank_ae-words", "bce_ae", "c2ae", "word-stems",
)  # fmt: skip
ENCODER = "aplc_xlnet"
COLUMNS = ("columns", "wide-columns")
ENTRIES = ("python", "python", "command", "service")  # of cases 0, 1, 2, 3, 4 …

Rng = np.random.Generator
NUMBERS = [0, 1, -1, 2, 3, 7, 100, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -(2**63), 2**64, 10**30, 10**400]
NUMBERS += [0.5, -0.5, 1e-300, 1e300]
ADDRESSES = [
    "audit_watch:Touch", f"{CANARY}:Touch", f"{CANARY}.inner:Touch", "subprocess:Popen", "os:system", "builtins:eval",
    "builtins:exec", "builtins:open", "os.system", "posix:system", "importlib:import_module", "pickle:loads",
    "xmtc.cli:main", "xmtc.cli.serve:serve", "xmtc.core.hyperparameters:ParameterSet", "xmtc.core.method:Method",
    "xmtc.core.method:Model", "xmtc.tagger:Tagger", "xmtc.methods:Parabel", "xmtc.methods.label_tree.parabel:Parabel",
    "xmtc.linear.tree:LinearTree.__init__", "xmtc.text.string_index:StringIndex",
    "antigravity:x", "webbrowser", "turtle",
    "json.tool", "__main__:case", "torch:load", "numpy:load", "transformers:AutoModel", "xmtc", "",
]  # fmt: skip
PLACES = [
    "OUTSIDE", "/etc/passwd", "../../../../etc/passwd", "file:///etc/passwd", "/dev/zero", "/proc/self/environ",
    "http://127.0.0.1:9/model", "https://huggingface.co/bert-base-uncased", "bert-base-uncased", "xlnet-base-cased",
    "mpnet-base", "glove", "~/.ssh/id_rsa", "\\\\127.0.0.1\\share", "//127.0.0.1/share", "|touch x", "con", "a\0b",
    "x" * 5000,
]  # fmt: skip
TEXTS = [
    "parabel", "consensus", "ensemble", "lexical", "attention_xml", "tfidf", "tfidf-2", "words", "subwords", "columns",
    "names", "linear-tree", "linear-tree-model", "string-index", "trained-network", "transformer-design", "decision",
    "snowball:english", "snowball:../x", "simplemma:en", "simplemma:xx", "grams:1-99999", "grams:3-2", "words+grams",
    "auto", "english", "utf-16", "zip_codec", "probabilities", "column", "frame", "sparse", "\ud800", "\x1b[2J\x07",
    "{0.__class__}", "%s%n%s", "a\nb", f"__import__('{CANARY}')", "[" * 1000, "é" * 100, "nan", "1e999", "None",
]  # fmt: skip


def make_method(rng: Rng) -> dict[str, Any]:
    """Return a description of a method, or of something else that must never be called."""
    name = choose([*ADDRESSES, *TEXTS[:6]], rng)
    return {"method": name, "parameters": choose([{}, {"args": [CANARY]}, {"members": []}, {"seed": 1}, None], rng)}


def make_odd_value(rng: Rng) -> Any:
    """Return another value for any place of about.json."""
    how = rng.random()
    if how < 0.2:
        return choose([*NUMBERS, math.nan, math.inf, -math.inf, True, False, None], rng)
    if how < 0.4:
        return choose([*ADDRESSES, *PLACES], rng)
    if how < 0.55:
        return choose(TEXTS, rng)
    if how < 0.65:
        return make_method(rng)
    if how < 0.7:
        return [make_method(rng) for _ in range(int(rng.integers(1, 4)))]
    if how < 0.8:
        return nest_value(make_odd_value(rng), int(choose([2, 5, 20, 60], rng)), rng)
    return copy.deepcopy(
        choose(
            [
                [], [1], ["x"], [[]], {}, {"a": 1}, {"array": "frequencies"}, {"array": "labels.text"},
                {"array": "nothing"}, {"array": ["x"]}, {"mapping": {}}, {"mapping": 3},
                {"form": choose(ADDRESSES, rng)}, {"form": choose(TEXTS, rng)}, {"form": 7}, {"kind": "vocabulary"},
                {"text": 7}, {"are": "raw"},
            ],
            rng,
        )
    )  # fmt: skip


def nest_value(value: Any, depth: int, rng: Rng) -> Any:
    wrap = choose([lambda v: [v], lambda v: {"mapping": {"a": v}}, lambda v: {"a": v}, make_consensus], rng)
    for _ in range(depth):
        value = wrap(value)
    return value


def make_consensus(value: Any) -> dict[str, Any]:
    return {"method": "consensus", "parameters": {"members": [value, "parabel"]}}


def choose(options: Any, rng: Rng) -> Any:
    return options[int(rng.integers(len(options)))]


def list_models() -> list[str]:
    found = sorted(path.parent.name for path in MODELS.glob("*/about.json"))
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        return [name for name in found if name not in (*NETWORKS, ENCODER)]
    # linear models twice, because they are fast
    return [*found, *(name for name in found if name not in (*NETWORKS, ENCODER))]


@cache
def load_model(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the content of about.json and the arrays of a valid model."""
    about = json.loads((MODELS / name / "about.json").read_text(encoding="utf-8"))
    return about, load((MODELS / name / "arrays.safetensors").read_bytes())


# --- changes


def list_paths(value: Any, path: tuple = ()) -> list[tuple]:
    """Yield the paths of the values of a description."""
    if len(path) > 40:
        return [path]
    if isinstance(value, dict):
        return [path, *(found for key, inner in value.items() for found in list_paths(inner, (*path, key)))]
    if isinstance(value, list):
        return [path, *(found for key, inner in enumerate(value[:20]) for found in list_paths(inner, (*path, key)))]
    return [path]


def get_value(about: Any, path: Any) -> Any:
    for key in path:
        about = about[key]
    return about


def change_about(about: dict[str, Any], rng: Rng) -> None:
    """Change, remove or rename one value."""
    if rng.random() < 0.15:  # a call instead of a parameter
        holder = choose([about, about["parameters"], *about["views"].values()], rng)
        call = {"method": choose(ADDRESSES[:8], rng), "parameters": choose([{}, {"args": [CANARY]}], rng)}
        if isinstance(holder, dict):
            holder["calibrate" if holder is about else choose([*holder, "x"], rng)] = choose([call, [call]], rng)
        return
    if rng.random() < 0.15:
        about[choose(["scores", "reading", "target", "package", "filter", "decision", "chosen", "calibrate"], rng)] = (
            make_odd_value(rng)
        )
        return
    everywhere = [path for path in list_paths(about) if path and path[0] != "files"]
    in_parts = [path for path in everywhere if path[0] == "parts"] or everywhere
    change_value(about, in_parts if rng.random() < 0.4 else everywhere, rng)


def change_value(about: Any, places: list[tuple], rng: Rng) -> None:
    *outer, last = choose(places, rng)
    holder, how = get_value(about, outer), rng.random()
    if how < 0.1:
        del holder[last]
    elif how < 0.2 and isinstance(holder, dict):
        holder[str(choose([f"{last}s", "", "form", "array", "method", "tfidf", "words", *ADDRESSES[:8]], rng))] = (
            holder.pop(last)
        )
    elif how < 0.3:
        holder[last] = copy.deepcopy(get_value(about, choose(places, rng)))
    elif how < 0.4 and isinstance(holder[last], (int, float)) and not isinstance(holder[last], bool):
        with suppress(OverflowError):
            holder[last] += choose([-1, 1, 0.5, 10], rng)
    elif how < 0.45 and isinstance(holder[last], str) and holder[last].startswith("{"):  # configuration of an encoder
        inner = json.loads(holder[last])
        inner[choose([*sorted(inner), "more", *DESIGN], rng)] = make_odd_value(rng)
        holder[last] = json.dumps(inner)
    else:
        holder[last] = make_odd_value(rng)


def change_array(arrays: dict[str, np.ndarray], rng: Rng) -> None:
    """Change some numbers of one array, or its size, shape, type or name."""
    name = choose(sorted(arrays), rng)
    array, how = arrays[name].copy(), rng.random()
    if how < 0.6:
        change_numbers(array, rng)
    elif how < 0.7:
        array = array[: int(rng.integers(len(array) + 1))] if array.ndim else array
    elif how < 0.75:
        array = np.concatenate([array, array]) if array.ndim else array
    elif how < 0.8:
        array = array.reshape(choose([(-1,), (1, -1), (-1, 1)], rng))
    elif how < 0.85:
        types = "bool i1 u1 i2 i4 i8 u4 u8 f2 f4 f8".split()
        with np.errstate(all="ignore"):
            array = array.astype(choose(types, rng))
    elif how < 0.9:
        array = arrays[choose(sorted(arrays), rng)].copy()
    elif how < 0.95:
        rng.shuffle(array)
    else:
        arrays[name + "s"] = arrays.pop(name)
        return
    arrays[name] = np.ascontiguousarray(array)


def change_numbers(array: np.ndarray, rng: Rng) -> None:
    if not array.size:
        return
    if array.dtype.kind == "f":
        odd = [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e30, 1e-30, -3e38, 65504.0]
    else:
        limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else np.iinfo(np.int8)
        odd = [limits.min, limits.max, 0, 1, 2, 100, array.size, array.size - 1, int(array.max()), int(array.max()) + 1]
    with np.errstate(all="ignore"):
        for _ in range(int(rng.choice([1, 1, 2, 5]))):
            array.flat[int(rng.integers(array.size))] = np.asarray(choose(odd, rng)).astype(array.dtype)


DESIGN = (
    "auto_map", "attn_implementation", "_attn_implementation", "quantization_config", "torch_dtype", "dtype",
    "backbone", "use_kernels", "kernel_config", "trust_remote_code", "name_or_path", "_name_or_path", "model_type",
    "text_config",
    "is_decoder", "architectures", "base_model_tp_plan", "use_timm_backbone", "position_embedding_type", "to_dict",
)  # fmt: skip


def change_design(about: dict[str, Any], rng: Rng) -> None:
    """Change the configuration of an encoder."""
    design = about["parts"]["model"]["network"]["design"]
    said = json.loads(design["encoder"])
    name = choose([*sorted(said), *DESIGN], rng)
    is_number = type(said.get(name)) in (int, float) and rng.random() < 0.5
    kinds = ["roberta", "xlnet", "mpnet", "flava", "perceiver", "esm", "layoutlm", "t5", "gpt2", "x", "../x"]
    other = choose(kinds, rng) if name == "model_type" else make_odd_value(rng)
    said[name] = said[name] + choose([-1, 1, 0.5, -2, 1000], rng) if is_number else other
    design["encoder"] = json.dumps(said)


def change_tokenizer(arrays: dict[str, np.ndarray], rng: Rng) -> None:
    name = "views.subwords.json"
    said = json.loads(arrays[name].tobytes())
    if rng.random() < 0.3:
        whole = charsmap()
        content = choose([rng.bytes(40), whole, flip_bytes(whole, rng), flip_bytes(whole, rng, 12), whole[:-1]], rng)
        said["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}
    else:
        change_value(said, [path for path in list_paths(said) if path], rng)
    content = json.dumps(said).encode()
    arrays[name] = np.frombuffer(flip_bytes(content, rng) if rng.random() < 0.1 else content, np.uint8)


def flip_bytes(content: bytes, rng: Rng, end: int | None = None) -> bytes:
    changed = np.frombuffer(content, np.uint8).copy()
    for _ in range(int(rng.integers(1, 4))):
        changed[int(rng.integers(end or len(changed)))] = rng.integers(256)
    return changed.tobytes()


def change_text(said: bytes, rng: Rng) -> bytes:
    """Return invalid JSON, or JSON that parsers read in different ways."""
    return choose(
        [
            lambda: flip_bytes(said, rng),
            lambda: said[: int(rng.integers(len(said)))],
            lambda: b"\xef\xbb\xbf" + said,
            lambda: said.decode().encode("utf-16"),
            lambda: said.replace(b'"method"', b'"method": "os:system", "method"', 1),
            lambda: said.replace(b'"n_docs": ', b'"n_docs": ' + b"9" * 5000, 1),
            lambda: said.replace(b'"n_docs": ', b'"n_docs": NaN, "n": ', 1),
            lambda: said.replace(b"{", b'{"deep": ' + b"[" * 50_000 + b"]" * 50_000 + b", ", 1),
            lambda: said + said,
            lambda: b" " * 1000 + said,
            lambda: b"",
        ],
        rng,
    )()


def make_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def make_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError), socket.socket(socket.AF_UNIX) as listening:  # the path can be too long
        listening.bind(str(path))


def change_files(folder: Path, rng: Rng) -> None:
    """Replace a file of the folder by a link, a FIFO or a damaged copy, or add a foreign file."""
    ours = ["about.json", "arrays.safetensors", "history.jsonl"]
    path = folder / choose([*ours, *ours, "report.html", "notes.txt", "model.pkl", "config.json"], rng)
    target = choose(
        [str(create_outside_file()), "/dev/zero", "/dev/stdin", "/proc/self/mem", "about.json", path.name], rng
    )
    choose(
        [
            lambda: make_fifo(path),
            lambda: make_link(path, target),
            lambda: make_link(path, target),
            lambda: make_socket(path),
            lambda: (path.unlink(missing_ok=True), path.mkdir()),
            lambda: path.unlink(missing_ok=True),
            lambda: path.write_bytes(path.read_bytes()[:-1] if path.exists() else b"x"),
            lambda: path.write_bytes((path.read_bytes() if path.exists() else b"") + rng.bytes(9)),
            lambda: os.truncate(path, 2**40) if path.exists() else path.write_bytes(b""),
            lambda: os.truncate(path, 0) if path.exists() else path.write_bytes(b"\x80\x04cos\nsystem\n."),
        ],
        rng,
    )()


def write_hostile(folder: Path, name: str, rng: Rng) -> None:
    about, arrays = load_model(name)
    about, arrays, how = copy.deepcopy(about), dict(arrays), rng.random()
    if rng.random() < 0.5:
        rename_forms(about)
    if name == ENCODER and rng.random() < 0.5:
        change_design(about, rng) if how < 0.7 else change_tokenizer(arrays, rng)
    elif how < 0.6:
        for _ in range(int(rng.choice([1, 1, 2, 3]))):
            with suppress(KeyError, AttributeError, TypeError):  # an earlier change has removed the place
                change_about(about, rng)
    elif how < 0.75:
        for _ in range(int(rng.choice([1, 1, 2]))):
            change_array(arrays, rng)
    content = save(arrays)
    if 0.75 < how < 0.83:
        header = 8 + int.from_bytes(content[:8], "little")
        content = flip_bytes(content, rng, header if rng.random() < 0.6 else None)
    if isinstance(about.get("files"), dict) and rng.random() < 0.97:
        about["files"] = {"arrays.safetensors": {"bytes": len(content), "sha256": compute_checksum(content)}}
    said = json.dumps(about).replace('"OUTSIDE"', json.dumps(str(create_outside_file()))).encode()
    if 0.83 < how < 0.88:
        said = change_text(said, rng)
    (folder / "arrays.safetensors").write_bytes(content)
    (folder / "about.json").write_bytes(said)
    shutil.copyfile(MODELS / name / "history.jsonl", folder / "history.jsonl")
    if how > 0.88:
        change_files(folder, rng)


def rename_forms(value: Any) -> None:
    """Return the type names of the newest format."""
    from xmtc.model_folder import CURRENT_MODEL_FORMAT
    from xmtc.storage.form_types import OLD_NAMES

    if isinstance(value, dict) and "format" in value:
        value["format"] = CURRENT_MODEL_FORMAT
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        rename_forms(inner)
    if isinstance(value, dict) and value.get("form") in OLD_NAMES:
        value["form"] = OLD_NAMES[value["form"]]


def compute_checksum(content: bytes) -> str:
    from hashlib import sha256

    return sha256(content).hexdigest()


# --- entries


def make_documents(n_docs: int = 3) -> list[Any]:
    from xmtc.data.in_memory import to_documents

    return list(to_documents(*make_models.documents(n_docs)))


def use_python(folder: Path, name: str, rng: Rng) -> None:
    """Open the folder, inspect it, predict, explain and evaluate."""
    from xmtc.classifier import Classifier
    from xmtc.core.run import Run
    from xmtc.data.document import Document
    from xmtc.tagger import Tagger

    one = Run(threads=1, device="cpu")
    if rng.random() < 0.5:
        classifier = Classifier.load(folder)
        repr(classifier), classifier.get_params(), classifier.classes_
        tagger = classifier.tagger_
        if name not in COLUMNS:
            classifier.predict(make_models.TEXTS, run=one)
    else:
        tagger = Tagger.load(folder, verify=bool(rng.random() < 0.5))
    repr(tagger), json.dumps(tagger.about)
    if name in COLUMNS:
        row = np.array([0, 3, 5], np.int32), np.ones(3, np.float32)
        check_answers(tagger.to_tags(tagger.predict([Document("1", "", [], row)], 3, one)))
        return
    check_answers(tagger.predict_labels(make_models.TEXTS, 3, run=one))
    for highlight in tagger.highlight(make_models.TEXTS[0], k=1, run=one):
        weights = [piece.weight for piece in highlight.pieces] + [weight for _, weight in highlight.words]
        assert np.isfinite(weights).all(), f"the weights are {weights}"
    measured = tagger.evaluate(make_documents(), ["P@1", "PSP@1"], run=one)
    assert np.isfinite([*measured.values()]).all(), measured


def check_answers(answers: list[list[Any]]) -> None:
    for tags in answers:
        for label, score in tags:
            assert isinstance(label, str)
            assert 0 <= score <= 1.001, f"the score is {score}"


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("info", "MODEL"),
    ("info", "MODEL", "--verify", "--history"),
    ("info", "MODEL", "--history", "--json"),
    ("predict", "MODEL", "CORPUS", "-o", "OUT/answers.jsonl", "--threads", "1"),
    ("predict", "MODEL", "CORPUS", "--threshold", "tuned", "--threads", "1"),
    ("explain", "MODEL", "the dog and the horse"),
    ("evaluate", "MODEL", "CORPUS", "--threads", "1"),
    ("calibrate", "MODEL", "CORPUS", "-o", "OUT/model", "--threads", "1"),
    ("calibrate", "MODEL", "CORPUS", "--threads", "1"),
    ("thresholds", "MODEL", "CORPUS", "--threads", "1"),
    ("thresholds", "MODEL", "--clear"),
    ("compare", "MODEL", "GOOD", "CORPUS", "--threads", "1"),
    ("report", "MODEL", "CORPUS", "-o", "OUT/report.html", "--threads", "1"),
    ("report", "MODEL", "CORPUS", "-o", "OUT/report.json", "--threads", "1"),
    ("vocab", "attach", "MODEL", "VOCAB"),
    ("vocab", "filter", "MODEL", "--deny", "food"),
    ("vocab", "check", "MODEL"),
    ("vocab", "stats", "MODEL"),
    ("combine", "MODEL", "GOOD", "-o", "OUT/model", "--threads", "1"),
    ("combine", "GOOD", "GOOD", "-o", "MODEL", "--threads", "1"),
    ("train", "CORPUS", "-o", "MODEL", "-p", "n_trees=1", "--threads", "1"),
)
CONTROL = {chr(code) for code in range(32)} - set("\n\t\r") | {"\x7f", "\x9b"}


@cache
def make_valid_folder() -> Path:
    """Create a valid model, a corpus and a vocabulary that no case changes."""
    place = Path(tempfile.mkdtemp(prefix="campaign-good-"))
    shutil.copytree(MODELS / "dismec", place / "good")
    rows = zip(*make_models.documents(110), strict=True)
    lines = [json.dumps({"id": str(i), "text": text, "labels": tags}) for i, (text, tags) in enumerate(rows)]
    (place / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    table = "".join(f"{name}\tthe {name}\n" for name in make_models.LABELS)
    (place / "subjects.tsv").write_text("id\tprefLabel@en\n" + table)
    return place


def use_command(folder: Path, name: str, rng: Rng, words: tuple[str, ...] | None = None) -> None:
    """Run a command in this process; its output has no control characters."""
    from typer.testing import CliRunner

    from xmtc.cli import build_app, describe_os_error
    from xmtc.errors import XmtcError

    words = choose(COMMANDS, rng) if words is None else words
    place, out = make_valid_folder(), folder.parent
    known = {"MODEL": str(folder), "GOOD": str(place / "good"), "CORPUS": str(place / "corpus.jsonl")}
    known |= {"VOCAB": str(place / "subjects.tsv")}
    given = [known.get(word, word.replace("OUT/", f"{out}/")) for word in words]
    try:
        result = CliRunner().invoke(build_app([words[0]]), given, catch_exceptions=False)
    except OSError as error:  # like xmtc.cli.run_command
        raise XmtcError(describe_os_error(error)) from None
    assert not CONTROL & set(result.output), f"control characters in the output of {words}: {result.output!r:.500}"
    assert result.exit_code in (0, 1), f"{words} ended with {result.exit_code}: {result.output}"


@cache
def make_client() -> Any:
    """Create a service of a valid model and of one whose folder every case replaces."""
    from starlette.testclient import TestClient

    from xmtc.server.app import create_app
    from xmtc.server.settings import Settings

    place = make_valid_folder()
    shutil.copytree(MODELS / "parabel", place / "served")
    models = (("good", str(place / "good")), ("m", str(place / "served")))
    service = TestClient(create_app(Settings(models, hosts=("testserver",), device="cpu", access_log=False)))
    service.__enter__()
    return service


def use_service(folder: Path, name: str, rng: Rng) -> None:
    """Replace a served model folder and check it again, as after SIGHUP."""
    service, served = make_client(), make_valid_folder() / "served"
    shutil.rmtree(served)
    os.rename(folder, served)
    service.portal.call(service.app.state.service.models.reload_changed, True)
    listed = service.get("/v1/models")
    assert listed.status_code == 200, listed.text
    assert [each["name"] for each in listed.json()["models"]] == ["good", "m"]
    text = make_models.TEXTS[0]
    for path, body in (("predict", {"text": text, "k": 2}), ("explain", {"text": text, "label": "animals"})):
        for each in ("good", "m"):
            found = service.post(f"/v1/models/{each}/{path}", json=body)
            assert found.status_code == 200 or (each == "m" and 400 <= found.status_code < 500), found.text
    for path in ("report", "labels"):
        found = service.get(f"/v1/models/m/{path}")
        assert found.status_code < 500, found.text
        assert CANARY not in found.text
    check_error(service)


def check_error(service: Any) -> None:
    """Accept the error of a rejected model."""
    from xmtc.errors import XmtcError

    served = service.app.state.service.models.by_name["m"]
    if served.refused_stamp:
        raise XmtcError("The model was refused, and the old one serves on.")


USES: dict[str, Callable[..., None]] = {"python": use_python, "command": use_command, "service": use_service}


def get_entry(seed: int, number: int) -> str:
    return ENTRIES[number % len(ENTRIES)]


@cache
def watch() -> Watch:
    """Start watching after valid models have shown what is imported."""
    found = Watch()
    with found.warm_up(), tempfile.TemporaryDirectory(prefix="campaign-") as place:
        warm_up(Path(place))
    return found


def warm_up(place: Path) -> None:
    """Run everything that a valid model and a rejected one import and load."""
    import difflib  # noqa: F401
    import encodings.idna  # noqa: F401

    for name in (
        "xmtc.features.encoders.mpnet",
        "simplemma",
        "usearch.index",
        "snowballstemmer",
    ):  # which only code of xmtc names
        with suppress(ImportError):
            importlib.import_module(name)

    from xmtc.errors import XmtcError
    from xmtc.features import VIEWS, view_class
    from xmtc.methods import METHODS, method_class

    rng = np.random.default_rng(0)
    for kind, find in ((METHODS, method_class), (VIEWS, view_class)):
        for each in kind:
            with suppress(XmtcError):
                find(each)
    for number, name in enumerate(dict.fromkeys(list_models())):
        folder = place / str(number) / "model"
        shutil.copytree(MODELS / name, folder)
        for seed in range(3):
            use_python(folder, name, np.random.default_rng(seed))
    for number, words in enumerate(COMMANDS):
        folder = place / f"c{number}" / "model"
        shutil.copytree(MODELS / "calibrated", folder)
        with suppress(XmtcError):
            use_command(folder, "calibrated", rng, words)
    for number, name in enumerate(("vocabulary", "thresholds", "columns")):
        shutil.copytree(MODELS / name, place / f"s{number}")
        with suppress(XmtcError):
            use_service(place / f"s{number}", name, rng)


def case(seed: int, number: int) -> None:
    rng = np.random.default_rng([seed, number])
    name, use, watched = choose(list_models(), rng), USES[get_entry(seed, number)], watch()
    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        folder = Path(place) / "model"
        folder.mkdir()
        write_hostile(folder, name, rng)
        with watched.watching(place, make_valid_folder()):
            use(folder, name, rng)


if __name__ == "__main__":
    if "XMTC_CAMPAIGN" in os.environ:
        cases.main(__file__, case, __doc__, kind=get_entry)
    else:
        with tempfile.TemporaryDirectory(prefix="campaign-cache-") as home:
            cases.main(__file__, case, __doc__, {"XMTC_CAMPAIGN": home, "XDG_CACHE_HOME": home}, kind=get_entry)
