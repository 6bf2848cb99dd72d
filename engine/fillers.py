"""Fillers and greetings: what keeps a conversation going and says nothing to search for.

A text is *filler* if all its words are filler ("ok", "谢谢", "明白") or connect fillers ("我…了", "that … to me"),
and at least one is filler: "好的，我明白了", "Sure, I can help with that!". Punctuation, emoji and stretched letters
("okkkk", "好好好的～👌") make no difference, and a text of nothing but those is filler too. "好的，那 Redis 呢" is
none: something is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from jiyi.stopwords import CHINESE, ENGLISH
from jiyi.text import is_run, segments

# Words that carry a topic in other company ("help", "morning", "course") stand among the phrases, with that company.
_ENGLISH_WORDS: Final = frozenset(
    """
    ok okay okey okie k kk no alright right aight fine cool nice great good perfect awesome amazing excellent
    wonderful fantastic lovely brilliant neat sweet wow whoa yay hooray woohoo yes yeah yea yep yup ya sure indeed
    exactly correct true agree agreed absolutely certainly definitely totally noted understood understand roger
    gotcha nope nah hm hmm mm mmm mhm uh um er ah aha oh ooh eh huh lol lmao rofl xd interesting thanks thank thx
    thanx tnx ty tysm cheers appreciate appreciated welcome yw np sorry oops whoops apologies nevermind hi hello
    hey hiya heya yo howdy greetings sup bye goodbye cya ttyl seriously really wait continue proceed next
    """.split()
)
_PERIOD: Final = "(?:morning|afternoon|evening|night|day|weekend|one|time)"
_THAT: Final = "(?: that| this| it)"
_ENGLISH_PHRASES: Final = (
    f"(?:have a )?(?:good|nice|lovely|great) {_PERIOD}",
    "good luck|take care|see (?:you|ya|u)(?: soon| tomorrow)?|long time no see",
    "(?:nice|good|great|pleased) to (?:meet|see) you",
    "(?:hi|hello|hey|thanks|thank you|cheers|ok|okay|bye) "
    "(?:everyone|everybody|guys|folks|team|buddy|friends?|mate|man|dude|assistant|bot|ai)",
    "got (?:it|you|ya|that)|i see|fair enough|of course|o k|my bad|for sure|you bet|well done|will do|never mind",
    "makes? (?:perfect )?sense|(?:sounds|looks|seems)(?: like a plan| reasonable| fun)?",
    "all (?:set|good|ears|done)|done|so far so good|don't mention it|(?:my |with )pleasure|any ?time",
    "(?:no|not a|no big) (?:problem|worries|prob|biggie|deal)",
    f"(?:happy|glad|here|ready|delighted|love|good|great|nice|sorry) to (?:help|assist|hear|know|do){_THAT}?",
    "(?:i|we|i'll|we'll|i'd|i'm|me)"
    "(?: can| could| will| would| may| be| happy| glad| love| to| here| definitely| certainly){0,5} "
    f"(?:help|assist|look into|check|remember|explain)(?: you)?(?: out)?(?: with)?{_THAT}?",
    f"(?:remember|note|keep){_THAT}(?: in mind)?|take a look|right away",
    "(?:hope )?(?:that|this|it)(?: really)? helps?(?: a lot)?",
    f"(?:to help|assist you)(?: you)?(?: with)?{_THAT}?",
    "(?:great|good|excellent|interesting|nice|fair) (?:question|point|idea|choice|call|job|work)",
    "feel free(?: to)?(?: ask| reach out)?|reach out|let me know|just ask|(?:i'm|i am) (?:here|listening)",
    "go (?:on|ahead|for it)|let's (?:go|continue|do it)|carry on|keep going|hold on|hang on",
    "(?:here|there) (?:you|we) (?:go|are)|(?:one|just a|give me a) (?:moment|second|sec|minute)",
    "what's up|how(?: is|'s) it going|how (?:are|have) you(?: been| doing)?|(?:are you|anyone|anybody) there",
    "for (?:your|all your|the|all the) (?:help|time|advice|patience|answer|reply|support)",
    "for (?:sharing|asking|helping|telling me|letting me know)",
    "(?:if|do|did) you (?:have|need|want)"
    "(?: any| anything| more| other| further| additional| else| questions?| help){0,5}",
    "(?:is there )?anything else(?: i can)?(?: help)?(?: you)?(?: with)?",
    "(?:can|may|could) i (?:help|assist)(?: you)?(?: with)?",
)
_ENGLISH_NEUTRAL: Final = frozenset(
    """
    anything something else let let's well again today now later maybe pls plz question questions talk
    """.split()
)

# Alone with particles these are filler; in a longer text they are parts of other words (成都, 中和, 早在).
_CHINESE_ALONE: Final = re.compile(
    "(?:成|妥|中|棒|赞|贊|牛|懂|可|早|不|没|沒|有|在|是|要|会|能|算|恩|切|强|爽|顶|安|乖|真|噗)"
    "[的吧啊呀哦噢呢嘛哒滴嘞勒哈了啦咯喽哟么吗嗎]*"
)
_CHINESE_WORDS: Final = """
    嗯 哼 耶 唔 哦 噢 喔 啊 呀 哈 呵 嘿 嘻 呃 诶 欸 哎 唉 哇 嗨 喂 哟 好 行 对 對 拜 谢 謝 ok 可以 没问题 沒問題
    没事 没关系 沒關係 没毛病 不客气 不客氣 不用 不要 不必 不是 没有 沒有 没了 当然 當然 必须 确实 的确 肯定 没错
    同意 明白 知道 了解 瞭解 理解 懂了 清楚 晓得 收到 记住 記住 记下 记录 记得 看到 听到 原来如此 原来 如此 这样
    這樣 真的 不错 不錯 真好 太好 太棒 太强 很好 很棒 挺好 厉害 厲害 有道理 有意思 说得 妥妥 得嘞 遵命 多谢 多謝
    感谢 感謝 感恩 辛苦 麻烦 拜托 你好 您好 妳好 大家好 各位好 哈喽 哈啰 哈囉 早安 早上好 上午好 中午好 下午好
    晚上好 晚安 午安 在吗 在么 在不在 有人吗 再见 再見 回见 回头见 明天见 下次见 好久不见 幸会 继续 繼續 接着说
    接着讲 接着 往下说 往下讲 稍等 等等 等一下 等下 马上 稍候 帮助 帮忙 帮到 帮您 帮你 幫您 幫你 协助 为您服务
    为你服务 很高兴 乐意 随时告诉 随时 告诉我 联系我 有问题 问题 疑问 希望对 有用 意思 哎呀 天哪 天啊 加油
    """.split()
_CHINESE_NEUTRAL: Final = """
    您 请 請 很 太 真 还 還 再 先 来 會 会 能 要 给 让 说 讲 看 听 一下 下 有 需要 其他 其它 别的 任何 如果 非常
    十分 特别 大家 客气 为 这就 現在 现在 已经 这边 勒 滴 哒 嘞 哈 啦 咯 喽 么 嗎 妳 我 這 這個 咱
    """.split()

# A message longer than this says something, and is not worth the look.
_LONGEST: Final = 400
# So many filler clauses are taken off either end.
_MOST_CLAUSES: Final = 8
_SENTENCE_END: Final = re.compile(r"(?:[,，。!！?？;；~～…\n\r]|\.(?!\w))+\s*")
_LAUGHTER: Final = re.compile(r"[abmw]{0,3}(?:h+[aeiou]+){2,}h*|l+o+l+(?:o+l+)*o*|lmf?a+o+|w+a+h+a+|ja(?:ja)+")
_WORD_CHARACTER: Final = re.compile(r"[^\W_]")
_STRETCHED: Final = re.compile(r"(.)\1+", re.DOTALL)


def _collapsed(text: str) -> str:
    return _STRETCHED.sub(r"\1", text)


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(sorted({_collapsed(word) for word in words}, key=lambda word: (-len(word), word))))


_CHINESE_FILLER: Final = _any_of(_CHINESE_WORDS)
_CHINESE_REST: Final = _any_of([*_CHINESE_NEUTRAL, *CHINESE])
_ENGLISH_PHRASE: Final = re.compile(f" (?:{'|'.join(_ENGLISH_PHRASES)})(?= )")
_PHRASE_WORDS: Final = frozenset(re.findall(r"[a-z']+", " ".join(_ENGLISH_PHRASES)))
# Every word that a stretched one may stand for: "thankssss" → "thanks", "goood" → "good".
_UNSTRETCHED: Final[dict[str, str]] = {_collapsed(word): word for word in sorted(_ENGLISH_WORDS | _PHRASE_WORDS)}
_KNOWN: Final = _ENGLISH_WORDS | _PHRASE_WORDS | _ENGLISH_NEUTRAL | ENGLISH


def _known(word: str) -> str | None:
    """A word as the lists above have it; None for one that they have not, which says something."""
    if word in _KNOWN:
        return word
    if _LAUGHTER.fullmatch(word):
        return "lol"
    collapsed = _collapsed(word)
    return _UNSTRETCHED.get(collapsed) if collapsed != word else None


def _weigh(text: str) -> tuple[bool, bool]:
    """Whether a text has filler words, and whether it has any that are neither filler nor connect fillers."""
    words: list[str] = []
    filler = False
    for segment in segments(text):
        if is_run(segment):
            run = _collapsed(segment)
            if _CHINESE_ALONE.fullmatch(run):
                filler = True
                continue
            left = _CHINESE_FILLER.sub(" ", run)
            filler |= left != run
            if _CHINESE_REST.sub("", left).strip():
                return filler, True
        elif _WORD_CHARACTER.search(segment):
            word = _known(segment)
            if word is None:
                return filler, True
            words.append(word)
    joined = f" {' '.join(words)} "
    left = _ENGLISH_PHRASE.sub("", joined)
    filler |= left != joined
    for word in left.split():
        if word in _ENGLISH_WORDS:
            filler = True
        elif word not in ENGLISH and word not in _ENGLISH_NEUTRAL:
            return filler, True
    return filler, False


def is_filler(text: str) -> bool:
    """Whether a message says nothing to search for: a filler, a greeting, thanks, or no words at all."""
    if len(text) > _LONGEST and len(_collapsed(text)) > _LONGEST:
        return False
    filler, content = _weigh(text)
    return not content and (filler or not _WORD_CHARACTER.search(text))


def strip_filler(text: str) -> str:
    """Return a text without the filler clauses before and after what it says: "Sure! Redis …" gives "Redis …".

    A text that is filler as a whole comes back as it is.
    """
    if is_filler(text):
        return text
    start, end = 0, len(text)
    bounds = [match.end() for match in _SENTENCE_END.finditer(text) if match.end() < end]
    for bound in bounds[:_MOST_CLAUSES]:
        if not is_filler(text[start:bound]):
            break
        start = bound
    for bound in reversed(bounds[-_MOST_CLAUSES:]):
        if bound <= start or not is_filler(text[bound:end]):
            break
        end = bound
    return text[start:end].strip().rstrip(",，;；~～").rstrip()
