"""Raw scores of models and of their held-out twins, for a comparison of calibrators by score band.

Writes FOLDER/CORPUS-SIZE-METHOD.npz with the scores and hits of these parts: held-out (each of ten folds of the
training documents, scored by a twin trained on the other nine; one fold if the training set is whole), rest (training
documents that are not in the sample), dev and test.

python experiments/calibration_bands.py /tmp/cal cve-libraries makupalat-fi
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
from common import CORPORA
from scipy.sparse import csr_array

from xmtc import features
from xmtc.core.dataset import Dataset
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.data.splits import drop_rows, sample_labelled_rows
from xmtc.evaluation import RankedResults
from xmtc.methods.ensemble.combination_rules import NOISY_OR, combine_predictions
from xmtc.methods.ensemble.members import fit_on_seen_labels
from xmtc.methods.ensemble.model import MIN_MEMBER_LABELS
from xmtc.pipeline import Pipeline, TrainingData
from xmtc.scores.calibration import HELD_OUT_FRACTION, MAX_HELD_OUT_DOCUMENTS

METHODS = ("parabel", "dismec", "plt")  # and the consensus of the first two
CONSENSUS = "consensus"
SIZES = (1000, 2000, 3000, 0)  # 0: all training documents
FOLDS = 10
MAX_DOCUMENTS = 4000  # of rest, dev and test
ANALYZERS = {"makupalat-fi": "grams"}  # words elsewhere, as analyzer=auto chooses
DEPTH = MIN_MEMBER_LABELS


def find_part(corpus: str, part: str) -> Path | None:
    return next(iter((CORPORA / corpus).glob(f"{part}.*.gz")), None)


def draw(documents: list[Document], n_docs: int, seed: int) -> list[Document]:
    order = np.random.default_rng(seed).permutation(len(documents))[:n_docs]
    return [documents[i] for i in order]


def read_parts(corpus: str, size: int) -> dict[str, list[Document]]:
    parts = {}
    for part in ("train", "dev", "test"):
        if path := find_part(corpus, part):
            parts[part] = [document for document in open_corpus(str(path)) if document.labels]
    if size:
        shuffled = draw(parts["train"], len(parts["train"]), seed=size)
        parts["train"], parts["rest"] = shuffled[:size], shuffled[size : size + MAX_DOCUMENTS]
    return {
        part: documents if part == "train" else draw(documents, MAX_DOCUMENTS, seed=1)
        for part, documents in parts.items()
    }


def choose_folds(data: Dataset, is_sample: bool) -> list[np.ndarray]:
    if not is_sample:
        return [sample_labelled_rows(data, 0, HELD_OUT_FRACTION, MAX_HELD_OUT_DOCUMENTS)]
    return [np.sort(rows) for rows in np.array_split(np.random.default_rng(0).permutation(data.n_docs), FOLDS)]


def transform(prepared: TrainingData, documents: list[Document], run: Run) -> tuple[Dataset, csr_array, np.ndarray]:
    collector = LabelCollector()
    data = features.transform(prepared.fitted_views, collector.collect(documents), run)
    known = features.mark_known_documents(prepared.fitted_views, data)
    return data, collector.to_matrix(prepared.labels.words()), known


def store_scores(corpus: str, size: int, folder: Path, run: Run) -> None:
    """Write the scores and hits of each method and part to FOLDER/CORPUS-SIZE-METHOD.npz."""
    if (folder / f"{corpus}-{size}-{CONSENSUS}.npz").exists():
        return
    parts = read_parts(corpus, size)
    pipeline = Pipeline.from_parameters("parabel", parameters={"analyzer": ANALYZERS.get(corpus, "words")})
    prepared = pipeline.prepare(parts.pop("train"), run)
    data = prepared.data
    k = min(DEPTH, data.n_labels)
    folds = choose_folds(data, bool(size))
    held_out = np.concatenate(folds)
    fold_numbers = np.repeat(np.arange(len(folds)), [len(rows) for rows in folds])
    others = {part: transform(prepared, documents, run) for part, documents in parts.items()}
    assert data.Y is not None
    truth = {"held-out": data.Y[held_out], **{part: Y for part, (_, Y, _) in others.items()}}
    found: dict[str, dict[str, Predictions]] = {}
    for name in METHODS:
        start = perf_counter()
        method = Pipeline.from_parameters(name).method
        twins = [fit_on_seen_labels(method, drop_rows(data, rows), None, run) for rows in folds]
        answers = [twin.predict(data.select_rows(rows), k, run) for twin, rows in zip(twins, folds, strict=True)]
        model = method.fit(data, None, run)
        found[name] = {"held-out": concatenate(answers)} | {
            part: model.predict(documents, k, run).mask_documents(known)
            for part, (documents, _, known) in others.items()
        }
        print(corpus, size, name, f"{perf_counter() - start:.0f} s", flush=True)
    members = [found["dismec"], found["parabel"]]
    found[CONSENSUS] = {
        part: combine_predictions([member[part] for member in members], NOISY_OR, data.n_labels, k) for part in truth
    }
    for name, answers_by_part in found.items():
        arrays = {"folds": fold_numbers}
        for part, predictions in answers_by_part.items():
            arrays[f"{part} scores"] = np.where(predictions.labels == NO_LABEL, np.nan, predictions.scores)
            arrays[f"{part} hits"] = RankedResults(predictions, truth[part]).hits > 0
        np.savez_compressed(folder / f"{corpus}-{size}-{name}.npz", **arrays)


def concatenate(predictions: list[Predictions]) -> Predictions:
    width = max(answer.labels.shape[1] for answer in predictions)

    def widen(values: np.ndarray, fill: float) -> np.ndarray:
        return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=fill)

    return Predictions.from_valid_arrays(
        np.concatenate([widen(answer.labels, NO_LABEL) for answer in predictions]),
        np.concatenate([widen(answer.scores, 0) for answer in predictions]),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    given = parser.parse_args()
    for size in given.sizes:
        for corpus in given.corpora:
            store_scores(corpus, size, given.folder, Run(threads=1))
