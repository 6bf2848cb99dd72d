"""An ONNX Runtime session as this package wants it: one device asked for by name, no surprises in memory or threads.

The whole of `onnxruntime` stays behind this file, and is imported when the first session is opened.

Memory. ONNX Runtime's arena keeps what it ever needed. Over 2,000 mixed batches (1 to 8 rows of 6 to 512 tokens; six
layers, 192 wide) a process that stood at 105 MB after loading ended at 702 MB with the arena, still growing, and at
193 MB without it, between 140 and 200 MB all the way; all but a few of those go back with malloc_trim. So the arena and
the memory pattern (which sizes it by shapes seen before) are off on the CPU.

Threads. Workers that spin while they wait burn the cores that the rest of the process needs: with two threads on two
shared cores spinning cost a third to a half of the throughput of small batches and gained nothing, so it is off.
"""

from __future__ import annotations

import mmap
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.models.cores import usable_cores
from jiyi.models.files import ModelFilesError
from jiyi.models.onnx_external import check_external_data

__all__ = ["Device", "Session", "open_session", "parse_device"]

Feeds = Mapping[str, NDArray[Any]]
Device = tuple[str, int]

TEXT_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
HALF_PRECISION_FILES: Final = ("model_fp16.onnx", "model_float16.onnx")
DAMAGED: Final = "fetch or build the model again"
OUT_OF_MEMORY_OR_DAMAGED: Final = f"free memory on its device if that ran out, else {DAMAGED}"
_INTEGERS: Final[Mapping[str, np.dtype[Any]]] = {
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
}
_CUDA: Final = "CUDAExecutionProvider"
_CPU: Final = "CPUExecutionProvider"
# Operators whose scale is one number for a whole tensor: with them a row's result depends on the rows beside it.
_SHARED_SCALE: Final = (b"DynamicQuantizeLinear", b"DynamicQuantizeMatMul", b"DynamicQuantizeLSTM")


def parse_device(device: str) -> Device | None:
    """Return ("cpu", 0) or ("cuda", n) of a device's name, or None for "auto".

    Raises:
        ValueError: it is none of "auto", "cpu", "cuda" and "cuda:N".
    """
    if device == "auto":
        return None
    kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    if device == "cpu" or device == "cuda":
        return kind, 0
    if kind == "cuda" and number.isascii() and number.isdigit() and len(number) <= 3:
        return kind, int(number)
    shown = repr(device[:80]) if isinstance(device, str) else f"a {type(device).__name__}"
    raise ValueError(f"device is {shown}; it can be 'auto', 'cpu', 'cuda', or 'cuda:N' with N the card's number")


class Session:
    """One model, loaded, with what its callers need to know of it. Made by `open_session`; safe to share.

    Attributes:
        path: the file that was loaded (the half-precision one, where that was taken).
        device: where it runs: "cpu" or "cuda:N".
        threads: threads that one run may use, and runs that `run_many` has in flight at once on the CPU.
        degraded: what was asked for and could not be had, one sentence each.
        inputs: input name to integer dtype, as the model declares them.
        outputs: output name to its declared shape; None where a dimension is dynamic.
        shared_scale: whether activations are quantised with one scale for a whole batch (dynamic int8), so that a
            row's result depends on its neighbours.
    """

    def __init__(
        self,
        path: Path,
        device: Device | None,
        *,
        threads: int,
        arena: bool = False,
        io_binding: bool | None = None,
    ) -> None:
        """Load the model; see `open_session`."""
        self.threads = threads
        self._arena = arena
        self._lock = threading.Lock()
        self.degraded: tuple[str, ...] = ()
        wanted = self._choose(device)
        self.path = _half_precision(path) if wanted[0] == "cuda" else path
        self._session, actual = self._create(wanted)
        if actual != wanted:
            asked = _name(wanted) if device else "auto (cuda)"
            self._degrade(f"device {asked!r} was asked for and cannot be used here; {path.parent.name} runs on the CPU")
            if self.path != path:
                self.path = path
                self._session, actual = self._create(actual)
        self.device = _name(actual)
        self._wanted = actual
        self._binding = actual[0] == "cuda" if io_binding is None else io_binding
        self._process = os.getpid()
        self._inherited: list[Any] = []
        self.inputs = {node.name: _integer(path, node) for node in self._session.get_inputs()}
        self.outputs = {
            node.name: tuple(size if isinstance(size, int) else None for size in node.shape)
            for node in self._session.get_outputs()
        }
        self.shared_scale = _contains(self.path, _SHARED_SCALE)

    def run(self, feeds: Feeds, output: str) -> NDArray[Any]:
        """Run one batch.

        Args:
            feeds: integer arrays of shape (n, length); those that the model does not take are left out, the others
                cast to the dtype it takes.
            output: name of the output wanted; no other is computed.

        Returns:
            The output, float32 where the model gives half precision.

        Raises:
            ModelFilesError: the model refuses the batch: the file does not fit its manifest or tokenizer, or memory ran
                out.
        """
        session = self._in_this_process()
        taken = {name: np.ascontiguousarray(feeds[name], dtype) for name, dtype in self.inputs.items()}
        try:
            result = self._run_bound(session, taken, output) if self._binding else session.run([output], taken)[0]
        except Exception as error:  # onnxruntime's errors have no common base of their own
            raise ModelFilesError(
                self.path, f"cannot be run ({_first_line(error)})", OUT_OF_MEMORY_OR_DAMAGED
            ) from None
        array = np.asarray(result)
        return array.astype(np.float32) if array.dtype == np.float16 else array

    def run_many(self, batches: Iterable[Feeds], output: str) -> Iterator[NDArray[Any]]:
        """Run batches, several at once on a CPU of several cores; yields their outputs in the order given.

        Small batches do not keep many threads busy by themselves: two batches on one thread each finish sooner than
        one after the other on two.
        """
        batches = list(batches)
        workers = min(self.threads, len(batches)) if self.device == "cpu" else 1
        if workers <= 1:
            for feeds in batches:
                yield self.run(feeds, output)
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="jiyi-onnx") as pool:
            yield from pool.map(lambda feeds: self.run(feeds, output), batches)

    def _run_bound(self, session: Any, feeds: Feeds, output: str) -> NDArray[Any]:
        """Bind inputs and output, so that each crosses to the device or back once and no copy is made beside it."""
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output(output, "cpu")
        session.run_with_iobinding(binding)
        result: NDArray[Any] = binding.copy_outputs_to_cpu()[0]
        return result

    def _in_this_process(self) -> Any:
        """Return the session, opened anew after a fork: the threads of the parent's do not exist in the child."""
        if self._process != os.getpid():
            with self._lock:
                if self._process != os.getpid():
                    # Kept, never closed: closing it would wait for threads that are not there.
                    self._inherited.append(self._session)
                    self._session, _ = self._create(self._wanted)
                    self._process = os.getpid()
        return self._session

    def _choose(self, device: Device | None) -> Device:
        available = _runtime().get_available_providers()
        if device is None:
            return ("cuda", 0) if _CUDA in available else ("cpu", 0)
        if device[0] == "cuda" and _CUDA not in available:
            self._degrade(
                f"device {_name(device)!r} was asked for and the onnxruntime installed here has only "
                f"{', '.join(available)}; models run on the CPU (onnxruntime-gpu has CUDA)"
            )
            return "cpu", 0
        return device

    def _degrade(self, sentence: str) -> None:
        self.degraded = (*self.degraded, sentence)
        warnings.warn(sentence, RuntimeWarning, stacklevel=5)

    def _create(self, device: Device) -> tuple[Any, Device]:
        """Create onnxruntime's session on a device, or on the CPU where the device fails; say which it became."""
        runtime = _runtime()
        providers: list[Any] = [_CPU]
        if device[0] == "cuda":
            providers.insert(0, (_CUDA, {"device_id": str(device[1]), "arena_extend_strategy": "kSameAsRequested"}))
        if not self.path.is_file():
            raise ModelFilesError(self.path, "is missing", DAMAGED)
        check_external_data(self.path)
        try:
            # Its own fall-back prints to standard output and is not told to the caller.
            session = runtime.InferenceSession(
                os.fspath(self.path), self._options(), providers=providers, enable_fallback=0
            )
        except Exception as error:  # onnxruntime's errors have no common base of their own
            if device[0] != "cpu":
                return self._create(("cpu", 0))
            raise ModelFilesError(self.path, f"cannot be loaded ({_first_line(error)})", DAMAGED) from None
        return session, device if device[0] == "cpu" or _CUDA in session.get_providers() else ("cpu", 0)

    def _options(self) -> Any:
        options = _runtime().SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_cpu_mem_arena = self._arena
        options.enable_mem_pattern = self._arena
        options.log_severity_level = 3  # errors; its warnings are about the graph, which no user can change
        return options


def open_session(
    path: Path | str,
    *,
    device: str = "auto",
    threads: int | None = None,
    arena: bool = False,
    io_binding: bool | None = None,
) -> Session:
    """Open an ONNX model.

    Args:
        path: the `.onnx` file. On a GPU `model_fp16.onnx` or `model_float16.onnx` beside it is taken instead.
        device: "auto" (a GPU where there is one), "cpu", "cuda", or "cuda:N". Where a GPU that was asked for, or that
            onnxruntime offers, cannot be used, the model runs on the CPU, with a RuntimeWarning and a sentence in
            `Session.degraded`; "auto" without a GPU build of onnxruntime is no fall.
        threads: threads a run may use, at least 1; None takes the cores that the process may use.
        arena: keep freed memory for the next run: a little faster, and the process keeps its peak.
        io_binding: bind inputs and outputs; None does so on a GPU.

    Raises:
        ValueError: `device` or `threads` is not one of those allowed.
        ModelFilesError: the file is missing, is no ONNX model, or takes inputs that no text has.
    """
    wanted = parse_device(device)
    if threads is not None and (not isinstance(threads, int) or isinstance(threads, bool) or threads < 1):
        raise ValueError(f"threads is {threads!r:.80}; it must be at least 1, or None for all the cores there are")
    return Session(Path(path), wanted, threads=threads or usable_cores(), arena=arena, io_binding=io_binding)


def _runtime() -> Any:
    """Import onnxruntime late: its import takes 0.1 s, and most uses of the package open no session."""
    import onnxruntime

    return onnxruntime


def _name(device: Device) -> str:
    return "cpu" if device[0] == "cpu" else f"cuda:{device[1]}"


def _half_precision(path: Path) -> Path:
    return next((path.parent / name for name in HALF_PRECISION_FILES if (path.parent / name).is_file()), path)


def _integer(path: Path, node: Any) -> np.dtype[Any]:
    if node.name not in TEXT_INPUTS or node.type not in _INTEGERS or len(node.shape) != 2:
        raise ModelFilesError(
            path,
            f"has the input {node.name!r} of type {node.type} and shape {node.shape}, which no text gives",
            f"use an encoder whose inputs are of {', '.join(TEXT_INPUTS)}, of shape (batch, length)",
        )
    return _INTEGERS[node.type]


def _contains(path: Path, names: Iterable[bytes]) -> bool:
    """Whether any of the operator names stands in the file: they are stored as they are, between binary weights."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(name) >= 0 for name in names)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
