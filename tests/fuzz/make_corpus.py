"""Writes what the fuzz targets `shapes` and `package` start from.

usage: ./dev python tests/fuzz/make_corpus.py FOLDER [--graphs 300]

FOLDER/shapes/*.onnx: valid models, small, whose inputs are initializers of the same names; FOLDER/package/*.tbx: the same
as packages without native kernels. `import` and `run` can start from FOLDER/shapes, too.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
from collections.abc import Iterator

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "error"))

import shape_models  # noqa: E402
from base_models import BaseModel  # noqa: E402

LARGEST = 1 << 16


def with_inputs(base: BaseModel) -> onnx.ModelProto | None:
    """The model with its inputs as initializers; None where one is no tensor of numbers."""
    made = onnx.ModelProto()
    made.CopyFrom(base.model)
    initializers = {t.name for t in made.graph.initializer}
    inputs = [i for i in made.graph.input if i.name not in initializers]
    if len(inputs) > len(base.inputs):
        return None
    for info, value in zip(inputs, base.inputs, strict=False):
        if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind in "OUS":
            return None
        tensor = numpy_helper.from_array(np.asarray(value), info.name)
        if tensor.data_type != info.type.tensor_type.elem_type:
            return None
        made.graph.initializer.append(tensor)
    return made if made.ByteSize() <= LARGEST else None


def models(graphs: int) -> Iterator[BaseModel]:
    yield from shape_models.nodes()
    yield from shape_models.suite()
    yield from shape_models.graphs(graphs, 1)


def summing_rows() -> onnx.ModelProto:
    """y = the sum of all rows so far, which a session may keep."""
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        rows (float[n, 2] x, float[past, 2] rows) => (float[2] y, float[all, 2] longer) {
            longer = Concat <axis = 0> (rows, x)
            first = Constant <value_ints = [0]> ()
            y = ReduceSum <keepdims = 0> (longer, first)
        }""")


def main() -> None:
    import tensorbox

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--graphs", type=int, default=300, help="random graphs")
    parser.add_argument("--packages", type=int, default=400, help="every so many-th model is a package, at most so many")
    args = parser.parse_args()
    for kind in ("shapes", "package"):
        (args.folder / kind).mkdir(parents=True, exist_ok=True)
    written: dict[str, BaseModel] = {}
    for base in models(args.graphs):
        name = re.sub(r"[^a-zA-Z0-9]+", "_", base.name)[:120]
        if name in written or (made := with_inputs(base)) is None:
            continue
        (args.folder / "shapes" / f"{name}.onnx").write_bytes(made.SerializeToString(deterministic=True))
        written[name] = base
    packages = 0
    for name, base in list(written.items())[:: max(1, len(written) // args.packages)]:
        path = args.folder / "package" / f"{name}.tbx"
        try:
            tensorbox.Session(base.model, compile=False, threads=1).save(str(path))
        except tensorbox.Error:  # what no package can hold
            continue
        packages += 1
        if path.stat().st_size > LARGEST:
            path.unlink()
    for name, room in (("fixed", {"state_capacity": 8}), ("growing", {"state_capacity": 2, "state_limit": 64})):
        session = tensorbox.Session(summing_rows(), compile=False, threads=1, state={"rows": "longer"}, **room)
        session.save(str(args.folder / "package" / f"test_{name}_state.tbx"))
        packages += 1
    print(f"{len(written)} models, {packages} packages in {args.folder}")


if __name__ == "__main__":
    main()
