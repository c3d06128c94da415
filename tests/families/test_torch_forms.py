"""The same torch models as other options of the exporters write them: older and newer opsets, as traced, in halves, and
trained for quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from families import Tolerance, check

torch = pytest.importorskip("torch", reason="./dev families installs the tools of these tests")
pytest.importorskip("onnxscript", reason="./dev families installs the tools of these tests")
from test_torch import cast, export, feeds_of, inputs_of  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_models import cnn, diffusion, language, recurrent, speech, transformer  # noqa: E402
from torch_models.case import Case  # noqa: E402

CASES = {
    case.name: case for family in (cnn, transformer, recurrent, language, speech, diffusion) for case in family.CASES
}
NAMES = [
    "residual",
    "convnext",
    "encoder_sdpa",
    "decoder_layer",
    "decoder_gpt2",
    "decoder_llama",
    "decoder_qwen3",
    "decoder_gemma2",
    "step_relative",
    "speech_encoder",
    "denoiser",
    "diffusion_transformer",
    "conformer",
    "deep_speech_gru",
    "lstm_deep",
]


@pytest.mark.parametrize("opset", [21, 24])
@pytest.mark.parametrize("name", NAMES)
def test_new_opset(name: str, opset: int) -> None:
    """From opset 23 on there are attention and norms as operators of ONNX; ONNX Runtime's kernel of attention takes no
    mask of one query that serves all, so it runs the model of opset 20."""
    torch.manual_seed(7)
    model = export(CASES[name], "dynamo", opset)
    torch.manual_seed(7)
    instead = export(CASES[name], "dynamo", 20) if opset > 22 else None
    check(model, *feeds_of(CASES[name], "dynamo", model), instead=instead)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("name", [name for name in NAMES if "script" in CASES[name].exporters])
def test_old_opset(name: str, opset: int) -> None:
    torch.manual_seed(7)
    try:
        model = export(CASES[name], "script", opset)
    except torch.onnx.errors.UnsupportedOperatorError as error:
        pytest.skip(f"torch: {str(error)[:80]}")
    check(model, *feeds_of(CASES[name], "script", model))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "encoder_sdpa"])  # its input gets a buffer's name
def test_as_traced(name: str) -> None:
    """Functions of each operator left as they are, with no pass over the graph."""
    torch.manual_seed(7)
    model = export(CASES[name], "dynamo", optimize=False)
    check(model, *feeds_of(CASES[name], "dynamo", model))


@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["residual", "encoder_matmul", "decoder_gpt2", "decoder_llama", "decoder_gemma2", "llama", "denoiser"]
)
def test_halves(name: str, dtype: str, exporter: str) -> None:
    """Weights and state in halves. bfloat16 is compared with torch in float32: ONNX Runtime has few kernels of it."""
    import tensorbox

    opset = 22 if name in ("residual", "denoiser") and dtype == "bfloat16" else None  # since then Conv takes bfloat16
    if opset and exporter == "script":
        pytest.skip("torch: this exporter writes opsets up to 20, whose convolutions do not take bfloat16")
    torch.manual_seed(7)
    case, halves = CASES[name], getattr(torch, dtype)
    # Norms that the exporter's optimiser fuses into convolutions become weights of float32 beside data of bfloat16.
    options = {"optimize": False} if opset and name == "residual" else {}
    model = export(case, exporter, opset, dtype=halves, **options)
    names = [info.name for info in model.graph.input]
    given = [cast(inputs, halves) for inputs in inputs_of(case, exporter)]
    if dtype == "float16":
        feeds = [{key: value.numpy() for key, value in inputs.items() if key in names} for inputs in given]
        check(model, *feeds, tolerance=Tolerance(l2=1e-2))
        return
    torch.manual_seed(7)
    module = case.make().eval().to(halves).float()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for compiled in (False, True):
        session = tensorbox.Session(model, compile=compiled)
        for inputs in given:
            feed = {
                key: value.float().numpy().astype(ml_dtypes.bfloat16) if value.dtype == halves else value.numpy()
                for key, value in inputs.items()
                if key in names
            }
            with torch.no_grad():
                wanted = module(*cast_back(inputs))
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            for got, want in zip(session.run(feed).values(), wanted, strict=True):
                assert got.shape == tuple(want.shape)
                distance = np.linalg.norm(np.asarray(got, np.float32) - want.numpy()) / np.linalg.norm(want.numpy())
                assert distance < 4e-2


def cast_back(inputs: dict[str, Any]) -> list[Any]:
    return [value.float() if value.dtype == torch.bfloat16 else value for value in inputs.values()]


class FakeQuantized(nn.Module):
    """Weights per channel and activations per tensor on a grid of 8 bits, as training with quantisation leaves them."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def weights(self, w: torch.Tensor) -> torch.Tensor:
        scales = w.detach().flatten(1).abs().amax(1) / 127
        return torch.fake_quantize_per_channel_affine(w, scales, torch.zeros(len(w), dtype=torch.int32), 0, -128, 127)

    def values(self, x: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(self.values(x, 0.03, 128), self.weights(self.conv.weight), self.conv.bias, padding=1)
        y = self.values(F.relu(y), 0.02, 0)
        y = self.values(y.mean((2, 3)), 0.01, 0)
        return F.linear(y, self.weights(self.out.weight), self.out.bias)


@pytest.mark.parametrize("exporter", ["script", "dynamo"])
def test_fake_quantized(exporter: str) -> None:
    torch.manual_seed(7)
    case = Case("fake", FakeQuantized, lambda n: {"x": torch.randn(n, 3, 8, 8)}, {"x": {0: "batch"}})
    try:
        model = export(case, exporter)
    except torch.onnx.OnnxExporterError as error:
        if "UnsupportedOperatorException" not in str(error):
            raise
        pytest.skip("torch: torch.export has no fake implementation of fake_quantize_per_tensor_affine")
    check(model, *feeds_of(case, exporter, model), tolerance=Tolerance(l2=2e-2), optimize=False)
