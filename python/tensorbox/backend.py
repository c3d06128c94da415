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
        """One operator: builds the one-node model around it, input types taken from the values. `inputs`: a sequence of
        them, in the order of the node's inputs that are there, or a mapping by name. The version of the operator's domain
        is its newest, or `opset_version`."""
        names = [name for name in node.input if name]
        if len(inputs) != len(names):
            raise ValueError(f"{len(inputs)} inputs given, the node has {names}")
        given = [inputs[name] for name in names] if isinstance(inputs, Mapping) else inputs
        values = {name: value if _is_sequence(value) else np.asarray(value) for name, value in zip(names, given)}
        value_infos = [_value_info(name, value) for name, value in values.items()]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", value_infos, outputs)
        opsets = {node.domain: kwargs.pop("opset_version", None) or _newest_opset(node.domain)}
        if node.domain not in ("", "ai.onnx"):
            opsets[""] = _newest_opset("")  # of nodes in its bodies
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(*item) for item in opsets.items()])
        model = onnx.shape_inference.infer_shapes(model)
        return cls.run_model(model, values, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on a device ("CPU", "CUDA", "CUDA:1") here."""
        return _is_cpu(device) or bool(device) and not _core.device_problem(device.lower())


def _is_cpu(device: str) -> bool:
    return device.upper().split(":")[0] == "CPU"


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, np.ndarray) for element in value)


def _value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    """Of an array, or a list of arrays: a sequence, of float32 where it is empty."""
    if not _is_sequence(value):
        return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
    dtype = value[0].dtype if value else np.dtype(np.float32)
    return onnx.helper.make_tensor_sequence_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), None)


def _newest_opset(domain: str) -> int:
    """The version of the newest operator of a domain that the package onnx has; 1 of others."""
    if domain in ("", "ai.onnx"):
        return onnx.defs.onnx_opset_version()
    return max((schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == domain), default=1)


is_compatible = TensorboxBackend.is_compatible
prepare = TensorboxBackend.prepare
run = TensorboxBackend.run_model
run_model = TensorboxBackend.run_model
run_node = TensorboxBackend.run_node
supports_device = TensorboxBackend.supports_device
