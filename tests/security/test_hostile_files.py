"""Hostile files through the service and the command line: each gives a one-line error and does not affect others."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import invoke
from cpu_time import limited_cpu_time
from serving import make_model

sys.path.insert(0, str(Path(__file__).parent.parent / "campaigns"))

import hostile_files
from audited import watch_access
from hostile_files import make_page, make_pdf, make_stream, make_workbook, zip_members

from xmtc.core.child_process import CHILD_POOL, ChildPool, TaskLimits
from xmtc.data import file_streams as files
from xmtc.data.corpus import open_corpus
from xmtc.data.encodings import normalise_encoding_name
from xmtc.data.formats import document_files as whole
from xmtc.data.formats import html
from xmtc.data.records import Fields
from xmtc.errors import XmtcError

for package in ("fastapi", "python_calamine", "pypdf", "trafilatura", "xlsxwriter"):
    pytest.importorskip(package)
TestClient = pytest.importorskip("starlette.testclient").TestClient

from xmtc.server.app import create_app  # noqa: E402
from xmtc.server.settings import ServiceLimits as ServiceLimits  # noqa: E402
from xmtc.server.settings import Settings  # noqa: E402

linux = pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
FAR_CELL = make_workbook({"A1": "text", "XFD1048576": "x"})
NO_CELL = make_workbook({"A1": "text", "ZZZZZZZ99999999": "x"})
TOO_MUCH = "it needs more than {:,} MiB of memory, or crashes its reader"
CYCLE = make_pdf([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R] /Count 1 >>"])
ATTRIBUTES = b"<p " + b" ".join(b"a%d=1" % i for i in range(6000)) + b">some words"
REASONS = {
    "no_cell.xlsx": (NO_CELL, "it is damaged (capacity overflow)"),
    "cycle.pdf": (CYCLE, "it cannot be read as PDF (Detected cyclic page references.), expected a complete PDF"),
    "attributes.html": (ATTRIBUTES, "a tag has 6,000 attributes, expected 5,000 at most"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("hostile") / "m")


@pytest.fixture(scope="module")
def client(model):
    with TestClient(create_app(Settings((("m", str(model)),))), base_url="http://localhost") as found:
        yield found


def upload(client, name: str, content: bytes) -> tuple[int, str]:
    answer = client.post("/v1/models/m/file", files={"file": (name, content)})
    found = answer.json()
    return answer.status_code, found["error"]["message"] if "error" in found else found["documents"]


def predict(model: Path, folder: Path, name: str, content: bytes) -> tuple[int, str]:
    (folder / name).write_bytes(content)
    done = invoke("predict", model, name, cwd=folder)
    return done.returncode, done.stderr.decode().strip().splitlines()[-1]


class TestService:
    @linux
    def test_distant_cell_is_rejected(self, client):
        assert upload(client, "a.xlsx", FAR_CELL) == (422, f"The file cannot be processed: {TOO_MUCH.format(1024)}.")
        assert upload(client, "a.txt", b"words") == (200, [{"id": "a", "text": "words"}])

    @pytest.mark.parametrize("name", REASONS)
    def test_error_contains_the_reason(self, client, name):
        content, reason = REASONS[name]
        kind = "cannot be processed" if name.endswith("xlsx") else "cannot be read as a document"
        assert upload(client, name, content) == (422, f"The file {kind}: {reason}.")

    def test_pdf_bomb_is_rejected(self, client):
        bomb = make_pdf(make_page(make_stream(b"\x78\xda" + hostile_files.deflate_blocks(60), "/Filter /FlateDecode")))
        status, said = upload(client, "a.pdf", bomb)  # pypdf has a limit of its own
        expected = "The file cannot be read as a document: it cannot be read as PDF"
        assert (status, said.partition(" (")[0]) == (422, expected)

    @linux
    @pytest.mark.parametrize("declared", [10, 2**31])
    def test_archive_with_false_sizes_is_rejected(self, client, declared):
        contents = list(hostile_files.make_parts("").items())[:-1]
        parts = [(name, hostile_files.deflate_content(content), len(content)) for name, content in contents]
        begin = hostile_files.SHEET.partition("%s")[0].encode()
        sheet = ("xl/worksheets/sheet1.xml", hostile_files.deflate_blocks(100, begin), declared)
        found = upload(client, "a.xlsx", hostile_files.zip_streams([*parts, sheet]))
        assert found == (422, f"The file cannot be processed: {TOO_MUCH.format(1024)}.")

    def test_repeated_rows_of_a_spreadsheet_are_limited(self, client):
        content = dict(hostile_files.spreadsheets())
        assert upload(client, "a.ods", content["repeated_long.ods"]) == (
            413,
            "The file has more than 10,000 documents; use `xmtc predict` for larger files.",
        )
        assert upload(client, "a.ods", content["repeated_square.ods"])[0] == 422

    def test_compression_bomb_is_rejected(self, client):
        bomb = gzip.compress(b"a" * 2**24) * 9
        assert upload(client, "a.txt", bomb) == (
            422,
            "The file cannot be read as a document: it is larger than 134,217,728 bytes, expected one document.",
        )
        status, said = upload(client, "a.csv", bomb)
        assert status == 422
        assert said.startswith("file.csv, line 1: the line is longer than 134,217,728 bytes")

    def test_compressed_workbook_is_read(self, client):
        book = gzip.compress(make_workbook({"A1": "text", "A2": "some words"}))
        assert upload(client, "a.xlsx", book) == (200, [{"id": "2", "text": "some words"}])

    @pytest.mark.parametrize("format", ["csv", "xlsx"])
    def test_one_wide_row_does_not_widen_all_rows(self, client, format):
        rows = [{"id": "", "tags": []}] * 10_000 + [{"id": "", "tags": [{"label": "a"}] * 100}]
        answer = client.post("/v1/models/m/table", json={"rows": rows, "format": format})
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            413,
            "The table would have 3,020,302 cells, expected 2,000,000 at most; send fewer rows, or use the format "
            "jsonl, which has no empty cells.",
        )
        lines = client.post("/v1/models/m/table", json={"rows": rows, "format": "jsonl"})
        assert (lines.status_code, lines.text.count("\n")) == (200, 10_001)

    def test_parsing_ends_with_its_request(self, model):
        slow = b"<html><body>" + b"<p>" * 400_000
        app = create_app(Settings((("m", str(model)),), limits=ServiceLimits(seconds=1)))
        with TestClient(app, base_url="http://localhost") as client:
            upload(client, "a.txt", b"words")  # starts the child
            for _ in range(3):
                begin = time.monotonic()
                status, said = upload(client, "a.html", slow)
                assert (status, said) in (
                    (503, "The request took longer than 1 seconds; send less at once, or retry later."),
                    (422, "The file cannot be processed: it takes longer than 1 seconds."),
                )
                assert time.monotonic() - begin < 5
            service = app.state.service
            until = time.monotonic() + 10
            while service.n_files and time.monotonic() < until:
                time.sleep(0.01)
            assert service.n_files == 0
            assert upload(client, "a.txt", b"words") == (200, [{"id": "a", "text": "words"}])

    @linux
    def test_upload_is_in_no_folder(self, model, tmp_path):
        """During reading, and therefore also after a crash."""
        script = (
            "import os, sys, threading, time; from pathlib import Path; from starlette.testclient import TestClient; "
            "from xmtc.server.app import create_app; from xmtc.server.settings import Settings\n"
            "if __name__ == '__main__':\n"
            f"    app = create_app(Settings((('m', {str(model)!r}),)))\n"
            "    with TestClient(app, base_url='http://localhost') as client:\n"
            "        page = {'file': ('a.html', b'<html><body>' + b'<p>' * 400_000)}\n"
            "        ask = threading.Thread(target=client.post, args=('/v1/models/m/file',), kwargs={'files': page})\n"
            "        ask.start(); time.sleep(1.5); print('reading', flush=True); time.sleep(60)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout.readline() == b"reading\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_upload_without_memfd_is_removed(tmp_path, monkeypatch):
    """As on macOS and Windows, the child can write to its own temporary folder, which it removes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    children = ChildPool(idle_seconds=0)
    request = {"name": "a.csv", "column": None, "remembered": None, "encoding": None}
    (found,) = children.run("child_tasks:upload_without_memfd", request, b"text\nwords\n")
    assert json.loads(found)["documents"] == [{"id": "2", "text": "words"}]
    (refused,) = children.run("child_tasks:upload_without_memfd", request, b"text\n")
    children.close()
    assert refused == [422, "file.csv is empty, expected at least one document; check where it comes from."]
    assert list(tmp_path.iterdir()) == []


class TestCommand:
    @linux
    def test_distant_cell_is_rejected(self, model, tmp_path):
        said = "xmtc: a.xlsx cannot be read as a workbook ({}); open it in a spreadsheet and save it as .xlsx."
        assert predict(model, tmp_path, "a.xlsx", FAR_CELL) == (2, said.format(TOO_MUCH.format(2048)))
        assert predict(model, tmp_path, "a.xlsx", NO_CELL) == (2, said.format("it is damaged (capacity overflow)"))

    @pytest.mark.parametrize("name", [name for name in REASONS if not name.endswith("xlsx")])
    def test_error_contains_the_reason(self, model, tmp_path, name):
        content, reason = REASONS[name]
        assert predict(model, tmp_path, name, content) == (
            2,
            f"xmtc: {name}, file {name}: {reason}; fix it, or skip such lines with --on-error skip.",
        )

    def test_death_of_a_child_rejects_one_file_of_a_folder(self, tmp_path, monkeypatch):
        pages = {
            "a": b"<p>The first page, with words enough.</p>" * 3,
            "c": b"<p>The last page, with enough words.</p>" * 3,
        }
        slow = b"<html><body>" + b"<p>" * 400_000
        for name, content in (pages | {"b": slow}).items():
            (tmp_path / f"{name}.html").write_bytes(content)
        monkeypatch.setattr(whole.TaskLimits, "for_file_size", lambda _: TaskLimits(seconds=1))
        list(
            CHILD_POOL.run("xmtc.data.formats.document_files:parse", ["html", None, None], pages["a"])
        )  # starts the child
        with watch_access(tmp_path):
            corpus = open_corpus(tmp_path, fields=Fields(labels=None), labels_required=False, on_error="skip")
            assert [document.id for document in corpus] == ["a", "c"]
        assert corpus.rejects.first_bad_line.reason == "it takes longer than 1 seconds, expected a smaller document"

    def test_endless_line_is_rejected(self, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(b'{"text": "a", "labels": []}\n' + b"x" * files.MAX_LINE_BYTES)
        with pytest.raises(XmtcError) as raised:
            list(open_corpus(tmp_path / "a.jsonl"))
        assert str(raised.value) == (
            f"{tmp_path}/a.jsonl, line 2: the line is longer than 134,217,728 bytes, expected one document per line; "
            "check the file, or pass --input-format."
        )


@pytest.mark.parametrize("name", ["zip", "base64", "rot13", "idna", "punycode", "undefined", "unicode_escape", "utf-7"])
def test_codecs_that_are_not_file_encodings_are_rejected(name):
    with pytest.raises(XmtcError, match=f"^There is no encoding '{name}'; "):
        normalise_encoding_name(name)
    page = f'<meta charset="{name}"><p>Käse</p>'.encode("cp1252")
    assert html.find_declared_encoding(page) is None
    assert "Käse" in html.extract(page + b"<p>Some more words of the page.</p>" * 5, None, None).text


def test_title_in_linear_time():
    assert html.extract_title("<TITLE x>A &amp;\n b</Title>") == "A & b"
    with limited_cpu_time(0.5):
        assert html.extract_title("<title>" * 300_000) == ""
        assert html.extract_title("<title " * 300_000) == ""


def test_slashes_in_a_long_attribute_are_not_counted_as_attributes():
    page = "<img alt='" + "word / " * 9000 + "' src=\"data:" + "/" * 9000 + '">'
    html.check_tags(page)


def test_archive_of_many_arrays_is_rejected(tmp_path):
    (tmp_path / "X.npz").write_bytes(zip_members({f"{i}.npy": b"" for i in range(17)}))
    with pytest.raises(XmtcError, match=r"X\.npz is not a sparse matrix saved by scipy"):
        list(open_corpus(tmp_path / "X.npz", labels_required=False))


def test_files_of_the_campaign_are_small_and_reproducible():
    found = dict(hostile_files.hostile_files())
    assert found == dict(hostile_files.hostile_files())
    assert len(found) > 90
    assert max(map(len, found.values())) < 2_000_000
