"""onnx.backend.base.Backend over tensorbox: `tensorbox.backend.run_model(model, inputs)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from . import _core
from .session import Session


class TensorboxRep(BackendRep):
    """A prepared model."""

    def __init__(self, session: Session):
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`inputs`: a sequence in model order, a mapping by name, or a single array."""
        infos = self.session.inputs
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        elif isinstance(inputs, Sequence):
            if len(inputs) != len(infos):
                raise ValueError(f"{len(inputs)} inputs given, the model has {len(infos)}")
            feeds = {info.name: value for info, value in zip(infos, inputs)}
        else:
            feeds = {infos[0].name: inputs}
        outputs = self.session.run(feeds)
        return tuple(outputs[o.name] for o in self.session.outputs)


class TensorboxBackend(Backend):
    """onnx.backend.base.Backend: tensorbox runs the models."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TensorboxRep:
        """The model, compiled for a device, to be run."""
        if not cls.supports_device(device):
            raise ValueError(f"device '{device}' is not available; devices are 'CPU', 'CUDA' and 'CUDA:<number>'")
        return TensorboxRep(Session(model, device=None if _is_cpu(device) else device.lower(), **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compiles the model and runs it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None,
                 **kwargs: Any) -> tuple[Any, ...]:
        """One operator: builds the one-node model around it, input types taken from the arrays."""
        arrays = [np.asarray(i) for i in inputs]
        names = [name for name in node.input if name]
        value_infos = [onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                       for n, a in zip(names, arrays)]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", value_infos, outputs)
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)])
        model = onnx.shape_inference.infer_shapes(model)
        return cls.run_model(model, dict(zip(names, arrays)), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on a device ("CPU", "CUDA", "CUDA:1") here."""
        return _is_cpu(device) or not _core.device_problem(device.lower())


def _is_cpu(device: str) -> bool:
    return device.upper().split(":")[0] == "CPU"


is_compatible = TensorboxBackend.is_compatible
prepare = TensorboxBackend.prepare
run = TensorboxBackend.run_model
run_model = TensorboxBackend.run_model
run_node = TensorboxBackend.run_node
supports_device = TensorboxBackend.supports_device
