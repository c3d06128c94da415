"""What a torch model of these tests is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Case:
    """`make` gives the module; `inputs(n)` the inputs of size n, by name in the order of forward. `dynamic` names the
    axes that grow with n: {input: {axis: symbol}}; the model then runs at n = 2, 3 and 1. `exporters` says which exporters
    can write it, `dynamic_exporters` which with dynamic axes. `reference` is "torch" where that is right and ONNX Runtime
    is not."""

    name: str
    make: Callable[[], torch.nn.Module]
    inputs: Callable[[int], dict[str, Any]]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    exporters: tuple[str, ...] = ("script", "dynamo")
    opset: int | None = None
    sizes: tuple[int, ...] = (2, 3, 1)
    dynamic_exporters: tuple[str, ...] = ("script", "dynamo")
    reference: str = "onnxruntime"


class Function(torch.nn.Module):
    """A module of a function of one tensor."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Function2(Function):
    """A module of a function of two tensors."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y)
