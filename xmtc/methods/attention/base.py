"""Base class of AttentionXML and XML-RNN: training of one network per level of a label tree (Algorithm 3)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.labels.tree import LabelTree
from xmtc.methods.attention.level_training import (
    LOSSES,
    SUM,
    LevelData,
    build_children_table,
    predict_training_candidates,
    train_level,
)
from xmtc.methods.attention.model import VIEW, AttentionModel, RecurrentDesign, TreeLevel, predict_level
from xmtc.methods.attention.network import MultiLabelAttention, RecurrentNetwork, init_xavier
from xmtc.methods.attention.presets import PAPER_VECTORS
from xmtc.nn import distributed
from xmtc.nn.batches import TokenLoader
from xmtc.nn.devices import use_torch_settings
from xmtc.nn.initial_vectors import load_token_vectors
from xmtc.nn.method import WordNetworkMethod
from xmtc.nn.network import TrainedNetwork, Weights
from xmtc.nn.training import TrainingOptions, prepare_training
from xmtc.text.vector_packages import VECTOR_PACKAGES

INITS = APART, XAVIER = "apart", "xavier"
PRESET_HELP = "Data set of the papers whose settings replace the defaults of unset parameters."
MAX_DENSE_NODES = 50_000  # levels with more nodes use sparse gradients: a step updates only the candidates


@dataclass(frozen=True)
class RecurrentMethod(WordNetworkMethod):
    """Bidirectional LSTM over word vectors; a subclass defines the head, the label tree and the beam width.

    `minutes` limits the training of each level of the tree.
    """

    vectors: str = param(
        "",
        "Pretrained word vectors: a file (GloVe, word2vec, fastText), a package name or an encoder; several are joined "
        "by +; random if empty.",
    )
    dimension: int = param(100, "Length of random word vectors.", low=1)
    corpus_dimension: int = param(
        0, "Length of co-occurrence vectors of the corpus, appended to the word vectors.", low=0, high=10_000
    )
    train_vectors: bool = param(True, "Train the word vectors.")
    hidden: int = param(256, "Units of the LSTM in each direction.", low=1, search=(128, 256, 512))
    layers: tuple[int, ...] = param(
        (256,), "Sizes of the fully connected layers that all labels share, such as 512,256.", low=1
    )
    word_dropout: float = param(0.2, "Dropout rate of the word vectors.", low=0.0, high=0.99)
    whole_word_dropout: float = param(0.0, "Dropout rate of whole words.", low=0.0, high=0.99, search=(0.0, 0.4))
    dropout: float = param(0.5, "Dropout rate of the LSTM states.", low=0.0, high=0.99, search=(0.2, 0.7))
    init: str = param(
        APART,
        "Initial weights of the head: a fixed range that separates the attentions (apart), or Xavier as in the "
        "authors' code.",
        choices=INITS,
    )
    loss: str = param(SUM, "Reduction of the cross-entropy over labels: sum, or mean as in eq. 6.", choices=LOSSES)
    clips: bool = param(True, "Clip gradients relative to recent gradient norms.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers:
            raise XmtcError(f"{type(self).__name__}: layers=() is invalid; expected sizes such as 512,256.")
        if not (self.train_vectors or self.vectors or self.corpus_dimension):
            preset = getattr(self, "preset", "")
            source = f" (from preset={preset})" if preset else ""
            raise XmtcError(
                f"{type(self).__name__}: train_vectors=false{source} needs pretrained word vectors; set vectors to a "
                f"file or one of {', '.join(VECTOR_PACKAGES)} (see `xmtc pretrained list`), or train_vectors=true."
            )

    @property
    @abstractmethod
    def head_pooling(self) -> str:
        """Head of the network, one of POOLINGS."""

    @property
    @abstractmethod
    def n_candidates(self) -> int:
        """C: nodes of a level whose children are candidates in the next level."""

    @abstractmethod
    def build_label_tree(self, data: Dataset, run: Run) -> LabelTree:
        """Return the label tree, built from the training documents."""

    def check_paper_vectors(self) -> None:
        """Raise an error for a preset without word vectors, unless the length of random vectors is set.

        The constructor does not check this, because models that were trained without vectors must load.
        """
        preset, are_random = (
            getattr(self, "preset", ""),
            {"dimension", "corpus_dimension"} & set(self._explicit_names()),
        )
        if preset and not (self.vectors or are_random):
            raise XmtcError(
                f"{type(self).__name__}: preset={preset} starts from {PAPER_VECTORS} vectors of {self.dimension} "
                "numbers, but vectors is not set. Set vectors to their file, to other vectors "
                f"({', '.join(VECTOR_PACKAGES)}), or dimension={self.dimension} for random vectors."
            )

    def warn_of_other_vectors(self, dimension: int) -> None:
        """Log a warning if a preset trains with word vectors of another length than the paper's."""
        preset = getattr(self, "preset", "")
        if preset and dimension != (published := self.presets[preset]["dimension"]):
            logging.getLogger("xmtc").warning(
                "preset=%s has %s vectors of %s numbers in the paper; these have %s.",
                preset, PAPER_VECTORS, published, dimension,
            )  # fmt: skip

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> AttentionModel:
        self.check_paper_vectors()
        self.warn_of_small_corpus(data)
        vectors = load_token_vectors(data.tokens(VIEW), self.vectors, self.dimension, self.corpus_dimension, run)
        self.warn_of_other_vectors(vectors.shape[1])
        data, valid, device = prepare_training(
            self, data, valid, run, seed=self.seed, share=self.held_out, vectors=vectors
        )
        tree = self.build_label_tree(data, run)
        train_Y = tree.memberships(data.Y)
        valid_Y = [None] * len(tree.levels) if valid is None else tree.memberships(valid.Y)
        train_loader = TokenLoader(data.tokens(VIEW), device)
        valid_loader = None if valid is None else TokenLoader(valid.tokens(VIEW), device)

        # Algorithm 3: the network of each level is initialised from the level above.
        network, train_parents, valid_parents = None, None, None
        levels: list[TreeLevel] = []
        for level, (edges, Y, Y_valid) in enumerate(zip(tree.levels, train_Y, valid_Y, strict=True)):
            children, design = build_children_table(edges), self.build_design(vectors, n_labels=edges.shape[1])
            network = self.build_network(design, network, vectors, level, run, device)
            train_data, valid_data = LevelData(train_loader, Y, train_parents), None
            if valid_loader is not None:
                valid_data = LevelData(valid_loader, Y_valid, valid_parents)
            train_level(
                network, children, train_data, valid_data, self.make_level_options(level),
                batch=self.batch, loss_reduction=self.loss, run=run, name=f"level-{level}",
            )  # fmt: skip
            trained = TrainedNetwork(design=design, weights=Weights.from_network(network))
            levels.append(TreeLevel(network=trained, children=children))
            if level + 1 < len(tree.levels):
                C = self.n_candidates
                train_parents = predict_training_candidates(network, children, train_data, C, run)
                if valid_loader is not None:
                    valid_parents = predict_level(network, children, valid_loader, valid_parents, C, run)
        return AttentionModel(
            n_labels=data.n_labels, views=data.sizes, n_candidates=self.n_candidates, levels=tuple(levels)
        )

    def build_design(self, vectors: np.ndarray, n_labels: int) -> RecurrentDesign:
        return RecurrentDesign(
            n_words=vectors.shape[0],
            dimension=vectors.shape[1],
            hidden=self.hidden,
            layers=self.layers,
            pooling=self.head_pooling,
            n_labels=n_labels,
        )

    def build_network(
        self,
        design: RecurrentDesign,
        parent_network: RecurrentNetwork | None,
        vectors: np.ndarray,
        level: int,
        run: Run,
        device: torch.device,
    ) -> RecurrentNetwork:
        """Return a level's initial network: new attentions, all other weights from the level above."""
        design.check_memory(device)
        with use_torch_settings(run, device, derive_level_seed(self.seed, level)):
            has_candidates = parent_network is not None
            sparse = has_candidates and design.n_labels > MAX_DENSE_NODES and distributed.supports_sparse_gradients()
            network = design.build(self.word_dropout, self.dropout, sparse, self.whole_word_dropout)
            if self.init == XAVIER:
                init_xavier(network.head)
        network.encoder.set_vectors(vectors, self.train_vectors)
        network.to(device)
        if parent_network is not None:
            network.encoder.load_state_dict(parent_network.encoder.state_dict())
            assert isinstance(network.head, MultiLabelAttention)
            assert isinstance(parent_network.head, MultiLabelAttention)
            network.head.layers.load_state_dict(parent_network.head.layers.state_dict())
        return network

    def make_level_options(self, level: int) -> TrainingOptions:
        return self.make_training_options(clips=self.clips, seed=derive_level_seed(self.seed, level))


def derive_level_seed(seed: int, level: int) -> int:
    """Return a seed that is different for every pair of seed and level."""
    return int(np.random.SeedSequence((seed, level)).generate_state(1)[0])
