"""Rank-AE as it was published: a preset for each data set of its Table 1.

From the paper, sections 2.3, 2.4 and 3.1: word vectors of 100 numbers (C), r = 4, a hidden space of 100 numbers where
labels are few and of 200 where they are many, two layers in E and in D and one in F, words averaged, the sums of eqs. 3
and 4 over outputs between 0 and 1 with a margin in [0, 1], GloVe where words are known, all documents trained on.

The paper says nothing of the inner layers' width, the batch and the length of training, and tunes λ, m, the rate and
its decay without saying what they came to. Width, batch, rate and λ are those that a student re-implementation had from
the authors, where it names any, and those of EUR-Lex elsewhere; m = 1 is what the paper gives labels without noise;
the rate does not decay, and 60 passes are ours. What the authors are said to have used besides, against the paper
(other widths, a margin of 10 on outputs of any size, batch normalisation), is a preset of its own, NAME-authors.
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
