"""Choice of the analyzer for `analyzer=auto`: checkpoints, reports and stability."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import invoke

from xmtc import Classifier
from xmtc.core.run import Run


def make_inflected_corpus(n_docs: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Return texts whose words are a root and one of many endings; only the root determines the label."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("aeioukstpnlmr"))
    roots = ["".join(np.random.default_rng(i).choice(letters, 6)) for i in range(40)]

    def inflect(root: str) -> str:
        return root + "".join(rng.choice(letters, rng.integers(2, 5)))

    numbers = rng.integers(0, 40, n_docs)
    texts = [" ".join(inflect(roots[j]) for j in (i, (i * 7) % 40)) for i in numbers]
    return texts, [[f"label-{i}"] for i in numbers]


@pytest.fixture(scope="module")
def corpus() -> tuple[list[str], list[list[str]]]:
    return make_inflected_corpus(1500, seed=0)


def test_first_run_with_a_checkpoint_succeeds(corpus, tmp_path):
    lines = (json.dumps({"text": text, "labels": labels}) for text, labels in zip(*corpus, strict=True))
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    command = ["train", "corpus.jsonl", "-m", "parabel", "--checkpoint", "pieces", "--threads", "1"]
    done = invoke(*command, "-o", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "model" / "about.json").read_text())["chosen"]["analyzer"] == "chars"
    assert not (tmp_path / "pieces").exists()


def test_choice_is_an_attribute_and_a_log_line(caplog):
    with caplog.at_level("INFO", "xmtc"):
        classifier = Classifier(calibrate=False, min_df=1).fit(
            ["a cat", "a dog"], [["cat"], ["dog"]], run=Run(threads=1)
        )
    assert classifier.analyzer_ == "words"
    assert "analyzer=words: 2 documents are too few to compare analyzers; 1,000 are needed." in caplog.messages
