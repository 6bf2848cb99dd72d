"""Bring a model from the Hugging Face hub into the cache.

`huggingface_hub`, which tokenizers depends on, downloads into its own cache: it resumes what was interrupted, obeys
HF_HUB_OFFLINE, HF_ENDPOINT and HF_HOME, and a second pull downloads nothing. Only the files that are needed are taken,
and none of them is code: a graph, its weights, a tokenizer and JSON.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final

from jiyi.models.cache import checked_model_name, link_or_copy, model_folder, staged, write_manifest
from jiyi.models.errors import ModelUnavailableError
from jiyi.models.files import MANIFEST
from jiyi.models.known import KNOWN, Known

__all__ = ["pull", "pulled_revision"]

_TOKENIZER: Final = "tokenizer.json"
_OPTIONAL: Final = ("config.json", "tokenizer_config.json", "1_Pooling/config.json")
_SHA256_NAME: Final = re.compile("[0-9a-f]{64}")
_WITHOUT_NETWORK: Final = (
    "`jiyi models build e5-small` needs none, and `jiyi models add NAME FOLDER` takes a folder copied from elsewhere"
)

#: What is asked of `huggingface_hub.hf_hub_download`: repository, file and revision in, path out.
Download = Callable[[str, str, str | None], Path]


def pull(
    name: str,
    *,
    again: bool = False,
    download: Download | None = None,
    asking: Callable[[], None] | None = None,
) -> Path:
    """Download a known model, or make sure that it is there.

    Args:
        name: a short name of `jiyi.models.known.KNOWN`.
        again: ask the hub even if the model is there: for one that is damaged, or not pinned and out of date.
        download: another way to fetch a file, for tests; by default the hub's.
        asking: called before anything is fetched; not where the model is there.

    Returns:
        The model's folder, with a manifest of the checksums of what was downloaded.

    Raises:
        ValueError: the name is not known.
        ModelUnavailableError: the hub, the network or the repository does not give it; the message says what to do.
        OSError: the cache cannot be written.
    """
    model = KNOWN.get(checked_model_name(name))
    if model is None:
        raise ValueError(f"{name[:80]!r} is not known; `jiyi models pull` knows {', '.join(KNOWN)}")
    folder = model_folder(name)
    here = pulled_revision(folder)
    if here is not None and not again and model.revision in (None, here):
        return folder
    if asking is not None:
        asking()
    fetch = _download if download is None else download
    # All of them before the folder is begun: a download may take an hour, and is resumed from the hub's own cache.
    paths = {"model.onnx": _needed(fetch, model, model.file)}
    paths |= {PurePosixPath(file).name: _needed(fetch, model, file) for file in model.beside}
    paths[_TOKENIZER] = _tokenizer(fetch, model)
    for file in _OPTIONAL:
        path = _fetched(fetch, model, file)
        if path is not None:
            paths[file] = path
    with staged(name) as aside:
        for file, path in paths.items():
            (aside / file).parent.mkdir(exist_ok=True)
            link_or_copy(path, aside / file)
        write_manifest(aside, _manifest(model, _revision_of(paths["model.onnx"])))
        _check_sums(model, aside, paths)
    return folder


def pulled_revision(folder: Path) -> str | None:
    """Return the commit that a folder was pulled from, None if it was not pulled or does not say."""
    try:
        data = json.loads((folder / MANIFEST).read_bytes())
        revision = data["hub"]["revision"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return revision if isinstance(revision, str) else None


def _manifest(model: Known, revision: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": model.name,
        "version": revision or "main",
        "kind": model.kind,
        "origin": "pulled",
        "languages": list(model.languages),
        "licence": model.licence,
        "max_tokens": model.max_tokens,
        "hub": {
            "repository": model.repository,
            "revision": revision,
            "file": model.file,
            "pinned": bool(model.revision),
        },
        "sources": [{"what": f"{model.repository}, {model.file}", "licence": model.licence}],
    }
    if model.kind == "onnx-embedder":
        fields |= {
            "dim": model.dim,
            "pooling": model.pooling,
            "normalize": True,
            "query_prefix": model.query_prefix,
            "passage_prefix": model.passage_prefix,
        }
    else:
        fields["activation"] = model.activation
    return fields


def _check_sums(model: Known, folder: Path, paths: dict[str, Path]) -> None:
    """Compare what was downloaded with the checksum that is known, or with the hub's: large files are named by it."""
    files = json.loads((folder / MANIFEST).read_bytes())["files"]
    for file, path in paths.items():
        expected = model.sha256 if file == "model.onnx" else None
        stored_as = path.resolve().name
        if expected is None and _SHA256_NAME.fullmatch(stored_as):
            expected = stored_as
        found = files[file]["sha256"]
        if expected is not None and found != expected:
            raise ModelUnavailableError(
                f"{file} of {model.repository} is not the file that was expected: its SHA-256 is {found[:12]}…, not "
                f"{expected[:12]}…; delete {path.resolve()} and pull again"
            )


def _tokenizer(fetch: Download, model: Known) -> Path:
    path = _fetched(fetch, model, _TOKENIZER)
    if path is None:  # some repositories have it only beside the graph
        path = _needed(fetch, model, str(PurePosixPath(model.file).parent / _TOKENIZER))
    return path


def _needed(fetch: Download, model: Known, file: str) -> Path:
    path = _fetched(fetch, model, file)
    if path is None:
        raise ModelUnavailableError(
            f"{model.repository} has no {file}"
            + (f" at {model.revision[:12]}" if model.revision else "")
            + "; the repository may have changed: take the file from its page and use `jiyi models add NAME FOLDER`"
        )
    return path


def _fetched(fetch: Download, model: Known, file: str) -> Path | None:
    """Return where a file of a repository is on this machine, None if the repository has no such file."""
    from huggingface_hub import errors

    place = f"{model.repository} on the hub"
    try:
        return fetch(model.repository, file, model.revision)
    except errors.LocalEntryNotFoundError as error:  # before its base class: here nobody said that the file is missing
        if file in _OPTIONAL:
            return None
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
            reason = f"{file} of {model.repository} is not in the hub's cache and HF_HUB_OFFLINE forbids to download it"
        else:
            reason = f"{place} cannot be reached"
        raise ModelUnavailableError(f"{reason}; {_WITHOUT_NETWORK}") from error
    except errors.GatedRepoError as error:
        raise ModelUnavailableError(f"{place} asks for its terms to be accepted on its page first") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelUnavailableError(f"{place} does not exist or is private") from error
    except errors.RevisionNotFoundError as error:
        raise ModelUnavailableError(f"{place} has no revision {model.revision}") from error
    except errors.EntryNotFoundError:
        return None
    except errors.HfHubHTTPError as error:
        raise ModelUnavailableError(f"{place} answered {_first_line(error)}; try again later") from error
    except Exception as error:  # of whichever HTTP library the client uses, and they have no base in common
        if isinstance(error, OSError) and error.filename is not None:  # a full or read-only disk
            raise
        reason = f"{type(error).__name__}: {_first_line(error)}"
        raise ModelUnavailableError(
            f"{file} of {model.repository} was not downloaded ({reason}); pull again to go on where it stopped"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _download(repository: str, file: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download

    # Its retries are logged, several lines each; whoever calls is told once, of the outcome.
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    utils: Any = importlib.import_module("huggingface_hub.utils")
    quiet: bool = utils.are_progress_bars_disabled()
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    try:
        return Path(hf_hub_download(repository, file, revision=revision, library_name="jiyi"))
    finally:
        logger.setLevel(level)
        if not quiet:
            utils.enable_progress_bars()


def _revision_of(path: Path) -> str | None:
    """Return the commit in a path of the hub's cache, .../snapshots/<commit>/onnx/model.onnx."""
    parts = path.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts[:-1] else None
