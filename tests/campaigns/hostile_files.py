"""Small files that exhaust memory or time, crash a parser, or make it open another file.

`hostile_files` yields the name and the content of each, the same in every run; each is smaller than 2 MB. The campaign
of readers opens them as corpora, the campaign of the service uploads them, and tests/security has the smallest of each.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow

TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
    'ContentType="application/xml"/></Types>'
)
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{RELATIONS}/%s" Target="%s"/></Relationships>'
)
BOOK = (
    f'<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="{RELATIONS}"><sheets>'
    '<sheet name="S" sheetId="1" r:id="rId1"/></sheets></workbook>'
)
SHEET = (
    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>%s</sheetData></worksheet>'
)
CELL = '<row r="{row}"><c r="{name}" t="inlineStr"><is><t>{text}</t></is></c></row>'
ZEROS = 2**24  # bytes that one block of a bomb decompresses to


def hostile_files() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of every file."""
    for kind in (workbooks, spreadsheets, pdfs, pages, compressed, lines, arrays):
        yield from kind()


def deflate_blocks(n_blocks: int, begin: bytes = b"", fill: bytes = b" ") -> bytes:
    """Return a raw deflate stream of n_blocks × ZEROS bytes, in a thousandth of them."""
    packer = zlib.compressobj(9, wbits=-15)
    head = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(fill * ZEROS) + packer.flush(zlib.Z_FULL_FLUSH)
    packer = zlib.compressobj(9, wbits=-15)
    return head + block * n_blocks + packer.flush(zlib.Z_FINISH)


def make_workbook(cells: dict[str, str]) -> bytes:
    """Return a workbook with texts in cells, one row for each."""
    rows = [CELL.format(row=i, name=name, text=text) for i, (name, text) in enumerate(cells.items(), 1)]
    return zip_members(make_parts(SHEET % "".join(rows)))


def make_parts(sheet: str) -> dict[str, bytes]:
    return {
        "[Content_Types].xml": TYPES.encode(),
        "_rels/.rels": (RELS % ("officeDocument", "xl/workbook.xml")).encode(),
        "xl/workbook.xml": BOOK.encode(),
        "xl/_rels/workbook.xml.rels": (RELS % ("worksheet", "worksheets/sheet1.xml")).encode(),
        "xl/worksheets/sheet1.xml": sheet.encode(),
    }


def zip_members(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def zip_streams(members: list[tuple[str, bytes, int]], repeat: int = 1) -> bytes:
    """Return an archive from names, raw deflate streams and declared sizes.

    Every member is listed `repeat` times under different names with the same content.
    """
    body, directory, n = b"", b"", 0
    for name, content, size in members:
        place = len(body)
        common = struct.pack("<HHHHHIII", 20, 0, 8, 0, 33, 0, len(content), size)
        body += b"PK\x03\x04" + common + struct.pack("<HH", len(name), 0) + name.encode() + content
        for i in range(repeat):
            called = (name if i == 0 else f"{i}{name}").encode()
            tail = struct.pack("<HHHHHII", len(called), 0, 0, 0, 0, 0, place)
            directory += b"PK\x01\x02" + struct.pack("<H", 20) + common + tail + called
            n += 1
    end = struct.pack("<HHHHIIH", 0, 0, n, n, len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def deflate_content(content: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(content) + packer.flush()


def workbooks() -> Iterator[tuple[str, bytes]]:
    yield "far_cell.xlsx", make_workbook({"A1": "text", "XFD1048576": "x"})
    yield "wide_rows.xlsx", make_workbook({"A1": "text", "XFD12000": "x"})
    yield "cell_beyond_all.xlsx", make_workbook({"A1": "text", "ZZZZZZZ99999999": "x"})
    yield "cell_without_row.xlsx", make_workbook({"A0": "text", "A": "x", "1": "y"})
    yield "deep_xml.xlsx", zip_members(make_parts(SHEET % ("<a>" * 200_000)))
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "ha" * 10}">' for i in range(10))
    yield (
        "entities.xlsx",
        zip_members(make_parts(f"<!DOCTYPE x [{entities}]>" + SHEET % CELL.format(row=1, name="A1", text="&e9;"))),
    )
    others = [
        (name, deflate_content(content), len(content))
        for name, content in make_parts("").items()
        if "sheet1" not in name
    ]
    begin = (SHEET % "").partition("</sheetData>")[0].encode()
    for name, size in (("says_what_it_holds", 100 * ZEROS), ("says_ten_bytes", 10), ("says_four_gigabytes", 2**32 - 2)):
        yield f"{name}.xlsx", zip_streams([*others, ("xl/worksheets/sheet1.xml", deflate_blocks(100, begin), size)])
    strings = b'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><si><t>'
    yield "strings.xlsx", zip_streams([*others, ("xl/sharedStrings.xml", deflate_blocks(100, strings, b"x"), 10)])
    yield (
        "overlapping.xlsx",
        zip_streams([*others, ("xl/worksheets/sheet1.xml", deflate_blocks(20, begin), 20 * ZEROS)], 2000),
    )
    yield "nested.xlsx", zip_members({"xl/workbook.xml": zip_members({"xl/workbook.xml": BOOK.encode()})})
    yield (
        "binary.xlsb",
        zip_members({"xl/workbook.bin": bytes(range(256)) * 40, "xl/worksheets/sheet1.bin": b"\xff" * 9999}),
    )
    yield (
        "junk.xls",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + b"\x3e\x00\x03\x00\xfe\xff\x09\x00" + b"\xfe" * 9000,
    )
    yield "biff.xls", b"\x09\x08\x10\x00\x00\x06\x05\x00" + b"\xff\xff\xff\xff" * 2000


def spreadsheets() -> Iterator[tuple[str, bytes]]:
    names = "office:1.0 table:1.0 text:1.0".split()
    spaces = " ".join(f'xmlns:{n.split(":")[0]}="urn:oasis:names:tc:opendocument:xmlns:{n}"' for n in names)
    for name, rows, columns in (("square", 1048576, 16384), ("long", 1048576, 1), ("numbers", 2**63, 2**63)):
        cell = (
            f'<table:table-cell table:number-columns-repeated="{columns}" office:value-type="string"><text:p>x</text:p>'
        )
        row = f'<table:table-row table:number-rows-repeated="{rows}">{cell}</table:table-cell></table:table-row>'
        content = (
            f"<office:document-content {spaces}><office:body><office:spreadsheet><table:table table:name='S'>"
            f"{row}</table:table></office:spreadsheet></office:body></office:document-content>"
        )
        kind = b"application/vnd.oasis.opendocument.spreadsheet"
        manifest = b'<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
        members = {"mimetype": kind, "content.xml": content.encode(), "META-INF/manifest.xml": manifest}
        yield f"repeated_{name}.ods", zip_members(members)


def make_pdf(objects: list[bytes], tail: str = "") -> bytes:
    """Return a PDF of numbered objects, the first of which is the catalogue."""
    content, places = b"%PDF-1.7\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    begin = len(content)
    content += f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{table}".encode()
    trailer = f"trailer << /Size {len(places) + 1} /Root 1 0 R {tail} >>".replace("@", str(begin))
    return content + f"{trailer}\nstartxref\n{begin}\n%%EOF\n".encode()


def make_stream(content: bytes, entries: str = "", length: int | None = None) -> bytes:
    size = len(content) if length is None else length
    return f"<< /Length {size} {entries} >>\nstream\n".encode() + content + b"\nendstream"


def make_page(content: bytes, *more: bytes, resources: str = "") -> list[bytes]:
    """Return the objects of a document of one page, whose content is object 4."""
    font = "/Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources << {resources or font} >> /Contents 4 0 R >>"
    return [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        page.encode(),
        content,
        *more,
    ]


def pdfs() -> Iterator[tuple[str, bytes]]:
    words = b"BT /F1 12 Tf (words) Tj ET\n"
    bomb = b"\x78\xda" + deflate_blocks(60, words)
    yield "flate_bomb.pdf", make_pdf(make_page(make_stream(bomb, "/Filter /FlateDecode")))
    yield (
        "text_bomb.pdf",
        make_pdf(make_page(make_stream(b"\x78\xda" + deflate_blocks(4, fill=b"(x)Tj "), "/Filter /FlateDecode"))),
    )
    twice = zlib.compress(b"\x78\xda" + deflate_blocks(100))
    yield "flate_twice.pdf", make_pdf(make_page(make_stream(twice, "/Filter [/FlateDecode /FlateDecode]")))
    many = " ".join(["/ASCIIHexDecode"] * 5000)
    yield "many_filters.pdf", make_pdf(make_page(make_stream(b"41" * 1000, f"/Filter [{many}]")))
    yield "length_lie.pdf", make_pdf(make_page(make_stream(words, length=2**62)))
    yield "negative_length.pdf", make_pdf(make_page(make_stream(words, length=-5)))
    catalogue = b"<< /Type /Catalog /Pages 2 0 R >>"
    yield "pages_of_themselves.pdf", make_pdf([catalogue, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 4 >>"])
    kids = b"<< /Type /Pages /Kids [%s] /Count 1000000000 >>"
    yield (
        "pages_of_pages.pdf",
        make_pdf([catalogue, *(kids % (b"%d 0 R " % (i + 3) * 10) for i in range(30)), b"<< /Type /Page >>"]),
    )
    yield "one_page_often.pdf", make_pdf([catalogue, kids % (b"3 0 R " * 200_000), b"<< /Type /Page /Parent 2 0 R >>"])
    form = "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X {n} 0 R >> >>"
    own = "/XObject << /X 5 0 R >>"
    draws = b"/X Do " * 10
    yield (
        "form_of_itself.pdf",
        make_pdf(make_page(make_stream(draws), make_stream(draws, form.format(n=5)), resources=own)),
    )
    forms = [make_stream(draws, form.format(n=i + 6)) for i in range(12)]
    yield "forms_of_forms.pdf", make_pdf(make_page(make_stream(draws), *forms, make_stream(words, ""), resources=own))
    yield "xref_loop.pdf", make_pdf(make_page(make_stream(words)), "/Prev @")
    yield "object_of_itself.pdf", make_pdf([b"1 0 R", b"2 0 R"])
    cmap = b"begincmap 1 beginbfrange <00000000> <FFFFFFFF> <0000> endbfrange endcmap"
    kind0 = "/Font << /F1 << /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode 5 0 R >> >>"
    yield "cmap.pdf", make_pdf(make_page(make_stream(words), make_stream(cmap), resources=kind0))
    yield "deep_array.pdf", make_pdf([b"[" * 300_000])
    yield "deep_dictionary.pdf", make_pdf([b"<< /A " * 200_000])
    yield "many_operators.pdf", make_pdf(make_page(make_stream(b"q " * 600_000 + words)))
    yield "many_headers.pdf", b"%PDF-1.4\n" + b"xref\n0 999999999\n" * 50_000
    yield "many_objects.pdf", b"%PDF-1.4\n" + b"1 0 obj\n" * 150_000 + b"startxref\n5\n%%EOF"


def pages() -> Iterator[tuple[str, bytes]]:
    words = b"<p>Some words of a page, and enough of them to be found.</p>"
    tags = {"div": b"div", "b": b"b", "tables": b"table><tr><td", "lists": b"ul><li", "a": b"a", "svg": b"svg"}
    for name, tag in tags.items():
        n = {"a": 100_000, "tables": 60_000, "lists": 60_000}.get(name, 300_000)
        yield f"nested_{name}.html", b"<html><body>" + b"<%s>" % tag * n + words
    yield "attributes.html", b"<p " + b" ".join(b"a%d=1" % i for i in range(200_000)) + b">" + words
    yield "attributes_without_values.html", b"<p " + b"/".join(b"a%d" % i for i in range(200_000)) + b">" + words
    yield "titles.html", b"<title>" * 200_000 + words
    yield "titles_open.html", b"<title " * 200_000 + words
    yield "comments.html", b"<!--" * 400_000 + words
    yield "paragraphs.html", b"<p>" * 200_000 + words
    yield "links.html", b"<a href='x'>y</a>" * 100_000
    entities = b"".join(b'<!ENTITY e%d "%s">' % (i, b"&e%d;" % (i - 1) * 10 if i else b"ha") for i in range(12))
    yield "entities.html", b"<!DOCTYPE html [" + entities + b"]><p>&e11;</p>" + words
    yield (
        "include.html",
        b'<x xmlns:i="http://www.w3.org/2001/XInclude"><i:include href="file:///etc/passwd"/></x>' + words,
    )
    for charset in (
        "zip",
        "base64",
        "utf-7",
        "idna",
        "punycode",
        "undefined",
        "unicode_escape",
        "rot13",
        "utf-16",
        "x" * 99,
    ):
        yield f"charset_{charset[:20]}.html", b'<meta charset="%s">' % charset.encode() + words + b"\xe4\xff-" * 100_000
    yield "surrogates.html", b"<p>&#xD800;&#x110000;&#99999999999999999999;</p>" + words


def compressed() -> Iterator[tuple[str, bytes]]:
    member = gzip.compress(b"a" * ZEROS, 9, mtime=0)
    for end in ("txt", "csv", "jsonl", "html", "pdf", "xlsx"):
        yield f"gzip_bomb.{end}", member * 100
    yield "bzip2_bomb.txt", bz2.compress(b"a" * ZEROS) * 200
    yield "zstd_bomb.csv", pyarrow.compress(b"a" * ZEROS, "zstd", asbytes=True) * 200
    yield "gzip_of_gzip.txt", gzip.compress(member * 100, mtime=0)


def lines() -> Iterator[tuple[str, bytes]]:
    yield "deep.jsonl", b"[" * 1_000_000
    yield "deep_object.jsonl", b'{"text":' * 200_000
    yield "deep_field.jsonl", b'{"text": "a", "x": ' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    yield "number.jsonl", b'{"text": "a", "id": ' + b"9" * 1_000_000 + b"}"
    yield "float.jsonl", b'{"text": "a", "id": 1e999999999}\n' * 1000
    yield "keys.jsonl", json.dumps({"text": "a"} | {f"k{i}": 1 for i in range(100_000)}).encode()
    yield "many_keys.jsonl", b"".join(b'{"text": "a", "%d": 1}\n' % i for i in range(60_000))
    yield "columns.csv", b"text," + b"a," * 600_000 + b"\n" + b"x," * 300_000
    yield "no_text_column.csv", b",".join(b"c%d" % i for i in range(200_000)) + b"\n1\n"
    yield "rows.csv", b"text\n" + b"a\n" * 900_000
    yield "open_quote.csv", b'text\n"' + b"a\n" * 900_000
    yield "quotes.csv", b"text\n" + b'"' * 1_900_001
    yield "blank.csv", b"text\n" + b"\n" * 1_900_000
    yield "blank.jsonl", b" \n" * 900_000
    yield "formulas.csv", b"text\n=cmd|'/c calc'!A1\n"
    yield "nul.txt", bytes(1_000_000)
    yield "tabs.tsv", b"\t" * 1_000_000
    yield "escape.txt", b"\x1b]0;title\x07\x1b[2J" * 1000


def arrays() -> Iterator[tuple[str, bytes]]:
    shaped = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        shaped, {"descr": "<f8", "fortran_order": False, "shape": ((2**32 - 2 - 128) // 8,)}
    )
    header = shaped.getvalue()
    names = ["data", "indices", "indptr", "shape", "format"]
    yield "shapes.npz", zip_members({f"{name}.npy": header for name in names})
    yield "sizes.npz", zip_streams([(f"{name}.npy", deflate_content(header), 2**32 - 2) for name in names[:1]])
    yield "overlapping.npz", zip_streams([("data.npy", deflate_blocks(60, header), 60 * ZEROS + len(header))], 5000)
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], object), allow_pickle=True)
    yield "pickled.npz", zip_members({f"{name}.npy": pickled.getvalue() for name in names})
    yield "footer.parquet", b"PAR1" + bytes(100) + struct.pack("<I", 2**31 - 1) + b"PAR1"
    yield "junk.parquet", b"PAR1" + b"\xff" * 5000 + struct.pack("<I", 4000) + b"PAR1"
    yield "numbers.svm", b"1 99999999999999999999:1\n1 1:1e999\n-1 " + b"9" * 100_000 + b":1\n"
    yield "header.txt", b"999999999999999999 999999999999999999 999999999999999999\n1 1:1\n"
