"""Pretrained encoders of Hugging Face's transformers: subwords in, one vector for each document out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from xmtc.errors import XmtcError
from xmtc.text.encoder_packages import POOLING, not_found

POOLINGS = FIRST, LAST, MEAN = "first", "last", "mean"
XLNET, MPNET = "xlnet", "mpnet"
OF_CLASS_MARK = 2  # the segment that XLNet's [CLS] is alone in


class TextEncoder(nn.Module):
    """The states of an encoder, pooled: those of the first subword, of the last, where XLNet has its [CLS], or their
    mean. Documents are padded at their end; for XLNet, which knows only how far subwords stand apart, that is the same
    as at their beginning."""

    def __init__(self, model: Any, pooling: str):
        super().__init__()
        self.model, self.pooling = model, pooling
        self.padding = model.config.pad_token_id or 0

    @property
    def width(self) -> int:
        return self.model.config.hidden_size

    @property
    def longest(self) -> int | None:
        """Subwords that it can tell the places of; None where there is no limit."""
        tables = [m for name, m in self.model.named_modules() if name.rpartition(".")[2] == "position_embeddings"]
        if not tables or not isinstance(tables[0], nn.Embedding):
            return None
        unused = tables[0].padding_idx
        return tables[0].num_embeddings - (0 if unused is None else unused + 1)

    def forward(self, ids: Tensor, is_word: Tensor) -> Tensor:
        """(n_docs, width) of subwords (n_docs, length) and where there are any."""
        return self.pooled(is_word, input_ids=ids)

    def is_mark(self, n: int) -> Tensor:
        """(n,) which of a text's subwords are the encoder's marks: the last two of XLNet, else the first and last."""
        marks = torch.zeros(n, dtype=torch.bool)
        marks[[-2, -1] if self.model.config.model_type == XLNET else [0, -1]] = True
        return marks

    def vectors(self, ids: Tensor) -> Tensor:
        """Where subwords start from in the encoder."""
        return self.model.get_input_embeddings()(ids)

    def pooled(self, is_word: Tensor, **given: Tensor) -> Tensor:
        """Of subwords (input_ids), or of their vectors (inputs_embeds)."""
        rows, last = torch.arange(len(is_word), device=is_word.device), is_word.sum(1) - 1
        if self.model.config.model_type == XLNET:
            segments = torch.zeros_like(is_word, dtype=torch.long)
            segments[rows, last] = OF_CLASS_MARK
            given["token_type_ids"] = segments
        states = self.model(attention_mask=is_word.long(), **given).last_hidden_state
        if self.pooling == FIRST:
            return states[:, 0]
        if self.pooling == LAST:
            return states[rows, last]
        weights = is_word[..., None].to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)


def pretrained(source: str) -> Any:
    """The encoder of a folder or of the hub, in float32 and without what only its own training needed."""
    try:
        with quiet():
            model = transformers.AutoModel.from_pretrained(source)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise not_found(source, error) from None
    return plain(model.float())


def built(config: str) -> Any:
    """An encoder with random weights, or without any under torch.device("meta"), from its configuration as JSON."""
    said = json.loads(config)
    with quiet():
        return plain(transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**said)))


def plain(model: Any) -> Any:
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # it would read the first state alone, for a task that is not ours
    if model.config.model_type == XLNET:
        model.config.use_mems_eval = model.config.use_mems_train = False  # documents do not continue one another
    if model.config.model_type == MPNET:
        from xmtc.nn.mpnet import fuse_attention

        fuse_attention(model)
    return model


def config_of(model: Any) -> str:
    """All that rebuilds the encoder without weights, and nothing of where it came from."""
    said = model.config.to_dict()
    for name in ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "auto_map"):
        said.pop(name, None)
    return json.dumps(said, sort_keys=True)


def usual_pooling(source: str, model: Any) -> str:
    """The last state of XLNet; the mean where a folder of sentence-transformers says so; else the first."""
    if model.config.model_type == XLNET:
        return LAST
    try:
        said = json.loads((Path(source) / POOLING).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return FIRST
    return MEAN if said.get("pooling_mode_mean_tokens") else FIRST


def save_memory(model: Any) -> None:
    """Compute states anew in the backward pass instead of keeping them."""
    kind = model.config.model_type
    if kind == MPNET:
        model.encoder.saves_memory = True
    elif model.supports_gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    else:
        raise XmtcError(
            f"Encoders of type {kind} cannot compute states twice; set checkpointing=false (parts=2 saves memory, too)."
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Without the notes and bars of transformers, which speak of layers that nobody asked for."""
    from transformers.utils import logging

    verbosity, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_bars:
            logging.enable_progress_bar()
