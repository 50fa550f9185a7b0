"""Every command and option in the tables of the migration pages runs on files of the other tool."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from commands import invoke
from planted import N_LABELS, make_planted_corpus, planted_label
from scipy.sparse import csr_array, random_array, save_npz

from xmtc import Classifier

ROOT = Path(__file__).parents[2]
if not (ROOT / "docs").exists():
    pytest.skip("the pages are in the checkout alone", allow_module_level=True)

TEXTS, LABELS = make_planted_corpus(240, seed=0)
ANNIF_PAGE, OTHER_PAGE = "come-from-annif.md", "come-from-other-tools.md"
NOT_RUN = ("xmtc serve", "xmtc tune")  # services and searches have pages and tests of their own
URI = "http://example.org/{}".format


def read_last_column(page: str, section: str) -> Iterator[str]:
    """Yield the code in the last column of the tables of a section."""
    text = (ROOT / "docs/how-to" / page).read_text()
    body = re.split(r"^##? ", text, flags=re.MULTILINE)
    (chosen,) = [part for part in body if part.partition("\n")[0] == section]
    for row in re.findall(r"^\| (?!what|---)(.*) \|$", chosen, re.MULTILINE)[1:]:
        yield from re.findall(r"`([^`]+)`", row.rpartition(" | ")[2])


def make_features() -> tuple[csr_array, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    features = random_array((60, 30), density=0.2, format="csr", rng=rng)
    return features, [np.unique(rng.integers(0, 5, 2)) for _ in range(60)]


def write_omikuji() -> None:
    features, labels = make_features()
    lines = [f"{features.shape[0]} {features.shape[1]} 5", *iterate_svm(features, labels, first=0)]
    for name in ("train.txt", "test.txt"):
        Path(name).write_text("\n".join(lines) + "\n")


def write_pecos() -> None:
    features, labels = make_features()
    targets = csr_array([[float(label in own) for label in range(5)] for own in labels])
    save_npz("X.npz", features)
    save_npz("Y.npz", targets)


def write_napkinxc() -> None:
    Path("train.svm").write_text("\n".join(iterate_svm(*make_features(), first=1)) + "\n")


def iterate_svm(features: csr_array, labels: list[np.ndarray], first: int) -> Iterator[str]:
    for number, own in enumerate(labels):
        row = features[[number]]
        pairs = zip((row.indices + first).tolist(), row.data.tolist(), strict=True)
        yield " ".join([",".join(map(str, own)), *(f"{column}:{value:.4f}" for column, value in pairs)])


def write_libmultilabel() -> None:
    lines = [f"{i}\t{' '.join(own)}\t{text}\n" for i, (text, own) in enumerate(zip(TEXTS, LABELS, strict=True))]
    for name in ("train.txt", "valid.txt", "test.txt"):
        Path(name).write_text("".join(lines))


def write_fasttext() -> None:
    lines = [f"{' '.join(f'__label__{x}' for x in own)} {text}\n" for text, own in zip(TEXTS, LABELS, strict=True)]
    for name in ("train.ft", "test.ft"):
        Path(name).write_text("".join(lines))


def write_annif() -> None:
    import gzip

    rows = [f"{text}\t{' '.join(f'<{URI(x)}>' for x in own)}\n" for text, own in zip(TEXTS, LABELS, strict=True)]
    for name in ("train.tsv.gz", "dev.tsv.gz", "test.tsv.gz"):
        Path(name).write_bytes(gzip.compress("".join(rows).encode()))
    names = [planted_label(number) for number in range(N_LABELS)]
    skos = [f'<{URI(x)}> a skos:Concept ; skos:prefLabel "nimi {x}"@fi, "name {x}"@en .' for x in names]
    Path("yso-skos.ttl").write_text("\n".join(["@prefix skos: <http://www.w3.org/2004/02/skos/core#> .", *skos]))
    Path("text.txt").write_text(TEXTS[0])
    Path("folder").mkdir()
    Path("folder/one.txt").write_text(TEXTS[1])
    for name in ("a", "b"):
        assert invoke("train", "train.tsv.gz", "-o", name, "-q").returncode == 0


def run_command(command: str) -> None:
    """Run a command of a table; `< FILE` is its standard input."""
    words, _, source = command.partition(" < ")
    done = invoke(*shlex.split(words)[1:], input=Path(source).read_bytes() if source else None)
    assert done.returncode == 0, (command, done.stderr.decode())


def run_python(program: str, names: dict) -> None:
    """Run a line of Python; names that it assigns are kept."""
    features, labels = make_features()
    exec(program, {"Classifier": Classifier, "X": features, "Y": labels}, names)


@pytest.mark.parametrize(
    ("page", "section", "write_files"),
    [
        (OTHER_PAGE, "omikuji", write_omikuji),
        (OTHER_PAGE, "PECOS", write_pecos),
        (OTHER_PAGE, "napkinXC", write_napkinxc),
        (OTHER_PAGE, "LibMultiLabel", write_libmultilabel),
        (OTHER_PAGE, "fastText", write_fasttext),
        (ANNIF_PAGE, "Migrate from Annif", write_annif),
    ],
)
def test_commands_of_tables_run(page: str, section: str, write_files: Callable[[], None], tmp_path: Path) -> None:
    if page == ANNIF_PAGE:
        pytest.importorskip("rdflib", reason="the extra `vocab` is not installed")
    with chdir(tmp_path):
        write_files()
        train, names, runs = "", {}, 0
        for code in read_last_column(page, section):
            if code.startswith("xmtc train"):
                train = code
            if code.startswith("-"):  # options of the training above
                code = f"{train} {code} -o other"
            if code.startswith("xmtc ") and not code.startswith(NOT_RUN):
                run_command(code)
            elif not code.startswith("xmtc "):
                run_python(code, names)
            runs += 1
        assert runs > 1
