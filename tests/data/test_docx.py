"""Word documents are read as documents."""

import pytest

from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError

docx = pytest.importorskip("docx")


def test_paragraphs_and_tables_are_read(tmp_path):
    document = docx.Document()
    document.add_paragraph("Silakka meressä")
    document.add_table(1, 2).cell(0, 1).text = "lohi"
    document.save(tmp_path / "a.docx")
    (found,) = open_corpus(tmp_path, labels_required=False)
    assert found.id == "a"
    assert found.text.split() == ["Silakka", "meressä", "lohi"]


def test_damaged_file_is_named(tmp_path):
    (tmp_path / "a.docx").write_bytes(b"PK damaged")
    with pytest.raises(XmtcError, match=r"a\.docx: it cannot be read as \.docx"):
        list(open_corpus(tmp_path / "a.docx", labels_required=False))
