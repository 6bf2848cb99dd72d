"""What the export of a linear layer asks of the weights, whichever file they come from."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["LayerWeights"]


class LayerWeights(Protocol):
    """Where the weights of linear layers come from."""

    def matrix(self, name: str, columns: int) -> NDArray[np.float32]:
        """Return a matrix, shape (outputs, columns)."""
        ...

    def quantized(self, name: str, columns: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Return it in 4 bits: scales (outputs, columns / 32) and nibbles (outputs, columns)."""
        ...
