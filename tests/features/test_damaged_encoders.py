"""Tests that damaged or malicious encoders and model folders are rejected with a one-sentence error."""

from __future__ import annotations

import builtins
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from planted import make_planted_corpus
from safetensors.numpy import load_file, save_file

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")
pytest.importorskip("transformers", reason="encoders need transformers: pip install 'xmtc[neural]'")

import transformers  # noqa: E402
from odd_tokenizers import charsmap, make_normalizer  # noqa: E402
from tiny_encoders import bert_tokenizer, tiny  # noqa: E402

from xmtc import Tagger  # noqa: E402
from xmtc.core.run import Run  # noqa: E402
from xmtc.data.document import Document  # noqa: E402
from xmtc.errors import XmtcError  # noqa: E402
from xmtc.features.encoders import export as encoder_export  # noqa: E402
from xmtc.features.encoders import tokenizer_loader as tokenizing  # noqa: E402
from xmtc.features.encoders.catalogue import ENCODER_PACKAGES, cached_folder  # noqa: E402
from xmtc.features.encoders.model_loader import choose_pooling, load_encoder  # noqa: E402
from xmtc.features.subwords import Subwords  # noqa: E402
from xmtc.methods.transformer.aplc_xlnet import APLCXLNet  # noqa: E402
from xmtc.nn.text_encoder import TextEncoder  # noqa: E402
from xmtc.pipeline import train  # noqa: E402

ONE = Run(threads=1, device="cpu")
TEXTS = ["noise1 noise2 word3alpha", "word5beta", "noise7 strange noise9 noise1 word3alpha noise2"]
CANNOT_BE_HAD = (
    r"^The encoder .* cannot be loaded \([^\n]*\); give the folder of an encoder, or a name that `xmtc pretrained"
)


def copy_encoder(tmp_path: Path, kind: str = "bert") -> Path:
    return Path(shutil.copytree(tiny(kind), tmp_path / "encoder"))


def change_config(folder: Path, **changes) -> None:
    """Change the configuration of an encoder."""
    message = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(message | changes))


def encode_first_text(folder: Path) -> np.ndarray:
    """Return the encoder's states of the first text, as training computes them."""
    _, tokens = Subwords(str(folder)).fit(TEXTS, ONE)
    encoder = TextEncoder(model := load_encoder(str(folder)), choose_pooling(str(folder), model)).eval()
    ids = torch.from_numpy(tokens.select_rows(np.array([0])).ids.astype(np.int64))[None]
    with torch.no_grad():
        return encoder(ids, torch.ones_like(ids, dtype=torch.bool)).numpy()


def test_valid_encoder_is_accepted(tmp_path):
    assert encode_first_text(copy_encoder(tmp_path)).shape == (1, 32)


@pytest.mark.parametrize("kind", ["bert", "tower"])
@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_encoder_code_is_never_run_and_no_question_is_asked(kind, has_tokenizer, tmp_path, monkeypatch):
    folder, marker = copy_encoder(tmp_path), tmp_path / "ran"
    (folder / "evil.py").write_text(
        f"open({str(marker)!r}, 'w')\n"
        "from transformers import BertConfig, BertModel, PreTrainedTokenizerFast\n"
        "class C(BertConfig): model_type = 'tower'\n"
        "class M(BertModel): config_class = C\n"
        "class T(PreTrainedTokenizerFast): pass\n"
    )
    change_config(folder, model_type=kind, auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"})
    if not has_tokenizer:
        (folder / "tokenizer.json").unlink()
        message = {"auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}, "tokenizer_class": "T"}
        (folder / "tokenizer_config.json").write_text(json.dumps(message))
    questions = []
    monkeypatch.setattr(builtins, "input", lambda *arguments: questions.append(arguments) or "y")
    if kind == "tower":
        own = r"tower is not a bidirectional encoder .*, and needs custom code, which is never run"
        for read in (encode_first_text, lambda folder: load_encoder(str(folder))):
            with pytest.raises(XmtcError, match=rf"cannot be loaded \({own}\); give the folder"):
                read(folder)
    elif has_tokenizer:
        encode_first_text(folder)  # transformers has its own code for this model type
    else:
        with pytest.raises(XmtcError, match=CANNOT_BE_HAD):
            encode_first_text(folder)
    assert not questions
    assert not marker.exists()


def test_no_pickle_is_read(tmp_path):
    folder = copy_encoder(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(XmtcError, match=CANNOT_BE_HAD):
        load_encoder(str(folder))


def change_weights(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    save_file(change(dict(load_file(path))), path, metadata={"format": "pt"})


QUERY = "encoder.layer.0.attention.self.query.weight"


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: {f"other.{name}": array for name, array in weights.items()},
        lambda weights: {name: array for name, array in weights.items() if name != QUERY},
        lambda weights: weights | {QUERY: weights[QUERY][:5]},
        lambda weights: {},
    ],
)
def test_encoder_with_missing_weights_is_rejected(change, tmp_path):
    folder = copy_encoder(tmp_path)
    change_weights(folder, change)
    with pytest.raises(XmtcError, match=r"is missing or has another shape\); give|it has 1 layers, but 0 weights\)"):
        load_encoder(str(folder))


def test_encoder_wider_than_its_weights_is_rejected(tmp_path):
    folder = copy_encoder(tmp_path)
    change_config(folder, num_hidden_layers=2)
    with pytest.raises(XmtcError, match=r"its weights do not match its config.json: encoder.layer.1.* is missing"):
        load_encoder(str(folder))


def test_encoder_without_pooler_is_accepted(tmp_path):
    folder = copy_encoder(tmp_path)
    change_weights(folder, lambda weights: {name: a for name, a in weights.items() if "pooler" not in name})
    assert load_encoder(str(folder)).config.model_type == "bert"


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_joined_encoder_gives_the_same_states(precision, tmp_path):
    encoder_export.export_encoder(tiny("xlnet"), tmp_path / "parts", precision)
    encoder_export.join_encoder(tmp_path / "parts", tmp_path / "there")
    np.testing.assert_allclose(
        encode_first_text(tmp_path / "there"),
        encode_first_text(Path(tiny("xlnet"))),
        atol=0.05 if precision == "int8" else 0,
    )


@pytest.mark.parametrize("name", ENCODER_PACKAGES)
def test_named_encoders_load(name):
    if not cached_folder(name).is_dir():
        pytest.skip(f"{name} was not fetched: xmtc pretrained fetch {name}")
    assert load_encoder(str(cached_folder(name))).config.hidden_size >= 384


def overwrite(name: str, content: bytes):
    def damage(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)

    return damage


def write_tokenizer(folder: Path, content: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(tokenizer_with(content))


def config_change(**changes):
    return lambda folder: change_config(folder, **changes)


def with_nan(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.full_like(array, np.nan) for name, array in weights.items()}


DAMAGED_ENCODERS = {
    "a tokenizer cut short": overwrite("tokenizer.json", b"{"),
    "a tokenizer that is no text": overwrite("tokenizer.json", b"\xff\xfe\x00"),
    "a tokenizer whose map of characters leads outside": lambda folder: write_tokenizer(folder, charsmap(value=100)),
    "a tokenizer whose map has no bounds": lambda folder: write_tokenizer(folder, b"\xff" * 1000),
    "invalid weights": overwrite("model.safetensors", b"garbage" * 100),
    "empty weights": overwrite("model.safetensors", b""),
    "weights that are no numbers": lambda folder: change_weights(folder, with_nan),
    "a width that is a letter": config_change(hidden_size="a"),
    "padding that is a letter": config_change(pad_token_id="x"),
    "padding beyond the subwords": config_change(pad_token_id=10**6),
    "padding before them": config_change(pad_token_id=-5),
    "one position": config_change(model_type="roberta", max_position_embeddings=1, pad_token_id=1),
    "as many positions as special tokens": config_change(max_position_embeddings=2),
    "no heads": config_change(num_attention_heads=0),
    "too many layers": config_change(num_hidden_layers=10**9),
    "a pooling that is a list": overwrite("1_Pooling/config.json", b"[]"),
    "invalid pooling": overwrite("1_Pooling/config.json", b"\xff"),
    "another kind": config_change(model_type="vit"),
    "a kind that is a list": config_change(model_type=["bert"]),
    "no kind": config_change(model_type=None),
}


@pytest.mark.parametrize("damage", DAMAGED_ENCODERS.values(), ids=DAMAGED_ENCODERS)
def test_damaged_encoder_is_rejected(damage, tmp_path):
    folder = copy_encoder(tmp_path)
    damage(folder)
    with pytest.raises(XmtcError, match=CANNOT_BE_HAD):
        encode_first_text(folder)


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_encoder_without_a_tokenizer_is_rejected(kind, tmp_path):
    folder = copy_encoder(tmp_path, kind)
    for path in [*folder.glob("*token*"), *folder.glob("vocab*"), *folder.glob("spiece*")]:
        path.unlink()
    with pytest.raises(XmtcError, match=r"it has no tokenizer, expected one of the files .*tokenizer\.json"):
        Subwords(str(folder)).fit(["apples and pears"])


@pytest.mark.parametrize("factor", [0.5, 3])
def test_tokenizer_of_another_size_than_the_encoder_is_rejected(factor, tmp_path):
    folder = copy_encoder(tmp_path)
    size = Subwords(str(folder)).fit(["apples and pears"])[0].size
    change_config(folder, vocab_size=int(size * factor))
    with pytest.raises(XmtcError, match=rf"its tokenizer has {size} subwords, but its config.json has a vocab_size"):
        Subwords(str(folder)).fit(["apples and pears"])
    change_config(folder, vocab_size=size + 28)  # rounded up
    Subwords(str(folder)).fit(["apples and pears"])


def test_encoder_folder_cannot_change_the_computation(tmp_path):
    folder = copy_encoder(tmp_path)
    before = encode_first_text(folder)
    change_config(folder, attn_implementation="flash_attention_2", return_dict=False, chunk_size_feed_forward=7)
    np.testing.assert_array_equal(encode_first_text(folder), before)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            transformers.T5Config(),
            "t5 is an encoder-decoder, expected an encoder such as BERT, MPNet or XLNet",
        ),
        (transformers.BartConfig(), "bart is an encoder-decoder"),
        (transformers.GPT2Config(), "gpt2 is not a bidirectional encoder such as BERT, MPNet or XLNet"),
        (transformers.BertConfig(is_decoder=True), "bert as a decoder is not a bidirectional encoder"),
    ],
    ids=["t5", "bart", "gpt2", "bert"],
)
def test_unidirectional_encoder_is_rejected(config, sentence, tmp_path):
    folder = copy_encoder(tmp_path)
    config.to_json_file(folder / "config.json")
    for read in (lambda: Subwords(str(folder)).fit(TEXTS, ONE), lambda: load_encoder(str(folder))):
        with pytest.raises(XmtcError, match=rf"cannot be loaded \({sentence}.*give the folder of an encoder"):
            read()


# Model folders


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    """Return folders of models with a BERT and an XLNet."""
    texts, tags = make_planted_corpus(60, seed=3)
    documents = [Document(str(i), text, own) for i, (text, own) in enumerate(zip(texts, tags, strict=True))]
    folders = {kind: tmp_path_factory.mktemp("models") / kind for kind in ("bert", "xlnet")}
    for kind, folder in folders.items():
        recipe = APLCXLNet(epochs=1, batch=16)
        train(documents, recipe, run=ONE, encoder=tiny(kind), max_subwords=40).save(folder)
    return folders


def change_model(folder: Path, change=None, arrays=None) -> None:
    """Change parts of about.json, or arrays."""
    about = json.loads((folder / "about.json").read_text())
    if arrays is not None:
        result = {name: array.copy() for name, array in load_file(folder / "arrays.safetensors").items()}
        arrays(result)
        save_file(result, folder / "arrays.safetensors")
        about["files"]["arrays.safetensors"]["bytes"] = (folder / "arrays.safetensors").stat().st_size
    if change is not None:
        change(about["parts"])
    (folder / "about.json").write_text(json.dumps(about))


def design_in(parts: dict) -> dict:
    return parts["model"]["network"]["design"]


def change_encoder_config(**changes):
    """Return a function that damages the encoder configuration of a model."""

    def change(parts: dict) -> None:
        design = design_in(parts)
        design["encoder"] = json.dumps(json.loads(design["encoder"]) | changes)

    return lambda folder: change_model(folder, change)


def set_in_model(**changes):
    return lambda folder: change_model(folder, lambda parts: parts["model"].update(changes))


def set_in_view(**changes):
    return lambda folder: change_model(folder, lambda parts: parts["views"]["mapping"]["subwords"].update(changes))


def change_tokenizer(change):
    def in_arrays(arrays: dict[str, np.ndarray]) -> None:
        name = "views.subwords.json"
        content = change(arrays[name].tobytes().decode())
        arrays[name] = np.frombuffer(content if isinstance(content, bytes) else content.encode(), np.uint8)

    return lambda folder: change_model(folder, arrays=in_arrays)


def make_nan(arrays: dict[str, np.ndarray]) -> None:
    for name in weights_in(arrays):
        arrays[name][...] = np.nan


def make_one_infinite(arrays: dict[str, np.ndarray]) -> None:
    arrays[max(weights_in(arrays))].flat[0] = np.inf


def weights_in(arrays: dict[str, np.ndarray]) -> list[str]:
    return [name for name in arrays if name.startswith("model.network.weights.")]


def far_special_token(content: str) -> str:
    message = json.loads(content)
    for token in message["post_processor"]["special_tokens"].values():
        token["ids"] = [10**6]
    return json.dumps(message)


def with_part(name: str, part):
    return lambda content: json.dumps(json.loads(content) | {name: part})


def with_charsmap(prefix: bytes = b"", **changes):
    content = charsmap(**changes)
    return with_part("normalizer", make_normalizer(prefix + content[len(prefix) :]))


def nest_normalizers(depth: int) -> dict:
    part: dict = {"type": "Lowercase"}
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part]}
    return part


DAMAGED_MODELS = {
    "bytes of the tokenizer": change_tokenizer(lambda content: "[" + content[1:]),
    "bytes that are no text": change_tokenizer(lambda content: b"\xff" + content[1:].encode()),
    "a special token beyond the subwords": change_tokenizer(far_special_token),
    "no heads": change_encoder_config(num_attention_heads=0, n_head=0),
    "heads in words": change_encoder_config(num_attention_heads="2", n_head="2"),
    "a kind that nobody knows": change_encoder_config(model_type="tower"),
    "a kind that reads no text": change_encoder_config(model_type="vit"),
    "a kind that is a number": change_encoder_config(model_type=7),
    "a kind that is a list": change_encoder_config(model_type=["bert"]),
    "a decoder": change_encoder_config(is_decoder=True),
    "padding beyond the subwords": change_encoder_config(pad_token_id=10**6),
    "padding that is a letter": change_encoder_config(pad_token_id="x"),
    "a depth that would hang": change_encoder_config(num_hidden_layers=10**9, n_layer=10**9),
    "a width that is a letter": change_encoder_config(hidden_size="a", d_model="a"),
    "no configuration": lambda folder: change_model(folder, lambda parts: design_in(parts).update(encoder="[" * 10**5)),
    "a list": lambda folder: change_model(folder, lambda parts: design_in(parts).update(encoder="[]")),
    "fewer subwords than special tokens": set_in_view(max_subwords=1),
    "only special tokens": set_in_view(max_subwords=2),
    "negative subwords": set_in_view(max_subwords=-1),
    "very many subwords": set_in_view(max_subwords=2**70),
    "points without end": set_in_model(gradient_points=10**15),
    "an epsilon that makes roots of what is negative": change_encoder_config(layer_norm_eps=-100.0),
    "a type in place of a number": change_encoder_config(hidden_dropout_prob="x", dropout="x"),
    "a map of characters that leads outside": change_tokenizer(with_charsmap(value=100)),
    "a map of characters without bounds": change_tokenizer(with_charsmap(prefix=b"\xff\xff\xff\xff")),
    "a normalizer that nobody knows": change_tokenizer(with_part("normalizer", {"type": "Evil"})),
    "a pre-tokenizer that is a number": change_tokenizer(with_part("pre_tokenizer", 7)),
    "parts within themselves": change_tokenizer(with_part("normalizer", nest_normalizers(200))),
    "a length without bounds": change_tokenizer(with_part("truncation", {"max_length": 10**18})),
    "weights that are no numbers": lambda folder: change_model(folder, arrays=make_nan),
    "a weight without bounds": lambda folder: change_model(folder, arrays=make_one_infinite),
}


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
@pytest.mark.parametrize("damage", DAMAGED_MODELS.values(), ids=DAMAGED_MODELS)
def test_damaged_model_is_rejected(damage, kind, models, tmp_path):
    folder = Path(shutil.copytree(models[kind], tmp_path / "model"))
    assert len(Tagger.load(folder).predict_labels(TEXTS, 2, run=ONE)) == 3
    damage(folder)
    with pytest.raises(XmtcError, match=r"/model is damaged: [^\n]*; copy or train it again\.$"):
        Tagger.load(folder).predict_labels(TEXTS, run=ONE)


def test_more_subwords_than_positions_are_rejected(models, tmp_path):
    folder = Path(shutil.copytree(models["bert"], tmp_path / "model"))
    set_in_view(max_subwords=65)(folder)
    with pytest.raises(XmtcError, match="it reads 65 subwords of a text, but its encoder has positions for 64; copy"):
        Tagger.load(folder).predict_labels(TEXTS, run=ONE)


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
@pytest.mark.parametrize(
    "extras",
    [
        {"attn_implementation": "flash_attention_2"},
        {"_attn_implementation": "kernels-community/none", "_attn_implementation_internal": "kernels-community/none"},
        {"experts_implementation": "none", "quantization_config": {"quant_method": "bitsandbytes"}},
        {"auto_map": {"AutoModel": "evil.M", "AutoConfig": "evil.C"}},
        {"return_dict": False, "torchscript": True},
        {"chunk_size_feed_forward": 7},
        {"num_labels": 10**9},
    ],
    ids=lambda extras: next(iter(extras)),
)
def test_model_folder_cannot_change_the_computation(extras, kind, models, tmp_path):
    folder = Path(shutil.copytree(models[kind], tmp_path / "model"))
    expected = Tagger.load(folder).predict_labels(TEXTS, run=ONE)
    change_encoder_config(**extras)(folder)
    assert Tagger.load(folder).predict_labels(TEXTS, run=ONE) == expected


def test_predicting_network_has_no_gradients(models):
    tagger = Tagger.load(models["bert"])
    assert tagger.explain(TEXTS[0], tagger.predict_labels(TEXTS, 1, run=ONE)[0][0].label)
    assert not any(weight.requires_grad for weight in tagger.model.network.load_on(torch.device("cpu")).parameters())


# Tokenizers, checked before the tokenizers library reads them


@pytest.fixture
def private_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "xmtc" / "tokenizers"


def tokenizer_with(content: bytes | None = None, **parts) -> bytes:
    message = json.loads(bert_tokenizer().to_str()) | parts
    return json.dumps(message if content is None else message | {"normalizer": make_normalizer(content)}).encode()


def test_valid_character_map_is_accepted(private_cache):
    tokenizer = tokenizing.load_tokenizer(tokenizer_with(charsmap()))
    assert tokenizer.normalizer.normalize_str("banana") == "bbnbnb"


DAMAGED_MAPS = {
    "nothing": b"",
    "a size without an array": (1024).to_bytes(4, "little"),
    "a size that is no multiple of 4": (1023).to_bytes(4, "little") + charsmap()[4:],
    "a size without bounds": b"\xff\xff\xff\xff" + charsmap()[4:],
    "invalid texts": charsmap(texts=b"\xff"),
    "a value behind the texts": charsmap(value=5),
    "a value within a character": charsmap(value=1, texts="é\0".encode()),
    "a base outside of the array": charsmap(base=2**20),
    "a leaf outside of the array": charsmap(leaf=300),
}


@pytest.mark.parametrize("content", DAMAGED_MAPS.values(), ids=DAMAGED_MAPS)
def test_damaged_character_map_is_rejected(content):
    with pytest.raises(ValueError, match="the map of characters of its tokenizer is damaged"):
        tokenizing.check_tokenizer(tokenizer_with(content))


@pytest.mark.parametrize("content", [7, None, "$$$", "YQ=", ["YQ=="]])
def test_character_map_that_is_not_base64_is_rejected(content):
    part = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": content}]}
    with pytest.raises(ValueError, match="the map of characters of its tokenizer is damaged"):
        tokenizing.check_tokenizer(tokenizer_with(normalizer=part))


def test_character_map_with_any_byte_changed_does_not_panic():
    """Check that a tokenizer that is not rejected encodes texts without a panic, also without the trial in a child."""
    from tokenizers import Tokenizer

    whole, rng, n_used = charsmap(), np.random.default_rng(0), 0
    for _ in range(300):
        content = bytearray(whole)
        content[int(rng.choice([*range(12), 4 + 4 * 96, 4 + 4 * 96 + 1, *range(len(whole))]))] = int(rng.integers(256))
        try:
            changed = tokenizer_with(bytes(content))
            tokenizing.check_tokenizer(changed)
        except ValueError:
            continue
        Tokenizer.from_str(changed.decode()).encode("".join(map(chr, range(1, 700))))
        n_used += 1
    assert 0 < n_used < 300


def test_valid_tokenizer_is_checked_once(private_cache):
    tokenizing.load_tokenizer(tokenizer_with())
    assert len(list(private_cache.iterdir())) == 1
    tokenizing.check_in_child_process(tokenizer_with(), seconds=0.0)  # a second check would fail


def test_tokenizer_that_crashes_its_process_is_rejected(private_cache):
    with pytest.raises(ValueError, match=r"its tokenizer fails in a child process: it (needs more|is damaged)"):
        tokenizing.check_in_child_process(tokenizer_with(), memory_bytes=0)
    assert not private_cache.exists()


def test_tokenizer_that_never_ends_is_rejected(private_cache):
    with pytest.raises(ValueError, match=r"in a child process: it takes longer than 0 seconds"):
        tokenizing.check_in_child_process(tokenizer_with(), seconds=0.0)
    assert not private_cache.exists()


def test_tokenizer_that_lengthens_texts_without_limit_is_rejected():
    replace = {"type": "Replace", "pattern": {"String": "and"}, "content": "and" * 10}
    content = json.loads(tokenizer_with())
    content["normalizer"] = {"type": "Sequence", "normalizers": [replace] * 9}
    with pytest.raises(ValueError, match="may lengthen texts by a factor above 100"):
        tokenizing.load_tokenizer(json.dumps(content).encode())
    content["normalizer"] = {"type": "Sequence", "normalizers": [replace] * 2}
    tokenizing.check_tokenizer(json.dumps(content).encode())


def test_modules_in_the_current_folder_are_not_imported(private_cache, tmp_path, monkeypatch):
    """Check that a file with the name of a module in the current folder is not imported."""
    (tmp_path / "tokenizers.py").write_text("open('imported', 'w')\nraise SystemExit")
    monkeypatch.chdir(tmp_path)
    assert tokenizing.load_tokenizer(tokenizer_with()).encode("noise1").ids
    assert not (tmp_path / "imported").exists()


def test_unwritable_cache_is_not_needed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert tokenizing.load_tokenizer(tokenizer_with()).encode("noise1").ids


def test_panic_of_the_tokenizer_becomes_an_error():
    from tokenizers import Tokenizer

    with pytest.raises(ValueError, match=r"its tokenizer fails \("), tokenizing.catch_panics():
        Tokenizer.from_str(tokenizer_with(charsmap(value=5)).decode()).encode("a")
    with (
        pytest.raises(XmtcError, match=r"^A text cannot be split into subwords: its tokenizer fails"),
        tokenizing.reraise_encoding_errors(),
    ):
        Tokenizer.from_str(tokenizer_with(charsmap(value=5)).decode()).encode("a")
    with pytest.raises(KeyboardInterrupt), tokenizing.catch_panics():
        raise KeyboardInterrupt
