"""Measure how often the encoding of a short text is detected wrongly.

Encodes up to 500 real texts of each language in each encoding, detects the encoding of each text alone and of all texts
as one folder, and counts the texts that are not decoded as they were. Finnish texts come from the corpus makupalat-fi,
the others are paragraphs of the manual pages and messages of the gettext catalogues on this machine. A page or
catalogue is either in the development or in the test part, or in neither: the letter pairs of xmtc/data are counted in
the other catalogues.

    python benchmarks/encodings.py --data ../shared/data --part test
    python benchmarks/encodings.py --write-pairs"""

from __future__ import annotations

import argparse
import gettext
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from zlib import crc32

from xmtc.data.encodings import detect_encoding

WESTERN = ("utf-8", "utf-16-le", "windows-1252", "iso8859-15", "mac-roman", "cp850")
ENCODINGS = dict.fromkeys(("fi", "sv", "de", "fr", "es", "it"), WESTERN)
OTHERS = {
    "pl": ("windows-1250", "iso8859-2"),
    "cs": ("windows-1250", "iso8859-2"),
    "ru": ("windows-1251", "koi8-r"),
    "ja": ("shift_jis", "euc_jp"),
}
LANGUAGES = (
    *("bg", "ca", "cs", "da", "de", "el", "en_GB", "es", "et", "fi", "fr", "hr", "hu", "is", "it", "lt", "lv", "nb"),
    *("nl", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk"),
)
PARTS = ("pairs", "pairs", "dev", "test")  # of the gettext catalogues
UNIT, MIN_ASCII_PAIRS, MIN_OTHER_PAIRS = 1_000_000, 30, 2  # rarer pairs come from foreign names
PAIRS_FILE = Path(__file__).resolve().parents[1] / "xmtc" / "data" / "letter_pairs.py"
PAIRS_HEADER = '''"""Pairs of letters per million by language; a blank is the beginning or the end of a word.

Written by benchmarks/encodings.py --write-pairs from gettext catalogues."""
# ruff: noqa: E501
# fmt: off

LETTER_PAIRS: dict[str, dict[str, int]] = {
'''
MIN_CHARACTERS, MAX_CHARACTERS = 40, 1000
MOJIBAKE = re.compile("Ã[\x80-¿]")  # pages that were encoded twice
FORMATTING = re.compile(r"\\f.|\\&|\\,|\\/|\\:")


def read_makupalat(folder: Path, part: str) -> Iterator[str]:
    for name in ("train",) if part == "dev" else ("dev", "test"):
        with gzip.open(folder / "makupalat-fi" / f"{name}.tsv.gz", "rt", encoding="utf-8") as lines:
            yield from (line.split("\t")[0] for line in lines)


def read_manuals(folder: Path, language: str, part: str) -> Iterator[str]:
    """Yield the paragraphs of the pages of one part; a page is in one part only."""
    for file in sorted((folder / language).rglob("*.gz")):
        if (crc32(file.name.encode()) % 2 == 0) != (part == "dev"):
            continue
        try:
            page = gzip.decompress(file.read_bytes()).decode()
        except (OSError, UnicodeDecodeError):
            continue
        for paragraph in re.split(r"\n(?:[.'].*\n?|\s*\n)+", page):
            text = FORMATTING.sub("", paragraph).replace("\\-", "-").replace("\n", " ").strip()
            if "\\" not in text and not text.startswith((".", "'")) and not MOJIBAKE.search(text):
                yield text


def read_messages(folder: Path, language: str, part: str) -> Iterator[str]:
    """Yield the translated messages of one part; names of countries, languages and currencies are left out."""
    for file in sorted(folder.glob(f"{language}*/LC_MESSAGES/*.mo")):
        is_language = file.parts[-3].partition("_")[0] == language.partition("_")[0]
        if not is_language or file.name.startswith("iso_") or PARTS[crc32(file.stem.encode()) % len(PARTS)] != part:
            continue
        try:
            with file.open("rb") as stream:
                catalogue = gettext.GNUTranslations(stream)._catalog  # type: ignore[attr-defined]
        except (OSError, UnicodeError, ValueError):
            continue
        yield from (text for source, text in catalogue.items() if source and isinstance(text, str))


def count_pairs(messages: set[str]) -> dict[str, int]:
    """Return the pairs of letters per million; a blank is the beginning or the end of a word."""
    counts: Counter[str] = Counter()
    for text in messages:
        letters = "".join(letter if letter.isalpha() else " " for letter in f" {text.lower()} ")
        counts.update(letters[i : i + 2] for i in range(len(letters) - 1))
    del counts["  "]
    total = sum(counts.values())
    shares = {pair: round(count * UNIT / total) for pair, count in counts.most_common()}
    return {
        pair: share
        for pair, share in shares.items()
        if share >= (MIN_ASCII_PAIRS if pair.isascii() else MIN_OTHER_PAIRS)
    }


def write_pairs(folder: Path) -> None:
    table = {name.partition("_")[0]: count_pairs(set(read_messages(folder, name, "pairs"))) for name in LANGUAGES}
    lines = (f'    "{name}": {json.dumps(pairs, ensure_ascii=False)},' for name, pairs in table.items())
    PAIRS_FILE.write_text(PAIRS_HEADER + "\n".join(lines) + "\n}\n", "utf-8")


def choose_texts(texts: Iterator[str], encodings: tuple[str, ...], size: int, seed: int) -> list[str]:
    """Return distinct texts that are not ASCII and that every encoding can write."""
    fit = (text[:MAX_CHARACTERS] for text in texts if len(text) >= MIN_CHARACTERS)
    candidates = [text for text in dict.fromkeys(fit) if not text.isascii() and can_encode(text, encodings)]
    return Random(seed).sample(candidates, min(size, len(candidates)))


def can_encode(text: str, encodings: tuple[str, ...]) -> bool:
    try:
        return all(text.encode(name).decode(name) == text for name in encodings)
    except UnicodeError:
        return False


def is_detected(text: str, encoding: str, hint: str | None = None) -> bool:
    content = text.encode(encoding)
    found = detect_encoding(content, is_whole=True, encoding_hint=hint).name
    try:
        return content.decode(found) == text
    except UnicodeDecodeError:
        return False


def detect_folder(texts: list[str], encoding: str) -> str:
    """Return the encoding of all texts together, as the files of a folder vote."""
    return detect_encoding("\n".join(texts).encode(encoding), is_whole=True).name


def read_texts(language: str, options: argparse.Namespace) -> Iterator[str]:
    if language == "fi":
        yield from read_makupalat(options.data, options.part)
        return
    seen = set(read_messages(options.catalogues, language, "pairs"))
    yield from read_manuals(options.manuals, language, options.part)
    messages = read_messages(options.catalogues, language, options.part)
    yield from (text.replace("\n", " ") for text in messages if text not in seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--manuals", type=Path, default=Path("/usr/share/man"))
    parser.add_argument("--catalogues", type=Path, default=Path("/usr/share/locale"))
    parser.add_argument("--part", choices=("dev", "test"), default="test")
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="Number of wrong texts to print.")
    parser.add_argument("--write-pairs", action="store_true", help="Write the letter pairs of xmtc/data instead.")
    options = parser.parse_args()
    if options.write_pairs:
        return write_pairs(options.catalogues)
    print("| language | texts | encoding | wrong | wrong in a folder |\n|---|---|---|---|---|")
    n_texts = n_wrong = n_wrong_in_folder = 0
    for language, encodings in (ENCODINGS | OTHERS).items():
        source = read_texts(language, options)
        texts = choose_texts(source, encodings, options.size, options.seed)
        for encoding in encodings:
            wrong = [text for text in texts if not is_detected(text, encoding)]
            hint = detect_folder(texts, encoding)
            in_folder = [text for text in wrong if not is_detected(text, encoding, hint)]
            print(f"| {language} | {len(texts)} | {encoding} | {len(wrong)} | {len(in_folder)} |", flush=True)
            for text in wrong[: options.show]:
                found = detect_encoding(text.encode(encoding), is_whole=True)
                print("   ", found, text[:160])
            if language in ENCODINGS:
                n_texts += len(texts)
                n_wrong += len(wrong)
                n_wrong_in_folder += len(in_folder)
    print(f"\n{n_wrong:,} of {n_texts:,} wrong ({n_wrong / n_texts:.2%}), {n_wrong_in_folder:,} in folders")


if __name__ == "__main__":
    main()
