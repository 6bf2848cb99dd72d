"""American spellings of British words: the frequency list has only the latter ("favourite", "neighbour")."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["american_spelling"]

_OUR: Final = (
    "arb|ard|arm|behavi|cand|clam|clang|col|demean|dol|enam|endeav|fav|ferv|flav|glam|harb|hon|hum|lab|neighb|od|parl|"
    "ranc|rig|rum|sav|splend|succ|tum|val|vap|vig"
)
_RE: Final = "cent|theat|met|lit|fib|sab|spect|somb|meag|lust|calib|mit"
_LL: Final = (
    "travel|cancel|counsel|label|model|level|fuel|signal|jewel|marvel|quarrel|tunnel|channel|dial|duel|total|rival|spiral|"
    "shovel|swivel|unravel|panel|pedal|revel|shrivel|bevel|chisel|dishevel|enamel|funnel|grovel|initial|libel|medal|"
    "pencil|pummel|stencil|towel"
)
_RULES: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"^(.*(?:{_OUR}))our(.*)$", r"\1or\2"),
        (rf"^(.*(?:{_RE}))re(s)?$", r"\1er\2"),
        (rf"^(.*(?:{_RE}))red$", r"\1ered"),
        (rf"^((?:.*)(?:{_LL}))l(ed|ing|ings|er|ers|or|ors|ous|ously)$", r"\1\2"),
        (r"^(anal|paral|catal)ys(e|ed|er|ers|es|ing)$", r"\1yz\2"),
        (r"^(def|off|lic|pret)ence(s|less)?$", r"\1ense\2"),
        (r"^(.*)(an|h|p|gyn|orthop|encyclop|leuk)ae(sth|m|di|dic|co)(.*)$", r"\1\2e\3\4"),
        (r"^(.*)(manoeuvre)(.*)$", r"\1maneuver\3"),
        (r"^(f|diarrh|)oe(t|a|str|soph)(.*)$", r"\1e\2\3"),
        (r"^(skil|wil|fulfil|instal|enrol)(ful|fully|ment|ments|s)?$", r"\1l\2"),
        (r"^cos(y|ier|iest|ily|iness)$", r"coz\1"),
        (r"^mould(.*)$", r"mold\1"),
        (r"^plough(.*)$", r"plow\1"),
        (r"^smoulder(.*)$", r"smolder\1"),
    )
)
_WHOLE: Final = {
    "moustache": "mustache",
    "jewellery": "jewelry",
    "pyjamas": "pajamas",
    "aluminium": "aluminum",
    "woollen": "woolen",
    "yoghurt": "yogurt",
    "doughnut": "donut",
    "doughnuts": "donuts",
    "chilli": "chili",
    "chillies": "chilies",
    "artefact": "artifact",
    "artefacts": "artifacts",
    "sceptic": "skeptic",
    "sceptical": "skeptical",
    "scepticism": "skepticism",
    "tyre": "tire",
    "tyres": "tires",
    "grey": "gray",
    "greys": "grays",
    "judgement": "judgment",
    "judgements": "judgments",
    "ageing": "aging",
}


def american_spelling(word: str) -> str | None:
    """Return how Americans spell a British word, or None where no rule applies; not every result is a word."""
    whole = _WHOLE.get(word)
    if whole is not None:
        return whole
    for pattern, replacement in _RULES:
        changed, count = pattern.subn(replacement, word)
        if count:
            return changed
    return None
