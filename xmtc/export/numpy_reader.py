"""Reader of a folder that `xmtc export --format numpy` wrote. It needs NumPy only.

python reader.py FOLDER < texts.txt      one text per line; prints one JSON list of [label, name, score] per line
"""

import json
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np

MAX_RANKED = 20  # labels of each tree that count, if there are several trees
MAX_MARKS = 30  # combining characters of one letter that are read


class WordCharacters(dict):
    """Translation table that keeps letters, digits, marks and underscores, and makes all others a space."""

    def __missing__(self, code):
        character = chr(code)
        is_word = character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"
        return self.setdefault(code, character if is_word else " ")


class Reader:
    """Model of an exported folder: `Reader(folder).predict(text)`."""

    # Arrays from the files of these names.
    starts = slots = weights = bias = parents = slot_labels = trees = idf = knots = probabilities = np.zeros(0)

    def __init__(self, folder):
        about = json.loads((Path(folder) / "model.json").read_text("utf-8"))
        self.parts, self.link, self.labels, self.names = (about[key] for key in ("parts", "link", "labels", "names"))
        self.dense = [range(*ends) for ends in about["dense"]]
        vars(self).update({path.stem: np.load(path, mmap_mode="r") for path in Path(folder).glob("*.npy")})
        self.columns, first = [], 0
        for terms in json.loads((Path(folder) / "terms.json").read_text("utf-8")):
            self.columns.append({term: first + number for number, term in enumerate(terms)})
            first += len(terms)
        self.word_characters, self.levels, level = WordCharacters(), [], np.flatnonzero(self.parents < 0)
        while len(level := np.flatnonzero(np.isin(self.parents, level))):
            self.levels.append(level)

    def words(self, text, part):
        if not text.isascii():
            n_marks, kept = 0, []
            for character in text:
                n_marks = n_marks + 1 if unicodedata.combining(character) else 0
                kept.append(character if n_marks <= MAX_MARKS else "")
            text = unicodedata.normalize("NFC", "".join(kept))
        text = text.lower() if part["lowercase"] else text
        text = text.encode("utf-8", "replace").decode()
        words = text.split() if part["unit"] == "chunks" else text.translate(self.word_characters).split(" ")
        return [word for word in words if len(word) >= part["min_chars"] and word not in part["stop_words"]]

    def grams(self, word, shortest, longest):
        """Yield the character n-grams of a word between spaces; of 1 to 3 characters in scripts such as Chinese."""
        padded = f" {word} "
        for i, character in enumerate(padded):
            code = ord(padded[1] if i == 0 else character)
            low, high = (1, 3) if any(code in codes for codes in self.dense) else (shortest, longest)
            low = 2 if character == " " and low < 2 else low
            yield from (padded[i : i + n] for n in range(low, min(high, len(padded) - i) + 1))
            if i == 0 and len(padded) < low:
                yield padded

    def terms(self, text, part):
        words = self.words(text, part)
        if part["grams"]:
            return [gram for word in words for gram in self.grams(word, *part["grams"])]
        sizes, gaps = range(1, part["ngrams"] + 1), range(2, part["skip"] + 2)
        terms = [" ".join(words[i : i + n]) for n in sizes for i in range(len(words) - n + 1)]
        return terms + [f"{words[i]} {words[i + gap]}" for gap in gaps for i in range(len(words) - gap)]

    def features(self, text):
        """Return the columns and the tf-idf values of a text."""
        all_columns: list[np.ndarray] = []
        all_values: list[np.ndarray] = []
        for part, columns in zip(self.parts, self.columns, strict=True):
            counts = Counter(term for term in self.terms(text, part) if term in columns)
            numbers = np.array(sorted(columns[term] for term in counts), np.int64)
            tf = np.array([n for _, n in sorted((columns[term], n) for term, n in counts.items())], float)
            values = (np.log(tf) + 1 if part["sublinear_tf"] else tf) * self.idf[numbers]
            values = values / (np.linalg.norm(values) or 1) * len(self.parts) ** -0.5
            all_columns, all_values = [*all_columns, numbers], [*all_values, values.astype(np.float32)]
        return np.concatenate(all_columns), np.concatenate(all_values)

    def rank(self, columns, values, k=5):
        """Return the numbers and the scores of the k best labels for features."""
        spans = [(self.starts[column], self.starts[column + 1]) for column in columns]
        slots = np.concatenate([self.slots[begin:end] for begin, end in spans] or [np.zeros(0, np.int64)])
        weights = [self.weights[begin:end] * value for (begin, end), value in zip(spans, values, strict=True)]
        margins = self.bias + np.bincount(slots, np.concatenate(weights or [np.zeros(0)]), len(self.bias))
        if self.link == "logistic":
            logs = -np.logaddexp(0, -margins)
        else:
            logs = -(np.maximum(0, 1 - margins) ** (2 if self.link == "squared_hinge" else 3))
        for level in self.levels:
            logs[level] += logs[self.parents[level]]
        scores, n_trees = np.zeros(len(self.labels)), len(self.trees) - 1
        for begin, end in zip(self.trees[:-1], self.trees[1:], strict=True):
            slots = begin + np.flatnonzero(self.slot_labels[begin:end] >= 0)
            slots = slots[np.lexsort((self.slot_labels[slots], -logs[slots]))]
            slots = slots if n_trees == 1 else slots[:MAX_RANKED]
            scores[self.slot_labels[slots]] += (np.exp(logs[slots]) + 1e-30) / n_trees
        best = np.lexsort((np.arange(len(scores)), -scores))[:k]
        best, scores = best[scores[best] > 0], scores[best][scores[best] > 0]
        if len(self.knots):
            scores = 0.999 * np.interp(scores, self.knots, self.probabilities) + 0.001 * np.clip(scores, 0, 1)
        return best, scores

    def predict(self, text, k=5):
        """Return (label, name, score) of the k best labels of a text, best first; none without a known term."""
        columns, values = self.features(text)
        best, scores = self.rank(columns, values, k) if len(columns) else ((), ())
        return [(self.labels[i], self.names[i], float(score)) for i, score in zip(best, scores, strict=True)]


if __name__ == "__main__":
    reader = Reader(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(reader.predict(line.rstrip("\n")), ensure_ascii=False))
