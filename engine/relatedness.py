"""How much two texts have to do with each other, on one scale for every embedder.

A cosine means little by itself: one model gives unrelated texts 0.1, another 0.8, and English ones more than Chinese
ones. So it is held against the cosines of both texts with everyday sentences that have nothing to do with either, and
counted in their standard deviations: 0 is "as any two texts", 3 and more "about the same thing". That is the symmetric
score normalisation of speaker verification (s-norm; Kenny 2010).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.language import is_chinese
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.terms import query_terms
from jiyi.topic import Related

#: Texts to vectors: array of shape (texts, dim).
Embed = Callable[[Sequence[str]], NDArray[Any]]

# Each on something else, so that hardly more than one or two can be related to any text.
_ENGLISH: Final = (
    "How do I fix this bug in the server?",
    "The recipe needs butter, eggs and flour",
    "Our flight to Lisbon leaves on Friday",
    "The match ended two to one last night",
    "My tooth hurts and I see the dentist tomorrow",
    "She paints portraits in watercolour",
    "We adopted a puppy from the shelter",
    "The rent goes up in September",
    "I finished a novel about the war",
    "He plays the piano in a small band",
    "The exam covers three chapters of biology",
    "My grandmother turns eighty in May",
    "It will rain all weekend",
    "I want to run a marathon next year",
    "The company pays taxes every quarter",
    "Let's watch a film at the cinema",
)
_CHINESE: Final = (
    "服务器上的这个错误怎么修？",
    "这道菜要用黄油、鸡蛋和面粉",
    "我们周五飞去里斯本",
    "昨晚的比赛二比一结束",
    "我牙疼，明天去看牙医",
    "她用水彩画肖像",
    "我们从救助站领养了一只小狗",
    "房租九月要涨",
    "我看完了一本战争小说",
    "他在一个小乐队弹钢琴",
    "考试考生物的三章",
    "我奶奶五月满八十岁",
    "周末一直下雨",
    "我明年想跑马拉松",
    "公司每个季度交税",
    "我们去电影院看电影吧",
)
# Cosines with the sentences above that differ by less than this tell nothing: the model knows none of the words.
_LEAST_SPREAD: Final = 1e-3
_LONGEST: Final = 2000


class Relatedness:
    """How many standard deviations closer two texts are than texts that have nothing to do with each other.

    Args:
        embed: texts to vectors, array of shape (texts, dim), for instance an embedder's `embed`. It is called with 32
            short sentences at the first use, and with two texts at each.

    >>> from jiyi.models import load_embedder
    >>> related = Relatedness(load_embedder("e5-static-256").embed)
    >>> related("Redis 集群怎么配置？", "Redis Cluster 至少需要三个主节点") > 3
    True
    >>> related("Redis 集群怎么配置？", "周末去徒步") < 2
    True
    """

    def __init__(self, embed: Embed) -> None:
        if not callable(embed):
            raise TypeError(
                f"embed is {type(embed).__name__}; pass a function from a list of texts to their vectors, such as an "
                "embedder's embed"
            )
        self._embed = embed
        self._others: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def __call__(self, one: str, other: str) -> float | None:
        """Return the normalised cosine of two texts; None where the embedder knows nothing of one of them.

        Only the first 2,000 characters count, and of those the content words.
        """
        vectors = self._unit([one[:_LONGEST], other[:_LONGEST]])
        if vectors is None or not vectors.any(axis=1).all():
            return None
        if self._others is None:
            english, chinese = self._unit(_ENGLISH), self._unit(_CHINESE)
            if english is None or chinese is None:
                return None
            self._others = english, chinese
        cosine = float(vectors[0] @ vectors[1])
        deviations = []
        for vector, compared in zip(vectors, (other, one), strict=True):
            usual = self._others[is_chinese(compared)] @ vector
            spread = float(usual.std())
            if spread < _LEAST_SPREAD:
                return None
            deviations.append((cosine - float(usual.mean())) / spread)
        return sum(deviations) / 2

    def _unit(self, texts: Sequence[str]) -> NDArray[np.float64] | None:
        vectors = np.asarray(self._embed([query_terms(text).content or text for text in texts]), dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(f"embed returned shape {vectors.shape}; for {len(texts)} texts it must be one row each")
        if not np.isfinite(vectors).all():
            return None
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float64] = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
        return unit


def relatedness_of(source: Embedder | TokenTable) -> Related:
    """Return the relatedness that an embedder or a token table tells; one that fails at a text tells nothing of it."""
    related = Relatedness(source.embed if isinstance(source, Embedder) else lambda texts: _by_table(source, texts))

    def told(one: str, other: str) -> float | None:
        try:
            return related(one, other)
        except Exception:  # a model of the user's: whatever it raises, words still tell
            return None

    return told


def _by_table(table: TokenTable, texts: Sequence[str]) -> NDArray[np.float32]:
    return table.embed_rows(*table.token_rows(texts))
