"""Downloads a model from the Hub into the Hub's own cache: small files first, weights only when needed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from attnscope.errors import AttnscopeError
from attnscope.models.narration import libraries_silenced, step
from attnscope.models.weights import INDEX, SINGLE, is_pickled, pickle_refusal, shards

_SMALL = ["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken"]


def fetch_description(repo: str, revision: str | None, *, code: bool = False) -> Path:
    """The folder with a model's configuration and tokenizer; the weights may still be missing."""
    patterns = [*_SMALL, "*.py"] if code else _SMALL
    with _explained(repo, revision), step(f"Reading {repo} on the Hub"), libraries_silenced():
        return Path(snapshot_download(repo, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"]))


def fetch_weights(repo: str, folder: Path, *, allow_pickle: bool) -> None:
    """Download a model's weights into the same folder: safetensors, or pickled ones if allowed and needed."""
    commit = folder.name  # the description's commit, so that both have the same revision
    wanted = shards(folder / INDEX) if (folder / INDEX).is_file() else [SINGLE]
    # snapshot_download even for a single file: hf_hub_download retries for half a minute without a network.
    with _explained(repo, commit), step(f"Downloading the weights of {repo}"), libraries_silenced():
        snapshot_download(repo, revision=commit, allow_patterns=wanted)
        if not (folder / wanted[0]).exists() and not constants.HF_HUB_OFFLINE:
            pickled = [name for name in HfApi().list_repo_files(repo, revision=commit) if is_pickled(name)]
            if pickled and not allow_pickle:
                raise pickle_refusal(f"{repo}, {pickled[0]}")
            snapshot_download(repo, revision=commit, allow_patterns=pickled)


def fetch_adapter(repo: str, revision: str | None, *, allow_pickle: bool) -> Path:
    """The folder of an adapter on the Hub."""
    patterns = ["adapter_*.json", "adapter_*.safetensors", *(["adapter_*.bin"] if allow_pickle else [])]
    with _explained(repo, revision), step(f"Downloading the adapter {repo}"), libraries_silenced():
        return Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))


@contextmanager
def _explained(repo: str, revision: str | None) -> Iterator[None]:
    where = f"{repo}@{revision}" if revision else repo
    try:
        yield
    except GatedRepoError as error:
        raise AttnscopeError(
            "this model on the Hub is gated",
            where=where,
            allowed="models you have been given access to",
            todo=f"request access at {constants.ENDPOINT}/{repo}, then run 'hf auth login'",
        ) from error
    except RevisionNotFoundError as error:
        raise AttnscopeError(
            "this model on the Hub has no such revision",
            where=where,
            allowed="a revision is a branch, a tag or a commit",
            todo="check the revision, or leave it out",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise AttnscopeError(
            "there is no such model on the Hub, or it is private",
            where=where,
            allowed="a Hub id is org/name",
            todo="check the spelling; for a private model run 'hf auth login'",
        ) from error
    except AttnscopeError:
        raise
    except Exception as error:  # the Hub client passes on whatever its HTTP library raises
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise AttnscopeError(
                "can't write into the Hub's cache",
                where=f"{where}, {constants.HF_HUB_CACHE}",
                allowed=f"a cache that can be written to ({error.strerror})",
                todo="free some disk space, or set HF_HOME to another folder",
            ) from error
        offline = constants.HF_HUB_OFFLINE
        state = "offline mode is on (HF_HUB_OFFLINE)" if offline else f"no answer from {constants.ENDPOINT}"
        raise AttnscopeError(
            "can't reach the Hub",
            where=where,
            allowed=f"{state}, and the model is not completely in the Hub's cache",
            todo=f"{'unset HF_HUB_OFFLINE' if offline else 'connect to the network'}, "
            "or name a built-in model or a folder",
        ) from error
