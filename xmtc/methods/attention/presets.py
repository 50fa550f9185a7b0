"""Settings of AttentionXML and XML-RNN in the papers, by data set."""

from __future__ import annotations

from typing import Any

from xmtc.core.hyperparameters import Presets

PAPER_VECTORS = "GloVe 840B"  # in no package; -p vectors=FILE

# Settings of both papers. 5% of the documents, at most 4,000, are held out; for the two smallest data sets, 200 as in
# the authors' code.
SHARED_SETTINGS: dict[str, Any] = {
    "dimension": 300, "corpus_dimension": 0, "dropout": 0.5, "rate": 0.001, "decay": 1.0, "loss": "mean",
    "init": "xavier", "own_output": False, "minutes": 0.0, "max_tokens": 500, "max_words": 500_000, "lowercase": True,
    "held_out": 0.05, "whole_word_dropout": 0.0,
}  # fmt: skip
SMALL_NETWORK = {"hidden": 256, "layers": (256,)}
LARGE_NETWORK = {"hidden": 512, "layers": (512, 256)}

# NeurIPS 2019. Word dropout, clipping, averaging, validation interval and frozen vectors are from the authors' code.
# average_over=0 is an infinite window: all weights since average_from have the same share (SWA).
WEIGHT_AVERAGING = {"average_every": 100, "average_over": 0, "look_every": 100, "patience": 50}
NEURIPS_2019 = SHARED_SETTINGS | WEIGHT_AVERAGING | {"word_dropout": 0.2, "clips": True}
NEURIPS_2019_SMALL = NEURIPS_2019 | SMALL_NETWORK | {"train_vectors": False, "batch": 40, "epochs": 30, "height": 0}
NEURIPS_2019_LARGE = NEURIPS_2019 | LARGE_NETWORK | {"train_vectors": True, "batch": 200}
NEURIPS_2019_TREE = NEURIPS_2019_LARGE | {"height": 3, "arity": 8, "candidates": 160}

# The first version, arXiv 2018: flat, without averaging, with its "Experimental Settings". It does not specify initial
# weights and text lengths; these are from the authors' later code.
ARXIV_2018 = SHARED_SETTINGS | {
    "train_vectors": True,
    "word_dropout": 0.0,
    "clips": False,
    "batch": 40,
    "height": 0,
    "look_every": 0,
}
ARXIV_2018_SMALL = ARXIV_2018 | SMALL_NETWORK | {"epochs": 50, "average_from": 50, "patience": 5}
ARXIV_2018_LARGE = ARXIV_2018 | LARGE_NETWORK | {"epochs": 10, "average_from": 10, "patience": 5}

ATTENTION_XML_PRESETS: Presets = {
    "EUR-Lex": NEURIPS_2019_SMALL | {"average_from": 10, "held_out": 0.01295},
    "Wiki10-31K": NEURIPS_2019_SMALL | {"average_from": 4, "held_out": 0.01414},
    "AmazonCat-13K": NEURIPS_2019_LARGE | {"epochs": 10, "average_from": 2, "height": 0},
    "Amazon-670K": NEURIPS_2019_TREE | {"epochs": 10, "average_from": 6, "average_below": 2},
    "Wiki-500K": NEURIPS_2019_LARGE
    | {"epochs": 5, "average_from": 2, "average_below": 1, "height": 1, "arity": 64, "candidates": 15},
    "Amazon-3M": NEURIPS_2019_TREE | {"epochs": 5, "average_from": 2, "average_below": 1},
    "RCV1": ARXIV_2018_SMALL,
    "EUR-Lex-2018": ARXIV_2018_SMALL,
    "Wiki10-31K-2018": ARXIV_2018_SMALL,
    "WikiLSHTC-325K": ARXIV_2018_LARGE,
    "AmazonCat-13K-2018": ARXIV_2018_LARGE,
}

# "the same settings as AttentionXML (with a max pooling instead of attention mechanism)", first version
FIRST_VERSION = ("RCV1", "EUR-Lex-2018", "Wiki10-31K-2018", "WikiLSHTC-325K", "AmazonCat-13K-2018")
ATTENTION_ONLY = {"height", "own_output"}
XML_RNN_PRESETS: Presets = {
    name: {key: value for key, value in ATTENTION_XML_PRESETS[name].items() if key not in ATTENTION_ONLY}
    for name in FIRST_VERSION
}
