"""Model of XML-CNN and Bow-CNN."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation
from xmtc.core.run import Run
from xmtc.methods.convolution.network import ConvolutionalNetwork
from xmtc.nn.batches import TokenLoader
from xmtc.nn.devices import use_torch_settings
from xmtc.nn.network import Design, NetworkModel, check_positive

VIEW = "words"


@dataclass(frozen=True, kw_only=True)
class ConvolutionalDesign(Design):
    """Sizes that XML-CNN and Bow-CNN have in common."""

    n_words: int
    n_labels: int
    maps: int  # features of a region (Bow-CNN), or of each filter width (XML-CNN)
    chunks: int  # p: chunks of a text
    output_norm: bool = False  # batch normalisation before the output layer; absent in old folders

    @abstractmethod
    def build(self, word_dropout: float = 0.0, dropout: float = 0.0) -> ConvolutionalNetwork: ...

    def loader(self, data: Dataset, device: torch.device) -> TokenLoader:
        return TokenLoader(data.tokens(VIEW), device)

    def check(self) -> None:
        check_positive(n_words=self.n_words, n_labels=self.n_labels, maps=self.maps, chunks=self.chunks)


@dataclass(frozen=True, kw_only=True)
class ConvolutionalModel(NetworkModel):
    """Model that scores every label by σ(logit)."""

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return each word's contribution to the label's logit: its vector times the gradient.

        The contributions are exact as long as the maxima and the signs of the regions stay the same.
        """
        device, tokens = torch.device("cpu"), document.tokens(VIEW)
        network = self.network.load_on(device)
        batch = self.network.design.loader(document, device).load_batch(np.array([0]))
        with use_torch_settings(Run(device="cpu"), device), torch.enable_grad():
            words = network.embed_words(batch).detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(network.output(network.encode(words, batch))[0, label], words)
        weights = (gradient * words.detach()).sum(1).numpy()
        return Explanation.from_occurrences(VIEW, tokens.ids, weights, per_token=True)

    def check(self) -> None:
        design = self.network.design
        if not isinstance(design, ConvolutionalDesign):
            raise ValueError(f"its network is a {type(design).__name__}; expected a ConvolutionalDesign")
        if self.views != {VIEW: design.n_words}:
            raise ValueError(f"its network reads {design.n_words} words; expected the views {self.views}")
        if self.n_labels != design.n_labels:
            raise ValueError(f"its network has {design.n_labels} labels; expected {self.n_labels}")
        super().check()
