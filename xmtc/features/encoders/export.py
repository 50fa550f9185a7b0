"""Export of encoders in parts of a given size, and joining them on a machine without a network.

A manifest has the checksums. Weights may be reduced to fp16, or to int8 with one scale per row."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.features.encoders.catalogue import CONFIG, MANIFEST, POOLING, TOKENIZER, WEIGHTS, find_encoder
from xmtc.features.encoders.configuration import read_tokenizer_json
from xmtc.features.encoders.model_loader import load_encoder
from xmtc.storage.atomic import describe_error
from xmtc.storage.cache import compute_path_sha256
from xmtc.storage.json_types import parse_json
from xmtc.storage.regular_files import read_regular

PRECISIONS = FP32, FP16, INT8 = "fp32", "fp16", "int8"
STORED_DTYPES = {FP32: {"F32"}, FP16: {"F16"}, INT8: {"I8", "F32"}}  # safetensors dtypes of each precision
INTEGER_DTYPES = {"I64", "I32", "BOOL"}  # dtypes of buffers such as positions
MANIFEST_FORMAT = 1
REQUIRED_FILES, KNOWN_FILES = {CONFIG, WEIGHTS, TOKENIZER}, {CONFIG, WEIGHTS, TOKENIZER, POOLING}
PART_NAME, SHA256 = re.compile(r"part-\d+"), re.compile(r"[0-9a-f]{64}")
SCALE_SUFFIX = ".scale"  # suffix of the tensor of row scales
BLOCK_BYTES = 1 << 20
MAX_MANIFEST_BYTES = 2**26


def export_encoder(
    source: str, folder: Path, precision: str = FP16, part_bytes: int = 50_000_000, run: Run = Run()
) -> int:
    """Write an encoder (a folder, or a name of `xmtc pretrained list` or the Hub) in parts; return their number."""
    if precision not in PRECISIONS:
        raise XmtcError(f"precision={precision!r} is unknown; expected one of {', '.join(PRECISIONS)}.")
    if part_bytes < 1:
        raise XmtcError(f"Parts of {part_bytes} bytes are too small; expected at least 1 byte, such as 50 MB.")
    source = find_encoder(source, run)
    with create_folder(folder) as target:
        encoder = target / "encoder"
        write_encoder(source, encoder, precision)
        files = [{"name": name, **describe_file(encoder / name)} for name in list_files(encoder)]
        stream = concatenate_files((encoder / name for name in list_files(encoder)), target / "stream")
        shutil.rmtree(encoder)
        parts = split_into_parts(stream, target, part_bytes)
        stream.unlink()
        manifest = {"xmtc encoder": MANIFEST_FORMAT, "precision": precision, "files": files, "parts": parts}
        (target / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return len(parts)


def write_encoder(source: str, folder: Path, precision: str) -> None:
    """Write configuration, tokenizer and weights of an encoder; except for int8, transformers can read them."""
    model = load_encoder(source)
    folder.mkdir()
    model.config.to_json_file(folder / CONFIG)
    (folder / TOKENIZER).write_text(read_tokenizer_json(source), encoding="utf-8")
    if (Path(source) / POOLING).is_file():
        (folder / POOLING).parent.mkdir()
        shutil.copyfile(Path(source) / POOLING, folder / POOLING)
    save_file(quantize(model.state_dict(), precision), folder / WEIGHTS, metadata={"format": "pt"})


def quantize(state: dict[str, Tensor], precision: str) -> dict[str, Tensor]:
    """Reduce the precision of weights. With int8 only matrices are reduced: vectors are small and more sensitive."""
    if precision == INT8:
        weights: dict[str, Tensor] = {}
        for name, tensor in state.items():
            is_matrix = tensor.is_floating_point() and tensor.ndim > 1
            weights |= quantize_rows(name, tensor) if is_matrix else {name: tensor.contiguous().clone()}
        return weights
    dtype = torch.float16 if precision == FP16 else torch.float32
    return {name: (t.to(dtype) if t.is_floating_point() else t).contiguous().clone() for name, t in state.items()}


def quantize_rows(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Return each row as int8, and the scale of each row."""
    scale = tensor.flatten(1).abs().amax(1).clamp(min=1e-12) / 127
    shape = (-1, *[1] * (tensor.ndim - 1))
    return {name: (tensor / scale.view(shape)).round().to(torch.int8).contiguous(), name + SCALE_SUFFIX: scale}


def dequantize(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert int8 weights to fp16, which transformers can read."""
    quantized = {name for name, tensor in state.items() if tensor.dtype == torch.int8}
    weights = {name: tensor for name, tensor in state.items() if name.removesuffix(SCALE_SUFFIX) not in quantized}
    for name in quantized:
        scale = state[name + SCALE_SUFFIX].view(-1, *[1] * (state[name].ndim - 1))
        weights[name] = (state[name] * scale).half()
    return weights


def join_encoder(folder: Path, target: Path) -> None:
    """Join an exported encoder, and raise an XmtcError if a part or file does not have its checksum."""
    manifest = read_manifest(folder)
    for part in manifest["parts"]:
        check_file_checksum(folder / part["name"], part, str(folder / part["name"]))
    with create_folder(target) as holder:
        joined = concatenate_files((folder / part["name"] for part in manifest["parts"]), holder / "joined")
        with joined.open("rb") as stream:
            for file in manifest["files"]:
                path = holder / file["name"]
                path.parent.mkdir(parents=True, exist_ok=True)
                write_next_bytes(stream, path, file["bytes"])
                check_file_checksum(path, file, f"{file['name']} in the parts of {folder}")
        joined.unlink()
        try:
            unpack_weights(holder / WEIGHTS, manifest["precision"])
        except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise XmtcError(
                f"{WEIGHTS} in the parts of {folder} cannot be read as {manifest['precision']} ({error}); export the "
                "encoder again."
            ) from None
        (holder / WEIGHTS).chmod(
            (holder / CONFIG).stat().st_mode
        )  # safetensors makes files readable for the owner only


def unpack_weights(path: Path, precision: str) -> None:
    """Convert int8 weights to fp16, and raise a ValueError if the dtypes differ from the manifest."""
    with safe_open(path, "pt") as file:
        dtypes = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (not a dict)
    if dtypes - INTEGER_DTYPES != STORED_DTYPES[precision]:
        raise ValueError(f"its numbers have the types {', '.join(sorted(dtypes))}")
    if precision == INT8:
        save_file(dequantize(load_file(path)), path, metadata={"format": "pt"})


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = parse_json(read_regular(folder, MANIFEST, MAX_MANIFEST_BYTES))
        check_manifest(manifest)
        return manifest
    except OSError as error:
        raise XmtcError(
            f"{folder / MANIFEST} cannot be read ({describe_error(error)}); expected the output of "
            "`xmtc pretrained export`."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise XmtcError(f"{folder / MANIFEST} is damaged ({error}); export or copy the encoder again.") from None


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise a ValueError for unexpected file names, missing checksums or sizes that do not add up."""
    if manifest.get("xmtc encoder") != MANIFEST_FORMAT or manifest.get("precision") not in PRECISIONS:
        raise ValueError("it has an unknown format")
    files, parts = ([entry["name"] for entry in manifest[kind]] for kind in ("files", "parts"))
    if not REQUIRED_FILES <= set(files) <= KNOWN_FILES or not all(map(PART_NAME.fullmatch, parts)):
        raise ValueError("it does not list the files of an encoder and its parts")
    for entry in [*manifest["files"], *manifest["parts"]]:
        if type(entry.get("bytes")) is not int or entry["bytes"] < 0 or not SHA256.fullmatch(entry.get("sha256", "")):
            raise ValueError(f"{entry['name']} has no size or checksum")
    if sum(file["bytes"] for file in manifest["files"]) != sum(part["bytes"] for part in manifest["parts"]):
        raise ValueError("the sizes of its parts and of its files differ")


def check_file_checksum(path: Path, manifest: dict[str, Any], name: str) -> None:
    if not path.is_file():
        raise XmtcError(f"{name} is missing, but the manifest lists it; copy it, too.")
    if path.stat().st_size != manifest["bytes"] or compute_path_sha256(path) != manifest["sha256"]:
        raise XmtcError(f"{name} does not have the checksum of the manifest; copy it again.")


def describe_file(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": compute_path_sha256(path)}


def list_files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def split_into_parts(stream: Path, target: Path, part_bytes: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    with stream.open("rb") as file:
        while file.tell() < stream.stat().st_size:
            path = target / f"part-{len(parts):03d}"
            write_next_bytes(file, path, part_bytes)
            parts.append({"name": path.name, **describe_file(path)})
    return parts


def concatenate_files(paths: Iterable[Path], target: Path) -> Path:
    """Write the content of all files to one file."""
    with target.open("wb") as out:
        for path in paths:
            with path.open("rb") as file:
                shutil.copyfileobj(file, out)
    return target


def write_next_bytes(stream: BinaryIO, path: Path, n_bytes: int) -> None:
    """Write up to n_bytes of a stream to a file."""
    with path.open("wb") as out:
        while n_bytes:
            block = stream.read(min(n_bytes, BLOCK_BYTES))
            if not block:
                return
            out.write(block)
            n_bytes -= len(block)


@contextmanager
def create_folder(folder: Path) -> Iterator[Path]:
    """Create a folder that appears only when it is complete; raise an XmtcError if the path exists and is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise XmtcError(f"{folder} exists and is not empty; choose another name so that nothing is lost.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as holder:
            new = Path(holder) / "new"
            new.mkdir()
            yield new
            os.replace(new, folder)
    except OSError as error:
        raise XmtcError(f"{folder} cannot be written ({error.strerror or error}); choose another place.") from None
