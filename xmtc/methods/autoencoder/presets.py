"""Presets of Rank-AE: the method of its paper, for the data sets of its Table 1.

- From the paper (sections 2.3, 2.4 and 3.1): the two losses of eq. 1, the sums of eqs. 3 and 4 over outputs in [0, 1],
  a margin in [0, 1], word vectors of length C = 100, r = 4, a common space of size 100 for small and 200 for large
  label sets, two layers in E and D and one in F, training on all documents; GloVe vectors for IMDb, whose texts it
  reads. For EUR-Lex and Wiki10 it reads feature matrices; for texts, set `vectors`.
- Our reading: sets of more than 500 labels are large. The rows of M over which the paper averages are all n words of
  the vocabulary, so n is the same for all documents, and the constant 1 / n is left to the layer after the sum.
  `pooling=mean` divides by the number of words of each document, which is worse on Delicious.
- Tuned on a fifth of the training documents of Delicious (docs/results/papers.md), because the paper does not state
  them: margin, λ, learning rate, its schedule, weight decay, epochs, batch size, width of the hidden layers, batch
  normalisation, dropout of words. The other data sets are not available here and have the same values.
- From a student's re-implementation: the widths of the hidden layers for Mediamill, RCV and EUR-Lex, and the batch size
  of Mediamill. IMDb and Wiki10 have the width of EUR-Lex.
"""

from __future__ import annotations

from xmtc.core.hyperparameters import Presets

OF_PAPER = {
    "channels": 100, "reduction": 4, "hidden": 100, "bounded": True, "averaged": False, "distance_weight": 1.0,
    "prediction_weight": 0.0, "held_out": 0.0,
}  # fmt: skip
TUNED = {
    "margin": 0.2, "balance": 0.03, "rate": 3e-3, "schedule": "cosine", "weight_decay": 0.5, "epochs": 75,
    "batch": 128, "layer": 200, "batch_norm": True, "word_dropout": 0.2, "dropout": 0.0, "inner_dropout": 0.0,
    "spread": 1.0, "pooling": "sum",
}  # fmt: skip
PAPER = OF_PAPER | TUNED

LARGE = {"hidden": 200, "layer": 400}  # layer is tuned

PRESETS: Presets = {
    "paper": PAPER,
    "Delicious": PAPER | LARGE,
    "Mediamill": PAPER | {"layer": 100, "batch": 1024},
    "RCV": PAPER | LARGE | {"layer": 600},
    "IMDb": PAPER | {"layer": 800, "vectors": "glove-100d"},
    "EUR-Lex": PAPER | LARGE | {"layer": 800},
    "Wiki10": PAPER | LARGE | {"layer": 800},
}
