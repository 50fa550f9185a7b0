"""Text fields of a corpus with weights, and side columns, as parts of one text.

`title^2,abstract` reads the title as if it stood twice in the text. `publisher:category` and `year:number` become
words, so that every method and every view reads them: `publisher_springer`, and for a number one word for each number
of leading digits, `year_19e2` and `year_199e1`, which are nested bins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, NamedTuple

MAX_WEIGHT = 9
MAX_DIGITS = 4  # leading digits of the finest bin of a number
TEXT_KIND, CATEGORY_KIND, NUMBER_KIND = "text", "category", "number"
FIELD_PATTERN = re.compile(rf"(.+?)(?::({CATEGORY_KIND}|{NUMBER_KIND}))?(?:\^([1-{MAX_WEIGHT}]))?")


class TextField(NamedTuple):
    """Name of a field, its kind, and how often its words count."""

    name: str
    kind: str = TEXT_KIND
    weight: int = 1

    @classmethod
    def parse(cls, setting: str) -> TextField:
        """Parse `title`, `title^2`, `publisher:category` or `year:number^3`."""
        match = FIELD_PATTERN.fullmatch(setting)
        return cls(match[1], match[2] or TEXT_KIND, int(match[3] or 1)) if match else cls(setting)

    def to_text(self, value: Any) -> str:
        """Return the words of a value, repeated according to the weight; raise ValueError if it has another type."""
        if value is None or value == "":
            return ""
        if self.kind == TEXT_KIND:
            if not isinstance(value, str):
                raise ValueError("a string")
            text = value
        elif self.kind == CATEGORY_KIND:
            text = " ".join(self._list_category_words(value))
        else:
            text = " ".join(self._list_number_words(value))
        return " ".join([text] * self.weight)

    def _list_category_words(self, value: Any) -> Iterator[str]:
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, (str, int, float)):
                raise ValueError("a category: a string, a number or a list of these")
            yield join_words(f"{self.name} {item}")

    def _list_number_words(self, value: Any) -> Iterator[str]:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError("a number") from None
        if not isfinite(number):
            return
        digits, exponent = f"{abs(number):.{MAX_DIGITS - 1}e}".replace(".", "").split("e")
        sign = "m" if number < 0 else ""
        for n in range(1, MAX_DIGITS + 1):
            power = int(exponent) - n + 1
            yield join_words(f"{self.name} {sign}{digits[:n]}e{'m' if power < 0 else ''}{abs(power)}")


def parse_text_fields(setting: str) -> tuple[TextField, ...]:
    """Parse the fields of `Fields.text`, separated by commas."""
    return tuple(TextField.parse(name.strip()) for name in setting.split(","))


def join_words(text: str) -> str:
    """Return the words of a text joined by underscores, so that they are one word."""
    return "_".join(re.findall(r"\w+", text))
