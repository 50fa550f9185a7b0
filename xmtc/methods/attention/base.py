"""What AttentionXML and XML-RNN share: how the networks of a label tree's levels are trained (Algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import repeat
from typing import ClassVar

import numpy as np
import torch

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.labels.tree import LabelTree
from xmtc.methods.attention.level_training import LOSSES, SUM, LevelData, build_children_table, train_level
from xmtc.methods.attention.model import VIEW, AttentionModel, RecurrentDesign, TreeLevel
from xmtc.methods.attention.network import MultiLabelAttention, RecurrentNetwork, init_xavier
from xmtc.nn import distributed
from xmtc.nn.batches import TokenLoader
from xmtc.nn.devices import use_torch_settings
from xmtc.nn.initial_vectors import load_token_vectors
from xmtc.nn.method import WordNetworkMethod
from xmtc.nn.network import TrainedNetwork, Weights
from xmtc.nn.training import TrainingOptions, prepare_training
from xmtc.text.vector_packages import VECTOR_PACKAGES

INITS = APART, XAVIER = "apart", "xavier"
MAX_DENSE_NODES = 50_000  # nodes of which a step moves only the candidates, where there are more

TreeBuilder = Callable[[Dataset, Run], LabelTree]  # grown from the documents that are left to learn from


@dataclass(frozen=True)
class RecurrentMethod(WordNetworkMethod):
    """A bidirectional LSTM over word vectors. A subclass says how labels are read off its states."""

    pooling: ClassVar[str]

    vectors: str = param(
        "", "word vectors to start from: a file (GloVe, word2vec, fastText) or a name; random if left out"
    )
    dimension: int = param(100, "length of random word vectors, where none are given", low=1)
    corpus_dimension: int = param(
        0, "numbers that the corpus itself adds to each word's vector: which words it stands near", low=0, high=10_000
    )
    train_vectors: bool = param(True, "let training move the word vectors")
    hidden: int = param(256, "units of the LSTM in each direction", low=1, search=(128, 256, 512))
    layers: tuple[int, ...] = param(
        (256,), "sizes of the fully connected layers that all labels share, such as 512,256", low=1
    )
    word_dropout: float = param(0.2, "share of the word vectors' numbers that a step leaves out", low=0.0, high=0.99)
    whole_word_dropout: float = param(
        0.0, "share of the words that a step leaves out whole", low=0.0, high=0.99, search=(0.0, 0.4)
    )
    dropout: float = param(
        0.5, "share of the LSTM's outputs that a step leaves out", low=0.0, high=0.99, search=(0.2, 0.7)
    )
    init: str = param(
        APART, "how the head's weights begin: attentions apart, or by Xavier as in the authors' code", choices=INITS
    )
    loss: str = param(SUM, "of a document: cross-entropy of its labels summed, or their mean (eq. 6)", choices=LOSSES)
    clips: bool = param(True, "scale gradients down that are far longer than recent ones")
    minutes: float = param(0.0, "begin no further pass after so many minutes (0: no limit), a level's own", low=0.0)
    seed: int = param(0, "seed of the first weights, the order of documents and the tree", low=0, high=2**32 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers:
            raise XmtcError(f"{type(self).__name__}: layers=() does not fit; expected sizes such as 512,256.")
        if not (self.train_vectors or self.vectors or self.corpus_dimension):
            preset = getattr(self, "preset", "")
            frozen = "train_vectors=false" + (f" (of preset={preset})" if preset else "")
            raise XmtcError(
                f"{type(self).__name__}: {frozen} would leave random word vectors as they are; expected vectors, a "
                f"file or one of {', '.join(VECTOR_PACKAGES)} (`xmtc vectors` lists them), or train_vectors=true."
            )

    def train(
        self, data: Dataset, valid: Dataset | None, build_tree: TreeBuilder, n_candidates: int, run: Run
    ) -> AttentionModel:
        """A network for every level of the tree, each starting from the one above (Algorithm 3)."""
        vectors = self.load_initial_vectors(data, run)
        data, valid, device = prepare_training(
            self, data, valid, run, seed=self.seed, share=self.held_out, vectors=vectors
        )
        tree = build_tree(data, run)

        network, levels = None, []
        seen = LevelData(TokenLoader(data.tokens(VIEW), device))
        held_out = None if valid is None else LevelData(TokenLoader(valid.tokens(VIEW), device))
        valid_nodes = repeat(None) if valid is None else tree.memberships(valid.Y)
        for number, (edges, Y, valid_Y) in enumerate(
            zip(tree.levels, tree.memberships(data.Y), valid_nodes, strict=False)
        ):
            seen, held_out = replace(seen, Y=Y), held_out and replace(held_out, Y=valid_Y)
            children, design = build_children_table(edges), self.build_design(vectors, n_labels=edges.shape[1])
            network = self.build_network(design, network, vectors, number, run, device)
            name = f"level-{number}"
            plan, batch, kind = self.make_level_options(number), self.batch, self.loss
            train_level(network, children, seen, held_out, plan, batch=batch, loss_reduction=kind, run=run, name=name)
            levels.append(
                TreeLevel(
                    network=TrainedNetwork(design=design, weights=Weights.from_network(network)), children=children
                )
            )
            if number + 1 < len(tree.levels):
                seen = seen.to_next_level(network, children, n_candidates, run, positives_first=True)
                held_out = held_out and held_out.to_next_level(
                    network, children, n_candidates, run, positives_first=False
                )
        return AttentionModel(n_labels=data.n_labels, views=data.sizes, n_candidates=n_candidates, levels=tuple(levels))

    def load_initial_vectors(self, data: Dataset, run: Run) -> np.ndarray:
        """Of words, to start from."""
        return load_token_vectors(data.tokens(VIEW), self.vectors, self.dimension, self.corpus_dimension, run)

    def build_design(self, vectors: np.ndarray, n_labels: int) -> RecurrentDesign:
        return RecurrentDesign(
            n_words=vectors.shape[0],
            dimension=vectors.shape[1],
            hidden=self.hidden,
            layers=self.layers,
            pooling=self.pooling,
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
        """A level's network before training: attention anew, all else as in the level above."""
        design.check_memory(device)
        with use_torch_settings(run, device, derive_level_seed(self.seed, level)):
            alone = distributed.rank_and_size()[1] == 1  # NCCL does not add up sparse gradients
            sparse = parent_network is not None and design.n_labels > MAX_DENSE_NODES and alone
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
    """One for each level, none of which another seed shares."""
    return int(np.random.SeedSequence((seed, level)).generate_state(1)[0])
