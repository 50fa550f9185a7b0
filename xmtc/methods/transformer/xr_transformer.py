"""XR-Transformer: an encoder fine-tuned coarse to fine over a label tree, and linear classifiers on terms and vectors.

Paper: Zhang, Chang, Yu, Dhillon: Fast Multi-Resolution Transformer Fine-tuning for Extreme Multi-label Text
Classification (NeurIPS 2021), part of PECOS. Its forerunner is X-BERT (Chang et al., X-Transformer, KDD 2020).

Idea: labels are clustered to a tree. The encoder first learns to find the few nodes of the first level, then those of
each next level, starting from the weights before. Below the first level, a document is trained on its own nodes and on
the children of those nodes that the level above ranks highest (hard negatives). Last, linear classifiers of the same
tree read tf-idf and the vectors of the encoder side by side.

Differs from the paper: the weights of a level's nodes start at the directions of their documents' vectors, not at
linear classifiers trained on them; losses are not weighted by the number of labels below a node; there is one encoder,
not the mean of three; documents are held out, and the pass of each level with the best nDCG@5 is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.data.splits import VALIDATION_SHARE
from xmtc.features.encoders.model_loader import choose_pooling, load_encoder
from xmtc.features.encoders.sentence_vectors import encode_tokens, restore_encoder, store_encoder
from xmtc.labels.tree import LabelTree
from xmtc.linear.model import TreeModel
from xmtc.methods.attention.level_training import (
    SUM,
    LevelData,
    build_children_table,
    predict_training_candidates,
    train_level,
)
from xmtc.methods.attention.model import predict_level
from xmtc.methods.label_tree.base import ARITIES
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.transformer.xr_model import XRTransformerModel, get_subwords, join_terms_and_vectors
from xmtc.methods.transformer.xr_network import LevelNetwork, compute_initial_weights, squared_hinge
from xmtc.nn.batches import TokenLoader
from xmtc.nn.devices import select_device, use_torch_settings
from xmtc.nn.text_encoder import TextEncoder
from xmtc.nn.training import HELD_OUT_HELP, TrainingOptions, prepare_training, select_stopping_rows


@dataclass(frozen=True)
class XRTransformer(Method):
    """Encoder fine-tuned over the levels of a label tree, with linear classifiers (Zhang et al., NeurIPS 2021).

    Examples
    --------
    >>> from xmtc.methods import XRTransformer
    >>> XRTransformer(max_leaf=50).required_views
    ('tfidf', 'subwords')
    """

    required_views: ClassVar[tuple[str, ...]] = ("tfidf", "subwords")
    view_defaults: ClassVar[dict[str, Any]] = {"encoder": "minilm-l6", "max_subwords": 128}
    is_exact: ClassVar[bool] = False
    quick_parameters: ClassVar[dict[str, Any]] = {
        "max_subwords": 40, "max_leaf": 8, "arity": 4, "epochs": 2, "encoder_rate": 1e-3, "head_rate": 1e-2,
    }  # fmt: skip

    max_leaf: int = param(100, "Maximum number of labels in a leaf.", low=1, search=(20, 500), log=True)
    arity: int = param(16, "Maximum number of children of an inner node.", choices=ARITIES)
    max_nodes: int = param(
        32_768, "Maximum number of nodes of a level that the encoder is trained on; 0 keeps the encoder.", low=0
    )
    candidates: int = param(20, "Nodes of a level whose children are candidates in the next level.", low=1)
    epochs: int = param(2, "Number of passes over the documents in each level.", low=1)
    batch: int = param(32, "Batch size (documents per step).", low=1)
    encoder_rate: float = param(
        5e-5, "Learning rate of the encoder.", low=0.0, high=10.0, search=(1e-5, 2e-4), log=True
    )
    head_rate: float = param(5e-3, "Learning rate of the nodes.", low=0.0, high=10.0)
    clip: float = param(1.0, "Maximum gradient norm.", low=1e-6, high=1e9)
    held_out: float = param(VALIDATION_SHARE, HELD_OUT_HELP, low=0.0, high=0.9)
    patience: int = param(3, "Epochs without a better nDCG@5 before the training of a level stops.", low=1)
    minutes: float = param(0.0, "Minutes after which no further epoch of a level begins; 0 sets no limit.", low=0.0)
    vector_share: float = param(
        0.5, "Share of the encoder's vector in the squared length of a row.", low=0.001, high=0.999
    )
    C: float = param(1.0, "Weight C of the loss of the linear classifiers.", low=1e-6, high=1e9, log=True)
    min_weight: float = param(0.01, "Pruning threshold of the linear classifiers.", low=0.0, high=1e9)
    match_negatives: bool = param(
        True, "Matcher-aware negatives: nodes are also trained on documents that the levels above route to them."
    )
    beam: int = param(10, "Beam width of the search; 0 searches exhaustively.", low=0)
    seed: int = param(0, "Seed of all random numbers.", low=0, high=2**32 - 1)

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        return select_stopping_rows(data, self.seed, self.held_out)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> XRTransformerModel:
        data, valid, device = prepare_training(self, data, valid, run, seed=self.seed, share=self.held_out)
        (terms,) = (name for name in data.views if name != "subwords")
        ranker = self.make_ranker()
        tree = ranker.build_trees(data.keep_views([terms]), self.arity, run)[0]
        encoder = self.load_text_encoder(data, run, device)
        if self.max_nodes:
            self.fine_tune(encoder, tree, data, valid, run)
        stored = store_encoder(encoder.model, encoder.pooling)
        vectors = encode_tokens(restore_encoder(stored), get_subwords(data), run)
        joined = join_terms_and_vectors(data, vectors, self.vector_share)
        model = ranker.train(joined, [tree], run.for_part("ranker"))
        assert isinstance(model, TreeModel)
        return XRTransformerModel(
            n_labels=data.n_labels, views=data.sizes, encoder=stored, share=self.vector_share, ranker=model
        )

    def make_ranker(self) -> Parabel:
        """Return the method that builds the label tree and trains its linear classifiers."""
        return Parabel(
            n_trees=1,
            max_leaf=self.max_leaf,
            arity=self.arity,
            C=self.C,
            min_weight=self.min_weight,
            match_negatives=self.match_negatives,
            beam=self.beam,
            seed=self.seed,
        )

    def load_text_encoder(self, data: Dataset, run: Run, device: torch.device) -> TextEncoder:
        source = get_subwords(data).encoder
        with use_torch_settings(run, device, self.seed):
            model = load_encoder(source)
            return TextEncoder(model, choose_pooling(source, model)).to(device)

    def fine_tune(self, encoder: TextEncoder, tree: LabelTree, data: Dataset, valid: Dataset | None, run: Run) -> None:
        """Train the encoder on each level of the tree that has at most `max_nodes` nodes, coarse to fine."""
        device, tokens = select_device(run), get_subwords(data)
        loader, train_parents = TokenLoader(tokens, device), None
        valid_loader = None if valid is None else TokenLoader(get_subwords(valid), device)
        valid_parents: Predictions | None = None
        train_Y = tree.memberships(csr_array(data.Y))
        valid_Y = [None] * len(train_Y) if valid is None else tree.memberships(csr_array(valid.Y))
        for number, (edges, Y) in enumerate(zip(tree.levels, train_Y, strict=True)):
            if edges.shape[1] > self.max_nodes:
                return
            children = build_children_table(edges)
            weights = compute_initial_weights(encode_tokens(encoder, tokens, run), Y)
            network, level = LevelNetwork(encoder, weights), LevelData(loader, Y, train_parents)
            valid_level = None
            if valid_loader is not None:
                valid_level = LevelData(valid_loader, valid_Y[number], valid_parents)
            options = self.make_training_options(loader.n_docs, number)
            train_level(
                network, children, level, valid_level, options, batch=self.batch, loss_reduction=SUM, run=run,
                name=f"level-{number}", compute_loss=squared_hinge,
            )  # fmt: skip
            if number + 1 < len(tree.levels):
                train_parents = predict_training_candidates(network, children, level, self.candidates, run)
                if valid_loader is not None:
                    valid_parents = predict_level(network, children, valid_loader, valid_parents, self.candidates, run)

    def make_training_options(self, n_docs: int, level: int) -> TrainingOptions:
        """Return options with rates that fall linearly."""
        return TrainingOptions(
            epochs=self.epochs,
            rate=self.head_rate,
            average_from=self.epochs,  # no averaging
            average_every=1,
            patience=self.patience,
            seed=int(np.random.SeedSequence((self.seed, level)).generate_state(1)[0]),
            max_seconds=60 * self.minutes or inf,
            rates_by_prefix=(("encoder.", self.encoder_rate),),
            max_gradient_norm=self.clip,
            n_steps=self.epochs * ceil(n_docs / self.batch),
        )
