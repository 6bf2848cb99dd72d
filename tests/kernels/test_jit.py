"""Compilation: one variant per dtype, a cache that cannot break anything, NaN checks that survive, nothing global."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching

import jiyi.kernels
from jiyi.kernels import _jit, decay, mmr, topk

MODULE = """
from jiyi.kernels._jit import float64, jit, reads

@jit((reads(float64),))
def total(x):
    result = 0.0
    for value in x:
        result += value
    return result
"""


class Kernel:
    """A module with one kernel in a folder of its own; each call imports and compiles it afresh, as a process would."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "total.py"
        self.source.write_text(MODULE)

    def load(self):
        spec = importlib.util.spec_from_file_location("total", self.source)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _jit._declared.pop()
        return module.total

    def call(self) -> str:
        """Import, call, check the answer; return "loaded" or "compiled"."""
        kernel = self.load()
        assert kernel(np.array([1.0, 2.0, 4.0])) == 7.0
        return "loaded" if sum(kernel.stats.cache_hits.values()) else "compiled"

    @property
    def folder(self) -> Path:
        return self.source.parent / "__pycache__"

    @property
    def file(self) -> Path:
        (file,) = self.folder.glob("*.nbc")
        return file


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> Kernel:
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [caching.InTreeCacheLocator])
    return Kernel(tmp_path)


def test_code_is_cached(kernel):
    assert kernel.call() == "compiled"
    assert kernel.call() == "loaded"


def damage_truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def damage_emptied(file: Path) -> None:
    file.write_bytes(b"")


def damage_garbage(file: Path) -> None:
    file.write_bytes(b"\x80\x05garbage" * 500)


def damage_bit_flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [damage_truncated, damage_emptied, damage_garbage, damage_bit_flipped])
def test_a_damaged_file_is_compiled_anew_and_healed(damage, kernel):
    kernel.call()
    file = kernel.file
    damage(file)
    assert kernel.call() == "compiled"
    assert kernel.call() == "loaded"
    assert kernel.file == file


def test_a_folder_in_place_of_a_file(kernel):
    kernel.call()
    file = kernel.file
    file.unlink()
    file.mkdir()
    (file / "occupied").touch()
    assert kernel.call() == "compiled"
    assert kernel.file == file  # and no partial file beside it


def test_a_file_in_place_of_the_folder(kernel):
    kernel.folder.touch()
    assert kernel.call() == "compiled"


def test_a_folder_that_vanishes_between_import_and_call(kernel):
    total = kernel.load()
    for path in kernel.folder.iterdir():
        path.unlink()
    kernel.folder.rmdir()
    kernel.folder.touch()
    assert total(np.array([1.0])) == 1.0


def test_a_disk_that_fills_up(kernel, monkeypatch):
    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert kernel.call() == "compiled"
    assert list(kernel.folder.glob("*.nbc")) == []


def test_a_changed_helper_in_another_file_invalidates(kernel, monkeypatch):
    """Numba looks at the kernel's own file only, and would run the old helper."""
    kernel.call()
    monkeypatch.setattr(_jit, "_sources_digest", lambda: b"other sources")
    assert kernel.call() == "compiled"
    assert kernel.call() == "loaded"


def test_no_place_to_cache(tmp_path, monkeypatch):
    """A read-only installation without a home folder: Numba's own cache=True fails at import there."""
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    kernel = Kernel(tmp_path)
    assert kernel.call() == kernel.call() == "compiled"


SCRIPT = """
import warnings
warnings.simplefilter("error")
import numpy as np
from jiyi.kernels import decay
factors = decay.exponential(np.array([0.0, 7.0, -7.0]), 7.0)
assert factors.tolist() == [1.0, 0.5, 1.0], factors
"""


def run(script: str, **environment: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_a_cache_folder_that_cannot_exist(tmp_path):
    """A path below a regular file can be neither made nor written, whoever asks."""
    blocker = tmp_path / "file"
    blocker.touch()
    run(SCRIPT, NUMBA_CACHE_DIR=str(blocker / "below"), HOME=str(blocker), XDG_CACHE_HOME=str(blocker / "cache"))


def test_importing_and_calling_leaves_numba_as_it_was():
    before = """
from numba.core import config
def settings():
    return {name: getattr(config, name) for name in dir(config) if name.isupper()}
before = settings()
"""
    after = """
assert settings() == before
import sys
assert "numba.np.ufunc.parallel" not in sys.modules or not sys.modules["numba.np.ufunc.parallel"]._is_initialized
"""
    run(before + SCRIPT + after)


def test_plain_python_when_numba_is_disabled():
    run(SCRIPT, NUMBA_DISABLE_JIT="1")


def test_plain_python_of_a_kernel_that_asks_for_memory_ahead():
    code = """
import numpy as np
from jiyi.kernels.late_interaction import max_sim
table = np.arange(1, 801, dtype=np.int64).reshape(50, 16).astype(np.int8)
tokens, rows = np.arange(30, dtype=np.uint32), np.array([0, 1])
with np.errstate(over="ignore"):
    scores = max_sim(
        table[:2].astype(np.float32), np.ones(2), table, np.ones(50, np.float32), np.array([0, 20, 30]), tokens, rows
    )
print(*scores)
"""
    plain = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, check=True
    )
    compiled = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert [float(score) for score in plain.stdout.split()] == [float(score) for score in compiled.stdout.split()]


def test_the_package_alone_loads_no_numba():
    """Loaded without `jiyi` itself, which imports what it uses."""
    run(
        f"""
import importlib, sys, types
for name, path in (("jiyi", []), ("jiyi.kernels", {list(jiyi.kernels.__path__)!r})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
sys.modules["jiyi"].kernels = sys.modules["jiyi.kernels"]
exec(open({jiyi.kernels.__file__!r}).read(), sys.modules["jiyi.kernels"].__dict__)
import jiyi.kernels.warmup
assert "numba" not in sys.modules and "numpy" not in sys.modules
""",
        PYTHONWARNINGS="ignore",
    )


def test_one_variant_serves_writable_and_read_only_arrays(read_only):
    ages = np.array([0.0, 1.0])
    decay.exponential(ages, 1.0)
    decay.exponential(read_only(ages), 1.0)
    assert len(decay._exponential_kernel.signatures) == 1
    vectors, query, eligible = np.ones((3, 2), np.float32), np.ones(2, np.float32), np.ones(3, np.uint8)
    for freeze in ([], [0], [1], [2], [0, 1, 2]):
        arguments = [read_only(a) if i in freeze else a for i, a in enumerate((vectors, query, eligible))]
        topk.dense_top_k(*arguments, 2)
    assert len(topk._dense_top_k_kernel.signatures) == 1
    for dtype in (np.float64, np.float32):
        mmr.mmr_from_matrix(np.ones(2), read_only(np.eye(2, dtype=dtype)), 2, 0.5)
        mmr.mmr_from_matrix(np.ones(2), np.eye(2, dtype=dtype), 2, 0.5)
    assert len(mmr._from_matrix_kernel.signatures) == 2


def test_every_kernel_is_compiled_as_the_policy_says():
    from jiyi.kernels.warmup import warmup

    assert warmup() == len(_jit._declared) >= 20
    assert warmup() == len(_jit._declared)
    for dispatcher, signatures in _jit._declared:
        options = dispatcher.targetoptions
        assert options["nogil"] is True
        assert not options.get("parallel")
        assert options["fastmath"] in (False, {"reassoc", "contract"})
        assert len(dispatcher.signatures) == len(signatures)


def test_jit_sum_still_sees_nan():
    @_jit.jit_sum((_jit.reads(_jit.float64),))
    def has_nan(x):
        total = 0.0
        for i in range(len(x)):
            total += x[i] * x[i]
        return np.isnan(total)

    _jit._declared.pop()
    assert has_nan(np.array([1.0, np.nan]))
    assert not has_nan(np.array([1.0, 2.0]))
