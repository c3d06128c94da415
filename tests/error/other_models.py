"""Good models of operators that neither the backend suite nor microsoft_models.py has: one node each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from microsoft_models import f, i32, i64, q, scale, zero
from one_node import one_node
from onnx import TensorProto, helper

Parts = tuple[str, onnx.ModelProto, tuple[Any, ...]]


def models() -> Iterator[Parts]:
    """Name, model and inputs."""
    yield from _sequences()
    yield from _random_and_regions()
    yield from _experimental()
    yield from _encoders()
    yield from _linear()
    yield from _trees()
    yield from _microsoft()
    yield _sparse()


def _model(op: str, inputs: Sequence[Any], outputs: int = 1, domain: str = "", **attributes: Any) -> Parts:
    name = f"{domain}_{op}_" + "_".join(map(str, attributes))
    return name, *one_node(op, inputs, outputs, domain, **attributes)


def _sequences() -> Iterator[Parts]:
    tensors, at = [f(2, 3), f(2, 3), f(2, 3)], np.array(1, np.int64)
    yield _model("SequenceAt", [tensors, at])
    yield _model("SequenceErase", [tensors, at])
    yield _model("SequenceLength", [tensors])
    yield _model("ConcatFromSequence", [tensors], axis=0, new_axis=1)
    yield _model("SequenceConstruct", tensors)
    yield _model("SequenceEmpty", [], dtype=TensorProto.FLOAT)
    yield _model("Optional", [f(2, 3)])


def _random_and_regions() -> Iterator[Parts]:
    yield _model("RandomNormal", [], shape=[2, 3], mean=1.0, scale=2.0, seed=1.0, dtype=TensorProto.FLOAT)
    yield _model("RandomUniform", [], shape=[2, 3], low=1.0, high=2.0, seed=1.0, dtype=TensorProto.FLOAT)
    yield _model("RandomNormalLike", [f(2, 3)], mean=1.0, scale=2.0, seed=1.0)
    yield _model("RandomUniformLike", [f(2, 3)], low=1.0, high=2.0, seed=1.0)
    yield _model("Multinomial", [f(2, 5)], sample_size=4, seed=1.0, dtype=TensorProto.INT64)
    yield _model("MaxRoiPool", [f(1, 2, 6, 6), np.array([[0, 0, 0, 3, 3], [0, 1, 1, 5, 5]], np.float32)],
                 pooled_shape=[2, 2], spatial_scale=1.0)
    yield _model("GlobalLpPool", [f(1, 2, 4, 4)], p=2)
    yield _model("SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], epsilon=1e-5, axis=-1)


def _experimental() -> Iterator[Parts]:
    """Of before 2018, without a schema: nothing but the lowering checks them."""
    image = f(1, 3, 4, 5)
    yield _model("Affine", [image], alpha=2.0, beta=1.0)
    yield _model("ParametricSoftplus", [image], alpha=2.0, beta=1.0)
    yield _model("ScaledTanh", [image], alpha=2.0, beta=1.0)
    yield _model("Scale", [image], scale=2.0)
    yield _model("ImageScaler", [image], scale=2.0, bias=[1.0, 2.0, 3.0])
    yield _model("Crop", [image], border=[1, 1, 1, 1])
    yield _model("Crop", [image], border=[0, 0, 0, 0], scale=[2, 3])
    yield _model("ConstantFill", [], value=1.0, shape=[2, 3], dtype=TensorProto.FLOAT)
    yield _model("ConstantFill", [i64(2, 3)], value=1.0, input_as_shape=1, extra_shape=[2])
    yield _model("GivenTensorFill", [], values=[1.0, 2.0], shape=[1, 2])
    yield _model("DynamicSlice", [image, i64(0, 1), i64(2, 3), i64(2, 3)])


def _ml(op: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any) -> Parts:
    return _model(op, inputs, outputs, "ai.onnx.ml", **attributes)


def _encoders() -> Iterator[Parts]:
    words = np.array([["a", "b"], ["c", "a"]], dtype=object)
    yield _ml("CategoryMapper", [words], cats_int64s=[1, 2, 3], cats_strings=["a", "b", "c"], default_int64=-1)
    yield _ml("CategoryMapper", [i64(1, 2, 9)], cats_int64s=[1, 2, 3], cats_strings=["a", "b", "c"], default_string="?")
    yield _ml("OneHotEncoder", [i64(1, 2, 9)], cats_int64s=[1, 2, 3], zeros=1)
    yield _ml("OneHotEncoder", [words], cats_strings=["a", "b", "c"], zeros=1)
    yield _ml("FeatureVectorizer", [f(2, 3), f(2, 1)], inputdimensions=[3, 1])
    yield _ml("Imputer", [f(2, 3)], imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=0.0)
    yield _ml("Imputer", [i64(1, 2, 3).reshape(1, 3)], imputed_value_int64s=[1, 2, 3], replaced_value_int64=2)
    yield _ml("Scaler", [f(2, 3)], offset=[1.0, 2.0, 3.0], scale=[1.0, 2.0, 3.0])
    yield _ml("Normalizer", [f(2, 3)], norm="L2")
    yield _ml("CastMap", [{0: 1.5, 3: 2.5}], cast_to="TO_FLOAT", map_form="SPARSE", max_map=6)
    yield _ml("DictVectorizer", [{"a": 1.5, "c": 2.5}], string_vocabulary=["a", "b", "c"])
    yield _ml("DictVectorizer", [{1: 1.5, 7: 2.5}], int64_vocabulary=[1, 2, 3])
    yield _ml("ZipMap", [f(2, 3)], classlabels_int64s=[4, 5, 6])
    yield _ml("ZipMap", [f(2, 3)], classlabels_strings=["a", "b", "c"])


def _linear() -> Iterator[Parts]:
    x, labels = f(2, 3), {"classlabels_strings": ["a", "b", "c"]}
    yield _ml("LinearClassifier", [x], 2, coefficients=[0.5] * 9, intercepts=[1.0, 2.0, 3.0], post_transform="SOFTMAX",
              multi_class=0, **labels)
    yield _ml("LinearRegressor", [x], coefficients=[0.5] * 6, intercepts=[1.0, 2.0], targets=2, post_transform="NONE")
    kernel = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "post_transform": "NONE"}
    vectors = [0.1 * i for i in range(12)]  # of four support vectors
    yield _ml("SVMRegressor", [x], coefficients=[1.0, -1.0, 2.0, 0.5], support_vectors=vectors, n_supports=4, rho=[0.25],
              one_class=0, **kernel)
    yield _ml("SVMClassifier", [x], 2, coefficients=[0.5] * 8, support_vectors=vectors, vectors_per_class=[2, 1, 1],
              rho=[0.1, 0.2, 0.3], prob_a=[1.0, 1.0, 1.0], prob_b=[0.0, 0.0, 0.0], **kernel, **labels)
    yield _ml("SVMClassifier", [x], 2, coefficients=[0.5] * 9, rho=[0.1], kernel_type="LINEAR", classlabels_ints=[1, 2, 3])


def _trees() -> Iterator[Parts]:
    """Two trees of two splits each; a split asks for membership in no set."""
    nodes = {
        "nodes_treeids": [0] * 5 + [1] * 5,
        "nodes_nodeids": [0, 1, 2, 3, 4] * 2,
        "nodes_featureids": [0, 2, 0, 0, 0, 1, 0, 0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF"] * 2,
        "nodes_values": [0.5, -0.5, 0.0, 0.0, 0.0] * 2,
        "nodes_truenodeids": [1, 3, 0, 0, 0] * 2,
        "nodes_falsenodeids": [2, 4, 0, 0, 0] * 2,
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0] * 2,
        "nodes_hitrates": [1.0] * 10,
    }
    leaves = {"treeids": [0, 0, 0, 1, 1, 1], "nodeids": [2, 3, 4] * 2}
    target = {f"target_{k}": v for k, v in leaves.items()} | {"target_ids": [0, 1, 0] * 2, "target_weights": [1.0, 2.0, 3.0] * 2}
    kind = {f"class_{k}": v for k, v in leaves.items()} | {"class_ids": [0, 1, 2] * 2, "class_weights": [1.0, 2.0, 3.0] * 2}
    x = f(3, 3)
    yield _ml("TreeEnsembleRegressor", [x], n_targets=2, aggregate_function="SUM", base_values=[0.5, 1.5],
              post_transform="NONE", **nodes, **target)
    yield _ml("TreeEnsembleClassifier", [x], 2, classlabels_int64s=[4, 5, 6], base_values=[0.5, 1.5, 2.5],
              post_transform="SOFTMAX", **nodes, **kind)
    yield _ml("TreeEnsembleClassifier", [x.astype(np.float64)], 2, classlabels_strings=["a", "b", "c"],
              post_transform="LOGISTIC", **nodes, **kind)


def _microsoft() -> Iterator[Parts]:
    def m(op: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any) -> Parts:
        return _model(op, inputs, outputs, "com.microsoft", **attributes)

    one, past = f(2, 1, 8), f(2, 2, 4, 4)
    yield m("DecoderMaskedMultiHeadAttention", [one, one, one, i32(1, 1, 1, 1).reshape(2, 2), f(2, 1, 1, 2), past, past, i32(1).reshape(1),
                                                None, None, f(24)], 3, num_heads=2, past_present_share_buffer=1)
    yield m("MRotaryEmbedding", [f(2, 5, 24), q(3, 2, 5, dtype=np.int64) % 20, f(20, 4), f(20, 4)], mrope_section=[2, 1, 1],
            mrope_layout=0, interleaved=0, num_heads=3, rotary_embedding_dim=8)
    offsets, ends = i32(0, 1, 3, 2).reshape(2, 2), i32(0, 2, 3)  # two tokens, then one
    yield m("PackedAttention", [f(3, 10), f(10, 44), f(44), offsets, ends, f(1, 2, 2, 2)], num_heads=2,
            qkv_hidden_sizes=[16, 16, 12])
    yield m("PackedMultiHeadAttention", [f(3, 8), f(3, 8), f(3, 8), f(24), offsets, ends, f(1, 2, 2, 2)], num_heads=2)
    yield m("RemovePadding", [f(2, 2, 3), i32(2, 1)], 4)
    yield m("RestorePadding", [f(3, 4), offsets])
    tables = [q(10, 8), q(5, 8), q(2, 8), q(8), q(8)]
    yield m("QEmbedLayerNormalization", [i32(1, 2, 3).reshape(1, 3), i32(0, 1, 1).reshape(1, 3), *tables, i32(1, 1, 1).reshape(1, 3),
                                         *[scale() for _ in tables], *[zero() for _ in tables]], 2, epsilon=1e-5)
    yield m("RelativePositionBias", [f(32, 4), i64(6), i64(7)], max_distance=128, is_bidirectional=1)
    yield m("SkipGroupNorm", [f(1, 4, 4, 8), f(8), f(8), f(1, 4, 4, 8), f(8)], 2, groups=2, activation=1, channels_last=1)
    yield m("Tokenizer", [np.array(["a b c", "d, e"], dtype=object)], mark=1, mincharnum=1, pad_value="#", separators=[" ", "[,;]"])
    yield m("Tokenizer", [np.array(["a b c", "d, e"], dtype=object)], mark=0, mincharnum=1, pad_value="#", tokenexp="[a-z]+")


def _sparse() -> Parts:
    values = helper.make_tensor("in0", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("places", TensorProto.INT64, [3], [0, 7, 19]), [4, 5])
    name, model, inputs = _model("SparseToDenseMatMul", [f(4, 5), f(5, 6)], 1, "com.microsoft", transA=0, transB=0, alpha=2.0)
    del model.graph.input[0]
    model.graph.sparse_initializer.append(sparse)
    return name, model, inputs[1:]
