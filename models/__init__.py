"""Embedders and cross-encoders behind small protocols, and the weights that ship."""

from jiyi.models.files import ModelFilesError
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.models.registry import available_embedders, load_embedder
from jiyi.models.static import StaticEmbedder

__all__ = ["Embedder", "ModelFilesError", "StaticEmbedder", "TokenTable", "available_embedders", "load_embedder"]
