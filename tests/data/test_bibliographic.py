"""Bibliographic records are read as documents."""

import pytest

from xmtc.data.corpus import open_corpus
from xmtc.data.records import Fields
from xmtc.errors import XmtcError

pymarc = pytest.importorskip("pymarc")
pytest.importorskip("rispy")
pytest.importorskip("bibtexparser")

MARCXML = """<?xml version="1.0"?><collection xmlns="http://www.loc.gov/MARC21/slim"><record>
<controlfield tag="001">x1</controlfield>
<datafield tag="245" ind1="0" ind2="0"><subfield code="a">Silakka /</subfield>
<subfield code="c">Aho</subfield></datafield>
<datafield tag="650" ind1=" " ind2="7"><subfield code="a">kalat.</subfield>
<subfield code="x">merissä</subfield></datafield>
</record></collection>"""
MODS = """<modsCollection xmlns="http://www.loc.gov/mods/v3"><mods><titleInfo><title>Silakka</title></titleInfo>
<subject valueURI="http://y/1"><topic>kalat</topic></subject><recordInfo><recordIdentifier>m1</recordIdentifier>
</recordInfo></mods></modsCollection>"""
OAI = """<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><ListRecords><record><header><identifier>oai:1</identifier>
</header><metadata><dc xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Silakka</dc:title>
<dc:subject>kalat</dc:subject></dc></metadata></record></ListRecords></OAI-PMH>"""
RIS = "TY  - JOUR\nTI  - Silakka\nKW  - kalat\nKW  - meret\nTY  - BOOK\nTI  - Lohi\nKW  - kalat\nER  - \n"
BIBTEX = '@article{k1, title={The {Herring} of M\\"uller}, keywords={kalat, meret}}\n'


def make_marc(title: str, *subjects: str) -> bytes:
    record = pymarc.Record(force_utf8=True)
    record.add_field(pymarc.Field("001", data="m1"))
    for tag, value in [("245", title), *(("650", subject) for subject in subjects)]:
        record.add_field(pymarc.Field(tag, pymarc.Indicators(" ", "4"), [pymarc.Subfield("a", value)]))
    return record.as_marc()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.mrc", make_marc("Silakka", "kalat", "meret"), [("m1", "Silakka", ["kalat", "meret"])]),
        ("a.xml", MARCXML.encode(), [("x1", "Silakka", ["kalat--merissä"])]),
        ("b.xml", MODS.encode(), [("m1", "Silakka", ["kalat"])]),
        ("c.xml", OAI.encode(), [("oai:1", "Silakka", ["kalat"])]),
        ("a.ris", RIS.encode(), [("1", "Silakka", ["kalat", "meret"]), ("2", "Lohi", ["kalat"])]),
        ("a.bib", BIBTEX.encode(), [("k1", "The Herring of Müller", ["kalat", "meret"])]),
    ],
)
def test_each_format_has_default_fields(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    documents = list(open_corpus(tmp_path / name))
    assert [(document.id, document.text, document.labels) for document in documents] == expected


def test_fields_and_subfields_can_be_selected(tmp_path):
    (tmp_path / "a.xml").write_text(MARCXML)
    (document,) = open_corpus(tmp_path / "a.xml", fields=Fields("245$c", "650$a"))
    assert (document.text, document.labels) == ("Aho", ["kalat"])


def test_damaged_marc_record_does_not_affect_the_next(tmp_path):
    path = tmp_path / "a.mrc"
    path.write_bytes(make_marc("Silakka", "kalat") + b"00042 damaged\x1d" + make_marc("Lohi", "kalat"))
    with pytest.raises(XmtcError, match="record 2: it is not a MARC 21 record"):
        list(open_corpus(path))
    corpus = open_corpus(path, on_error="skip")
    assert [document.text for document in corpus] == ["Silakka", "Lohi"]
    assert corpus.n_rejected == 1


def test_wrong_label_field_is_an_error(tmp_path):
    (tmp_path / "a.ris").write_text(RIS)
    with pytest.raises(XmtcError, match="no record has the field 'K1'"):
        list(open_corpus(tmp_path / "a.ris", fields=Fields(labels="K1")))
