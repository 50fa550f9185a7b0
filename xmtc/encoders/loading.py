"""Pretrained encoders of Hugging Face's transformers: subwords in, one vector for each document out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from xmtc.encoders.catalogue import CONFIG, POOLING, WEIGHTS, readable
from xmtc.errors import XmtcError
from xmtc.features.subwords import check_kind, config_in, read_json

POOLINGS = FIRST, LAST, MEAN = "first", "last", "mean"
XLNET, MPNET = "xlnet", "mpnet"
OF_CLASS_MARK = 2  # the segment that XLNet's [CLS] is alone in
DEPTH = re.compile("layers?$|group")  # in the names of how many layers there are
NOT_NEEDED = re.compile(r"(^|\.)pooler\.|position_ids$")  # what an encoder may lack
SAFELY = {
    "trust_remote_code": False, "use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True,
}  # no code, no pickle; what does not fit is for us to refuse  # fmt: skip
# Of a configuration: where it came from, which code or kernels to fetch, how to answer, labels of another task.
PRIVATE = re.compile("^_|implementation")
EXTRAS = (
    "transformers_version", "architectures", "dtype", "torch_dtype", "auto_map", "quantization_config", "return_dict",
    "torchscript", "output_attentions", "output_hidden_states", "chunk_size_feed_forward", "id2label", "label2id",
    "num_labels", "problem_type",
)  # fmt: skip


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
    """The encoder of a folder or of the hub, in float32 and without what only its own training needed. No code that
    comes with it is run."""
    with readable(source), quiet():
        config = config_from(config_in(source), names_of_weights(source))
        model, found = transformers.AutoModel.from_pretrained(source, config=config, **SAFELY)
        check_loaded(found)
        model = plain(model.float())
        check_answers(model)
    return model


def built(config: str, n_names: int | None = None) -> Any:
    """An encoder with random weights, or without any under torch.device("meta"), from its configuration as JSON; one
    that is deeper than its weights have names is refused."""
    said = config_from(json.loads(config), n_names)
    with quiet():
        return plain(transformers.AutoModel.from_config(said, trust_remote_code=False))


def config_from(said: dict[str, Any], n_names: int | None = None) -> Any:
    """A configuration, without what would have transformers fetch something or answer in another form."""
    check_kind(said)
    depth = max((n for name, n in said.items() if DEPTH.search(name) and isinstance(n, int)), default=0)
    if n_names is not None and depth > n_names:
        raise ValueError(f"it has {depth} layers, but {n_names} weights")
    return transformers.AutoConfig.for_model(**without_extras(said))


def without_extras(said: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in said.items() if name not in EXTRAS and not PRIVATE.search(name)}
    return {name: without_extras(value) if isinstance(value, dict) else value for name, value in kept.items()}


def names_of_weights(source: str) -> int | None:
    """How many weights a folder names in its one file; None where there are several, or a hub."""
    path = Path(source) / WEIGHTS
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            return len(file.keys())
    except SafetensorError as error:
        raise ValueError(f"{WEIGHTS}: {error}") from None


def check_loaded(found: dict[str, Any]) -> None:
    """Refuse an encoder of which a weight would stay random, but for those that `plain` takes away or that are none."""
    missing = [name for name in found["missing_keys"] if not NOT_NEEDED.search(name)]
    wrong = sorted([*missing, *(each[0] for each in found["mismatched_keys"])])
    if wrong:
        raise ValueError(f"its weights do not fit its {CONFIG}: {wrong[0]} is missing or of another shape")


@torch.no_grad()
def check_answers(model: Any) -> None:
    """A first text shows what neither configuration nor names of weights can."""
    ids = torch.tensor([[0, 1]])
    states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    if states.shape != (1, 2, model.config.hidden_size) or not states.isfinite().all():
        raise ValueError("its states of a text are no numbers")


def plain(model: Any) -> Any:
    padding, n = model.config.pad_token_id or 0, len(model.get_input_embeddings().weight)
    if not 0 <= padding < n:
        raise ValueError(f"it pads with subword {padding}, of {n}")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # it would read the first state alone, for a task that is not ours
    if model.config.model_type == XLNET:
        model.config.use_mems_eval = model.config.use_mems_train = False  # documents do not continue one another
    if model.config.model_type == MPNET:
        from xmtc.encoders.mpnet import fuse_attention

        fuse_attention(model)
    return model


def config_of(model: Any) -> str:
    """All that rebuilds the encoder without weights, and nothing of where it came from."""
    return json.dumps(without_extras(model.config.to_dict()), sort_keys=True)


def usual_pooling(source: str, model: Any) -> str:
    """The last state of XLNet; the mean where a folder of sentence-transformers says so; else the first."""
    if model.config.model_type == XLNET:
        return LAST
    said = read_json(source, POOLING) if (Path(source) / POOLING).is_file() else {}
    return MEAN if said.get("pooling_mode_mean_tokens") else FIRST


def save_memory(model: Any) -> None:
    """Compute states anew in the backward pass instead of keeping them."""
    kind = model.config.model_type
    if kind == MPNET:
        model.saves_memory = True
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
