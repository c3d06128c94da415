"""Models exported from torch, by the exporter on TorchScript and by the one on torch.export."""

from __future__ import annotations

import io
import warnings
from typing import Any

import onnx
import pytest
from families import STRICT, check, compare

torch = pytest.importorskip("torch", reason="./dev families installs the tools of these tests")
pytest.importorskip("onnxscript", reason="./dev families installs the tools of these tests")

torch.backends.mha.set_fastpath_enabled(False)  # a fused operator of torch that no exporter knows
from torch_models import (  # noqa: E402
    cnn,
    diffusion,
    functions,
    graphs,
    language,
    recurrent,
    sequences,
    signals,
    sound,
    speech,
    transformer,
    vision,
)
from torch_models.case import Case  # noqa: E402

CASES = [
    (family.__name__.rpartition(".")[2], case)
    for family in (
        cnn,
        transformer,
        language,
        sequences,
        diffusion,
        recurrent,
        speech,
        sound,
        vision,
        graphs,
        signals,
        functions,
    )
    for case in family.CASES
]


def export(
    case: Case, exporter: str, opset: int | None = None, dtype: torch.dtype | None = None, **options: Any
) -> onnx.ModelProto:
    """The model in memory; `exporter` is "script" or "dynamo", `options` are that one's; with `dtype`, weights and
    inputs that are float32 are of that type."""
    module, inputs = case.make().eval(), case.inputs(2)
    if dtype is not None:
        module, inputs = module.to(dtype), cast(inputs, dtype)
    dynamic = case.dynamic if exporter in case.dynamic_exporters else {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            shapes = {
                name: {axis: torch.export.Dim.DYNAMIC for axis in dynamic.get(name, {})} or None for name in inputs
            }
            program = torch.onnx.export(
                module,
                tuple(inputs.values()),
                input_names=list(inputs),
                dynamo=True,
                verbose=False,
                dynamic_shapes=tuple(shapes.values()) if dynamic else None,
                opset_version=opset or case.opset,
                **options,
            )
            return program.model_proto
        file = io.BytesIO()
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            file,
            input_names=list(inputs),
            dynamo=False,
            dynamic_axes={name: dict(axes) for name, axes in dynamic.items()},
            opset_version=opset or case.opset,
            **options,
        )
        return onnx.load_from_string(file.getvalue())


def cast(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {name: value.to(dtype) if value.dtype == torch.float32 else value for name, value in inputs.items()}


def inputs_of(case: Case, exporter: str) -> list[dict[str, Any]]:
    """Inputs of each size that the exported model takes."""
    inputs = [case.inputs(size) for size in case.sizes]
    if exporter in case.dynamic_exporters and case.dynamic:
        return inputs
    fixed = {name: value.shape for name, value in case.inputs(2).items()}
    return [given for given in inputs if {name: value.shape for name, value in given.items()} == fixed]


def feeds_of(case: Case, exporter: str, model: onnx.ModelProto) -> list[dict[str, Any]]:
    """The same as arrays, without the inputs that the exporter has left out."""
    wanted = {info.name for info in model.graph.input}
    return [
        {name: value.numpy() for name, value in given.items() if name in wanted} for given in inputs_of(case, exporter)
    ]


@pytest.mark.parametrize(
    "exporter,case",
    [
        pytest.param(exporter, case, id=f"{family}-{case.name}-{exporter}")
        for family, case in CASES
        for exporter in case.exporters
    ],
)
def test_torch(exporter: str, case: Case) -> None:
    torch.manual_seed(7)
    model = export(case, exporter)
    if case.reference == "torch":
        torch.manual_seed(7)  # the weights that were exported
        check_torch(case.make().eval(), model, inputs_of(case, exporter))
    else:
        check(model, *feeds_of(case, exporter, model))


def check_torch(module: torch.nn.Module, model: onnx.ModelProto, inputs: list[dict]) -> None:
    """As `check`, of a model with one output, against torch."""
    import tensorbox

    for compiled in (False, True):
        session = tensorbox.Session(model, compile=compiled)
        for given in inputs:
            (got,) = session.run({name: value.numpy() for name, value in given.items()}).values()
            compare(got, module(*given.values()).detach().numpy(), STRICT, "compiled" if compiled else "evaluator")
