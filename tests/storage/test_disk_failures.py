"""Full disks, killed processes, links, and two trainings with one checkpoint."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from commands import XMTC, make_place
from planted import make_planted_corpus

from xmtc import Run, Tagger, XmtcError
from xmtc import model_folder as store
from xmtc.classifier import Classifier
from xmtc.cli.train import save_model
from xmtc.core import checkpoint
from xmtc.core.checkpoint import Checkpoint
from xmtc.data.file_streams import open_output
from xmtc.storage import atomic as disk
from xmtc.storage import folder as folders

MARK = "0123456789abcdef"


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Classifier(n_trees=1).fit(*make_planted_corpus(100, seed=0)).tagger_


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Limit the size of files, like a disk that is full after so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("exchanges", [True, False])
def test_full_disk_keeps_only_the_old_model(tagger, tmp_path, monkeypatch, exchanges):
    if not exchanges:
        monkeypatch.setattr(disk, "exchange", lambda one, other: False)
    tagger.save(tmp_path / "model")
    before = (tmp_path / "model" / "arrays.safetensors").read_bytes()
    monkeypatch.setattr(folders, "MIN_FOLDER_BYTES", 1)
    with (
        files_of_at_most(len(before) // 2),
        pytest.raises(XmtcError, match=r"model cannot be written \(File too large\); choose another place"),
    ):
        tagger.save(tmp_path / "model")
    assert (tmp_path / "model" / "arrays.safetensors").read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]
    tagger.save(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


def test_full_disk_is_detected_before_training(tmp_path):
    with files_of_at_most(1000), pytest.raises(XmtcError, match="model cannot be written"):
        store.check_target(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_required_space_is_at_most_the_smallest_model(tmp_path):
    """Three files and a folder, in blocks of 4 KiB; a larger requirement would reject trainings that fit."""
    Classifier(n_trees=1, min_df=1).fit(["red apple", "green pear"], [["x"], ["y"]]).save(tmp_path / "model")
    blocks = [-(-path.stat().st_size // 4096) for path in (tmp_path / "model").iterdir()]
    assert 4096 * (sum(blocks) + 1) >= folders.MIN_FOLDER_BYTES


def test_trained_model_is_saved_elsewhere_if_the_target_is_taken(tagger, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    with pytest.raises(XmtcError, match=r"not a model folder.* trained model was saved to .*; move it") as error:
        save_model(tagger, tmp_path / "thesis", Checkpoint())
    place = str(error.value).partition("saved to ")[2].partition(" instead;")[0]
    assert Tagger.load(place).about == tagger.about

    pieces = Checkpoint(tmp_path / "parts")
    pieces.claim("a training")
    with pytest.raises(XmtcError, match=r"The checkpoint is kept: repeat the command with --checkpoint .*parts"):
        save_model(tagger, tmp_path / "thesis", pieces)
    assert pieces.is_claimed
    pieces.remove()


def move_aside(model: Path) -> Path:
    """Leave the folders of a process that was killed between the two renames."""
    holder = disk.to_hidden_path(model, MARK + disk.SAVING_SUFFIX)
    holder.mkdir()
    (holder / disk.NEW_FOLDER).mkdir()
    os.replace(model, holder / disk.OLD_FOLDER)
    return holder


def test_model_that_was_moved_aside_is_restored_on_loading(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    move_aside(tmp_path / "model")
    assert Tagger.load(tmp_path / "model").about == tagger.about
    assert os.listdir(tmp_path) == ["model"]
    move_aside(tmp_path / "model")
    tagger.save(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


def test_running_save_is_not_disturbed(tagger, tmp_path):
    with disk.atomic_folder(tmp_path / "model") as new:
        (new / "half").write_text("")
        disk.recover_folder(tmp_path / "model")
        assert (new / "half").exists()
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == ["model"]


def test_exchange_is_atomic(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "one" / "file").write_text("")
    if sys.platform == "linux":
        assert disk.exchange(tmp_path / "one", tmp_path / "other")
        assert (tmp_path / "other" / "file").exists()
        with pytest.raises(FileNotFoundError):
            disk.exchange(tmp_path / "one", tmp_path / "nobody")


def test_temporary_link_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "precious").write_text("years of work")
    monkeypatch.setattr(disk.secrets, "token_hex", lambda n: MARK)
    disk.to_hidden_path(tmp_path / "o.csv", MARK + ".part").symlink_to(tmp_path / "precious")
    with pytest.raises(XmtcError, match="cannot be written"), open_output(str(tmp_path / "o.csv")) as stream:
        stream.write(b"row")
    assert (tmp_path / "precious").read_text() == "years of work"


def test_long_names_are_accepted(tmp_path):
    name = "ü" * 120 + ".jsonl"
    with open_output(str(tmp_path / name)) as stream:
        stream.write(b"{}")
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["o.csv", "o.csv.gz", "o.csv.bz2", "o.csv.zst"])
def test_unfinished_files_of_dead_processes_are_removed(name, tmp_path):
    target = tmp_path / name
    leftover = disk.to_hidden_path(target, MARK + ".part")
    leftover.write_text("half")
    with open_output(str(target)) as first:
        first.write(b"one")
        with open_output(str(target)) as second:
            second.write(b"two")
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == [name]


HOLD = """
import sys, time
from pathlib import Path
from xmtc.core.checkpoint import Checkpoint
Checkpoint(Path(sys.argv[1])).claim("a training")
print("claimed", flush=True)
time.sleep(60)
"""


def test_two_trainings_do_not_share_a_checkpoint(tmp_path):
    mine = Checkpoint(tmp_path / "parts")
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(mine.folder)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"claimed\n"
    for training in ("a training", "another"):
        with pytest.raises(XmtcError, match="parts is in use by another training; wait until it ends, or"):
            mine.claim(training)
    with pytest.raises(XmtcError, match="is in use"):
        mine.remove()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    mine.claim("a training")
    mine.claim("a training")  # like a training that is interrupted and repeated in a notebook
    with pytest.raises(XmtcError, match="other data or parameters"):
        mine.claim("another")
    mine.claim("a training")
    mine.remove()
    assert os.listdir(tmp_path) == []
    assert not held_in(tmp_path)


def test_full_disk_keeps_earlier_checkpoint_parts(tmp_path):
    pieces = Checkpoint(tmp_path / "parts")
    pieces.claim("a training")
    pieces.save_piece("one", {"numbers": np.arange(10)})
    with files_of_at_most(1000), pytest.raises(XmtcError, match="resumes from the finished pieces"):
        pieces.save_piece("two", {"numbers": np.arange(1000)})
    assert sorted(os.listdir(tmp_path / "parts")) == ["one.npz", "training.txt"]
    pieces.save_piece("one", {"numbers": np.arange(5)})
    assert pieces.load_piece("one")["numbers"].tolist() == [0, 1, 2, 3, 4]
    (tmp_path / "parts" / "one.npz").write_bytes(b"PK half of a piece")
    with pytest.raises(XmtcError, match=r"one.npz cannot be read .*; remove it and repeat"):
        pieces.load_piece("one")
    pieces.remove()


def test_incomplete_checkpoint_claim_is_replaced(tmp_path):
    pieces = Checkpoint(tmp_path / "parts")
    pieces.folder.mkdir()
    (pieces.folder / "training.txt").write_text("a tra")
    (pieces.folder / ".tree-0.npz.0123456789abcdef.part").write_text("half")
    pieces.claim("a training")
    assert (pieces.folder / "training.txt").read_text() == "a training"
    assert os.listdir(pieces.folder) == ["training.txt"]
    pieces.remove()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return make_place(tmp_path_factory.mktemp("streams"))


@pytest.mark.parametrize(
    ("command", "streams", "code", "message"),
    [
        ("train test.jsonl -o other -p n_trees=1", "<&- >&- 2>&-", 0, ""),
        ("train test.jsonl -o other -p n_trees=1", "2>/dev/full", 0, ""),
        ("predict model test.jsonl", ">&-", 2, "Bad file descriptor"),
        ("predict model test.jsonl", ">/dev/full", 2, "No space left on device"),
        ("predict model -", "<&-", 2, "Standard input is closed"),
        ("nonsense", "2>&-", 2, ""),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_and_full_streams_are_handled(place, command, streams, code, message, unbuffered):
    words = ["bash", "-c", f'exec "$@" {streams}', "bash", *XMTC, *command.split()]
    variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(words, cwd=place, capture_output=True, env=variables, timeout=120)
    assert done.returncode == code, done.stderr
    assert message in done.stderr.decode()
    assert done.stderr.count(b"\n") <= 1


def test_finished_training_has_no_open_files(tmp_path):
    texts, tags = make_planted_corpus(60, seed=0)
    for _ in range(2):  # the second training resumes from the first
        Classifier(max_leaf=10).fit(texts, tags, run=Run(checkpoint=tmp_path / "parts"))
        assert not held_in(tmp_path)
    assert (tmp_path / "parts/training.txt").exists()


def held_in(folder: Path) -> list[Path]:
    return [path for path in checkpoint.OPEN_CLAIMS if path.is_relative_to(folder)]
