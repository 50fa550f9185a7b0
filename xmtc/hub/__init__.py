"""Model folders on the Hugging Face Hub: upload with a model card, and download.

A repository holds the files of a model folder, which contain no code, and README.md with the card. A download takes
these files only and validates the model, so nothing of a shared model is ever executed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from xmtc import model_folder
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.parameters import load_saved_parameters
from xmtc.storage.atomic import atomic_folder, describe_error
from xmtc.storage.cache import create_cache_folder, get_cache_folder
from xmtc.storage.folder import ABOUT_FILE, ARRAYS_FILE
from xmtc.tagger import Tagger

HUB_PREFIX = "hf:"
REPOSITORY_PATTERN = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
COMMIT_PATTERN = re.compile(r"[0-9a-f]{7,64}")
CARD_FILE = "README.md"
REQUIRED_FILES, OPTIONAL_FILES = (ABOUT_FILE, ARRAYS_FILE), (model_folder.HISTORY_FILE,)


def parse_repository(name: str) -> str:
    """Return the repository of `hf:user/name`."""
    repository = name.removeprefix(HUB_PREFIX)
    if not name.startswith(HUB_PREFIX) or REPOSITORY_PATTERN.fullmatch(repository) is None:
        raise XmtcError(f"{name!r} is no repository of the Hugging Face Hub; expected hf:USER/NAME.")
    return repository


def push_model(
    folder: str | Path, repository: str, card: str, *, private: bool = False, token: str | None = None
) -> str:
    """Upload a model folder with its model card in one commit, and return the address of the repository.

    Parameters
    ----------
    folder : str or path
        Model folder, which is validated first.
    repository : str
        Repository, `hf:user/name`; created if it does not exist.
    card : str
        Text of README.md; see `xmtc.hub.model_card.render_model_card`.
    private : bool, default=False
        Whether a new repository is private.
    token : str, optional
        Access token; by default that of `hf auth login` or of the variable HF_TOKEN.

    Raises
    ------
    XmtcError
        If the folder is no valid model, or the hub refuses it.
    """
    name = parse_repository(repository)
    Tagger.load(folder, verify=True)
    with hub_errors(repository):
        from huggingface_hub import CommitOperationAdd, HfApi

        api = HfApi(token=token)
        address = api.create_repo(name, private=private, exist_ok=True)
        present = [file for file in (*REQUIRED_FILES, *OPTIONAL_FILES) if (Path(folder) / file).exists()]
        operations = [CommitOperationAdd(file, str(Path(folder) / file)) for file in present]
        operations.append(CommitOperationAdd(CARD_FILE, card.encode()))
        api.create_commit(name, operations, commit_message="Upload a model of xmtc")
    return str(address)


def pull_model(repository: str, folder: str | Path, *, revision: str | None = None, token: str | None = None) -> Tagger:
    """Download a model folder, validate it and open it.

    Parameters
    ----------
    repository : str
        Repository, `hf:user/name`.
    folder : str or path
        Folder to write; a model in it is replaced once the download is complete and valid.
    revision : str, optional
        Branch, tag or commit.
    token : str, optional
        Access token of a private repository.

    Raises
    ------
    XmtcError
        If the repository has no model of xmtc, or the model is damaged.
    """
    target = model_folder.check_target(folder)
    download_model(repository, find_commit(repository, revision, token), target, token)
    return Tagger.load(folder)


def cache_model(repository: str, *, revision: str | None = None, token: str | None = None) -> Path:
    """Return the folder of a model in the cache, downloading it if this commit of it is not there."""
    commit = find_commit(repository, revision, token)
    folder = get_cache_folder("models") / parse_repository(repository).replace("/", "--") / commit
    if not folder.exists():
        create_cache_folder(folder.parent)
        download_model(repository, commit, folder, token)
    return folder


def find_commit(repository: str, revision: str | None, token: str | None) -> str:
    """Return the hash of the commit that a branch or tag names."""
    name = parse_repository(repository)
    with hub_errors(repository):
        from huggingface_hub import HfApi

        info = HfApi(token=token).model_info(name, revision=revision)
    if not {sibling.rfilename for sibling in info.siblings or ()}.issuperset(REQUIRED_FILES):
        raise XmtcError(f"{repository} has no model of xmtc: {ABOUT_FILE} or {ARRAYS_FILE} is missing.")
    if info.sha is None or COMMIT_PATTERN.fullmatch(info.sha) is None:
        raise XmtcError(f"{repository}: the hub names no commit.")
    return info.sha


def download_model(repository: str, commit: str, target: Path, token: str | None) -> None:
    """Download the files of a model and move them to the target once they are valid."""
    with TemporaryDirectory() as temporary, hub_errors(repository):
        from huggingface_hub import HfApi
        from huggingface_hub.errors import EntryNotFoundError

        api, files = HfApi(token=token), []
        for file in (*REQUIRED_FILES, *OPTIONAL_FILES):
            with suppress(EntryNotFoundError):
                files.append(
                    api.hf_hub_download(parse_repository(repository), file, revision=commit, local_dir=temporary)
                )
        try:
            Tagger.load(temporary, verify=True)
        except XmtcError as error:
            raise XmtcError(str(error).replace(temporary, repository)) from None
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(target) as new:
            for path in files:
                shutil.copyfile(path, new / Path(path).name)


@contextmanager
def hub_errors(repository: str) -> Iterator[None]:
    """Turn errors of the hub and of the network into XmtcError."""
    try:
        import huggingface_hub.errors as hub
    except ImportError as error:
        raise as_missing_extra("Sharing models", error) from error
    refusals: dict[type[Exception], str] = {
        hub.GatedRepoError: "access has to be requested on its page",
        hub.RepositoryNotFoundError: "it does not exist, or needs an access token (hf auth login)",
        hub.RevisionNotFoundError: "it has no such revision",
        hub.LocalTokenNotFoundError: "an access token is needed (hf auth login)",
    }
    try:
        yield
    except XmtcError:
        raise
    except tuple(refusals) as error:
        reason = next(text for kind, text in refusals.items() if isinstance(error, kind))
        raise XmtcError(f"{repository}: {reason}.") from None
    except (hub.HTTPError, hub.LocalEntryNotFoundError) as error:  # HTTPError is that of the client's HTTP library
        raise XmtcError(f"{repository}: the hub did not answer as expected ({first_line(error)}).") from None
    except OSError as error:
        raise XmtcError(f"{repository}: {describe_error(error)}.") from None


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def read_report(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of `xmtc report`; raise XmtcError for another file."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise XmtcError(f"{path} cannot be read as JSON ({describe_error(error)}).") from None
    metrics = content.get("metrics") if isinstance(content, dict) and content.get("made by") == "xmtc report" else None
    if not isinstance(metrics, dict):
        raise XmtcError(f"{path} is no report; write one with xmtc report MODEL CORPUS -o report.json.")
    return content


def render_card(folder: str | Path, repository: str, **options: Any) -> str:
    """Return the model card of a model folder; see `xmtc.hub.model_card.render_model_card` for the options."""
    with hub_errors(repository):
        from xmtc.hub.model_card import render_model_card

        tagger = Tagger.load(folder)
        load_saved_parameters(tagger, folder)  # raises for invalid ones, which the card would show
        return render_model_card(tagger, repository, **options)
