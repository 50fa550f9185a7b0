"""What AttentionXML and XML-RNN share: how the networks of a label tree's levels are trained (Algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

import numpy as np
import torch

from xmtc.base.dataset import Dataset
from xmtc.base.method import Method
from xmtc.base.params import param
from xmtc.base.run import Run
from xmtc.data.splits import train_valid_split
from xmtc.errors import XmtcError
from xmtc.labels.tree import LabelTree
from xmtc.methods.attention.levels import LevelData, table_of_children, train_level
from xmtc.methods.attention.model import AttentionModel, Level, Shape
from xmtc.methods.attention.network import LabelAttention, Network
from xmtc.nn import distributed
from xmtc.nn.devices import device_of, working
from xmtc.nn.training import Plan
from xmtc.nn.weights import Weights

AVERAGE_EVERY = 20  # steps between weights that are averaged
AVERAGE_OVER = 75  # weights in the average, of which older ones fade
SPARSE = 50_000  # nodes of which a step moves only the candidates, where there are more


@dataclass(frozen=True)
class RecurrentNetwork(Method):
    """A bidirectional LSTM over word vectors. A subclass says how labels are read off its states."""

    reads: ClassVar[tuple[str, ...]] = ("tokens", "Y")
    pooling: ClassVar[str]

    hidden: int = param(256, "units of the LSTM in each direction", low=1, search=(128, 256, 512))
    layers: str = param("256", "sizes of the fully connected layers that all labels share, such as 512,256")
    word_dropout: float = param(0.2, "share of the word vectors' numbers that a step leaves out", low=0.0, high=0.99)
    dropout: float = param(
        0.5, "share of the LSTM's outputs that a step leaves out", low=0.0, high=0.99, search=(0.2, 0.7)
    )
    train_vectors: bool = param(True, "let training move the word vectors")
    batch: int = param(200, "documents of a step", low=1)
    epochs: int = param(30, "passes over the documents at most", low=1)
    rate: float = param(0.002, "learning rate of Adam", low=1e-8, search=(5e-4, 1e-2), log=True)
    decay: float = param(1.0, "what the learning rate is multiplied by after every pass", low=0.01, high=1.0)
    average_from: int = param(10, "pass from which on weights are averaged", low=0)
    patience: int = param(5, "passes without a better nDCG@5 after which training ends", low=1)
    minutes: float = param(0.0, "begin no further pass after so many minutes (0: no limit), a level's own", low=0.0)
    seed: int = param(0, "seed of the first weights, the order of documents and the tree", low=0, high=2**32 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layer_sizes  # noqa: B018 (raises where they do not fit)

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        try:
            sizes = tuple(int(size) for size in self.layers.split(","))
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 1:
            raise XmtcError(
                f"{type(self).__name__}: layers={self.layers!r} does not fit; expected sizes such as 512,256."
            )
        return sizes

    def split(self, data: Dataset, valid: Dataset | None) -> tuple[Dataset, Dataset]:
        """Hold documents out of training to decide when to stop, unless such are given."""
        return train_valid_split(data, valid, self.seed)

    def train(self, data: Dataset, valid: Dataset, tree: LabelTree, n_candidates: int, run: Run) -> AttentionModel:
        """A network for every level, each starting from the one above (Algorithm 3)."""
        assert data.tokens is not None
        assert data.tokens.vectors is not None
        assert valid.tokens is not None
        distributed.join(device_of(run))
        if run.checkpoint.folder:
            with distributed.first_alone():
                run.checkpoint.claim(f"{self} {data.fingerprint()} {valid.fingerprint()}")
        shape = Shape(data.n_words, data.tokens.vectors.shape[1], self.hidden, self.layer_sizes, self.pooling)
        levels: list[Level] = []
        network, seen, held_out = None, LevelData(data.tokens), LevelData(valid.tokens)
        members = zip(tree.memberships(data.Y), tree.memberships(valid.Y), strict=True)
        for number, (edges, (Y, valid_Y)) in enumerate(zip(tree.levels, members, strict=True)):
            seen, held_out = replace(seen, Y=Y), replace(held_out, Y=valid_Y)
            children = table_of_children(edges)
            network = self.network(shape, edges.shape[1], network, data.tokens.vectors, number, run)
            train_level(network, children, seen, held_out, self.plan(number), self.batch, f"level-{number}", run)
            levels.append(Level(edges.shape[1], Weights.of(network), children))
            if number + 1 < len(tree.levels):
                seen = seen.found_by(network, children, n_candidates, run, positives_first=True)
                held_out = held_out.found_by(network, children, n_candidates, run, positives_first=False)
        return AttentionModel(data.n_labels, data.n_words, shape, n_candidates, tuple(levels))

    def network(
        self, shape: Shape, n_nodes: int, above: Network | None, vectors: np.ndarray, number: int, run: Run
    ) -> Network:
        """A level's network before training: attention anew, all else as in the level above."""
        device = device_of(run)
        with working(run, device, level_seed(self.seed, number)):
            alone = distributed.place()[1] == 1  # NCCL does not add up sparse gradients
            sparse = above is not None and n_nodes > SPARSE and alone
            network = shape.network(n_nodes, self.word_dropout, self.dropout, sparse)
        network.encoder.embedding.weight.data = torch.from_numpy(np.array(vectors, np.float32))
        network.encoder.embedding.weight.requires_grad = self.train_vectors
        network.to(device)
        if above is not None:
            network.encoder.load_state_dict(above.encoder.state_dict())
            assert isinstance(network.head, LabelAttention)
            assert isinstance(above.head, LabelAttention)
            network.head.layers.load_state_dict(above.head.layers.state_dict())
        return network

    def plan(self, number: int) -> Plan:
        seconds = 60 * self.minutes or inf
        return Plan(
            self.epochs,
            self.rate,
            self.average_from,
            AVERAGE_EVERY,
            self.patience,
            level_seed(self.seed, number),
            seconds,
            self.decay,
            average_over=AVERAGE_OVER,
        )


def level_seed(seed: int, number: int) -> int:
    """One for each level, none of which another seed shares."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
