"""Estimators and pipelines of scikit-learn, converted by skl2onnx."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from families import check

skl2onnx = pytest.importorskip("skl2onnx", reason="./dev families installs the tools of these tests")
import sklearn_models as models  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor  # noqa: E402, F401
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer  # noqa: E402
from sklearn.feature_extraction import DictVectorizer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.naive_bayes import MultinomialNB  # noqa: E402
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import (
    LabelBinarizer,
    LabelEncoder,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402
from skl2onnx.common.data_types import (
    DictionaryType,
    DoubleTensorType,
    FloatTensorType,
    Int64TensorType,  # noqa: E402
    StringTensorType,
)

NEW = np.random.default_rng(9).normal(size=(70, models.FEATURES)).astype(np.float32)


#: ONNX Runtime takes the locale of the machine: this one is everywhere.
PLAIN = {"locale": "C"}


def convert(
    model: Any, types: list[tuple[str, Any]], options: dict | None = None, opset: Any = None
) -> onnx.ModelProto:
    if options and all(isinstance(name, str) for name in options):
        options = {id(model): options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return skl2onnx.convert_sklearn(model, initial_types=types, target_opset=opset, options=options)


def fit(model: Any, x: Any, y: Any = None) -> Any:
    """Trained, and the same in every run: where trees tie, the order of a sum decides, which in ONNX Runtime depends on
    the number of rows."""
    np.random.seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(model)
        return model.fit(x, y) if y is not None else model.fit(x)


def check_rows(model: onnx.ModelProto, x: np.ndarray) -> None:
    """With many rows, with one and with few in one session."""
    check(model, {"X": x}, {"X": x[:1]}, {"X": x[3:8]})


FLOATS = [("X", FloatTensorType([None, models.FEATURES]))]
DOUBLES = [("X", DoubleTensorType([None, models.FEATURES]))]


@pytest.mark.parametrize("name", models.REGRESSORS)
def test_regressor(name: str) -> None:
    check_rows(convert(fit(models.REGRESSORS[name], models.X, models.Y), FLOATS), NEW)


@pytest.mark.parametrize("name", ["linear", "ridge", "sgd", "mlp", "knn", "gaussian_process", "pls"])
def test_regressor_double(name: str) -> None:
    check_rows(
        convert(fit(models.REGRESSORS[name], models.X.astype(np.float64), models.Y), DOUBLES), NEW.astype(np.float64)
    )


@pytest.mark.parametrize("name", ["gaussian_process", "gaussian_process_quadratic", "bayesian_ridge"])
def test_regressor_with_deviation(name: str) -> None:
    model = fit(models.REGRESSORS[name], models.X.astype(np.float64), models.Y)
    check_rows(convert(model, DOUBLES, {"return_std": True}), NEW.astype(np.float64))


@pytest.mark.parametrize("name", models.COUNTS)
def test_regressor_of_counts(name: str) -> None:
    check_rows(convert(fit(models.COUNTS[name], models.X, models.POSITIVE), FLOATS), NEW)


@pytest.mark.parametrize("name", models.MULTI_REGRESSORS)
def test_regressor_of_two(name: str) -> None:
    check_rows(convert(fit(models.MULTI_REGRESSORS[name], models.X, models.MANY), FLOATS), NEW)


@pytest.mark.parametrize("name", models.CLASSIFIERS)
@pytest.mark.parametrize("target", ["numbers", "words"])
def test_classifier(name: str, target: str) -> None:
    model = fit(models.CLASSIFIERS[name], models.X, models.THREE if target == "numbers" else models.WORDS)
    if name == "one_vs_one" and target == "words":
        pytest.skip("skl2onnx declares the output as integers")
    arrays = target == "numbers" and name != "linear_svc"  # which has no probabilities
    check_rows(convert(model, FLOATS, {"zipmap": False} if arrays else None), NEW)


@pytest.mark.parametrize("name", models.TWO_CLASSES)
@pytest.mark.parametrize(
    "options",
    [{"zipmap": False}, {}, {"zipmap": "columns"}, {"zipmap": False, "raw_scores": True}],
    ids=["array", "maps", "columns", "raw"],
)
def test_two_classes(name: str, options: dict) -> None:
    model = fit(models.TWO_CLASSES[name], models.X, models.TWO)
    try:
        converted = convert(model, FLOATS, dict(options))
    except (NameError, RuntimeError) as error:  # not every model has every form
        pytest.skip(f"skl2onnx: {str(error)[:80]}")
    check_rows(converted, NEW)


@pytest.mark.parametrize("name", models.MULTI_LABEL)
def test_two_labels(name: str) -> None:
    model = fit(models.MULTI_LABEL[name], models.X, models.LABELS)
    check_rows(convert(model, FLOATS, {"zipmap": False}), NEW)


@pytest.mark.parametrize("name", models.NOT_NEGATIVE)
def test_counts(name: str) -> None:
    x = np.abs(models.X * 3).astype(np.int64)
    model = fit(models.NOT_NEGATIVE[name], x, models.THREE)
    rows = np.minimum(np.abs(NEW * 3).astype(np.int64), x.max(0))
    check_rows(convert(model, [("X", Int64TensorType([None, models.FEATURES]))], {"zipmap": False}), rows)


@pytest.mark.parametrize("name", models.OUTLIERS)
def test_outliers(name: str) -> None:
    options = {"score_samples": True} if name == "isolation_forest" else None
    check_rows(convert(fit(models.OUTLIERS[name], models.X), FLOATS, options, {"": 18, "ai.onnx.ml": 3}), NEW)


@pytest.mark.parametrize("name", models.CLUSTERS)
def test_clusters(name: str) -> None:
    check_rows(convert(fit(models.CLUSTERS[name], models.X), FLOATS), NEW)


@pytest.mark.parametrize("name", models.TRANSFORMERS)
def test_transformer(name: str) -> None:
    check_rows(convert(fit(models.TRANSFORMERS[name], models.X, models.THREE), FLOATS), NEW)


@pytest.mark.parametrize("name", ["standard", "pca", "quantile", "kernel_pca", "robust"])
def test_transformer_double(name: str) -> None:
    check_rows(
        convert(fit(models.TRANSFORMERS[name], models.X.astype(np.float64), models.THREE), DOUBLES),
        NEW.astype(np.float64),
    )


@pytest.mark.parametrize("name", models.MISSING)
def test_missing_values(name: str) -> None:
    x, rows = models.X.copy(), NEW.copy()
    x[::5, 1], x[::7, 3], rows[::4, 0], rows[::3, 3] = np.nan, np.nan, np.nan, np.nan
    check_rows(convert(fit(models.MISSING[name], x, models.Y), FLOATS), rows)


# Strings

CITIES = np.array([["Rome", "x"], ["Oslo", "y"], ["Lima", "x"], ["Rome", "z"], ["Lima", "y"]] * 8, dtype=object)
TEXTS = np.array(
    ["the cat sat on the mat", "dogs and cats", "A dog, a cat; THE end.", "", "one two three two", "cat cat dog mat"]
    * 4,
    dtype=object,
)


@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(sparse_output=False),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        OneHotEncoder(drop="first", sparse_output=False),
        OrdinalEncoder(),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ],
    ids=str,
)
def test_categories(encoder: Any) -> None:
    model = fit(encoder, CITIES)
    check_rows(convert(model, [("X", StringTensorType([None, 2]))]), CITIES[:9])


def test_categories_of_integers() -> None:
    x = np.random.default_rng(0).integers(0, 5, (30, 3))
    check_rows(convert(fit(OneHotEncoder(handle_unknown="ignore"), x), [("X", Int64TensorType([None, 3]))]), x + 1)


def test_target_encoder() -> None:
    model = TargetEncoder(smooth=2.0).fit(CITIES, np.arange(40) % 3 / 2.0)
    check_rows(convert(model, [("X", StringTensorType([None, 2]))]), CITIES[:9])


@pytest.mark.parametrize(
    "vectorizer",
    [
        CountVectorizer(),
        CountVectorizer(ngram_range=(1, 2), binary=True),
        CountVectorizer(stop_words=["the", "a"], lowercase=False),
        TfidfVectorizer(),
        TfidfVectorizer(ngram_range=(2, 3), sublinear_tf=True, norm="l1"),
        TfidfVectorizer(analyzer="char", ngram_range=(1, 2)),
        TfidfVectorizer(use_idf=False, token_pattern=r"\w+"),
        TfidfVectorizer(max_features=4, norm=None),
    ],
    ids=lambda v: f"{type(v).__name__}-{v.analyzer}-{v.ngram_range}-{v.norm if hasattr(v, 'norm') else v.binary}",
)
def test_texts(vectorizer: Any) -> None:
    model = fit(vectorizer, TEXTS)
    converted = convert(model, [("X", StringTensorType([None, 1]))], PLAIN)
    check_rows(converted, TEXTS[:, None])


def test_text_pipeline() -> None:
    model = Pipeline([("count", CountVectorizer()), ("tfidf", TfidfTransformer()), ("bayes", MultinomialNB())]).fit(
        TEXTS, np.arange(24) % 2
    )
    check_rows(convert(model, [("X", StringTensorType([None, 1]))], {CountVectorizer: PLAIN}), TEXTS[:, None])


def test_columns() -> None:
    """Numbers with gaps and words in, a class name and a dictionary out: the model of every tutorial."""
    pandas = pytest.importorskip("pandas")
    generator = np.random.default_rng(1)
    frame = pandas.DataFrame(
        {
            "age": generator.normal(40, 10, 60),
            "fare": generator.exponential(30, 60),
            "port": generator.choice(["C", "Q", "S"], 60),
            "sex": generator.choice(["male", "female"], 60),
        }
    )
    frame.loc[::7, "age"] = np.nan
    numbers = Pipeline([("impute", SimpleImputer(strategy="median")), ("scale", StandardScaler())])
    words = OneHotEncoder(handle_unknown="ignore")
    model = Pipeline(
        [
            ("columns", ColumnTransformer([("numbers", numbers, ["age", "fare"]), ("words", words, ["port", "sex"])])),
            ("classifier", LogisticRegression()),
        ]
    ).fit(frame, np.where(frame["fare"] > 20, "rich", "poor"))
    types = [
        ("age", FloatTensorType([None, 1])),
        ("fare", FloatTensorType([None, 1])),
        ("port", StringTensorType([None, 1])),
        ("sex", StringTensorType([None, 1])),
    ]
    feed = {
        "age": frame[["age"]].to_numpy(np.float32),
        "fare": frame[["fare"]].to_numpy(np.float32),
        "port": np.array(frame[["port"]].to_numpy().tolist(), dtype=object),
        "sex": np.array(frame[["sex"]].to_numpy().tolist(), dtype=object),
    }
    feed["port"][3, 0] = "unknown"
    check(convert(model, types), feed, {name: value[:1] for name, value in feed.items()})


def test_columns_passthrough() -> None:
    model = ColumnTransformer(
        [("scale", StandardScaler(), [0, 2]), ("drop", "drop", [1])], remainder="passthrough"
    ).fit(models.X)
    check_rows(convert(model, FLOATS), NEW)


def test_feature_union() -> None:
    union = FeatureUnion(
        [("pca", models.decomposition.PCA(2)), ("best", models.feature_selection.SelectKBest(k=2))],
        transformer_weights={"pca": 2.0},
    )
    model = make_pipeline(StandardScaler(), union, DecisionTreeClassifier(max_depth=3)).fit(models.X, models.WORDS)
    check_rows(convert(model, FLOATS), NEW)


def test_text_and_numbers() -> None:
    x = np.array([[text, str(i)] for i, text in enumerate(TEXTS)], dtype=object)
    columns = ColumnTransformer(
        [("text", TfidfVectorizer(), 0), ("category", OneHotEncoder(handle_unknown="ignore"), [1])]
    )
    model = make_pipeline(columns, LogisticRegression()).fit(x, np.arange(24) % 3)
    check(convert(model, [("X", StringTensorType([None, 2]))], {TfidfVectorizer: PLAIN}), {"X": x}, {"X": x[:1]})


@pytest.mark.parametrize("encoder", [LabelEncoder(), LabelBinarizer()], ids=str)
@pytest.mark.parametrize("words", [False, True])
def test_labels(encoder: Any, words: bool) -> None:
    if words and isinstance(encoder, LabelBinarizer):
        pytest.skip("skl2onnx: strings are not implemented for LabelBinarizer")
    y = models.WORDS.astype(object) if words else models.THREE
    check(
        convert(clone(encoder).fit(y), [("X", StringTensorType([None]) if words else Int64TensorType([None]))]),
        {"X": y},
    )


def test_dictionaries() -> None:
    rows = [{"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 1.5}]
    model = DictVectorizer(sparse=False).fit(rows)
    converted = convert(model, [("X", DictionaryType(StringTensorType([1]), FloatTensorType([1])))])
    check(converted, {"X": rows[0]}, {"X": {"c": 4.0, "unknown": 9.0}})


@pytest.mark.parametrize(
    "opset", [{"": 9, "ai.onnx.ml": 1}, {"": 13, "ai.onnx.ml": 2}, {"": 18, "ai.onnx.ml": 3}], ids=str
)
@pytest.mark.parametrize("name", ["logistic", "forest", "svc_rbf", "gradient_boosting", "mlp", "gaussian_nb", "knn"])
def test_old_opsets(name: str, opset: dict) -> None:
    model = fit(models.CLASSIFIERS[name], models.X, models.THREE)
    try:
        converted = convert(model, FLOATS, None, opset)
    except RuntimeError as error:
        pytest.skip(f"skl2onnx: {str(error)[:80]}")
    check_rows(converted, NEW)
