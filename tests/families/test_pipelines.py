"""Pipelines of scikit-learn as they are deployed: columns of numbers, words and sentences, gaps filled, and a model of
scikit-learn, XGBoost or LightGBM behind them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from families import Tolerance, check

pytest.importorskip("skl2onnx", reason="./dev families installs the tools of these tests")
pandas = pytest.importorskip("pandas", reason="./dev families installs the tools of these tests")
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType  # noqa: E402
from sklearn.base import is_classifier  # noqa: E402
from sklearn.compose import ColumnTransformer, make_column_transformer  # noqa: E402
from sklearn.decomposition import PCA, TruncatedSVD  # noqa: E402
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, StackingClassifier  # noqa: E402
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer  # noqa: E402
from sklearn.feature_selection import SelectKBest, f_regression  # noqa: E402
from sklearn.impute import KNNImputer, SimpleImputer  # noqa: E402
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge  # noqa: E402
from sklearn.naive_bayes import ComplementNB  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402
from sklearn.pipeline import FeatureUnion, make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC  # noqa: E402

NUMBERS, WORDS, COUNTS = ["age", "fare", "weight"], ["port", "class"], ["children"]
SENTENCES = [
    "great trip and nice crew",
    "late again",
    "lost my bag, late too",
    "nice seat",
    "crew was great",
    "the bag",
]


def frame_of(rows: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": generator.normal(40, 10, rows),
            "fare": generator.exponential(30, rows),
            "weight": generator.uniform(40, 90, rows),
            "children": generator.integers(0, 4, rows),
            "port": generator.choice(["C", "Q", "S"], rows),
            "class": generator.choice(["first", "second"], rows),
            "comment": generator.choice(SENTENCES, rows),
        }
    )
    return frame


FRAME = frame_of(90, 1)
GAPS = FRAME.assign(age=FRAME["age"].where(FRAME.index % 7 != 0), fare=FRAME["fare"].where(FRAME.index % 5 != 0))
TARGET = (FRAME["fare"] / 20 + FRAME["children"] - (FRAME["port"] == "S") * 2).to_numpy()
KIND = np.array(["low", "middle", "high"])[np.digitize(TARGET, [0.5, 2.0])]
TYPES = {
    **{name: FloatTensorType([None, 1]) for name in NUMBERS},
    **{name: Int64TensorType([None, 1]) for name in COUNTS},
    **{name: StringTensorType([None, 1]) for name in [*WORDS, "comment"]},
}


def feed_of(frame: Any, names: list[str]) -> dict[str, np.ndarray]:
    kinds = {**dict.fromkeys(NUMBERS, np.float32), **dict.fromkeys(COUNTS, np.int64)}
    return {name: np.array(frame[[name]].to_numpy().tolist(), dtype=kinds.get(name, object)) for name in names}


def convert(model: Any, names: list[str]) -> onnx.ModelProto:
    import skl2onnx

    options: dict[Any, Any] = {TfidfVectorizer: {"locale": "C"}, CountVectorizer: {"locale": "C"}}
    if is_classifier(model):
        options[id(model)] = {"zipmap": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return skl2onnx.convert_sklearn(
            model,
            initial_types=[(name, TYPES[name]) for name in names],
            options=options,
            target_opset={"": 18, "ai.onnx.ml": 3},
        )


def check_frame(model: Any, names: list[str], frame: Any = FRAME, tolerance: Tolerance = Tolerance()) -> None:
    """With all rows, one, none of the training's words, and a few in one session."""
    new = frame_of(40, 2)
    new.loc[3, "port"] = "unknown"
    if frame is GAPS:
        new.loc[::3, "age"] = np.nan
    feeds = [feed_of(part, names) for part in (new, new[3:4], new[5:12])]
    check(convert(model, names), *feeds, tolerance=tolerance)


def columns(sparse: float = 0.3) -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), RobustScaler()), NUMBERS),
            ("counts", OneHotEncoder(handle_unknown="ignore"), COUNTS),
            ("words", OneHotEncoder(handle_unknown="ignore", min_frequency=None), WORDS),
            ("text", TfidfVectorizer(ngram_range=(1, 2)), "comment"),
        ],
        sparse_threshold=sparse,
    )


ALL = [*NUMBERS, *COUNTS, *WORDS, "comment"]
MODELS = {
    "logistic": LogisticRegression(max_iter=300),
    "forest": RandomForestClassifier(9, max_depth=6, random_state=0),
    "svc": SVC(probability=True, random_state=0),
    "mlp": MLPClassifier((8,), max_iter=60, random_state=0),
    "stacking": StackingClassifier(
        [("a", LogisticRegression(max_iter=300)), ("b", RandomForestClassifier(4, max_depth=4, random_state=0))]
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_all_columns(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_pipeline(columns(0.0), MODELS[name]).fit(GAPS, KIND)
    check_frame(model, ALL, GAPS)


@pytest.mark.parametrize("booster", ["xgboost", "lightgbm"])
def test_boosters(booster: str) -> None:
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    library = pytest.importorskip(booster, reason="./dev families installs the tools of these tests")
    pytest.importorskip("onnxmltools", reason="./dev families installs the tools of these tests")
    if booster == "xgboost":
        from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost as converter

        kind, options = library.XGBClassifier, {"n_estimators": 6}
    else:
        from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm as converter

        kind, options = library.LGBMClassifier, {"n_estimators": 6, "min_child_samples": 3, "verbose": -1}
    update_registered_converter(
        kind,
        f"{booster}Classifier",
        calculate_linear_classifier_output_shapes,
        converter,
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )
    prepare = ColumnTransformer(
        [("numbers", SimpleImputer(), NUMBERS), ("words", OneHotEncoder(handle_unknown="ignore"), WORDS)],
        sparse_threshold=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_pipeline(prepare, kind(**options)).fit(GAPS, np.unique(KIND, return_inverse=True)[1])
    check_frame(model, [*NUMBERS, *WORDS], GAPS)


REGRESSIONS = {
    "polynomials": make_pipeline(
        make_column_transformer((make_pipeline(StandardScaler(), PolynomialFeatures(2)), NUMBERS)), Ridge()
    ),
    "bins": make_pipeline(
        make_column_transformer(
            (KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"), NUMBERS),
            (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), WORDS),
        ),
        ElasticNet(0.01),
    ),
    "powers": make_pipeline(
        make_column_transformer((PowerTransformer(), ["age"]), (MinMaxScaler(), ["fare", "weight"]), remainder="drop"),
        FeatureUnion([("best", SelectKBest(f_regression, k=2)), ("pca", PCA(2))]),
        Ridge(),
    ),
    "quantiles": make_pipeline(
        make_column_transformer((QuantileTransformer(n_quantiles=20), NUMBERS), ("passthrough", COUNTS)), Ridge()
    ),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions(name: str) -> None:
    model = REGRESSIONS[name].fit(FRAME, TARGET)
    names = [*NUMBERS, *(WORDS if name == "bins" else []), *(COUNTS if name == "quantiles" else [])]
    if name == "powers":  # without an unknown word
        names = NUMBERS
    check_frame(model, names)


def test_neighbours_fill_gaps() -> None:
    model = make_pipeline(
        make_column_transformer((make_pipeline(KNNImputer(n_neighbors=3), StandardScaler()), NUMBERS)),
        LogisticRegression(),
    ).fit(GAPS, KIND)
    check_frame(model, NUMBERS, GAPS)


@pytest.mark.parametrize(
    "vectorizer",
    [
        CountVectorizer(binary=True, min_df=2),
        TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 3)),
        TfidfVectorizer(analyzer="char", ngram_range=(2, 4)),
        TfidfVectorizer(stop_words="english", max_features=9),
    ],
    ids=["binary", "ngrams", "characters", "stop_words"],
)
@pytest.mark.parametrize("model", ["bayes", "svd"])
def test_sentences(vectorizer: Any, model: str) -> None:
    behind = (
        [ComplementNB()] if model == "bayes" else [TruncatedSVD(3, random_state=0), LogisticRegression(max_iter=300)]
    )
    column = make_column_transformer((vectorizer, "comment"), sparse_threshold=0.0)
    check_frame(make_pipeline(column, *behind).fit(FRAME, KIND), ["comment"])


def test_histograms_with_gaps() -> None:
    """Trees that send missing numbers their own way, behind ordinal categories."""
    prepare = make_column_transformer(
        ("passthrough", NUMBERS),
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, dtype=np.float32), WORDS),
    )
    model = make_pipeline(prepare, HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3)).fit(GAPS, KIND)
    check_frame(model, [*NUMBERS, *WORDS], GAPS)
