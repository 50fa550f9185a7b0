"""Presets of Rank-AE for the data sets of Table 1 of its paper.

From the paper (sections 2.3, 2.4 and 3.1): word vectors of length C = 100, r = 4, a hidden space of size 100 for small
and 200 for large label sets, two layers in E and D and one in F, averaged words, the sums of eqs. 3 and 4 over outputs
in [0, 1] with a margin in [0, 1], GloVe vectors if words are known, training on all documents.

The paper does not state the width of the hidden layers, the batch size and the number of epochs, nor the tuned values
of λ, m, the learning rate and its decay. Width, batch size, learning rate and λ are those that a student
re-implementation received from the authors, or if it names none, those of EUR-Lex. m = 1 is the paper's value for
labels without noise. No decay and 60 epochs are our choice. The presets NAME-authors have the settings that the authors
reportedly used in deviation from the paper: other widths, a margin of 10 on unbounded outputs, and batch normalisation.
"""

from __future__ import annotations

from xmtc.core.hyperparameters import Presets

PAPER_EPOCHS = 60

PAPER_SETTINGS = {
    "channels": 100, "reduction": 4, "pooling": "mean", "hidden": 100, "batch_norm": False,
    "bounded": True, "margin": 1.0, "averaged": False, "balance": 1.0, "distance_weight": 1.0, "prediction_weight": 0.0,
    "spread": 1.0, "word_dropout": 0.0, "dropout": 0.0, "inner_dropout": 0.0, "weight_decay": 0.0,
    "layer": 800, "batch": 256, "rate": 1e-3, "schedule": "decay", "decay": 1.0,
    "epochs": PAPER_EPOCHS, "average_from": PAPER_EPOCHS, "held_out": 0.0,
}  # fmt: skip
GLOVE = {"vectors": "glove-100d"}
AUTHOR_SETTINGS = {"bounded": False, "margin": 10.0, "batch_norm": True}

PAPER_PRESETS: Presets = {
    "Delicious": PAPER_SETTINGS | {"layer": 120, "rate": 1e-2},
    "Mediamill": PAPER_SETTINGS | {"layer": 100, "batch": 1024},
    "RCV": PAPER_SETTINGS | {"hidden": 200, "layer": 600, "balance": 10.0},
    "IMDb": PAPER_SETTINGS | GLOVE,
    "EUR-Lex": PAPER_SETTINGS | GLOVE,
    "Wiki10": PAPER_SETTINGS | GLOVE | {"hidden": 200},
}
AUTHOR_PRESETS: Presets = {
    "Delicious-authors": PAPER_PRESETS["Delicious"] | AUTHOR_SETTINGS | {"reduction": 2, "hidden": 80},
    "Mediamill-authors": PAPER_PRESETS["Mediamill"] | AUTHOR_SETTINGS,
    "RCV-authors": PAPER_PRESETS["RCV"] | AUTHOR_SETTINGS | {"channels": 200},
    "EUR-Lex-authors": PAPER_PRESETS["EUR-Lex"] | AUTHOR_SETTINGS,
}
PRESETS = PAPER_PRESETS | AUTHOR_PRESETS
