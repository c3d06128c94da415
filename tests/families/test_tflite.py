"""Models of Keras by its own export to ONNX, by saved models, and through TensorFlow Lite: in float32 and in 8 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from families import STRICT, Tolerance, check

pytest.importorskip("tensorflow", reason="./dev families installs the tools of these tests")
pytest.importorskip("tf2onnx", reason="./dev families installs the tools of these tests")
import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402
from test_tensorflow import KERAS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
IMAGES = ["mobile", "pooled_head", "unet", "separable", "padded", "resize", "nearest"]
TEXTS = ["lstm", "bidirectional", "bidirectional_gru", "stacked", "attention", "masked", "translator"]


def made(name: str) -> tuple[Any, Any]:
    tf.keras.utils.set_random_seed(3)
    return KERAS[name]()


def feeds_of(model: onnx.ModelProto, inputs: Any, sizes: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    names = [info.name for info in model.graph.input]
    return [dict(zip(names, inputs(n), strict=True)) for n in sizes]


@pytest.mark.parametrize("name", IMAGES + TEXTS)
def test_keras_export(name: str, tmp_path: Path) -> None:
    model, inputs = made(name)
    example = inputs(2)
    model(example if len(example) > 1 else example[0])  # it refuses a model that has never run
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    converted = onnx.load(tmp_path / "model.onnx")
    check(converted, *feeds_of(converted, inputs, (2, 1, 3)))


@pytest.mark.parametrize("name", ["mobile", "unet", "attention", "stacked"])
def test_saved_model(name: str, tmp_path: Path) -> None:
    """The command line's way: a signature with names, constants folded by TensorFlow's own optimizer."""
    from tf2onnx import tf_loader

    model, inputs = made(name)
    model.export(tmp_path / "saved", verbose=False)
    graph, names, outputs = tf_loader.from_saved_model(str(tmp_path / "saved"), None, None)
    with tf.Graph().as_default() as wrapped:
        tf.import_graph_def(graph, name="")
        converted = tf2onnx.tfonnx.process_tf_graph(
            wrapped, opset=15, input_names=list(names), output_names=list(outputs)
        )
    converted = tf2onnx.optimizer.optimize_graph(converted).make_model(name)
    check(converted, *feeds_of(converted, inputs, (2, 1, 3)))


@pytest.mark.parametrize("form", ["float32", "float16", "weights", "int8"])
@pytest.mark.parametrize("name", IMAGES)
def test_tflite(name: str, form: str, tmp_path: Path) -> None:
    """`weights`: 8-bit weights, activations in float32; `int8`: activations too, scales from examples."""
    model, inputs = made(name)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if form != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if form == "int8":
        converter.representative_dataset = lambda: ([inputs(1)[0] * scale] for scale in (0.5, 1.0, 1.5))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    (tmp_path / "model.tflite").write_bytes(converter.convert())
    converted, _ = tf2onnx.convert.from_tflite(str(tmp_path / "model.tflite"), opset=16)
    if any(node.domain == "TFL" for node in converted.graph.node):
        pytest.skip("tf2onnx leaves an operator of TensorFlow Lite")
    feeds = feeds_of(converted, inputs, (1,))
    tolerance = STRICT if form in ("float32", "float16", "weights") else Tolerance(l2=3e-2)
    check(converted, *feeds, tolerance=tolerance, optimize=False)
