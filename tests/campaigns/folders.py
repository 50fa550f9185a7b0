"""Damaged model folders: models of every form, with what about.json says and the numbers of the arrays changed; then
opened, looked at, used and explained with, while compiled code watches the bounds of its arrays.

    python tests/campaigns/folders.py --minutes 2 --seed 0

Allowed are answers that are finite, or one sentence."""

from __future__ import annotations

import base64
import copy
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
if __name__ == "__main__":  # before numba is imported; what it compiles so is kept apart
    os.environ["NUMBA_BOUNDSCHECK"] = "1"
    os.environ["NUMBA_CACHE_DIR"] = str(Path.home() / ".cache" / "xmtc" / "campaigns")
    os.environ["TQDM_DISABLE"] = "1"

import cases  # noqa: E402
import numpy as np  # noqa: E402
from odd_tokenizers import charsmap  # noqa: E402
from safetensors.numpy import load, save  # noqa: E402

HOME = "XMTC_CAMPAIGN"  # where the whole models lie
TEXTS = ["noise1 word3alpha word3beta", "word5beta noise7 noise9 word0gamma", "strange", ""]
SMALL: dict[str, dict[str, Any]] = {  # as few numbers as a form can have: most changes then matter
    "attention_xml": {"dimension": 4, "hidden": 4, "layers": (4,), "epochs": 1},
    "xml_rnn": {"dimension": 4, "hidden": 4, "layers": (4,), "epochs": 1},
    "rank_ae": {"hidden": 4, "layer": 4, "channels": 4, "epochs": 1, "dimension": 4},
    "c2ae": {"layer": 4, "latent": 0.1, "epochs": 1},
}


def home() -> Path:
    return Path(os.environ[HOME])


def documents():
    from planted import planted

    from xmtc.data.in_memory import documents_of

    return list(documents_of(*planted(60, seed=3)))


def trained(method: str, **parameters: Any):
    from xmtc.base.run import Run
    from xmtc.methods import method_class
    from xmtc.pipeline import train

    kind = method_class(method)
    settings = kind.tiny | SMALL.get(method, {}) | parameters
    return train(documents(), method, run=Run(threads=1, device="cpu"), **settings)


def of_columns():
    from scipy.sparse import csr_array

    from xmtc.classifier import Classifier

    X = csr_array(np.eye(12, dtype=np.float32) + np.eye(12, k=1, dtype=np.float32))
    return Classifier("parabel", n_trees=2, max_leaf=2).fit(X, [["a"], ["b"], ["c", "a"]] * 4).tagger_


def combined():
    from xmtc.combine import combine

    return combine([trained("parabel", n_trees=1), trained("dismec")], valid=documents()[:40])


def with_encoder(kind: str):
    from tiny_encoders import tiny

    return trained("aplc_xlnet", encoder=tiny(kind, width=8), epochs=1, batch=16, max_subwords=40)


MAKERS: dict[str, Callable[[], Any]] = {
    "parabel": lambda: trained("parabel", n_trees=2),
    "plt": lambda: trained("plt", ngrams=2),
    "fastxml": lambda: trained("fastxml", n_trees=2),
    "pfastrexml": lambda: trained("pfastrexml", n_trees=2),
    "sleec": lambda: trained("sleec", dimension=4, n_clusters=2),
    "annexml": lambda: trained("annexml", dimension=4, n_clusters=2, search="approximate"),
    "fasttext": lambda: trained("fasttext", loss="hs", word_ngrams=2),
    "columns": of_columns,
    "combined": combined,
    "ensemble": lambda: trained("ensemble"),
    "attention_xml": lambda: trained("attention_xml"),
    "xml_rnn": lambda: trained("xml_rnn"),
    "xml_cnn": lambda: trained("xml_cnn"),
    "bow_cnn": lambda: trained("bow_cnn"),
    "rank_ae": lambda: trained("rank_ae"),
    "rank_ae of words": lambda: trained("rank_ae", input="lstm"),
    "c2ae": lambda: trained("c2ae"),
    "bert": lambda: with_encoder("bert"),
    "xlnet": lambda: with_encoder("xlnet"),
}
ENCODERS = ("bert", "xlnet")
LINEAR = ("parabel", "plt", "fastxml", "pfastrexml", "sleec", "annexml", "fasttext", "columns", "combined", "ensemble")


def names() -> list[str]:
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        return list(LINEAR)
    return [*LINEAR, *MAKERS]  # the linear ones twice: they are quick, and compiled


def make(name: str, folder: Path) -> None:
    """A whole model, which does what it should: an error here is none of those that are allowed."""
    try:
        MAKERS[name]().save(folder)
        use(folder, name)
    except ValueError as error:
        raise RuntimeError(f"the whole model {name} is none") from error


@cache
def model(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What about.json says, and the arrays, of a whole model; made by the first who asks."""
    folder = home() / name
    if not folder.exists():
        make(name, folder)
    about = json.loads((folder / "about.json").read_text())
    return about, load((folder / "arrays.safetensors").read_bytes())


Rng = np.random.Generator

NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    7,
    100,
    255,
    2**15,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    -(2**63),
    10**30,
    0.5,
    -0.5,
    1e-300,
    1e300,
]
ODD: list[Any] = [
    *NUMBERS, math.nan, math.inf, -math.inf, True, False, None, "", "x", "tfidf", "words", "\ud800", "\x1b[2J", [], [1],
    {}, {"a": 1}, {"array": "frequencies"}, {"array": "labels.text"}, {"array": "nothing"}, {"array": ["x"]},
    {"mapping": {}}, {"mapping": 3},
    {"form": "os:system"}, {"form": "xmtc.text.vocabulary:Vocabulary"}, {"form": 7}, "[" * 1000,
]  # fmt: skip
TYPES = [
    np.int8,
    np.uint8,
    np.int16,
    np.int32,
    np.int64,
    np.uint32,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    np.bool_,
]


def chosen(options: Any, rng: Rng) -> Any:
    return options[int(rng.integers(len(options)))]


def paths(value: Any, path: tuple = ()) -> list[tuple]:
    """Where the values of a description stand."""
    if isinstance(value, dict):
        return [path, *(found for key, inner in value.items() for found in paths(inner, (*path, key)))]
    if isinstance(value, list):
        return [path, *(found for key, inner in enumerate(value[:20]) for found in paths(inner, (*path, key)))]
    return [path]


def change_about(about: dict[str, Any], rng: Rng) -> None:
    """One value becomes another, goes away, or gets another name."""
    everywhere = [path for path in paths(about) if path and path[0] != "files"]
    in_parts = [path for path in everywhere if path[0] == "parts"] or everywhere
    change_value(about, in_parts if rng.random() < 0.8 else everywhere, rng)


def change_value(about: Any, places: list[tuple], rng: Rng) -> None:
    *outer, last = chosen(places, rng)
    holder: Any = about
    for key in outer:
        holder = holder[key]
    how = rng.random()
    if how < 0.1:
        del holder[last]
    elif how < 0.2 and isinstance(holder, dict):
        holder[str(chosen([f"{last}s", "", "form", "array", "tfidf", "tfidf-2", "words", "n_labels"], rng))] = (
            holder.pop(last)
        )
    elif how < 0.3:
        *outer, other = chosen(places, rng)
        source: Any = about
        for key in [*outer, other]:
            source = source[key]
        holder[last] = copy.deepcopy(source)
    elif how < 0.5 and isinstance(holder[last], (int, float)) and not isinstance(holder[last], bool):
        holder[last] += chosen([-1, 1, 0.5, 10], rng)
    elif how < 0.6 and isinstance(holder[last], str) and holder[last].startswith("{"):  # an encoder's configuration
        inner = json.loads(holder[last])
        inner[chosen([*sorted(inner), "more"], rng)] = chosen(ODD, rng)
        holder[last] = json.dumps(inner)
    else:
        holder[last] = copy.deepcopy(chosen(ODD, rng))  # or a later case would change what others are given


def change_array(arrays: dict[str, np.ndarray], rng: Rng) -> None:
    """Some numbers of one array become others; or its size, shape, type or name does."""
    name = chosen(sorted(arrays), rng)
    array, how = arrays[name].copy(), rng.random()
    if how < 0.6:
        change_numbers(array, rng)
    elif how < 0.7:
        array = array[: int(rng.integers(len(array) + 1))] if array.ndim else array
    elif how < 0.75:
        array = np.concatenate([array, array]) if array.ndim else array
    elif how < 0.8:
        array = array.reshape(chosen([(-1,), (1, -1), (-1, 1)], rng))
    elif how < 0.85:
        with np.errstate(all="ignore"):
            array = array.astype(chosen(TYPES, rng))
    elif how < 0.9:
        array = arrays[chosen(sorted(arrays), rng)].copy()
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
            array.flat[int(rng.integers(array.size))] = np.asarray(chosen(odd, rng)).astype(array.dtype)


def flip(content: bytes, rng: Rng, end: int | None = None) -> bytes:
    changed = np.frombuffer(content, np.uint8).copy()
    for _ in range(int(rng.integers(1, 4))):
        changed[int(rng.integers(end or len(changed)))] = rng.integers(256)
    return changed.tobytes()


def change_design(about: dict[str, Any], rng: Rng) -> None:
    """What an encoder's configuration says."""
    design = about["parts"]["model"]["network"]["design"]
    said = json.loads(design["encoder"])
    name = chosen(sorted(said), rng)
    is_number = isinstance(said[name], (int, float)) and rng.random() < 0.5
    said[name] = said[name] + chosen([-1, 1, 0.5, -2, 1000], rng) if is_number else chosen(ODD, rng)
    design["encoder"] = json.dumps(said)


def change_tokenizer(arrays: dict[str, np.ndarray], rng: Rng) -> None:
    name = "views.subwords.json"
    said = json.loads(arrays[name].tobytes())
    if rng.random() < 0.3:
        whole = charsmap()
        content = chosen([rng.bytes(40), whole, flip(whole, rng), flip(whole, rng, 12), whole[:-1]], rng)
        said["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}
    else:
        change_value(said, [path for path in paths(said) if path], rng)
    content = json.dumps(said).encode()
    arrays[name] = np.frombuffer(flip(content, rng) if rng.random() < 0.1 else content, np.uint8)


def write_damaged(folder: Path, name: str, rng: Rng) -> None:
    about, arrays = model(name)
    about, arrays, how = copy.deepcopy(about), dict(arrays), rng.random()
    if name in ENCODERS and rng.random() < 0.6:
        change_design(about, rng) if how < 0.7 else change_tokenizer(arrays, rng)
        how = 0.81
    elif how < 0.4:
        for _ in range(int(rng.choice([1, 1, 2]))):
            change_about(about, rng)
    elif how < 0.8:
        for _ in range(int(rng.choice([1, 1, 2]))):
            change_array(arrays, rng)
    content = save(arrays)
    if how > 0.85:
        header = 8 + int.from_bytes(content[:8], "little")
        content = flip(content, rng, header if rng.random() < 0.6 else None)
    if isinstance(about.get("files"), dict):
        about["files"] = {"arrays.safetensors": {"bytes": len(content), "sha256": ""}}
    said = json.dumps(about).encode()
    if 0.82 <= how <= 0.85:
        said = flip(said, rng)
    (folder / "arrays.safetensors").write_bytes(content)
    (folder / "about.json").write_bytes(said)
    shutil.copyfile(home() / name / "history.jsonl", folder / "history.jsonl")


def case(seed: int, number: int) -> None:
    rng = np.random.default_rng([seed, number])
    name = chosen(names(), rng)
    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        write_damaged(Path(place), name, rng)
        use(place, name)


def use(folder: str | Path, name: str) -> None:
    """As commands do: what it is, answers, explanations."""
    from xmtc.base.run import Run
    from xmtc.data.document import Document
    from xmtc.tagger import Tagger

    one = Run(threads=1, device="cpu")
    tagger = Tagger.load(folder)
    repr(tagger), json.dumps(tagger.about)
    if name == "columns":
        row = np.array([0, 3, 11], np.int32), np.ones(3, np.float32)
        answers = tagger.named(tagger.rank([Document("1", "", [], row)], 3, one))
    else:
        answers = tagger.tags(TEXTS, 3, run=one)
    for tags in answers:
        for label, score in tags:
            assert isinstance(label, str)
            assert 0 <= score <= 1.001, f"the score is {score}"
    if name != "columns":
        for highlight in tagger.highlight(TEXTS[0], k=1, run=one):
            weights = [piece.weight for piece in highlight.pieces] + [weight for _, weight in highlight.words]
            assert np.isfinite(weights).all(), f"the weights are {weights}"
    if name != "columns":
        measured = tagger.evaluate(documents()[:3], ["P@1", "PSP@1"], run=one)
        assert np.isfinite([*measured.values()]).all(), measured


if __name__ == "__main__":
    if HOME in os.environ:
        cases.main(__file__, case, __doc__)
    else:
        with tempfile.TemporaryDirectory(prefix="campaign-models-") as place:
            cases.main(__file__, case, __doc__, {HOME: place, "XDG_CACHE_HOME": place})
