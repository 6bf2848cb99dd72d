from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from jiyi.models import ModelFilesError, onnx_session
from jiyi.models.cores import usable_cores
from jiyi.models.onnx_session import Session, open_session, parse_device
from tests.models.fake_gpu import FakeRuntime
from tests.models.tiny_onnx import SHAPE, make_folder


def feeds(rows: int, length: int, seed: int = 0) -> dict[str, Any]:
    ids = np.random.default_rng(seed).integers(5, 300, (rows, length))
    positions = np.broadcast_to(np.arange(length), ids.shape)
    mask = np.ones_like(ids)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0, "position_ids": positions}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("session") / "tiny", half_beside=True)


@pytest.fixture(scope="module")
def session(folder: Path) -> Session:
    return open_session(folder / "model.onnx", device="cpu", threads=1)


# Devices


@pytest.mark.parametrize(
    ("name", "device"),
    [("auto", None), ("cpu", ("cpu", 0)), ("cuda", ("cuda", 0)), ("cuda:0", ("cuda", 0)), ("cuda:12", ("cuda", 12))],
)
def test_devices(name: str, device: Any) -> None:
    assert parse_device(name) == device


@pytest.mark.parametrize(
    "name", ["", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:1:2", "cuda:٣", "auto ", 0, None]
)
def test_other_devices_are_refused_with_the_list(folder: Path, name: Any) -> None:
    with pytest.raises(ValueError, match=r"device is .*'auto', 'cpu', 'cuda', or 'cuda:N'"):
        open_session(folder / "model.onnx", device=name)


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="has CUDA")
def test_without_cuda_auto_is_the_cpu_and_no_fall(folder: Path) -> None:
    session = open_session(folder / "model.onnx")
    assert (session.device, session.degraded) == ("cpu", ())


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="has CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_that_is_not_there_is_a_warning_and_told(folder: Path, device: str) -> None:
    with pytest.warns(RuntimeWarning, match="was asked for"):
        session = open_session(folder / "model.onnx", device=device)
    assert session.device == "cpu"
    assert len(session.degraded) == 1
    assert f"'{'cuda:0' if device == 'cuda' else device}'" in session.degraded[0]
    assert session.path.name == "model.onnx"
    assert session.run(feeds(1, 4), "last_hidden_state").shape == (1, 4, SHAPE.width)


@pytest.mark.parametrize(("device", "card"), [("auto", 0), ("cuda", 0), ("cuda:3", 3)])
def test_gpu_takes_the_card_half_precision_and_io_binding(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, card: int
) -> None:
    runtime = FakeRuntime()
    monkeypatch.setattr(onnx_session, "_runtime", lambda: runtime)
    session = open_session(folder / "model.onnx", device=device)
    ((name, providers),) = runtime.asked
    assert name == "model_fp16.onnx"
    assert providers[0][0] == "CUDAExecutionProvider"
    assert providers[0][1]["device_id"] == str(card)
    assert (session.device, session.degraded) == (f"cuda:{card}", ())
    bound = []
    monkeypatch.setattr(session, "_run_bound", lambda *args: bound.append(args) or Session._run_bound(session, *args))
    outputs = list(session.run_many([feeds(2, 5), feeds(1, 9)], "last_hidden_state"))
    assert [output.dtype for output in outputs] == [np.float32, np.float32]
    assert len(bound) == 2


@pytest.mark.parametrize("fails", ["raises", "silently"])
@pytest.mark.parametrize("device", ["auto", "cuda:1"])
def test_gpu_that_fails_is_a_fall_to_the_full_precision_cpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str, device: str
) -> None:
    monkeypatch.setattr(onnx_session, "_runtime", lambda: FakeRuntime(fails=fails))
    with pytest.warns(RuntimeWarning, match=r"cannot be used here; .* runs on the CPU"):
        session = open_session(folder / "model.onnx", device=device)
    assert session.device == "cpu"
    assert session.path.name == "model.onnx"
    assert len(session.degraded) == 1


# Inputs and outputs


@pytest.mark.parametrize("token_types", [True, False])
@pytest.mark.parametrize("position_ids", [True, False])
@pytest.mark.parametrize("integers", [np.int64, np.int32])
def test_inputs_are_the_models_own(
    tmp_path: Path, session: Session, token_types: bool, position_ids: bool, integers: Any
) -> None:
    folder = make_folder(tmp_path, token_types=token_types, position_ids=position_ids, integers=integers)
    other = open_session(folder / "model.onnx", device="cpu", threads=1)
    assert set(other.inputs.values()) == {np.dtype(integers)}
    assert ("token_type_ids" in other.inputs, "position_ids" in other.inputs) == (token_types, position_ids)
    batch = feeds(3, 7)
    expected = session.run(batch, "last_hidden_state")
    np.testing.assert_allclose(other.run(batch, "last_hidden_state"), expected, atol=1e-5)


def test_io_binding_changes_nothing(folder: Path, session: Session) -> None:
    bound = open_session(folder / "model.onnx", device="cpu", threads=1, io_binding=True)
    for rows, length in ((1, 1), (3, 9), (2, 64)):
        batch = feeds(rows, length)
        # A view with strides of its own, as a slice of a larger batch has.
        batch["input_ids"] = np.repeat(batch["input_ids"], 2, axis=1)[:, ::2]
        expected = session.run(batch, "last_hidden_state")
        assert np.array_equal(bound.run(batch, "last_hidden_state"), expected)


def test_half_precision_agrees_with_full(folder: Path, session: Session) -> None:
    half = open_session(folder / "model_fp16.onnx", device="cpu", threads=1)
    batch = feeds(4, 12)
    full = session.run(batch, "last_hidden_state")
    assert half.run(batch, "last_hidden_state").dtype == np.float32
    np.testing.assert_allclose(half.run(batch, "last_hidden_state"), full, atol=0.02)


def test_many_batches_keep_their_order(folder: Path, session: Session) -> None:
    batches = [feeds(1 + i % 3, 1 + (7 * i) % 40, seed=i) for i in range(30)]
    several = open_session(folder / "model.onnx", device="cpu", threads=3)
    for batch, output in zip(batches, several.run_many(batches, "last_hidden_state"), strict=True):
        np.testing.assert_allclose(output, session.run(batch, "last_hidden_state"), atol=1e-5)
    assert list(several.run_many([], "last_hidden_state")) == []


def test_shared_scale_is_seen(tmp_path: Path, session: Session) -> None:
    quantized = make_folder(tmp_path, int8=True)
    assert open_session(quantized / "model.onnx", device="cpu").shared_scale
    assert not session.shared_scale


def test_threads_share_a_session(session: Session) -> None:
    batches = [feeds(2, 3 + i, seed=i) for i in range(8)]
    expected = [session.run(batch, "last_hidden_state") for batch in batches]
    wrong: list[int] = []

    def work() -> None:
        for i, batch in enumerate(batches):
            if not np.array_equal(session.run(batch, "last_hidden_state"), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Files


def _truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda _: b"not a model", lambda _: b"\x08\x08" + bytes(500), _truncated],
    ids=["empty", "text", "zeros", "truncated"],
)
def test_damaged_file_is_an_error_that_says_what_to_do(folder: Path, tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(damage((folder / "model.onnx").read_bytes()))
    with pytest.raises(ModelFilesError, match="fetch or build the model again") as caught:
        open_session(path, device="cpu")
    assert caught.value.path == path
    assert caught.value.reason
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    for name in ("none.onnx", "folder.onnx"):
        with pytest.raises(ModelFilesError, match="is missing"):
            open_session(tmp_path / name, device="cpu")


def test_inputs_that_no_text_gives_are_refused(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(make_folder(tmp_path) / "model.onnx")
    extra = onnx.helper.make_tensor_value_info("past_key_values.0.key", onnx.TensorProto.FLOAT, ["n", 4, "past", 8])
    model.graph.input.append(extra)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelFilesError, match=r"has the input 'past_key_values\.0\.key'"):
        open_session(tmp_path / "model.onnx", device="cpu")


def test_batch_the_model_refuses_names_the_file(session: Session) -> None:
    with pytest.raises(ModelFilesError, match="cannot be run") as caught:
        session.run(feeds(1, SHAPE.positions + 1), "last_hidden_state")
    assert caught.value.path == session.path


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_bad_threads(folder: Path, threads: Any) -> None:
    with pytest.raises(ValueError, match="threads is"):
        open_session(folder / "model.onnx", threads=threads)


# The process


def test_default_threads_are_the_cores_allowed(folder: Path) -> None:
    assert open_session(folder / "model.onnx", device="cpu").threads == usable_cores()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "5", "cpu/cpu.cfs_period_us": "0"}, None),
        ({}, None),
    ],
)
def test_quota_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert usable_cores(tmp_path) == (expected or 16)


def _python(code: str, *arguments: str, timeout: float = 120) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_opens_nothing() -> None:
    code = """
        import sys, jiyi, jiyi.models, jiyi.models.onnx_embedder, jiyi.models.onnx_cross_encoder
        heavy = ("onnxruntime", "tokenizers", "torch", "onnx", "huggingface_hub")
        print([name for name in heavy if name in sys.modules])
    """
    assert _python(code) == "[]"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_child_answers(folder: Path) -> None:
    """A child has none of its parent's threads, and must wait for none: not to run, and not to let go of a session."""
    code = """
        import os, signal, sys, numpy as np
        from jiyi.models.onnx_embedder import OnnxEmbedder
        from jiyi.models.onnx_session import open_session
        embedder = OnnxEmbedder(sys.argv[1], device="cpu", threads=2)
        session = open_session(sys.argv[1] + "/model.onnx", device="cpu", threads=2)
        # Enough rows that one product is worth both threads.
        ids = np.random.default_rng(0).integers(5, 300, (256, 64))
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}
        def answers():
            vectors = embedder.embed(["the cat sat", "i love hiking on the trail", "redis"] * 3)
            return np.concatenate([vectors.ravel(), session.run(feeds, "last_hidden_state").ravel()])
        before = answers()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if np.allclose(answers(), before, atol=1e-5) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert _python(code, str(folder)) == "0"


_RESIDENT = """
    import sys, numpy as np
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
    rng = np.random.default_rng(0)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_peak_is_given_back(folder: Path) -> None:
    """MB above where small batches stand, after large ones and small ones again: 31, and 224 with the arena."""
    code = f"""{_RESIDENT}
    from jiyi.models.onnx_session import open_session
    session = open_session(sys.argv[1], device="cpu", threads=1, arena=sys.argv[2] == "arena")
    def run(rows, length):
        ids = rng.integers(5, 300, (rows, length))
        feeds = {{"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}}
        session.run(feeds, "last_hidden_state")
    for large in range(4):
        for _ in range(30):
            run(int(rng.integers(1, 9)), int(rng.integers(2, 65)))
        warm = warm if large else resident()
        if large < 3:
            run(512, 64)
    print(resident() - warm)
    """
    kept, with_arena = (float(_python(code, str(folder / "model.onnx"), arena)) for arena in ("off", "arena"))
    assert with_arena > 100
    assert kept < with_arena / 2


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("batches", [200, pytest.param(2_000, marks=pytest.mark.slow)])
def test_long_run_does_not_grow(folder: Path, batches: int) -> None:
    """In MB, from a tenth of the way to the end, over calls with one to 60 texts of one to 400 words."""
    code = f"""{_RESIDENT}
    from jiyi.models.onnx_embedder import OnnxEmbedder
    embedder = OnnxEmbedder(sys.argv[1], device="cpu", threads=2)
    count = int(sys.argv[2])
    for i in range(count):
        sizes = rng.integers(1, 61 if i % 10 == 0 else 9)
        embedder.embed([" ".join(["word"] * int(rng.integers(1, 400 if i % 7 == 0 else 30))) for _ in range(sizes)])
        if i == count // 10:
            warm = resident()
    print(resident() - warm)
    """
    assert float(_python(code, str(folder), str(batches), timeout=280)) < 8
