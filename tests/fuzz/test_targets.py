"""Every target, on seeded bytes in the normal run, and on many more with `make fuzz`."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.forked import in_child
from tests.fuzz.targets import TARGETS

_MORE = int(os.environ.get("JIYI_FUZZ_EXAMPLES", "0"))
_NATIVE = ("tokenizers",)


@pytest.mark.parametrize("target", [name for name in TARGETS if name not in _NATIVE])
def test_strange_input_is_answered_rightly_or_refused_clearly(target: str) -> None:
    @settings(max_examples=_MORE or 40, derandomize=not _MORE, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=300))
    def trial(content: bytes) -> None:
        TARGETS[target](content)

    trial()


@pytest.mark.parametrize("target", _NATIVE)
def test_nor_does_it_end_the_process(target: str) -> None:
    def trials() -> str:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a panic of the library says so there too

        @settings(max_examples=_MORE or 60, derandomize=not _MORE, suppress_health_check=list(HealthCheck))
        @given(st.binary(max_size=300))
        def trial(content: bytes) -> None:
            TARGETS[target](content)

        trial()
        return "done"

    assert in_child(trials, seconds=600) == "done"
