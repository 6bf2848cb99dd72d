"""Coverage-guided fuzzing of the same targets with Atheris: `python -m tests.fuzz.atheris_targets --seconds 60`.

Each target runs in a process of its own, so that one that a native library ends is told as a finding of that target.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def fuzz(target: str, seconds: int) -> None:
    """Fuzz one target in this process; does not return."""
    import atheris

    import jiyi.kernels

    for module in pkgutil.iter_modules(jiyi.kernels.__path__, "jiyi.kernels."):
        importlib.import_module(module.name)  # as they are: Numba compiles no bytecode that has been added to
    with atheris.instrument_imports(include=["jiyi"], enable_loader_override=False):
        from tests.fuzz.targets import TARGETS
    TARGETS[target](bytes(range(200)))  # what is compiled or loaded at first is no slow input

    findings = ROOT / "build" / "fuzz"
    findings.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={seconds}", "-timeout=30", "-rss_limit_mb=3000", "-max_len=400", "-print_final_stats=1"]
    limits.append(f"-artifact_prefix={findings}/{target}-")
    atheris.Setup([sys.argv[0], *limits], TARGETS[target])
    atheris.Fuzz()


def main() -> int:
    """Fuzz one target, or each after the other; return 1 if one found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    args = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed here, so only Hypothesis fuzzed; pip install 'jiyi[fuzz]' brings it")
        return 0
    if args.target is not None:
        fuzz(args.target, args.seconds)
    from tests.fuzz.targets import TARGETS

    found: list[str] = []
    for target in TARGETS:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.atheris_targets",
            "--target",
            target,
            "--seconds",
            str(args.seconds),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        tail = done.stderr.strip().splitlines()[-12:]
        runs = next((line.split()[-1] for line in tail if "number_of_executed_units" in line), "?")
        print(f"{target}: {'nothing found' if done.returncode == 0 else 'FOUND'} in {runs} runs", flush=True)
        if done.returncode:
            found.append(target)
            print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
