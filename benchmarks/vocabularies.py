"""Measure time and memory of importing, opening and searching vocabularies.

    python benchmarks/vocabularies.py                        a million synthetic concepts as N-Triples, Turtle and TSV
    python benchmarks/vocabularies.py FILE...                the files of a real one

Each import is a command of its own, so that its peak of memory is its own."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SYLLABLES = [a + b for a in "bdfghjklmnprstvz" for b in "aeiou"]
BASE = "http://example.org/concept/"
SKOS = "http://www.w3.org/2004/02/skos/core#"
CHILD = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, "-m", "xmtc", *sys.argv[1:]]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)
sys.exit(code)
"""


def make_concepts(n: int, seed: int = 0):
    """Yield number, three names and number of the broader concept for n concepts in a tree with ten children each."""
    rng = random.Random(seed)
    for i in range(n):
        names = [" ".join("".join(rng.choices(SYLLABLES, k=3)) for _ in range(2)) for _ in range(3)]
        yield i, names, (i - 1) // 10 if i else None


def write_ntriples(path: Path, n: int) -> None:
    with path.open("w") as file:
        for i, (en, fi, other), above in make_concepts(n):
            c = f"<{BASE}{i}>"
            file.write(f"{c} <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{SKOS}Concept> .\n")
            file.write(f'{c} <{SKOS}prefLabel> "{en}"@en .\n{c} <{SKOS}prefLabel> "{fi}"@fi .\n')
            file.write(f'{c} <{SKOS}altLabel> "{other}"@en .\n{c} <{SKOS}notation> "{i:07d}" .\n')
            file.write(f"{c} <{SKOS}inScheme> <{BASE}> .\n")
            if above is not None:
                file.write(f"{c} <{SKOS}broader> <{BASE}{above}> .\n")


def write_turtle(path: Path, n: int) -> None:
    with path.open("w") as file:
        file.write(f"@prefix skos: <{SKOS}> .\n@prefix c: <{BASE}> .\n\n")
        for i, (en, fi, other), above in make_concepts(n):
            broader = "" if above is None else f" ;\n    skos:broader c:{above}"
            file.write(
                f'c:{i} a skos:Concept ;\n    skos:prefLabel "{en}"@en, "{fi}"@fi ;\n    skos:altLabel "{other}"@en ;'
            )
            file.write(f'\n    skos:notation "{i:07d}" ;\n    skos:inScheme <{BASE}>{broader} .\n\n')


def write_tsv(path: Path, n: int) -> None:
    with path.open("w") as file:
        file.write("uri\tlabel_en\tlabel_fi\taltLabel_en\tnotation\tbroader\n")
        for i, (en, fi, other), above in make_concepts(n):
            file.write(f"{BASE}{i}\t{en}\t{fi}\t{other}\t{i:07d}\t{'' if above is None else f'{BASE}{above}'}\n")


def measure(paths: list[str], folder: Path) -> None:
    start = time.perf_counter()
    words = ["vocab", "import", *paths, str(folder), "-q"]
    done = subprocess.run([sys.executable, "-c", CHILD, *words], stdout=subprocess.PIPE, text=True, check=True)
    seconds, size = time.perf_counter() - start, sum(path.stat().st_size for path in folder.iterdir())
    processor, peak = done.stdout.split()
    names = " ".join(Path(path).name for path in paths)
    print(f"{names}: {seconds:.1f} s, {float(processor):.1f} s of the processor, {peak} MiB, ", end="")
    opened, asked = measure_opening(folder)
    print(f"folder of {size / 2**20:.1f} MiB, opened in {1000 * opened:.0f} ms, a name found in {1e6 * asked:.0f} us")


def measure_opening(folder: Path) -> tuple[float, float]:
    """Return the seconds of opening a folder and of finding a concept by name."""
    from xmtc.vocabulary import Vocabulary

    Vocabulary.load(folder).find("warm")
    start = time.perf_counter()
    found = Vocabulary.load(folder)
    opened = time.perf_counter() - start
    names = [found.name(i) or "" for i in range(0, len(found), max(1, len(found) // 1000))]
    start = time.perf_counter()
    for name in names:
        found.find(name)
    return opened, (time.perf_counter() - start) / len(names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="files of one vocabulary; none: synthetic ones")
    parser.add_argument("--formats", default="nt,tsv,ttl", help="of synthetic ones")
    parser.add_argument("-n", type=int, default=1_000_000, help="synthetic concepts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if options.files:
            measure(options.files, Path(place) / "vocab")
            return
        for name in options.formats.split(","):
            write = {"nt": write_ntriples, "tsv": write_tsv, "ttl": write_turtle}[name]
            path = Path(place) / f"synthetic.{name}"
            write(path, options.n)
            print(f"{path.stat().st_size / 2**20:.0f} MiB ", end="")
            measure([str(path)], Path(place) / f"vocab-{name}")


if __name__ == "__main__":
    main()
