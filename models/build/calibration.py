"""Measures how large the inputs of linear layers get, channel by channel, so that int8 can share the load.

A few channels of e5-small's layers are 5 to 15 times larger than the others, and with one scale a position they leave
few of the 256 levels to the rest. So each input channel is divided by a factor and the weights that read it are
multiplied by the same (SmoothQuant; Xiao et al. 2023, alpha = 1/2). The mean of 1 - cosine to the float32 vectors falls
by a third to a half, and recall@1 on a Chinese set (1,002 questions) rises from 93.5 to 94.5; float32 has 94.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from jiyi.models.build.layer_weights import LayerWeights

__all__ = ["TEXTS", "channel_maxima", "smoothing_factors"]

TEXTS: Final = (
    "query: When did she move to the new flat, and who helped her carry the piano up the stairs?",
    "query: 上个月他们去哪里徒步了，一共走了多少公里？",
    "query: which database did we choose for the search service",
    "query: 她对什么食物过敏",
    "passage: I finally finished the migration to PostgreSQL 16 on Tuesday; the nightly job now takes 12 minutes "
    "instead of 3 hours, but the dashboard still shows last week's numbers.",
    "passage: 上周六在莫干山走了二十多公里，回来以后膝盖疼了三天，医生建议先休息两周，游泳倒是可以继续。",
    "passage: Wow, that's amazing! I'm so proud of you, Maria. How did the kids like the pottery class?",
    "passage: 《红楼梦》是清代作家曹雪芹创作的章回体长篇小说，程伟元、高鹗整理的一百二十回本于1791年刊行。",
    "passage: The committee, founded in 1948 and based in Geneva, published its third report on climate and health, "
    "which estimated that 250,000 additional deaths a year could be expected between 2030 and 2050.",
    "passage: 好的～那就明天下午3点在星巴克见，记得带上合同和U盘，地址我发你微信了。",
    "passage: def load(path): return json.loads(path.read_text())  # raises ValueError on bad input",
    "passage: 今天部署了GPU服务器，CUDA 12.4 和 PyTorch 的版本对不上，折腾了一天才跑通，明天写文档。",
    "passage: He doesn't eat peanuts (allergic!), prefers window seats, and never answers e-mails before 9:30.",
    "passage: 这座石桥建于明代万历年间，长约九十米，共有七孔，1956年按原样重修，现为省级文物保护单位。",
)
"""Turns, facts, notes and questions of the kinds that a memory holds, in both languages."""


def channel_maxima(
    model: onnx.ModelProto, texts: Sequence[NDArray[np.int64]], inputs: Mapping[str, str]
) -> dict[str, NDArray[np.float32]]:
    """Run a model and return the largest magnitude in each channel of some of its values.

    Args:
        model: the encoder at full precision.
        texts: the pieces of each text, `<s>` and `</s>` included.
        inputs: name of each linear layer to be measured, and of the value that it reads.

    Returns:
        Name of each layer to a float32 array of shape (channels,).
    """
    import onnxruntime

    values = sorted(set(inputs.values()))
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    for value in values:
        watched.graph.output.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: dict[str, NDArray[np.float32]] = {}
    for ids in texts:
        arrays = session.run(values, {"input_ids": ids[None], "attention_mask": np.ones_like(ids)[None]})
        for value, array in zip(values, arrays, strict=True):
            largest = np.abs(array[0]).max(axis=0)
            found[value] = np.maximum(found[value], largest) if value in found else largest
    return {layer: found[value] for layer, value in inputs.items()}


def smoothing_factors(
    weights: LayerWeights, layers: Sequence[str], columns: int, maxima: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return what to divide the input channels of some layers by, which read the same value.

    Returns:
        float32 array of shape (columns,), powers of the fourth root of 2: so coarse that machines whose sums differ in
        the last bit build the same file.
    """
    largest = np.max([np.abs(weights.matrix(f"{layer}.w", columns)).max(axis=0) for layer in layers], axis=0)
    logarithms = np.log2(np.maximum(maxima, 1e-4)) / 2 - np.log2(np.maximum(largest, 1e-4)) / 2
    factors: NDArray[np.float32] = np.exp2(np.rint(4 * (logarithms - logarithms.mean())) / 4).astype(np.float32)
    return factors
