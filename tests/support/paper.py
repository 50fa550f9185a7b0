"""Minimal PDF files."""

from __future__ import annotations


def pdf(*pages: str) -> bytes:
    """Return a PDF with one line of text on each page."""
    kids = " ".join(f"{3 + 2 * i} 0 R" for i in range(len(pages)))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>"]
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    for i, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        resources = f"/Resources << /Font << /F1 {font} >> >> /Contents {4 + 2 * i} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {resources} >>")
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    content, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(content))
        content += f"{number} 0 obj\n{each}\nendobj\n".encode()
    entries = "".join(f"{place:010d} 00000 n \n" for place in places)
    table = f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{entries}"
    end = f"trailer << /Size {len(places) + 1} /Root 1 0 R >>\nstartxref\n{len(content)}\n%%EOF\n"
    return content + f"{table}{end}".encode()
