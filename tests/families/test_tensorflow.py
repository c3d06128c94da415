"""Models of TensorFlow and Keras, converted by tf2onnx: channels last, transposes, chains of Unsqueeze, loops."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from families import check

pytest.importorskip("tensorflow", reason="./dev families installs the tools of these tests")
pytest.importorskip("tf2onnx", reason="./dev families installs the tools of these tests")
import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402

layers = tf.keras.layers


def bottleneck(x: Any) -> Any:
    y = layers.Conv2D(24, 1, use_bias=False)(x)
    y = layers.ReLU(6.0)(layers.BatchNormalization()(y))
    y = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(y)
    y = layers.Activation("swish")(layers.BatchNormalization()(y))
    s = layers.GlobalAveragePooling2D(keepdims=True)(y)
    s = layers.Conv2D(24, 1, activation="sigmoid")(layers.Conv2D(4, 1, activation="relu")(s))
    return layers.Add()([x, layers.Conv2D(8, 1)(layers.Multiply()([y, s]))])


def image_model(body: Callable[[Any], Any], size: tuple[int, int] = (12, 16), channels: int = 8) -> Callable[[], Any]:
    def make() -> Any:
        x = tf.keras.Input((*size, channels))
        return tf.keras.Model(x, body(x)), lambda n: [
            np.random.default_rng(n).normal(size=(n, *size, channels)).astype(np.float32)
        ]

    return make


def text_model(body: Callable[[Any], Any], width: int | None = None) -> Callable[[], Any]:
    def make() -> Any:
        x = tf.keras.Input((None,), dtype="int32")
        return tf.keras.Model(x, body(layers.Embedding(20, 8)(x))), lambda n: [
            np.random.default_rng(n).integers(0, 20, (n, 3 * n + 1)).astype(np.int32)
        ]

    return make


def attention(x: Any) -> Any:
    y = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.LayerNormalization()(layers.Add()([x, y]))
    return layers.Add()([x, layers.Dense(8)(layers.Dense(16, activation=lambda y: tf.nn.gelu(y, approximate=True))(x))])


def pooled_head(x: Any) -> Any:
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="elu")(x)
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    return layers.Dense(5, activation="softmax")(layers.Flatten()(x))


def unet(x: Any) -> Any:
    a = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    b = layers.Conv2D(6, 3, padding="same", activation=layers.LeakyReLU(0.1))(layers.AveragePooling2D(2)(a))
    up = layers.Conv2DTranspose(4, 3, 2, padding="same")(b)
    return layers.Conv2D(2, 1, activation="sigmoid")(
        layers.Concatenate()([a, up, layers.UpSampling2D(2, interpolation="bilinear")(b)])
    )


KERAS = {
    "mobile": image_model(lambda x: layers.Dense(4)(layers.GlobalMaxPooling2D()(bottleneck(x)))),
    "pooled_head": image_model(pooled_head),
    "unet": image_model(unet, channels=3),
    "separable": image_model(
        lambda x: layers.PReLU(shared_axes=[1, 2])(layers.SeparableConv2D(6, 3, dilation_rate=2, padding="same")(x))
    ),
    "padded": image_model(
        lambda x: layers.Cropping2D(((1, 0), (2, 1)))(layers.ZeroPadding2D(2)(layers.Conv2D(4, 3)(x)))
    ),
    "normalised": image_model(
        lambda x: layers.GroupNormalization(2)(layers.Conv2D(4, 3)(layers.UnitNormalization()(x)))
    ),
    "resize": image_model(lambda x: layers.Resizing(7, 20, interpolation="bilinear")(x)),
    "nearest": image_model(lambda x: layers.UpSampling2D((2, 3))(x)),
    "conv1d": lambda: (
        lambda x: (
            tf.keras.Model(x, layers.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="tanh")(x)),
            lambda n: [np.random.default_rng(n).normal(size=(n, 10, 3)).astype(np.float32)],
        )
    )(tf.keras.Input((10, 3))),
    "conv3d": lambda: (
        lambda x: (
            tf.keras.Model(x, layers.MaxPooling3D()(layers.Conv3D(4, 2)(x))),
            lambda n: [np.random.default_rng(n).normal(size=(n, 5, 6, 7, 2)).astype(np.float32)],
        )
    )(tf.keras.Input((5, 6, 7, 2))),
    "lstm": text_model(lambda x: layers.Dense(3)(layers.LSTM(6)(x))),
    "lstm_sequences": text_model(lambda x: layers.LSTM(6, return_sequences=True, go_backwards=True)(x)),
    "bidirectional": text_model(lambda x: layers.Bidirectional(layers.LSTM(5, return_sequences=True))(x)),
    "gru": text_model(lambda x: layers.GRU(6, return_sequences=True)(x)),
    "gru_before": text_model(lambda x: layers.GRU(6, reset_after=False)(x)),
    "rnn": text_model(lambda x: layers.SimpleRNN(6)(x)),
    "attention": text_model(lambda x: layers.GlobalAveragePooling1D()(attention(x))),
    "dot_attention": text_model(lambda x: layers.Attention(use_scale=True)([x, x])),
    "additive_attention": text_model(
        lambda x: layers.AdditiveAttention()([layers.GRU(8, return_sequences=True)(x), x])
    ),
    "bidirectional_gru": text_model(
        lambda x: layers.Dense(3)(layers.Bidirectional(layers.GRU(5), merge_mode="mul")(x))
    ),
    "stacked": text_model(
        lambda x: layers.Bidirectional(layers.GRU(4))(
            layers.GRU(6, return_sequences=True)(layers.LSTM(6, return_sequences=True)(x))
        )
    ),
    "time_distributed": text_model(
        lambda x: layers.TimeDistributed(layers.Dense(3, activation="softmax"))(
            layers.LSTM(6, return_sequences=True)(x)
        )
    ),
    "states": text_model(lambda x: layers.Concatenate()(layers.LSTM(6, return_state=True)(x))),
    "causal_attention": text_model(
        lambda x: layers.LayerNormalization(rms_scaling=True)(
            layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
        )
    ),
    "grouped_attention": text_model(lambda x: layers.GroupQueryAttention(4, 4, 2)(x, x)),
    "masked": lambda: masked(),
    "conv_lstm": lambda: (
        lambda x: (
            tf.keras.Model(x, layers.ConvLSTM2D(3, 3, padding="same")(x)),
            lambda n: [np.random.default_rng(n).normal(size=(n, 4, 6, 7, 2)).astype(np.float32)],
        )
    )(tf.keras.Input((4, 6, 7, 2))),
    "translator": lambda: translator(),
}


def masked() -> Any:
    """Words beyond the end are zero and skipped."""
    x = tf.keras.Input((None,), dtype="int32")
    y = layers.Embedding(20, 8, mask_zero=True)(x)
    y = layers.GlobalAveragePooling1D()(layers.Bidirectional(layers.LSTM(5, return_sequences=True))(y))

    def inputs(n: int) -> list[np.ndarray]:
        ids = np.random.default_rng(n).integers(1, 20, (n, 3 * n + 1)).astype(np.int32)
        ids[0, 2:] = 0
        return [ids]

    return tf.keras.Model(x, layers.Dense(3)(y)), inputs


def translator() -> Any:
    """Encoder, decoder that starts with its state, attention between them."""
    source, target = tf.keras.Input((None,), dtype="int32"), tf.keras.Input((None,), dtype="int32")
    memory, state = layers.GRU(8, return_sequences=True, return_state=True)(layers.Embedding(20, 8)(source))
    y = layers.GRU(8, return_sequences=True)(layers.Embedding(20, 8)(target), initial_state=state)
    y = layers.Concatenate()([y, layers.Attention()([y, memory])])

    def inputs(n: int) -> list[np.ndarray]:
        generator = np.random.default_rng(n)
        return [generator.integers(0, 20, (n, size)).astype(np.int32) for size in (3 * n + 1, 2 * n)]

    return tf.keras.Model([source, target], layers.Dense(20, activation="softmax")(y)), inputs


def spec(*shapes: tuple[Any, ...], dtype: Any = tf.float32) -> list[Any]:
    return [tf.TensorSpec(shape, dtype, f"x{i}") for i, shape in enumerate(shapes)]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def tf_loop(x: Any) -> Any:
    total = tf.zeros_like(x)
    for i in tf.range(tf.shape(x)[0]):
        total += x * tf.cast(i, tf.float32)
    return total


def tf_while(x: Any) -> Any:
    while tf.reduce_max(tf.abs(x)) > 1.0:
        x = x / 2
    return x


def tf_arrays(x: Any) -> Any:
    return tf.map_fn(lambda row: tf.reduce_sum(row) * row, x)


def tf_cond(x: Any) -> Any:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x), lambda: x - 1)


def tf_boxes(boxes: Any, scores: Any) -> Any:
    keep = tf.image.non_max_suppression(boxes, scores, 5, 0.5)
    return tf.gather(boxes, keep), tf.gather(scores, keep)


def boxes(n: int) -> np.ndarray:
    corner = np.random.default_rng(n).uniform(0, 5, (n, 2))
    return np.concatenate([corner, corner + np.random.default_rng(n + 1).uniform(1, 4, (n, 2))], 1).astype(np.float32)


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any], list[tuple[np.ndarray, ...]]]] = {
    "loop": (tf_loop, spec((None, 3)), [(floats(2, 3),), (floats(5, 3),)]),
    "while": (tf_while, spec((None, 3)), [(floats(2, 3) * 9,), (floats(5, 3) / 9,)]),
    "map_fn": (tf_arrays, spec((None, 3)), [(floats(2, 3),), (floats(5, 3),)]),
    "cond": (tf_cond, spec((None, 3)), [(np.abs(floats(2, 3)),), (-np.abs(floats(5, 3)),)]),
    "nms": (tf_boxes, spec((None, 4), (None,)), [(boxes(12), np.abs(floats(12))), (boxes(3), np.abs(floats(3)))]),
    "strided_slice": (
        lambda x: (x[:, ::-2, tf.newaxis, 1:-1], x[..., -1], x[0, 1:]),
        spec((None, 5, 4)),
        [(floats(2, 5, 4),), (floats(3, 5, 4),)],
    ),
    "shape_math": (
        lambda x: tf.reshape(x, [tf.shape(x)[0], -1, tf.shape(x)[2] // 2]),
        spec((None, None, None)),
        [(floats(2, 5, 4),), (floats(3, 2, 6),)],
    ),
    "space_to_depth": (
        lambda x: tf.nn.depth_to_space(tf.nn.space_to_depth(x, 2) * 2, 2),
        spec((None, 4, 6, 3)),
        [(floats(2, 4, 6, 3),), (floats(1, 4, 6, 3),)],
    ),
    "space_to_batch": (
        lambda x: tf.batch_to_space(
            tf.nn.relu(tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]])), [2, 2], [[0, 0], [0, 0]]
        ),
        spec((1, 4, 6, 3)),
        [(floats(1, 4, 6, 3),)],
    ),
    "resize_bilinear": (
        lambda x: tf.image.resize(x, [7, 11]),
        spec((None, 4, 6, 3)),
        [(floats(2, 4, 6, 3),), (floats(1, 4, 6, 3),)],
    ),
    "resize_corners": (
        lambda x: tf.compat.v1.image.resize_bilinear(x, [7, 11], align_corners=True),
        spec((None, 4, 6, 3)),
        [(floats(2, 4, 6, 3),)],
    ),
    "crop_and_resize": (
        lambda x, b: tf.image.crop_and_resize(x, b, tf.zeros(tf.shape(b)[0], tf.int32), [3, 4]),
        spec((1, 8, 9, 2), (None, 4)),
        [(floats(1, 8, 9, 2), boxes(3) / 10), (floats(1, 8, 9, 2), boxes(5) / 10)],
    ),
    "top_k": (lambda x: tf.nn.top_k(x, 2), spec((None, 5)), [(floats(2, 5),), (floats(3, 5),)]),
    "one_hot": (
        lambda x: tf.one_hot(tf.argmax(x, -1), 5, on_value=2.0),
        spec((None, 5)),
        [(floats(2, 5),), (floats(3, 5),)],
    ),
    "gather_nd": (lambda x: tf.gather_nd(x, [[0, 1], [1, 2]]), spec((None, 5)), [(floats(2, 5),), (floats(3, 5),)]),
    "batch_gather": (
        lambda x: tf.gather(x, tf.argsort(x, -1), batch_dims=1),
        spec((None, 5)),
        [(floats(2, 5),), (floats(3, 5),)],
    ),
    "scatter_nd": (
        lambda x: tf.tensor_scatter_nd_add(x, [[0], [1]], tf.ones((2, 5))),
        spec((None, 5)),
        [(floats(2, 5),), (floats(3, 5),)],
    ),
    "boolean_mask": (lambda x: tf.boolean_mask(x, x[:, 0] > 0), spec((None, 5)), [(floats(7, 5),), (floats(3, 5),)]),
    "where": (lambda x: tf.where(x > 0), spec((None, 5)), [(floats(7, 5),), (floats(3, 5),)]),
    "segment_sum": (lambda x: tf.math.segment_sum(x, [0, 0, 1, 2]), spec((4, 5)), [(floats(4, 5),)]),
    "segments_of_input": (
        lambda x, ids: tf.math.segment_sum(x, ids),
        [tf.TensorSpec((None, 5), tf.float32, "x0"), tf.TensorSpec((None,), tf.int32, "x1")],
        [(floats(4, 5), np.array([0, 0, 1, 2], np.int32)), (floats(6, 5), np.array([0, 1, 1, 1, 3, 3], np.int32))],
    ),
    "unsorted_segments": (lambda x: tf.math.unsorted_segment_max(x, [2, 0, 0, 2], 3), spec((4, 5)), [(floats(4, 5),)]),
    "cumsum": (
        lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True),
        spec((None, 5)),
        [(floats(7, 5),), (floats(3, 5),)],
    ),
    "einsum": (
        lambda x, y: tf.einsum("bij,bkj->bik", x, y),
        spec((None, 3, 4), (None, 5, 4)),
        [(floats(2, 3, 4), floats(2, 5, 4)), (floats(1, 3, 4), floats(1, 5, 4))],
    ),
    "moments": (lambda x: tf.nn.moments(x, [1, 2]), spec((None, 3, 4)), [(floats(2, 3, 4),), (floats(1, 3, 4),)]),
    "unique": (
        lambda x: tf.unique(tf.cast(x[:, 0] * 2, tf.int32)),
        spec((None, 5)),
        [(floats(7, 5),), (floats(3, 5),)],
    ),
    "reverse_sequence": (lambda x: tf.reverse_sequence(x, [1, 3], 1, 0), spec((2, 4, 3)), [(floats(2, 4, 3),)]),
    "pad_mirror": (
        lambda x: (tf.pad(x, [[0, 0], [1, 2]], "REFLECT"), tf.pad(x, [[1, 0], [1, 2]], constant_values=3)),
        spec((None, 5)),
        [(floats(7, 5),), (floats(3, 5),)],
    ),
    "unstack": (
        lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], -1),
        spec((None, 3, 4)),
        [(floats(2, 3, 4),), (floats(1, 3, 4),)],
    ),
    "dilated": (
        lambda x: tf.nn.conv2d(x, floats(3, 3, 3, 4), 1, "SAME", dilations=2),
        spec((None, 8, 9, 3)),
        [(floats(2, 8, 9, 3),), (floats(1, 8, 9, 3),)],
    ),
    "patches": (
        lambda x: tf.nn.conv2d(x, np.eye(12, dtype=np.float32).reshape(2, 2, 3, 12), 2, "VALID"),
        spec((None, 8, 10, 3)),
        [(floats(2, 8, 10, 3),), (floats(1, 8, 10, 3),)],
    ),
    "spectrum": (lambda x: tf.abs(tf.signal.rfft(x)), spec((None, 16)), [(floats(2, 16),), (floats(1, 16),)]),
    "integers": (
        lambda x: tf.math.floormod(tf.cast(x * 10, tf.int32), 3) // 2,
        spec((None, 5)),
        [(floats(7, 5),), (floats(3, 5),)],
    ),
    "matrix_band": (
        lambda x: tf.linalg.band_part(x, 1, 0),
        spec((None, 4, 4)),
        [(floats(2, 4, 4),), (floats(1, 4, 4),)],
    ),
    "matrix_diag": (lambda x: tf.linalg.diag(x), spec((None, 4)), [(floats(2, 4),), (floats(1, 4),)]),
    "fake_quant": (
        lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1.0, 1.0),
        spec((None, 4)),
        [(floats(2, 4),), (floats(1, 4),)],
    ),
    "ragged_tile": (
        lambda x: tf.tile(x[:, None], [1, tf.shape(x)[0], 1]),
        spec((None, 4)),
        [(floats(2, 4),), (floats(3, 4),)],
    ),
    "selu_family": (
        lambda x: (
            tf.nn.selu(x),
            tf.nn.softplus(x),
            tf.nn.relu6(x),
            tf.nn.softsign(x),
            tf.math.erf(x),
            tf.math.rsqrt(tf.abs(x) + 1),
        ),
        spec((None, 4)),
        [(floats(2, 4),), (floats(3, 4),)],
    ),
}


NEEDS = {"spectrum": 17, "batch_gather": 18, "scatter_nd": 18, "matrix_diag": 18}


def run(function: Any, signature: list[Any], feeds: list[tuple[np.ndarray, ...]], opset: int, **options: Any) -> None:
    """Converts and compares; `options` are those of `check`."""
    model, _ = tf2onnx.convert.from_function(tf.function(function, input_signature=signature), signature, opset=opset)
    wanted = [info.name for info in model.graph.input]
    names = [s.name for s in signature]
    check(model, *({name: value for name, value in zip(names, feed) if name in wanted} for feed in feeds), **options)


@pytest.mark.parametrize("opset", [12, 18])
@pytest.mark.parametrize("name", KERAS)
def test_keras(name: str, opset: int) -> None:
    tf.keras.utils.set_random_seed(3)
    model, inputs = KERAS[name]()
    signature = [tf.TensorSpec(tensor.shape, tensor.dtype, f"x{i}") for i, tensor in enumerate(model.inputs)]
    run(
        lambda *xs: model(list(xs) if len(xs) > 1 else xs[0], training=False),
        signature,
        [tuple(inputs(n)) for n in (2, 1, 3)],
        opset,
    )


#: Size of the image and further options. Not ConvNeXt: tf2onnx leaves Erfc and calls of functions in it.
APPLICATIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "MobileNetV3Small": (64, {}),
    "EfficientNetV2B0": (64, {"include_preprocessing": False}),  # tf2onnx makes inputs of the constants in that
    "NASNetMobile": (64, {}),
    "Xception": (71, {}),
    "DenseNet121": (32, {}),
}


@pytest.mark.parametrize("name", APPLICATIONS)
def test_application(name: str) -> None:
    """Whole networks with random weights."""
    tf.keras.utils.set_random_seed(3)
    size, options = APPLICATIONS[name]
    model = getattr(tf.keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10, **options)
    x = tf.TensorSpec((None, size, size, 3), tf.float32, "x0")
    feeds = [(np.random.default_rng(n).uniform(0, 255, (n, size, size, 3)).astype(np.float32),) for n in (2, 1)]
    run(lambda image: model(image, training=False), [x], feeds, 15, compile=(True,))


def test_channels_first_inputs() -> None:
    tf.keras.utils.set_random_seed(3)
    model, inputs = KERAS["mobile"]()
    signature = [tf.TensorSpec(model.inputs[0].shape, tf.float32, "x0")]
    converted, _ = tf2onnx.convert.from_function(
        tf.function(lambda x: model(x, training=False), input_signature=signature),
        signature,
        opset=15,
        inputs_as_nchw=["x0"],
    )
    check(converted, *({"x0": np.ascontiguousarray(inputs(n)[0].transpose(0, 3, 1, 2))} for n in (2, 1)))


@pytest.mark.parametrize("opset", [12, 18])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str, opset: int) -> None:
    function, signature, feeds = FUNCTIONS[name]
    if opset < NEEDS.get(name, 0):
        pytest.skip(f"tf2onnx writes this from opset {NEEDS[name]} on")
    run(function, signature, feeds, opset)
