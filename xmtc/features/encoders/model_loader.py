"""Loading of pretrained encoders with Hugging Face transformers, without running code of the encoder."""

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

from xmtc.errors import XmtcError
from xmtc.features.encoders.catalogue import CONFIG, POOLING, WEIGHTS, reraise_encoder_errors
from xmtc.features.encoders.configuration import check_is_encoder, check_weight_index, read_config, read_json_file

POOLINGS = FIRST_POOLING, LAST_POOLING, MEAN_POOLING = "first", "last", "mean"
XLNET, MPNET = "xlnet", "mpnet"
DEPTH_KEY_PATTERN = re.compile("layers?$|group")  # configuration keys of numbers of layers
OPTIONAL_WEIGHTS_PATTERN = re.compile(r"(^|\.)pooler\.|position_ids$")  # weights that may be missing
SAFE_LOADING_OPTIONS = {
    "trust_remote_code": False, "use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True,
}  # no code and no pickle; check_loaded_weights reports mismatched sizes  # fmt: skip
# Configuration keys of the origin, of custom code or kernels, of the output format and of other tasks' labels.
PRIVATE_KEY_PATTERN = re.compile("^_|implementation")
IGNORED_CONFIG_KEYS = (
    "transformers_version", "architectures", "dtype", "torch_dtype", "auto_map", "quantization_config", "return_dict",
    "torchscript", "output_attentions", "output_hidden_states", "chunk_size_feed_forward", "id2label", "label2id",
    "num_labels", "problem_type",
)  # fmt: skip


def load_encoder(source: str) -> Any:
    """Load the encoder of a folder or of the Hub in float32, without its pooler and without running its code."""
    with reraise_encoder_errors(source), silence_transformers():
        check_weight_index(source)
        config = parse_config(read_config(source), count_stored_weights(source))
        model, loading_info = transformers.AutoModel.from_pretrained(source, config=config, **SAFE_LOADING_OPTIONS)
        check_loaded_weights(loading_info)
        model = prepare_encoder(model.float())
        check_forward(model)
    return model


def build_encoder(config: str, n_weights: int | None = None) -> Any:
    """Build an encoder with random weights, or without any under torch.device("meta"), from its configuration as JSON;
    raise a ValueError if it has more layers than `n_weights`."""
    parsed = parse_config(json.loads(config), n_weights)
    with silence_transformers():
        return prepare_encoder(transformers.AutoModel.from_config(parsed, trust_remote_code=False))


def parse_config(config: dict[str, Any], n_weights: int | None = None) -> Any:
    """Return a transformers configuration without keys that cause downloads or change the output."""
    check_is_encoder(config)
    depth = max((n for name, n in config.items() if DEPTH_KEY_PATTERN.search(name) and isinstance(n, int)), default=0)
    if n_weights is not None and depth > n_weights:
        raise ValueError(f"it has {depth} layers, but {n_weights} weights")
    return transformers.AutoConfig.for_model(**strip_config(config))


def strip_config(config: dict[str, Any]) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in config.items()
        if name not in IGNORED_CONFIG_KEYS and not PRIVATE_KEY_PATTERN.search(name)
    }
    return {name: strip_config(value) if isinstance(value, dict) else value for name, value in kept.items()}


def count_stored_weights(source: str) -> int | None:
    """Return the number of weights in a folder's only weight file; None for several files or the Hub."""
    path = Path(source) / WEIGHTS
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            return len(file.keys())
    except SafetensorError as error:
        raise ValueError(f"{WEIGHTS}: {error}") from None


def check_loaded_weights(loading_info: dict[str, Any]) -> None:
    """Raise a ValueError if a required weight is missing or has another shape, so that it would be random."""
    missing = [name for name in loading_info["missing_keys"] if not OPTIONAL_WEIGHTS_PATTERN.search(name)]
    invalid = sorted([*missing, *(name for name, *_ in loading_info["mismatched_keys"])])
    if invalid:
        raise ValueError(f"its weights do not match its {CONFIG}: {invalid[0]} is missing or has another shape")


@torch.no_grad()
def check_forward(model: Any) -> None:
    """Encode a short text, and raise a ValueError if the states have a wrong shape or are not finite."""
    ids, mask = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1, 1], [1, 0]])
    states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    if states.shape != (2, 2, model.config.hidden_size) or not states.isfinite().all():
        raise ValueError("its states have a wrong shape or are not finite")


def prepare_encoder(model: Any) -> Any:
    """Remove the pooler and XLNet's memory, and fuse the attention of MPNet."""
    padding, n = model.config.pad_token_id or 0, len(model.get_input_embeddings().weight)
    if not 0 <= padding < n:
        raise ValueError(f"its padding id {padding} is not below its {n} subwords")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # not used
    if model.config.model_type == XLNET:
        model.config.use_mems_eval = model.config.use_mems_train = False  # documents are independent
    if model.config.model_type == MPNET:
        from xmtc.features.encoders.mpnet import fuse_attention

        fuse_attention(model)
    return model


def dump_config(model: Any) -> str:
    """Return the configuration as JSON, without the origin of the encoder."""
    return json.dumps(strip_config(model.config.to_dict()), sort_keys=True)


def choose_pooling(source: str, model: Any) -> str:
    """Return the pooling: last for XLNet, mean if a sentence-transformers folder declares it, else first."""
    if model.config.model_type == XLNET:
        return LAST_POOLING
    pooling = read_json_file(source, POOLING) if (Path(source) / POOLING).is_file() else {}
    return MEAN_POOLING if pooling.get("pooling_mode_mean_tokens") else FIRST_POOLING


def enable_gradient_checkpointing(model: Any) -> None:
    """Recompute states in the backward pass instead of storing them."""
    kind = model.config.model_type
    if kind == MPNET:
        model.has_gradient_checkpointing = True
    elif model.supports_gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    else:
        raise XmtcError(
            f"Encoders of type {kind} do not support gradient checkpointing; set gradient_checkpointing=false "
            "(accumulation_steps=2 saves memory, too)."
        )


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Suppress log messages and progress bars of transformers."""
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
