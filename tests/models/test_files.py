from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from jiyi.models import ModelFilesError, StaticEmbedder
from jiyi.models.files import read_manifest, verify_files
from jiyi.models.static import SHIPPED_FOLDER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "weights"
    shutil.copytree(SHIPPED_FOLDER, copy)
    return copy


def test_shipped_folder_holds_only_what_its_manifest_names() -> None:
    manifest = read_manifest(SHIPPED_FOLDER)
    files = [path for path in SHIPPED_FOLDER.iterdir() if path.is_file()]
    assert {path.name for path in files} == {*manifest.files, "manifest.json", "CARD.md"}
    assert sum(path.stat().st_size for path in files) <= 20_000_000
    assert set(verify_files(SHIPPED_FOLDER, manifest)) == set(manifest.files)


@pytest.mark.parametrize("name", ["manifest.json", *sorted(read_manifest(SHIPPED_FOLDER).files)])
def test_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelFilesError, match=name) as caught:
        StaticEmbedder(folder)
    assert caught.value.path == folder / name


@pytest.mark.parametrize("name", sorted(read_manifest(SHIPPED_FOLDER).files))
def test_flipped_bit_is_found(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFilesError, match=f"{name}: is damaged"):
        StaticEmbedder(folder)


def test_truncated_file_is_found(folder: Path) -> None:
    content = (folder / "codes.npy").read_bytes()
    (folder / "codes.npy").write_bytes(content[:-1])
    with pytest.raises(ModelFilesError, match=rf"codes.npy: has {len(content) - 1:,} bytes"):
        StaticEmbedder(folder)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b'{"files": 3}', b"\xff\xfe"])
def test_broken_manifest_is_an_error_of_its_own(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ModelFilesError, match=r"manifest\.json: is not a manifest"):
        StaticEmbedder(folder)


def _change_manifest(folder: Path, **fields: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_model_of_another_kind_is_refused(folder: Path) -> None:
    _change_manifest(folder, kind="cross-encoder")
    with pytest.raises(ModelFilesError, match="cross-encoder"):
        StaticEmbedder(folder)


def test_manifest_that_forgets_a_file_is_refused(folder: Path) -> None:
    files = json.loads((folder / "manifest.json").read_text())["files"]
    _change_manifest(folder, files={name: entry for name, entry in files.items() if name != "keys.txt"})
    with pytest.raises(ModelFilesError, match=r"does not list keys\.txt"):
        StaticEmbedder(folder)


def test_another_shape_is_refused(folder: Path) -> None:
    _change_manifest(folder, dim=64)
    with pytest.raises(ModelFilesError, match="shapes"):
        StaticEmbedder(folder)


def test_pickled_array_is_never_loaded(folder: Path) -> None:
    import hashlib

    np.save(folder / "scales.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    content = (folder / "scales.npy").read_bytes()
    files = json.loads((folder / "manifest.json").read_text())["files"]
    files["scales.npy"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _change_manifest(folder, files=files)
    with pytest.raises(ModelFilesError, match=r"scales\.npy: is not a \.npy file"):
        StaticEmbedder(folder)
