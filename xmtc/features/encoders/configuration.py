"""Configuration and tokenizer files of pretrained encoders, read without weights and without PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xmtc.features.encoders.catalogue import CONFIG, TOKENIZER, encoder_error, first_sentence, reraise_encoder_errors
from xmtc.storage.atomic import describe_error
from xmtc.storage.json_types import parse_json
from xmtc.storage.regular_files import read_regular, resolve_links

UNLIMITED_POSITIONS = 2**31 - 1
WEIGHT_INDEX = "model.safetensors.index.json"  # lists the files of sharded weights
WEIGHT_FILE_PATTERN = re.compile(r"[\w-][\w.-]*\.safetensors")
MIN_TOKENIZER_SHARE = 0.5  # of the encoder's vocabulary; sizes are rounded up by at most a few hundred
HUB_TIMEOUT_SECONDS = 3.0
MAX_FILE_BYTES = 2**28  # current tokenizers have at most 40 MB
# Models whose position numbers begin after the padding id.
PADDING_OFFSET_MODELS = (
    "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod", "camembert", "mpnet", "longformer",
    "luke", "data2vec-text", "ibert", "esm",
)  # fmt: skip


def read_tokenizer_json(source: str) -> str:
    """Return the JSON of an encoder's tokenizer; transformers creates it for the Hub and for folders without one."""
    with reraise_encoder_errors(source):
        if (Path(source) / TOKENIZER).is_file():
            return read_encoder_file(source, TOKENIZER).decode("utf-8")
        check_hub_model(source)
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        check_has_tokenizer_files(source, tokenizer.vocab_files_names.values())
        return tokenizer.backend_tokenizer.to_str()


def check_has_tokenizer_files(source: str, names: Iterable[str]) -> None:
    """Raise a ValueError for a folder without the files of a tokenizer, for which transformers creates an empty one."""
    folder = Path(source)
    if folder.is_dir() and not any((folder / name).is_file() for name in names):
        raise ValueError(f"it has no tokenizer, expected one of the files {', '.join(sorted({TOKENIZER, *names}))}")


def check_vocabulary_size(n_subwords: int, config: dict[str, Any]) -> None:
    """Raise a ValueError if a tokenizer is not that of the encoder; an encoder's size may be rounded up."""
    size = config.get("vocab_size")
    if isinstance(size, int) and not size * MIN_TOKENIZER_SHARE <= n_subwords <= size:
        raise ValueError(
            f"its tokenizer has {n_subwords:,} subwords, but its {CONFIG} has a vocab_size of {size:,}; copy the "
            "tokenizer files of the same encoder"
        )


def read_max_positions(source: str) -> int:
    """Return the maximum number of subwords of a text."""
    config = read_config(source)
    positions, padding = config.get("max_position_embeddings"), config.get("pad_token_id")
    if not isinstance(positions, int) or positions < 1:
        return UNLIMITED_POSITIONS
    return positions - (padding or 0) - 1 if config.get("model_type") in PADDING_OFFSET_MODELS else positions


def read_config(source: str) -> dict[str, Any]:
    """Return the configuration of an encoder."""
    if Path(source).is_dir():
        return read_json_file(source, CONFIG)
    check_hub_model(source)
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(source, trust_remote_code=False).to_dict()


def check_hub_model(source: str) -> None:
    """Raise an XmtcError if neither the Hub nor its cache has a model; transformers repeats its requests for 24 s."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    try:
        if not Path(source).is_dir() and not isinstance(try_to_load_from_cache(source, CONFIG), str):
            get_hf_file_metadata(hf_hub_url(source, CONFIG), timeout=HUB_TIMEOUT_SECONDS)
    except Exception as error:
        cause = f"there is no such folder, and the request to the Hugging Face Hub failed: {first_sentence(error)}"
        raise encoder_error(source, cause) from None


def read_json_file(source: str, name: str) -> dict[str, Any]:
    """Return the object in a JSON file of an encoder's folder."""
    try:
        content = parse_json(read_encoder_file(source, name))
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        return content
    except (ValueError, RecursionError) as error:
        raise encoder_error(source, f"{name}: {error}") from None


def check_weight_index(source: str) -> None:
    """Raise an XmtcError if the index of sharded weights names files outside the folder, which transformers would
    open."""
    if (Path(source) / WEIGHT_INDEX).is_file():
        files = read_json_file(source, WEIGHT_INDEX).get("weight_map")
        if not isinstance(files, dict) or not all(
            isinstance(n, str) and WEIGHT_FILE_PATTERN.fullmatch(n) for n in files.values()
        ):
            raise encoder_error(source, f"{WEIGHT_INDEX} names files that are not in the folder")


def read_encoder_file(source: str, name: str) -> bytes:
    """Return the content of a file of an encoder's folder."""
    try:
        return read_regular(*resolve_links(source, name), MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise encoder_error(source, f"{name}: {describe_error(error)}") from None


def check_is_encoder(config: dict[str, Any]) -> None:
    """Raise a ValueError if a model is not a bidirectional encoder: a masked language model or XLNet."""
    from transformers.models.auto import modeling_auto

    kind, bidirectional = str(config.get("model_type")), (*modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, "xlnet")
    if kind in modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES or config.get("is_encoder_decoder"):
        raise ValueError(f"{kind} is an encoder-decoder, expected an encoder such as BERT, MPNet or XLNet")
    if config.get("is_decoder") or kind not in bidirectional:
        kind += " as a decoder" if config.get("is_decoder") else ""
        custom = ", and needs custom code, which is never run" if "auto_map" in config else ""
        raise ValueError(f"{kind} is not a bidirectional encoder such as BERT, MPNet or XLNet{custom}")
