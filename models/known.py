"""Models known to work, by short name: where they are, what they read, how they are asked.

A revision or checksum that could be seen on a page of its repository is given; where none could, it is None, and
`jiyi models info` says "not pinned".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["KNOWN", "Known"]

Kind = Literal["onnx-embedder", "onnx-cross-encoder"]


@dataclass(frozen=True, slots=True)
class Known:
    """One model of the hub."""

    name: str
    kind: Kind
    repository: str
    languages: tuple[str, ...]
    """ISO 639-1 codes; ("*",) for about a hundred languages."""
    licence: str | None
    """Of the weights, as an SPDX identifier; None where it is not known."""
    file: str = "onnx/model.onnx"
    beside: tuple[str, ...] = ()
    """Files that the model needs beside itself: weights of more than 2 GB are not inside it."""
    max_tokens: int | None = 512
    pooling: str | None = None
    dim: int | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    activation: str | None = None
    revision: str | None = None
    sha256: str | None = None
    """Of `file`."""
    note: str = ""

    @property
    def commercial(self) -> bool:
        """Whether the licence allows commercial use."""
        return self.licence is None or "-NC-" not in self.licence


_EMBEDDERS: Final = (
    Known(
        name="multilingual-e5-small",
        kind="onnx-embedder",
        repository="intfloat/multilingual-e5-small",
        languages=("*",),
        licence="MIT",
        pooling="mean",
        dim=384,
        query_prefix="query: ",
        passage_prefix="passage: ",
        revision="ffdcc22a9a5c973ef0470385cef91e1ecb461d9f",
        sha256="ca456c06b3a9505ddfd9131408916dd79290368331e7d76bb621f1cba6bc8665",
        note="470 MB; `jiyi models build e5-small` makes 60 MB of it that read Latin, Han and kana, without the hub",
    ),
    Known(
        name="bge-m3",
        kind="onnx-embedder",
        repository="BAAI/bge-m3",
        languages=("*",),
        licence="MIT",
        beside=("onnx/model.onnx_data", "onnx/Constant_7_attr__value"),
        max_tokens=8192,
        pooling="cls",
        dim=1024,
        revision="5617a9f61b028005a4858fdac845db406aefb181",
        note="2.3 GB; only its dense vectors are used",
    ),
    Known(
        name="bge-small-zh-v1.5",
        kind="onnx-embedder",
        repository="Xenova/bge-small-zh-v1.5",
        languages=("zh",),
        licence="MIT",
        pooling="cls",
        dim=512,
        query_prefix="为这个句子生成表示以用于检索相关文章：",
        revision="d990a82dec71c3c1cec53fc9870f2bc97a52f492",
        note="an ONNX export of BAAI/bge-small-zh-v1.5, whose own repository has none",
    ),
    Known(
        name="bge-small-en-v1.5",
        kind="onnx-embedder",
        repository="BAAI/bge-small-en-v1.5",
        languages=("en",),
        licence="MIT",
        pooling="cls",
        dim=384,
        query_prefix="Represent this sentence for searching relevant passages: ",
        revision="5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
    ),
    Known(
        name="all-MiniLM-L6-v2",
        kind="onnx-embedder",
        repository="sentence-transformers/all-MiniLM-L6-v2",
        languages=("en",),
        licence="Apache-2.0",
        max_tokens=256,
        pooling="mean",
        dim=384,
        revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        note="the extra `minilm` has it in int8, without the hub, as all-MiniLM-L6-v2-int8",
    ),
)

_CROSS_ENCODERS: Final = (
    Known(
        name="ms-marco-MiniLM-L6-v2",
        kind="onnx-cross-encoder",
        repository="cross-encoder/ms-marco-MiniLM-L6-v2",
        languages=("en",),
        licence="Apache-2.0",
        activation="none",
        revision="c5ee24cb16019beea0893ab7796b1df96625c6b8",
    ),
    Known(
        name="ms-marco-MiniLM-L12-v2",
        kind="onnx-cross-encoder",
        repository="cross-encoder/ms-marco-MiniLM-L12-v2",
        languages=("en",),
        licence="Apache-2.0",
        activation="none",
    ),
    Known(
        name="bge-reranker-base",
        kind="onnx-cross-encoder",
        repository="BAAI/bge-reranker-base",
        languages=("en", "zh"),
        licence="MIT",
        activation="sigmoid",
        revision="580465186bcc87f862a9b2f9003d720af2377980",
    ),
    Known(
        name="bge-reranker-v2-m3",
        kind="onnx-cross-encoder",
        repository="rozgo/bge-reranker-v2-m3",
        languages=("*",),
        licence="Apache-2.0",
        file="model.onnx",
        beside=("model.onnx.data",),
        max_tokens=8192,
        activation="sigmoid",
        note="2.3 GB; an ONNX export of BAAI/bge-reranker-v2-m3, whose licence this is",
    ),
    Known(
        name="mxbai-rerank-xsmall-v1",
        kind="onnx-cross-encoder",
        repository="mixedbread-ai/mxbai-rerank-xsmall-v1",
        languages=("en",),
        licence="Apache-2.0",
        activation="sigmoid",
        revision="d1ba0a474aeed7c9fa96c3f57b128277580c5fae",
    ),
    Known(
        name="jina-reranker-v2-base-multilingual",
        kind="onnx-cross-encoder",
        repository="jinaai/jina-reranker-v2-base-multilingual",
        languages=("*",),
        licence="CC-BY-NC-4.0",
        max_tokens=1024,
        activation="sigmoid",
        revision="6371035883584acb0584c34dbaa9350e4752b8d2",
        note="not for commercial use",
    ),
)

KNOWN: Final[dict[str, Known]] = {model.name: model for model in _EMBEDDERS + _CROSS_ENCODERS}
"""Short name to model, embedders first."""
