"""Tests of encoder sources: exported parts, packages, folders and the Hub. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_word_vectors import make_zip
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")
pytest.importorskip("transformers", reason="encoders need transformers: pip install 'xmtc[neural]'")

from safetensors.torch import load_file, save_file  # noqa: E402
from tiny_encoders import bert_tokenizer, tiny  # noqa: E402
from transformers import AutoConfig  # noqa: E402

from xmtc.cli import app  # noqa: E402
from xmtc.cli.pretrained import parse_size  # noqa: E402
from xmtc.errors import XmtcError  # noqa: E402
from xmtc.features.encoders import export as encoder_export  # noqa: E402
from xmtc.features.encoders.catalogue import (  # noqa: E402
    ENCODER_PACKAGES,
    EncoderPackage,
    cached_folder,
    fetch_encoder,
    find_encoder,
)
from xmtc.features.encoders.configuration import read_config, read_tokenizer_json  # noqa: E402
from xmtc.features.encoders.model_loader import load_encoder  # noqa: E402
from xmtc.features.subwords import Subwords  # noqa: E402
from xmtc.storage import package_download as registries  # noqa: E402
from xmtc.storage.cache import compute_path_sha256  # noqa: E402

FILES = "config.json", "model.safetensors", "tokenizer.json"
KINDS = ["bert", "xlnet"]
TEXTS = ["noise1 noise2 word3alpha", "word5beta", "noise7 strange noise9 noise1 word3alpha noise2"]


def ids_of(encoder: str) -> list[int]:
    return Subwords(encoder).fit(TEXTS)[1].ids.tolist()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_encoder_is_exported_in_parts_and_joined(kind, precision, tmp_path):
    parts, folder = tmp_path / "parts", tmp_path / "there"
    n = encoder_export.export_encoder(tiny(kind), parts, precision, 20_000)
    assert n == len(list(parts.glob("part-*"))) > 1
    assert max(path.stat().st_size for path in parts.glob("part-*")) == 20_000
    encoder_export.join_encoder(parts, folder)
    joined, original = load_encoder(str(folder)).eval(), load_encoder(tiny(kind)).eval()
    ids = torch.arange(4, 20)[None]
    with torch.no_grad():
        states, expected = (model(ids).last_hidden_state for model in (joined, original))
    np.testing.assert_allclose(states, expected, atol={"fp32": 1e-6, "fp16": 0.01, "int8": 0.1}[precision])
    assert ids_of(str(folder)) == ids_of(tiny(kind))
    with pytest.raises(XmtcError, match="holds an encoder in parts; join them with `xmtc pretrained join"):
        find_encoder(str(parts))
    with pytest.raises(XmtcError, match="exists and is not empty"):
        encoder_export.join_encoder(parts, folder)


def break_a_part(folder: Path) -> None:
    content = bytearray((folder / "part-001").read_bytes())
    content[7] ^= 1
    (folder / "part-001").write_bytes(content)


def break_the_manifest(folder: Path, **changes) -> None:
    claimed_precision = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(claimed_precision | changes))


def change_an_entry(folder: Path, kind: str, **changes) -> None:
    """Change the manifest entry of the first file (config.json) or of the first part."""
    entries = json.loads((folder / "manifest.json").read_text())[kind]
    entries[0] = {name: value for name, value in (entries[0] | changes).items() if value is not None}
    break_the_manifest(folder, **{kind: entries})


def damage_weights(folder: Path) -> None:
    """Damage the weights and update all checksums."""
    manifest = json.loads((folder / "manifest.json").read_text())
    content = bytearray(b"".join((folder / part["name"]).read_bytes() for part in manifest["parts"]))
    begin = manifest["files"][0]["bytes"]
    assert [file["name"] for file in manifest["files"]] == [*FILES]
    content[begin + 8 : begin + 40] = 32 * b"?"
    weights = bytes(content[begin : begin + manifest["files"][1]["bytes"]])
    manifest["files"][1]["sha256"] = hashlib.sha256(weights).hexdigest()
    part = {"name": "part-000", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "part-000").write_bytes(content)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"parts": [part]}))


BREAKS = {
    "does not have the checksum of the manifest; copy it again": break_a_part,
    "is missing, but the manifest lists it; copy it, too": lambda folder: (folder / "part-002").unlink(),
    "cannot be read .*; expected the output of `xmtc pretrained export`": lambda folder: (
        folder / "manifest.json"
    ).unlink(),
    "is damaged .*; export or copy": lambda folder: (folder / "manifest.json").write_text("{"),
    "it has an unknown format": lambda folder: break_the_manifest(folder, precision="fp4"),
    "it does not list the files of an encoder and its parts": lambda folder: change_an_entry(
        folder, "files", name="../config.json"
    ),
    "^config.json in the parts of [^ ]*/parts does not have the checksum": lambda folder: change_an_entry(
        folder, "files", sha256="0" * 64
    ),
}


IN_THE_MANIFEST = {
    "another name": ("files", {"name": "spiece.model"}),
    "an invalid name": ("files", {"name": "config.json\0"}),
    "a name that is a number": ("files", {"name": 7}),
    "a part elsewhere": ("parts", {"name": "../part-000"}),
    "a part with a folder": ("parts", {"name": "part-000/x"}),
    "no checksum": ("files", {"sha256": None}),
    "half a checksum": ("parts", {"sha256": "0" * 32}),
    "negative bytes": ("files", {"bytes": -1}),
    "true bytes": ("files", {"bytes": True}),
    "half a byte": ("parts", {"bytes": 0.5}),
    "too many bytes": ("files", {"bytes": 10**6}),
}


@pytest.mark.parametrize(("kind", "changes"), IN_THE_MANIFEST.values(), ids=IN_THE_MANIFEST)
def test_invalid_manifest_is_rejected(kind, changes, tmp_path):
    encoder_export.export_encoder(tiny("bert"), tmp_path / "parts", "fp16", 20_000)
    change_an_entry(tmp_path / "parts", kind, **changes)
    with pytest.raises(XmtcError, match=r"manifest\.json is damaged \(.*\); export or copy the encoder again\.$"):
        encoder_export.join_encoder(tmp_path / "parts", tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("content", "result"),
    [
        ("[]", ""),
        ("{}", "it has an unknown format"),
        ('{"xmtc encoder": 1, "precision": "fp16"}', "files"),
        ("[" * 100_000, "nested more than 100 levels"),
    ],
)
def test_malformed_manifest_is_rejected(content, result, tmp_path):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(XmtcError, match=rf"is damaged \(.*{result}"):
        encoder_export.join_encoder(tmp_path, tmp_path / "there")


def test_manifest_without_files_is_rejected(tmp_path):
    encoder_export.export_encoder(tiny("bert"), tmp_path / "parts", "fp16", 20_000)
    break_the_manifest(tmp_path / "parts", files=[], parts=[])
    with pytest.raises(XmtcError, match="it does not list the files of an encoder"):
        encoder_export.join_encoder(tmp_path / "parts", tmp_path / "there")


@pytest.mark.parametrize(
    ("claimed_precision", "actual_precision"), [("fp16", "int8"), ("int8", "fp16"), ("fp32", "fp16"), ("fp32", "int8")]
)
def test_weights_must_have_the_precision_of_the_manifest(claimed_precision, actual_precision, tmp_path):
    encoder_export.export_encoder(tiny("bert"), tmp_path / "parts", actual_precision, 20_000)
    break_the_manifest(tmp_path / "parts", precision=claimed_precision)
    with pytest.raises(
        XmtcError, match=rf"cannot be read as {claimed_precision} \(its numbers have the types .*; export"
    ):
        encoder_export.join_encoder(tmp_path / "parts", tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_unreadable_weights_are_rejected(precision, tmp_path):
    encoder_export.export_encoder(tiny("bert"), tmp_path / "parts", precision, 20_000)
    damage_weights(tmp_path / "parts")
    with pytest.raises(XmtcError, match=rf"^model.safetensors in the parts of .* cannot be read as {precision} \("):
        encoder_export.join_encoder(tmp_path / "parts", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_int8_keeps_tied_weights_and_weights_with_names_like_scales(tmp_path):
    bias = torch.arange(3.0)
    state = {"norm.scale": bias, "norm.bias": bias, "layer.weight": torch.eye(3), "mix.scale": torch.eye(3)}
    save_file(encoder_export.quantize(state, "int8"), tmp_path / "weights")
    result = encoder_export.dequantize(load_file(tmp_path / "weights"))
    assert {name: tensor.tolist() for name, tensor in result.items()} == {
        name: tensor.tolist() for name, tensor in state.items()
    }


def test_export_rejects_unknown_precision_and_part_size(tmp_path):
    with pytest.raises(XmtcError, match=r"^precision='fp4' is unknown; expected one of fp32, fp16, int8\.$"):
        encoder_export.export_encoder(tiny("bert"), tmp_path / "parts", "fp4")
    with pytest.raises(XmtcError, match=r"^Parts of 0 bytes are too small; expected at least 1 byte"):
        encoder_export.export_encoder(tiny("bert"), tmp_path / "parts", "fp16", 0)


@pytest.mark.parametrize(("claimed_precision", "damage"), BREAKS.items(), ids=range(len(BREAKS)))
def test_damaged_part_is_detected_before_anything_is_written(claimed_precision, damage, tmp_path):
    parts = tmp_path / "parts"
    encoder_export.export_encoder(tiny("bert"), parts, "fp16", 20_000)
    damage(parts)
    with pytest.raises(XmtcError, match=claimed_precision):
        encoder_export.join_encoder(parts, tmp_path / "there")
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


@pytest.mark.parametrize(("size", "expected"), [("50MB", 50_000_000), ("1.5 GB", 15 * 10**8), ("7", 7), ("2kb", 2000)])
def test_sizes_of_parts(size, expected):
    assert parse_size(size) == expected


@pytest.mark.parametrize("size", ["", "0", "MB", "-5MB", "5TB", "0.1"])
def test_invalid_sizes_are_rejected(size):
    with pytest.raises(XmtcError, match="is not a size; expected one such as 50MB"):
        parse_size(size)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> list[str]:
    """Provide a temporary cache and two local encoder packages: a wheel, and a zip file in three wheels. Return the
    list of downloads."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = Path(tiny("bert"))
    files = {
        name: compute_path_sha256(folder / name) for name in ("config.json", "model.safetensors", "tokenizer.json")
    }
    monkeypatch.setitem(ENCODER_PACKAGES, "minilm-l6", EncoderPackage(("one",), "1.0", "small", files))
    monkeypatch.setitem(
        ENCODER_PACKAGES, "mpnet-base", EncoderPackage(("a-001", "a-002", "a-003"), "1.0", "large", files)
    )
    contents = {f"x/{name}": (folder / name).read_bytes() for name in files}
    make_zip(tmp_path / "whole.zip", contents | {"x/1_Pooling/config.json": b"{}"})
    whole, fetched = (tmp_path / "whole.zip").read_bytes(), []

    def pip(command, cwd, **options):
        name = command[-1].partition("==")[0]
        fetched.append(name)
        if name == "one":
            make_zip(cwd / "one.whl", {"one/__init__.py": b""} | {f"one/{path}": c for path, c in contents.items()})
        else:
            number, third = int(name[-1]), len(whole) // 3 + 1
            make_zip(cwd / f"{name}.whl", {f"x/e.zip.{number:03d}": whole[(number - 1) * third : number * third]})
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(registries.subprocess, "run", pip)
    return fetched


@pytest.mark.parametrize(("name", "packages"), [("minilm-l6", ["one"]), ("mpnet-base", ["a-001", "a-002", "a-003"])])
def test_named_encoders_are_fetched_once(name, packages, cache):
    for _ in range(2):
        assert find_encoder(name) == str(cached_folder(name))
        assert cache == packages
    assert load_encoder(find_encoder(name)).config.model_type == "bert"
    (cached_folder(name) / "config.json").write_text("{}")
    assert fetch_encoder(name) == cached_folder(name)
    assert cache == 2 * packages
    assert [path.name for path in cached_folder(name).parent.iterdir()] == [name]
    shown = CliRunner().invoke(app, ["pretrained", "list"], catch_exceptions=False).output
    assert f"({cached_folder(name)})" in shown
    assert "not cached; pip package" in shown


@pytest.mark.parametrize("when", ["while it is fetched", "at the last moment"])
def test_encoder_fetched_by_another_process_is_kept(when, cache, monkeypatch):
    folder = cached_folder("minilm-l6")
    module, name = (registries.subprocess, "run") if when == "while it is fetched" else (os, "replace")
    do = getattr(module, name)

    def copy_then_call(*arguments, **options):
        if not folder.exists():
            shutil.copytree(tiny("bert"), folder)
            (folder / "theirs").touch()
        return do(*arguments, **options)

    monkeypatch.setattr(module, name, copy_then_call)
    assert fetch_encoder("minilm-l6") == folder
    assert (folder / "theirs").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["minilm-l6"]


def test_changed_or_unavailable_package_is_rejected(cache, monkeypatch):
    wrong = replace(ENCODER_PACKAGES["minilm-l6"], files={"config.json": "0" * 64})
    monkeypatch.setitem(ENCODER_PACKAGES, "minilm-l6", wrong)
    with pytest.raises(XmtcError, match=r"one 1.0 does not have the expected checksums"):
        fetch_encoder("minilm-l6")
    monkeypatch.setitem(ENCODER_PACKAGES, "minilm-l6", replace(wrong, files={"elsewhere.json": "0" * 64}))
    with pytest.raises(XmtcError, match="one cannot be unpacked"):
        fetch_encoder("minilm-l6")
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: offline\n")
    monkeypatch.setattr(registries.subprocess, "run", lambda *a, **o: failed)
    sentence = r"pip could not download one \(ERROR: offline\); connect to the internet, or use the folder"
    with pytest.raises(XmtcError, match=sentence):
        fetch_encoder("minilm-l6")
    assert not cached_folder("minilm-l6").exists()


def test_error_for_a_missing_encoder_says_how_to_get_one(tmp_path, monkeypatch):
    how = "give the folder of an encoder, or a name that `xmtc pretrained list` lists: minilm-l6, mpnet-base"
    with pytest.raises(XmtcError, match=f"there is no such folder.*{how}"):
        find_encoder(str(tmp_path / "nowhere"))
    with pytest.raises(XmtcError, match=f"it has no config.json.*{how}"):
        find_encoder(str(tmp_path))
    assert find_encoder("xlnet-base-cased") == "xlnet-base-cased"

    def offline(source, **options):
        raise OSError("We couldn't connect\nto the hub")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", offline)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda *_, **__: pytest.fail("repeats requests"))
    for read in (read_config, read_tokenizer_json):
        with pytest.raises(XmtcError, match=rf"no such folder, .* Hub failed: We couldn't connect\).*{how}"):
            read("xlnet-base-cased")
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda url, timeout: None)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", offline)
    for read in (lambda name: Subwords(name).fit(TEXTS), load_encoder):
        with pytest.raises(XmtcError, match=rf"xlnet-base-cased cannot be loaded \(We couldn't connect\).*{how}"):
            read("xlnet-base-cased")
    config = AutoConfig.for_model("xlnet")
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda source, **options: config)
    for auto, read in (("AutoTokenizer", read_tokenizer_json), ("AutoModel", load_encoder)):
        monkeypatch.setattr(f"transformers.{auto}.from_pretrained", offline)
        with pytest.raises(XmtcError, match=how):
            read("xlnet-base-cased")


def test_folder_without_tokenizer_json_is_read_by_transformers(tmp_path, monkeypatch):
    class Loaded:
        backend_tokenizer = bert_tokenizer()
        vocab_files_names = types.MappingProxyType({"vocab_file": "vocab.txt"})

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda source, **options: Loaded)
    shutil.copy(Path(tiny("bert")) / "config.json", tmp_path)
    (tmp_path / "vocab.txt").write_text("")
    assert ids_of(str(tmp_path)) == ids_of(tiny("bert"))


def test_commands(tmp_path, cache):
    def run(*words) -> str:
        return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False).output

    assert str(cached_folder("minilm-l6")) in run("pretrained", "fetch", "minilm-l6")
    claimed_precision = run(
        "pretrained", "export", "minilm-l6", tmp_path / "out", "--precision", "int8", "--part-size", "30KB"
    )
    assert "parts. Copy it, then run: xmtc pretrained join" in claimed_precision
    assert "complete. Next: xmtc train CORPUS -m aplc_xlnet -p encoder=" in run(
        "pretrained", "join", tmp_path / "out", tmp_path / "in"
    )
    assert load_encoder(str(tmp_path / "in")).config.hidden_size == 32
    with pytest.raises(XmtcError, match="There is no pretrained model named 'nope'; expected one of minilm-l6"):
        run("pretrained", "fetch", "nope")
    with pytest.raises(XmtcError, match="precision='fp4'"):
        run("pretrained", "export", "minilm-l6", tmp_path / "again", "--precision", "fp4")


@pytest.mark.parametrize("name", ["./minlm", "encoders/minlm", "a/b/c", "no\\such", "minlm/", "~/no-such-encoder"])
def test_a_name_that_looks_like_a_path_is_not_looked_up_on_the_hub(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("minilm", "encoders/minilm"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(XmtcError, match="there is no such folder") as raised:
        find_encoder(name)
    assert ("did you mean" in str(raised.value)) == ("minlm" in name)
    assert find_encoder("owner/minlm") == "owner/minlm"
