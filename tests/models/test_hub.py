"""Pulling from a hub: from one on this machine over HTTP, and from fakes that fail in every way a hub can."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors

from jiyi.models import hub, load_embedder
from jiyi.models.errors import ModelUnavailableError
from jiyi.models.hub import pull, pulled_revision
from jiyi.models.known import KNOWN, Known
from tests.models.fake_hub import COMMIT, FakeHub, serving

TINY = Known(
    name="tiny-e5",
    kind="onnx-embedder",
    repository="owner/repo",
    languages=("en",),
    licence="MIT",
    pooling="mean",
    query_prefix="query: ",
)
FILES = {
    "onnx/model.onnx": b"graph",
    "tokenizer.json": b"{}",
    "config.json": b'{"a": 1}',
    "1_Pooling/config.json": b"{}",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(KNOWN, TINY.name, TINY)
    return tmp_path / "cache"


def know(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setitem(KNOWN, TINY.name, Known(**{name: getattr(TINY, name) for name in TINY.__slots__} | fields))


def store(folder: Path, files: dict[str, bytes], *, by_digest: bool = True) -> hub.Download:
    """A way to download that finds files laid out as the hub's cache has them: links to blobs named by digest."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / COMMIT

    def download(repository: str, file: str, revision: str | None) -> Path:
        assert repository == "owner/repo"
        if file not in files:
            raise errors.EntryNotFoundError("404")
        blob = blobs / (hashlib.sha256(files[file]).hexdigest() if by_digest else "blob" + str(len(file)))
        blobs.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(files[file])
        path = snapshot / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(blob)
        return path

    return download


class TestPull:
    def test_folder_holds_the_files_and_their_sums(self, cache: Path, tmp_path: Path) -> None:
        folder = pull(TINY.name, download=store(tmp_path / "hub", FILES))
        assert folder == cache / "models" / "tiny-e5"
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["kind"] == "onnx-embedder"
        assert manifest["hub"] == {
            "repository": "owner/repo",
            "revision": COMMIT,
            "file": "onnx/model.onnx",
            "pinned": False,
        }
        assert (manifest["pooling"], manifest["query_prefix"], manifest["normalize"]) == ("mean", "query: ", True)
        expected = {name.removeprefix("onnx/"): content for name, content in FILES.items()}
        assert {name: entry["sha256"] for name, entry in manifest["files"].items()} == {
            name: hashlib.sha256(content).hexdigest() for name, content in expected.items()
        }
        for name, content in expected.items():
            assert (folder / name).read_bytes() == content
            assert not (folder / name).is_symlink()  # ONNX Runtime refuses weights behind a link
        assert pulled_revision(folder) == COMMIT

    def test_what_is_there_is_not_asked_for_again(self, cache: Path, tmp_path: Path) -> None:
        asked: list[str] = []
        real = store(tmp_path / "hub", FILES)

        def download(repository: str, file: str, revision: str | None) -> Path:
            asked.append(file)
            return real(repository, file, revision)

        pull(TINY.name, download=download)
        asked.clear()
        pull(TINY.name, download=download)
        assert asked == []
        pull(TINY.name, again=True, download=download)
        assert asked

    def test_another_pinned_revision_is_fetched(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pull(TINY.name, download=store(tmp_path / "hub", FILES))
        know(monkeypatch, revision="f" * 40)
        asked: list[str | None] = []

        def download(repository: str, file: str, revision: str | None) -> Path:
            asked.append(revision)
            return store(tmp_path / "hub", FILES)(repository, file, revision)

        pull(TINY.name, download=download)
        assert set(asked) == {"f" * 40}

    def test_weights_beside_the_graph_come_along(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        know(monkeypatch, beside=("onnx/model.onnx_data",))
        with pytest.raises(ModelUnavailableError, match=r"has no onnx/model\.onnx_data"):
            pull(TINY.name, download=store(tmp_path / "hub", FILES))
        folder = pull(TINY.name, download=store(tmp_path / "hub", FILES | {"onnx/model.onnx_data": b"weights"}))
        assert (folder / "model.onnx_data").read_bytes() == b"weights"

    def test_tokenizer_beside_the_graph_is_found(self, cache: Path, tmp_path: Path) -> None:
        files = {"onnx/model.onnx": b"graph", "onnx/tokenizer.json": b"[]"}
        folder = pull(TINY.name, download=store(tmp_path / "hub", files))
        assert (folder / "tokenizer.json").read_bytes() == b"[]"

    def test_only_data_is_asked_for(self, cache: Path, tmp_path: Path) -> None:
        asked: set[str] = set()

        def download(repository: str, file: str, revision: str | None) -> Path:
            asked.add(file)
            return store(tmp_path / "hub", FILES)(repository, file, revision)

        pull(TINY.name, download=download)
        assert {Path(file).suffix for file in asked} == {".onnx", ".json"}


class TestFailures:
    def test_an_unknown_name_lists_those_there_are(self, cache: Path) -> None:
        with pytest.raises(ValueError, match=r"'bge' is not known.*bge-m3.*jina-reranker"):
            pull("bge")

    @pytest.mark.parametrize(
        "name", ["", "..", "../x", "a/b", "/etc", "😀", "模型", "a\x00b", ".hidden", "x" * 200, "a b"]
    )
    def test_what_cannot_be_a_folder_is_no_name(self, cache: Path, name: str) -> None:
        with pytest.raises(ValueError, match="cannot be a model's name"):
            pull(name)
        assert not cache.exists()

    @pytest.mark.parametrize("missing", ["onnx/model.onnx", "tokenizer.json"])
    def test_a_file_that_the_repository_lacks(self, cache: Path, tmp_path: Path, missing: str) -> None:
        files = {name: content for name, content in FILES.items() if name != missing}
        with pytest.raises(ModelUnavailableError, match=r"owner/repo has no onnx/"):
            pull(TINY.name, download=store(tmp_path / "hub", files))
        assert not cache.exists()

    def test_a_file_with_another_sum(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        know(monkeypatch, sha256="0" * 64)
        with pytest.raises(ModelUnavailableError, match=r"model\.onnx of owner/repo is not the file"):
            pull(TINY.name, download=store(tmp_path / "hub", FILES))
        assert list((cache / "models").iterdir()) == []
        know(monkeypatch, sha256=hashlib.sha256(b"graph").hexdigest())
        assert pull(TINY.name, download=store(tmp_path / "hub", FILES, by_digest=False)).is_dir()

    def test_a_download_that_is_not_what_the_hub_calls_it(self, cache: Path, tmp_path: Path) -> None:
        def download(repository: str, file: str, revision: str | None) -> Path:
            path = store(tmp_path / "hub", FILES)(repository, file, revision)
            path.resolve().write_bytes(b"a proxy's error page")
            return path

        with pytest.raises(ModelUnavailableError, match="is not the file that was expected"):
            pull(TINY.name, download=download)

    @pytest.mark.parametrize(
        ("raised", "offline", "said"),
        [
            (lambda: errors.LocalEntryNotFoundError("no"), "1", "HF_HUB_OFFLINE forbids"),
            (lambda: errors.LocalEntryNotFoundError("no"), "", "cannot be reached; `jiyi models build e5-small`"),
            (lambda: _http(errors.RepositoryNotFoundError), "", "does not exist or is private"),
            (lambda: _http(errors.RevisionNotFoundError), "", "has no revision"),
            (lambda: _http(errors.GatedRepoError), "", "terms"),
            (lambda: _http(errors.HfHubHTTPError), "", "answered 503"),
            (lambda: ConnectionResetError("reset by\npeer"), "", "was not downloaded .ConnectionResetError: reset by"),
            (lambda: TimeoutError(), "", "was not downloaded .TimeoutError"),
            (lambda: RuntimeError("peer closed"), "", "pull again"),
        ],
    )
    def test_a_hub_that_fails_is_one_line_of_advice(
        self,
        cache: Path,
        monkeypatch: pytest.MonkeyPatch,
        raised: Callable[[], Exception],
        offline: str,
        said: str,
    ) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)

        def download(repository: str, file: str, revision: str | None) -> Path:
            raise raised()

        with pytest.raises(ModelUnavailableError, match=said) as caught:
            pull(TINY.name, download=download)
        assert "\n" not in str(caught.value)
        assert not cache.exists()

    def test_a_full_disk_is_no_fault_of_the_network(self, cache: Path) -> None:
        def download(repository: str, file: str, revision: str | None) -> Path:
            raise OSError(28, "No space left on device", "/disk/file")

        with pytest.raises(OSError, match="No space left"):
            pull(TINY.name, download=download)

    def test_a_cache_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "file" / "cache"))
        monkeypatch.setitem(KNOWN, TINY.name, TINY)
        with pytest.raises(OSError, match="Not a directory"):
            pull(TINY.name, download=store(tmp_path / "hub", FILES))

    def test_what_was_pulled_is_checked_when_it_is_loaded(self, cache: Path, tmp_path: Path) -> None:
        folder = pull(TINY.name, download=store(tmp_path / "hub", FILES))
        (folder / "model.onnx").unlink()
        (folder / "model.onnx").write_bytes(b"grapx")
        with pytest.raises(RuntimeError, match="damaged"):
            load_embedder(TINY.name)


def _http(kind: type[Exception]) -> Exception:
    """An error of the hub's client, which wants the answer of a server to be made of."""
    error = kind.__new__(kind)
    Exception.__init__(error, "503 Server Error\nfor url: x")
    return error


CHILD = """
import sys
from jiyi.models.known import KNOWN, Known
KNOWN["tiny-e5"] = Known(name="tiny-e5", kind="onnx-embedder", repository=sys.argv[1], languages=("en",), licence="MIT")
from jiyi.cli import main
sys.exit(main(["models", "pull", "tiny-e5", *sys.argv[2:]]))
"""


ASKING = "jiyi: note: asking the hub for tiny-e5\n"


class TestOverHttp:
    """`huggingface_hub` reads its settings when it is imported, so each pull is a process of its own."""

    @pytest.fixture
    def child(self, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
        def run(server: FakeHub, repository: str = "owner/repo", *arguments: str, **env: str) -> Any:
            settings = {
                "HF_ENDPOINT": server.address,
                "HF_HOME": str(tmp_path / "hf"),
                "HF_HUB_DISABLE_XET": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1",
                "JIYI_CACHE": str(tmp_path / "cache"),
            }
            return subprocess.run(
                [sys.executable, "-W", "error", "-c", CHILD, repository, *arguments],
                env=os.environ | settings | env,
                capture_output=True,
                text=True,
                check=False,
                timeout=100,
            )

        return run

    def test_pull_resumes_and_works_offline(self, tmp_path: Path, child: Any) -> None:
        content = bytes(range(256)) * 100_000
        with serving(FakeHub({**FILES, "onnx/model.onnx": content}, break_after=15_000_000)) as server:
            done = child(server)
            assert (done.returncode, done.stderr) == (0, ASKING)
            folder = tmp_path / "cache" / "models" / "tiny-e5"
            assert done.stdout == f"{folder}\n"
            assert (folder / "model.onnx").read_bytes() == content
            gets = [request for request in server.requests if request[0] == "GET" and "model.onnx" in request[1]]
            assert len(gets) == 2
            assert gets[1][2] is not None  # it went on where the connection was cut
            server.requests.clear()
            assert child(server, "owner/repo", "--again", HF_HUB_OFFLINE="1").returncode == 0
            assert server.requests == []

    def test_wrong_repository_and_offline_without_a_copy(self, child: Any) -> None:
        with serving(FakeHub(FILES)) as server:
            done = child(server, "owner/other")
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr == ASKING + "jiyi: owner/other on the hub does not exist or is private\n"
            done = child(server, HF_HUB_OFFLINE="1")
            assert done.returncode == 1
            told = done.stderr.removeprefix(ASKING)
            assert told.startswith("jiyi: onnx/model.onnx of owner/repo is not in the hub's cache")
            assert told.count("\n") == 1
