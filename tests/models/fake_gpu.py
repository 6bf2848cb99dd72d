"""A machine with a GPU, as onnxruntime shows it, for tests on one without."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import onnxruntime


class FakeRuntime(types.SimpleNamespace):
    """onnxruntime as a machine with a GPU shows it; what it makes runs on the CPU."""

    def __init__(self, *, fails: str = "") -> None:
        super().__init__(asked=[], fails=fails, SessionOptions=onnxruntime.SessionOptions)

    def get_available_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def InferenceSession(self, path: str, options: Any, *, providers: list[Any], enable_fallback: int) -> Any:  # noqa: N802
        assert enable_fallback == 0, "onnxruntime's own fall-back prints, and is told to nobody"
        self.asked.append((Path(path).name, providers))
        on_gpu = isinstance(providers[0], tuple)
        if on_gpu and self.fails == "raises":
            raise RuntimeError("CUDA failure 100: no CUDA-capable device is detected")
        real = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        if on_gpu and self.fails != "silently":
            real.get_providers = self.get_available_providers
        return real
