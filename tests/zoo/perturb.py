"""A model whose float32 weights moved by their last bit: how far its outputs move then is how exact they can be.

A model that quantises activations while it runs rounds them to whole numbers: the last bit of a float decides
between two of them, and each layer carries the difference on. The order of additions alone is enough for that, so
no two engines, and no two settings of one, agree more closely than an engine agrees with itself after such a move.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

QUANTISED = ("int4", "int8")  # precisions whose outputs the last bit moves
RUNS = 8


@contextmanager
def perturbed(folder: Path, seed: int) -> Iterator[Path]:
    """A copy of the model in `folder`, its external f32 weights up, down or unmoved by one unit in the last place."""
    rng = np.random.default_rng(seed)
    model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary)
        shutil.copyfile(folder / "model.onnx", target / "model.onnx")
        shutil.copyfile(folder / "weights.bin", target / "weights.bin")
        weights = np.memmap(target / "weights.bin", dtype=np.uint8, mode="r+")
        for tensor in model.graph.initializer:
            where = {entry.key: entry.value for entry in tensor.external_data}
            if tensor.data_type != onnx.TensorProto.FLOAT or not where:
                continue
            offset, length = int(where.get("offset", 0)), int(where["length"])
            values = weights[offset : offset + length].view(np.float32)
            step = np.spacing(values) * rng.integers(-1, 2, values.shape).astype(np.float32)
            values += np.where(values == 0, np.float32(0), step)
        weights.flush()
        yield target / "model.onnx"
