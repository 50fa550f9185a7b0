"""Plain text: a file, or with --whole standard input, is one document."""

from __future__ import annotations

from functools import partial

from xmtc.data.formats import Format
from xmtc.data.formats.whole import Content, decoded, read_one


def extract(raw: bytes, told: str | None, likely: str | None) -> Content:
    text, encoding = decoded(raw, told, likely)
    return Content(text, encoding=encoding)


TEXT = Format("text", partial(read_one, extract=extract))
