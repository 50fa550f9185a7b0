"""Compiles what the methods use, so that nobody's first training waits for it: `python -m xmtc.cli.warm`."""

from __future__ import annotations

import tempfile


def main() -> None:
    """Train and use every method that is installed on a few words. What is compiled is kept on disk."""
    from xmtc.classifier import Classifier
    from xmtc.errors import MissingExtra
    from xmtc.methods import METHODS

    texts = [f"word{i} word{i % 7} common text" for i in range(40)]
    tags = [[f"a{i % 5}", f"b{i % 7}"] for i in range(40)]
    network = {"hidden": 4, "layers": "4", "dimension": 4, "epochs": 1, "batch": 16}
    autoencoder = {"layer": 4, "epochs": 1, "batch": 16}
    small: dict[str, dict] = {
        "parabel": {"max_leaf": 4},
        "bonsai": {"max_leaf": 4, "arity": 3},
        "plt": {"max_leaf": 4},
        "attention_xml": {**network, "height": 1, "arity": 2},
        "xml_rnn": network,
        "rank_ae": autoencoder,
        "bce_ae": autoencoder,
        "c2ae": autoencoder,
        "consensus": {"methods": "parabel,plt"},
    }
    for name in METHODS:
        if name == "aplc_xlnet":  # takes an encoder, which may have to be fetched, and compiles nothing of its own
            continue
        try:
            classifier = Classifier(name, **small.get(name, {}))
        except MissingExtra:
            continue
        classifier.fit(texts, tags)
        with tempfile.TemporaryDirectory() as folder:
            classifier.save(f"{folder}/model")
            Classifier.load(f"{folder}/model").predict(texts[:1])
        classifier.predict(texts)


if __name__ == "__main__":
    main()
