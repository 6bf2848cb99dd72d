"""Words that ask or connect and carry no topic: left out of *queries* (never of memories).

Dropping them from the query alone lifts BM25's recall@10 on conversation memory by about six points: "When did
Caroline go to …" should search for "Caroline", not for every turn with "when did … to".
"""

from __future__ import annotations

from typing import Final

ENGLISH: Final = frozenset(
    """
    a an the this that these those here there
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves one ones
    who whom whose which what when where why how whether
    am is are was were be been being isn't aren't wasn't weren't i'm you're we're they're he's she's it's that's
    what's who's where's when's how's there's here's let's
    do does did doing done don't doesn't didn't have has had having haven't hasn't hadn't i've you've we've they've
    will would shall should can could may might must won't wouldn't shan't shouldn't can't cannot couldn't mustn't
    mightn't i'll you'll he'll she'll we'll they'll it'll i'd you'd he'd she'd we'd they'd
    and or but nor so yet if then else than because as while until unless although though since
    of at by for with about against between into through during before after above below to from up down in out on
    off over under again further once upon within without toward towards per via
    no not only own same too very just also ever even still such both each few more most other another some any all
    every either neither much many lot lots
    s t d m ll re ve
    please tell know like get got say said says ask asked think
    kind type sort
    """.split()
)

#: Chinese question words, particles and connectives, longest first where one contains another.
CHINESE: Final = (
    "为什么 是什么 有什么 什么样 什么时候 怎么样 怎样 怎么 什么 哪些 哪个 哪里 哪儿 哪位 哪一 多少 几个 是否 "
    "能否 有没有 是不是 请问 告诉 如何 为何 何时 何地 谁 哪 吗 呢 吧 啊 呀 嘛 的 了 着 地 得 之 是 在 和 与 及 或 "
    "而 但 也 都 就 还 又 被 把 我 你 他 她 它 我们 你们 他们 她们 这 那 这个 那个 这些 那些"
).split()
