"""Embedders and cross-encoders behind small protocols, and the weights that ship."""

from jiyi.models.files import ModelFilesError
from jiyi.models.protocols import BudgetedCrossEncoder, CrossEncoder, Embedder, TokenTable
from jiyi.models.registry import available, available_embedders, load_cross_encoder, load_embedder
from jiyi.models.static import StaticEmbedder

__all__ = [
    "BudgetedCrossEncoder",
    "CrossEncoder",
    "Embedder",
    "ModelFilesError",
    "StaticEmbedder",
    "TokenTable",
    "available",
    "available_embedders",
    "load_cross_encoder",
    "load_embedder",
]
