"""Tiny encoders with random weights (XLNet, BERT, MPNet) and their tokenizers."""

from __future__ import annotations

import json
import shutil
import string
import tempfile
from functools import cache
from pathlib import Path

from planted import N_LABELS, NOISE_WORDS, planted_words

try:
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel, XLNetConfig, XLNetModel
except ImportError:  # tests that use an encoder are skipped
    torch = None

WORDS = [*NOISE_WORDS, *(word for label in range(N_LABELS) for word in planted_words(label))]
SPECIAL = ["<pad>", "<unk>", "<cls>", "<sep>"]


def bert_tokenizer() -> Tokenizer:
    """Return a tokenizer of whole words, and letters of unknown words; [CLS] comes first, as in BERT."""
    letters = string.ascii_lowercase + string.digits
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *WORDS]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        "<cls> $A <sep>", special_tokens=[("<cls>", 2), ("<sep>", 3)]
    )
    return tokenizer


def xlnet_tokenizer() -> Tokenizer:
    """Return a tokenizer whose pieces begin with the preceding space; [CLS] comes last, as in XLNet."""
    letters = ["▁", *string.ascii_letters, *string.digits]
    pieces = [(piece, 0.0) for piece in SPECIAL] + [(letter, -9.0) for letter in letters]
    tokenizer = Tokenizer(models.Unigram([*pieces, *((f"▁{word}", -5.0) for word in WORDS)], unk_id=1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "$A <sep> <cls>:2", special_tokens=[("<cls>", 2), ("<sep>", 3)]
    )
    return tokenizer


@cache
def home() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="xmtc-encoders-")


@cache
def tiny(kind: str, width: int = 32, layers: int = 1, dropout: float = 0.0) -> str:
    """Return the folder of an encoder (bert, mpnet or xlnet); without PyTorch, only its name."""
    folder = Path(home().name) / f"{kind}-{width}-{layers}-{dropout}"
    if torch is None:
        return str(folder)
    tokenizer = xlnet_tokenizer() if kind == "xlnet" else bert_tokenizer()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = network(kind, tokenizer.get_vocab_size(), width, layers, dropout)
        torch.nn.init.normal_(model.get_input_embeddings().weight)  # distinct word vectors, as after pretraining
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


@cache
def tiny_sentence_encoder(width: int = 512) -> str:
    """Return the folder of an encoder with mean pooling, whose vectors are close to the mean of the word vectors."""
    folder = Path(f"{tiny('bert', width)}-mean")
    if torch is not None:
        shutil.copytree(tiny("bert", width), folder)
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return str(folder)


def network(kind: str, n_words: int, width: int, layers: int, dropout: float):
    if kind == "xlnet":
        config = XLNetConfig(
            vocab_size=n_words, d_model=width, n_layer=layers, n_head=2, d_inner=width, dropout=dropout,
            pad_token_id=0, initializer_range=0.05,
        )  # fmt: skip
        return XLNetModel(config)
    like_bert = {"bert": (BertConfig, BertModel), "mpnet": (MPNetConfig, MPNetModel)}
    make_config, make_model = like_bert[kind]
    config = make_config(
        vocab_size=n_words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=width, max_position_embeddings=64, pad_token_id=0, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout, initializer_range=0.05,
    )  # fmt: skip
    return make_model(config)
