"""Compiles what the methods use, so that nobody's first training waits for it: `python -m xmtc.cli.warm`."""

from __future__ import annotations

import tempfile


def main() -> None:
    """Train and use every method that is installed on a few words. What is compiled is kept on disk."""
    from xmtc.classifier import Classifier
    from xmtc.methods import METHODS

    texts = [f"word{i} word{i % 7} common text" for i in range(40)]
    tags = [[f"a{i % 5}", f"b{i % 7}"] for i in range(40)]
    small = {"parabel": {"max_leaf": 4}, "bonsai": {"max_leaf": 4, "arity": 3}, "plt": {"max_leaf": 4}}
    for name in METHODS:
        classifier = Classifier(name, min_df=1, **small.get(name, {})).fit(texts, tags)
        with tempfile.TemporaryDirectory() as folder:
            classifier.save(f"{folder}/model")
            Classifier.load(f"{folder}/model").predict(texts[:1])
        classifier.predict(texts)


if __name__ == "__main__":
    main()
