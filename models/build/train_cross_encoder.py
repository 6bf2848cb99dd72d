r"""Train the cross-encoder, or distil a smaller one from it. Needs torch; what it writes does not.

    python -m jiyi.models.build.train_cross_encoder --data DIR --start all-MiniLM-L6-v2/ --out big.safetensors
    python -m jiyi.models.build.train_cross_encoder --data DIR --tokenizer FILE --teacher big.safetensors --keep 0,2,5 \
        --out small.safetensors
    python -m jiyi.models.build.train_cross_encoder --data DIR --tokenizer FILE --teacher big.safetensors \
        --go-on small.safetensors --seed 2 --out small-2.safetensors

Listwise softmax over one text that answers the question and four that do not; a student learns the teacher's
distribution over the same texts instead (Hinton, Vinyals & Dean 2015). AdamW, linear warm-up and decay. A checkpoint is
written every few minutes, and a run that was stopped goes on from it. DIR holds `english-train.jsonl.gz` and
`english-dev.jsonl.gz`: see `rerank_groups`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from jiyi.models.build.joint_encoder import JointEncoder, load, load_sentence_encoder, save
from jiyi.models.build.rerank_groups import Batch, Group, batches, encode, read_groups, vary

_GROUPS_A_STEP = 8
_TEXTS = 5
_WARM_UP = 0.06
_CHECKPOINT_S = 240.0


def main() -> None:
    """Read the arguments and train."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    random_ = random.Random(args.seed)
    tokenizer = Tokenizer.from_file(str(args.tokenizer or args.start / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    teacher = None if args.teacher is None else load(args.teacher).eval()
    checkpoint = args.out.with_suffix(".checkpoint")
    if args.go_on is not None:
        network = load(args.go_on)
    elif teacher is None:
        network = load_sentence_encoder(args.start, args.layers)
    else:
        network = load(args.teacher, tuple(int(layer) for layer in args.keep.split(",")), args.feed_forward)
    groups = _mixed(read_groups(args.data / "english-train.jsonl.gz", without=args.without), args, random_)
    held = read_groups(args.data / "english-dev.jsonl.gz", without=args.without)
    print(json.dumps({"groups": Counter(group.source for group in groups), "held out": len(held)}), flush=True)
    varied = [vary(group, groups, _TEXTS, random_) for group in groups]
    steps = list(batches(encode(tokenizer, varied), _GROUPS_A_STEP, random_))
    optimizer = torch.optim.AdamW(_parameters(network), lr=args.rate)
    done = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]
    print(f"held out before: {_accuracy(network, tokenizer, held[:150]):.3f}", flush=True)
    started = last = time.monotonic()
    losses: list[float] = []
    network.train()
    for step, (_, batch) in enumerate(steps):
        if step < done:
            continue
        for group in optimizer.param_groups:
            group["lr"] = args.rate * _schedule(step / len(steps))
        loss = _loss(network, teacher, batch, args.dropout)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if time.monotonic() - last > _CHECKPOINT_S:
            last = time.monotonic()
            torch.save(
                {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "done": step + 1}, checkpoint
            )
            save(network, args.out)
            rate = (step + 1 - done) * _GROUPS_A_STEP * _TEXTS / (last - started)
            print(
                f"step {step + 1}/{len(steps)} loss {sum(losses) / len(losses):.3f} {rate:.1f} pairs/s "
                f"held out {_accuracy(network, tokenizer, held[:150]):.3f}",
                flush=True,
            )
            losses.clear()
    save(network, args.out)
    print(f"held out after: {_accuracy(network, tokenizer, held):.3f}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="folder of the sentence encoder")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--go-on", type=Path, help="weights of an earlier run to go on from")
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--keep", default="0,2,5", help="layers of the teacher that the student starts from")
    parser.add_argument("--feed-forward", type=int, help="inner units of the student's layers; all when left out")
    parser.add_argument("--without", nargs="*", default=["friendsqa"], help="sources that are left out")
    parser.add_argument("--groups", type=int, default=14_000)
    parser.add_argument("--talk", type=int, default=2, help="how often each group of talk comes")
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if (args.start is None) == (args.teacher is None and args.go_on is None):
        parser.error(
            "give --start (train), --go-on (train on), --teacher (distil), or --go-on and --teacher (distil on)"
        )
    return args


def _mixed(groups: Sequence[Group], args: argparse.Namespace, random_: random.Random) -> list[Group]:
    """A sample in which talk, which is what memories are, comes more often than encyclopedias."""
    talk = [group for group in groups if not group.source.startswith("squad")]
    rest = [group for group in groups if group.source.startswith("squad")]
    random_.shuffle(rest)
    mixed = [*(args.talk * talk), *rest[: max(0, args.groups - args.talk * len(talk))]]
    random_.shuffle(mixed)
    return mixed[: args.groups]


def _parameters(network: JointEncoder) -> list[dict[str, object]]:
    # Most words are in no batch: those that are would move away from the rest.
    network.words.weight.requires_grad_(False)
    decayed = [p for p in network.parameters() if p.requires_grad and p.ndim > 1]
    rest = [p for p in network.parameters() if p.requires_grad and p.ndim <= 1]
    return [{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]


def _schedule(done: float) -> float:
    return min(done / _WARM_UP, (1 - done) / (1 - _WARM_UP)) + 1e-3


def _scores(network: JointEncoder, batch: Batch, dropout: float = 0.0) -> Tensor:
    scores: Tensor = network(*(torch.from_numpy(part) for part in (batch.ids, batch.mask, batch.parts)), dropout)
    return scores.view(-1, batch.group_size)


def _loss(network: JointEncoder, teacher: JointEncoder | None, batch: Batch, dropout: float) -> Tensor:
    scores = _scores(network, batch, dropout)
    listwise = functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64))
    if teacher is None:
        return listwise
    with torch.no_grad():
        wanted = torch.softmax(_scores(teacher, batch), dim=1)
    return 0.3 * listwise + 0.7 * functional.cross_entropy(scores, wanted)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _accuracy(network: JointEncoder, tokenizer: Tokenizer, groups: Sequence[Group]) -> float:
    """Share of held-out groups whose answer is ranked first among all their texts."""
    training = network.training
    network.eval()
    first = 0
    for group in groups:
        for _, batch in batches(encode(tokenizer, [group]), 1, None):
            first += int(_scores(network, batch).argmax()) == 0
    network.train(training)
    return first / max(1, len(groups))


if __name__ == "__main__":
    main()
