"""Small library corpus: topics with their own words, names in two languages, and one malicious name."""

from __future__ import annotations

import json
import random
from pathlib import Path

from commands import xmtc

ATTACK = "<img src=x onerror=\"document.title='taken over'\">"
TOPICS = {
    "garden": ("gardening", "puutarhanhoito", "roses soil seeds hedge compost pruning tulips greenhouse"),
    "space": ("space travel", "avaruusmatkailu", "rocket orbit astronaut launch satellite moon gravity capsule"),
    "bread": ("baking of bread", "leivonta", "flour yeast oven dough rye crust kneading loaf"),
    "ships": ("shipping", "merenkulku", "harbour cargo sailors deck anchor captain icebreaker freight"),
    "music": ("chamber music", "kamarimusiikki", "violin quartet cello score rehearsal concert melody bow"),
    "law": ("contract law", "sopimusoikeus", "court clause liability judge treaty statute appeal tort"),
    "attack": (ATTACK, "hyökkäys", "script malware phishing exploit payload injection firewall password"),
}
COMMON = "the book tells about and of its with many a for people who in years"
GARDEN_TEXT = "Roses and tulips need good soil. The greenhouse and the compost come next, and pruning in spring."


def labelled(n_docs: int, seed: int) -> list[dict]:
    """Yield documents of one or two topics, each with words of the topics and common words."""
    chosen = random.Random(seed)
    documents = []
    for number in range(n_docs):
        topics = chosen.sample(list(TOPICS), chosen.choice((1, 1, 2)))
        words = [word for topic in topics for word in chosen.choices(TOPICS[topic][2].split(), k=10)]
        words += chosen.choices(COMMON.split(), k=15)
        chosen.shuffle(words)
        documents.append({"id": f"book {number}", "text": " ".join(words), "labels": [uri(topic) for topic in topics]})
    return documents


def uri(topic: str) -> str:
    return f"http://example.org/{topic}"


def write_lines(path: Path, records: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def make_library(folder: Path) -> Path:
    """Create a model with names, probabilities, tuned thresholds and a report, and its corpus."""
    write_lines(folder / "train.jsonl", labelled(400, seed=0))
    write_lines(folder / "valid.jsonl", labelled(150, seed=3))
    write_lines(folder / "test.jsonl", labelled(60, seed=1))
    rows = [f"{uri(topic)}\t{english}\t{finnish}" for topic, (english, finnish, _) in TOPICS.items()]
    (folder / "concepts.tsv").write_text("\n".join(["uri\tlabel_en\tlabel_fi", *rows]) + "\n")
    run(folder, "train", "train.jsonl", "-o", "library", "--vocab", "concepts.tsv", "--language", "en")
    run(folder, "calibrate", "library", "valid.jsonl")
    run(folder, "thresholds", "library", "valid.jsonl", "--goal", "f1")
    run(folder, "report", "library", "test.jsonl", "-o", "report.html")
    return folder


def run(folder: Path, *words: str) -> None:
    done = xmtc(*words, cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
