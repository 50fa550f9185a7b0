"""What went wrong, in one sentence for a person: what was found, what was expected, what to do."""

from __future__ import annotations

# Packages that a plain installation leaves out: what people call them, and the extra of pyproject.toml they come with.
EXTRAS = {
    "torch": ("PyTorch", "neural"),
    "transformers": ("transformers", "neural"),
    "tokenizers": ("tokenizers", "neural"),
    "ray": ("Ray", "cluster"),
    "optuna": ("Optuna", "tune"),
}


class XmtcError(ValueError):
    """A mistake the user can mend. The command line prints it without a traceback and exits with 2."""


class MissingExtra(XmtcError, ImportError):
    """A method or a command needs a package that this installation left out."""


def missing_extra(who: str, error: ImportError) -> ImportError:
    """What to install for a method or command that lacks a package; the error itself if it is another."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    title, extra = EXTRAS[package]
    return MissingExtra(f"{who} needs {title}: pip install 'xmtc[{extra}]'")
