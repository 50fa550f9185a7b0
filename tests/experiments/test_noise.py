"""Label noise: exact rates, no other changes, and the same bytes for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array
from test_data_commands import FISH, SPARSE
from typer.testing import CliRunner

from experiments import noise
from experiments.__main__ import app
from experiments.noise import NOISE_KINDS, add_label_noise, write_noisy_corpus
from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError

N_DOCS, N_LABELS = 20_000, 60


def call(*arguments: object):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def labels(n_docs: int = N_DOCS, n_labels: int = N_LABELS, density: float = 0.05) -> csr_array:
    Y = csr_array(random_array((n_docs, n_labels), density=density, format="csr", rng=np.random.default_rng(7)))
    Y.data[:] = 1
    return Y.astype(np.float32)


def removed_and_added(before: csr_array, after: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of removed and added labels, shape (n_docs, n_labels)."""
    was, now = before.toarray() > 0, after.toarray() > 0
    return was & ~now, now & ~was


def assert_rate(found: int, n: int, rate: float) -> None:
    """Assert that a count is within five standard deviations of a binomial mean."""
    assert abs(found - n * rate) < 5 * np.sqrt(n * rate * (1 - rate))


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_missing_removes_labels_at_the_rate(rate: float) -> None:
    Y = labels()
    removed, added = removed_and_added(Y, add_label_noise(Y, rate, "missing", seed=1))
    assert_rate(removed.sum(), Y.nnz, rate)
    assert not added.any()


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_swap_replaces_each_removed_label_by_a_wrong_one(rate: float) -> None:
    Y = labels()
    removed, added = removed_and_added(Y, add_label_noise(Y, rate, "swap", seed=1))
    assert_rate(removed.sum(), Y.nnz, rate)
    np.testing.assert_array_equal(added.sum(axis=1), removed.sum(axis=1))


def test_swap_nearly_keeps_label_frequencies() -> None:
    rng = np.random.default_rng(0)
    popular = rng.random((N_DOCS, N_LABELS)) < 0.3 / np.arange(1, N_LABELS + 1)
    before = popular.sum(axis=0)
    after = add_label_noise(csr_array(popular.astype(np.float32)), 0.5, "swap").sum(axis=0)
    # a very frequent label cannot return to documents that had it, so it becomes less frequent
    np.testing.assert_allclose(after[5:], before[5:], rtol=0.35)
    assert after[-10:].sum() < 2 * before[-10:].sum()


def test_swap_adds_only_labels_that_occur() -> None:
    Y = csr_array(np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0]], np.float32))
    after = add_label_noise(Y, 1.0, "swap").toarray()
    np.testing.assert_array_equal(after[:, 3], 0)  # a column without documents is not added
    np.testing.assert_array_equal(after[0], [0, 0, 1, 0])  # two removed, only one other label occurs
    np.testing.assert_array_equal(after[1], [0, 0, 0, 0])
    assert after[2].sum() == 1


def test_swap_finds_the_last_rare_label() -> None:
    Y = csr_array(np.array([[1, 0]] * 5000 + [[0, 1]], np.float32))
    after = add_label_noise(Y, 1.0, "swap").toarray()
    np.testing.assert_array_equal(after, [[0, 1]] * 5000 + [[1, 0]])


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_flip_changes_every_cell_at_the_rate(rate: float) -> None:
    Y = labels()
    removed, added = removed_and_added(Y, add_label_noise(Y, rate, "flip", seed=1))
    assert_rate(removed.sum(), Y.nnz, rate)
    assert_rate(added.sum(), N_DOCS * N_LABELS - Y.nnz, rate)
    per_label = added.sum(axis=0) / (N_DOCS - Y.sum(axis=0))
    assert np.abs(per_label - rate).max() < 5 * np.sqrt(rate * (1 - rate) / (N_DOCS * 0.9))


def test_flip_rejects_too_many_labels() -> None:
    message = (
        "Flipping 0.1 of 1,000,000 documents × 10,000 labels would add 1,000,000,000 labels, expected at most "
        "100,000,000; choose a lower rate, or swap."
    )
    with pytest.raises(XmtcError) as error:
        add_label_noise(csr_array((1_000_000, 10_000), dtype=np.float32), 0.1, "flip")
    assert str(error.value) == message


@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_noise_depends_on_seed_and_rate(kind: str) -> None:
    Y = labels(500)
    one, again, other = (add_label_noise(Y, 0.3, kind, seed).toarray() for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    np.testing.assert_array_equal(add_label_noise(Y, 0, kind).toarray(), Y.toarray())
    lower, higher = (removed_and_added(Y, add_label_noise(Y, rate, kind, seed=3))[0] for rate in (0.2, 0.5))
    assert (lower <= higher).all()  # a higher rate includes the changes of a lower one
    if kind != "flip":
        missing, this = (removed_and_added(Y, add_label_noise(Y, 0.4, each, seed=3))[0] for each in ("missing", kind))
        np.testing.assert_array_equal(missing, this)


@given(
    st.lists(st.sets(st.integers(0, 6)), max_size=12),
    st.sampled_from(NOISE_KINDS),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_noisy_matrix_is_a_valid_label_matrix(documents: list[set[int]], kind: str, rate: float, seed: int) -> None:
    Y = csr_array((len(documents), 7), dtype=np.float32).tolil()
    for row, labels in enumerate(documents):
        Y[row, sorted(labels)] = 1
    Y = csr_array(Y)
    after = add_label_noise(Y, rate, kind, seed)
    assert after.shape == Y.shape
    assert after.dtype == Y.dtype
    assert after.has_canonical_format
    assert (after.data == 1).all()
    if kind == "missing":
        assert not removed_and_added(Y, after)[1].any()


def test_rate_1_removes_all_labels() -> None:
    Y = labels(50)
    assert add_label_noise(Y, 1.0, "missing").nnz == 0
    np.testing.assert_array_equal(add_label_noise(Y, 1.0, "flip").toarray(), 1 - Y.toarray())


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Return documents with the labels of a matrix, in random order."""
    path, rng = tmp_path / "corpus.jsonl", np.random.default_rng(0)
    lines = []
    for doc in range(300):
        labels = [f"l{label}" for label in rng.permutation(9)[: rng.integers(0, 4)]]
        lines.append(f'{{"id": "d{doc}", "text": "text {doc}", "labels": {labels!r}}}\n'.replace("'", '"'))
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_noise_of_a_corpus_equals_noise_of_its_matrix(kind: str, corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "noisy.csv"
    done = write_noisy_corpus(open_corpus(corpus), str(target), 0.4, kind, seed=5)
    before, after = list(open_corpus(corpus)), list(open_corpus(target))
    assert [(d.id, d.text) for d in after] == [(d.id, d.text) for d in before]
    Y, found = (
        csr_array([[f"l{i}" in d.labels for i in range(9)] for d in each], dtype=np.float32) for each in (before, after)
    )
    np.testing.assert_array_equal(found.toarray(), add_label_noise(Y, 0.4, kind, seed=5).toarray())
    removed, added = removed_and_added(Y, found)
    assert (done.n_docs, done.n_labels, done.n_removed, done.n_added) == (300, Y.nnz, removed.sum(), added.sum())
    assert done.n_unlabelled == sum(bool(b.labels) and not a.labels for b, a in zip(before, after, strict=True))
    assert (done.n_unlabelled > 0) == (kind != "swap")
    for was, now in zip(before, after, strict=True):
        kept = [label for label in was.labels if label in now.labels]
        assert now.labels[: len(kept)] == kept  # in their order, added labels at the end


def test_noise_is_reported_and_reproducible(corpus: Path, tmp_path: Path) -> None:
    one, two, other = (tmp_path / f"{name}.jsonl" for name in ("one", "two", "other"))
    said = call("noise", corpus, one, "--rate", 0.5, "--kind", "swap", "--seed", 4).stderr
    call("noise", corpus, two, "--rate", 0.5, "--kind", "swap", "--seed", 4)
    call("noise", corpus, other, "--rate", 0.5, "--kind", "swap", "--seed", 5)
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()
    done = write_noisy_corpus(open_corpus(corpus), str(two), 0.5, "swap", seed=4)
    assert said == (
        f"300 documents written to {one}: {done.n_removed} of {done.n_labels} labels removed, {done.n_added} wrong "
        f"labels added; {done.n_unlabelled} documents without labels.\n"
    )


def test_features_are_not_changed(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text(SPARSE)
    call("noise", tmp_path / "c.txt", tmp_path / "noisy.txt", "--rate", 1)
    assert (tmp_path / "noisy.txt").read_text() == "3 9 4\n 1:1 8:2\n 1:1 8:2\n 3:1\n"
    call("noise", tmp_path / "c.txt", tmp_path / "noisy.txt", "--rate", 1, "--kind", "flip")
    assert (tmp_path / "noisy.txt").read_text() == "3 9 4\n 1:1 8:2\n0 1:1 8:2\n0,1 3:1\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["out.jsonl", "--rate", 1.5], "rate=1.5 is out of range; expected a number from 0 to 1."),
        (["out.jsonl", "--rate", -0.1], "rate=-0.1 is out of range; expected a number from 0 to 1."),
        (["out.jsonl", "--rate", "nan"], "rate=nan is out of range; expected a number from 0 to 1."),
        (["out.jsonl", "--rate", 0.5, "--kind", "x"], "kind='x' is unknown; expected one of missing, swap, flip."),
        (["fish.jsonl", "--rate", 0.5], "fish.jsonl is part of the corpus that is read, expected another file; "),
    ],
)  # fmt: skip
def test_invalid_noise_is_rejected(
    options: list, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fish.jsonl").write_text(FISH, encoding="utf-8")
    with pytest.raises(XmtcError) as error:
        call("noise", "fish.jsonl", *options)
    assert str(error.value).startswith(message)
    assert [path.name for path in tmp_path.iterdir()] == ["fish.jsonl"]
    assert Path("fish.jsonl").read_text(encoding="utf-8") == FISH


def test_changed_corpus_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fish.jsonl"
    path.write_text(FISH, encoding="utf-8")

    def shortened(*arguments) -> csr_array:
        path.write_text(FISH.partition("\n")[0] + "\n", encoding="utf-8")
        return add_label_noise(*arguments)

    monkeypatch.setattr(noise, "add_label_noise", shortened)
    with pytest.raises(XmtcError, match=r"changed while it was read; nothing was written. Run the command again"):
        write_noisy_corpus(open_corpus(path), str(tmp_path / "out.jsonl"), 0.5)
    assert not (tmp_path / "out.jsonl").exists()
