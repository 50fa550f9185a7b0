"""Compilation of all kernels ahead of the first training: `python -m xmtc.cli.precompile`."""

from __future__ import annotations

import logging
import tempfile


def main() -> None:
    """Train and apply every installed method on a tiny corpus, which fills the on-disk cache of numba."""
    from xmtc.classifier import Classifier
    from xmtc.errors import MissingExtra
    from xmtc.methods import METHODS, method_class

    logging.getLogger("xmtc").setLevel(logging.ERROR)  # the tiny corpus suits no method
    texts = [f"word{i} word{i % 7} common text" for i in range(40)]
    tags = [[f"a{i % 5}", f"b{i % 7}"] for i in range(40)]
    for name in METHODS:
        try:
            method = method_class(name)
        except MissingExtra:
            continue
        if not {"subwords", "dense"}.isdisjoint(method().required_views):
            continue  # needs an encoder, which may have to be downloaded, and has no kernels of its own
        classifier = Classifier(name, **method.quick_parameters).fit(texts, tags)
        with tempfile.TemporaryDirectory() as folder:
            classifier.save(f"{folder}/model")
            Classifier.load(f"{folder}/model").predict(texts[:1])
        classifier.predict(texts)
    Classifier(analyzer="words+chars").fit(texts, tags).predict(texts)  # not chosen automatically for this corpus


if __name__ == "__main__":
    main()
