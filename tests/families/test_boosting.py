"""Trees of LightGBM and XGBoost, converted by onnxmltools, alone and inside of pipelines of scikit-learn, and of CatBoost,
which writes ONNX itself."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from families import check

onnxmltools = pytest.importorskip("onnxmltools", reason="./dev families installs the tools of these tests")
lightgbm = pytest.importorskip("lightgbm", reason="./dev families installs the tools of these tests")
xgboost = pytest.importorskip("xgboost", reason="./dev families installs the tools of these tests")
import skl2onnx  # noqa: E402
from onnxmltools.convert.common.data_types import FloatTensorType  # noqa: E402
from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm  # noqa: E402
from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost  # noqa: E402
from skl2onnx.common.shape_calculator import (
    calculate_linear_classifier_output_shapes,  # noqa: E402
    calculate_linear_regressor_output_shapes,
)
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

FEATURES = 6
random = np.random.default_rng(5)
X = random.normal(size=(200, FEATURES)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] + X[:, 2]).astype(np.float32)
X[::9, 3] = np.nan
KINDS = {"two": (Y > 0).astype(int), "three": np.digitize(Y, [-0.6, 0.6])}
ROWS = random.normal(size=(60, FEATURES)).astype(np.float32)
ROWS[::4, 0] = np.nan
ROWS[::5, 3] = np.nan
TYPES = [("X", FloatTensorType([None, FEATURES]))]
SMALL = {"n_estimators": 12, "max_depth": 4, "n_jobs": 1}

LIGHTGBM = {
    "regressor": lambda: lightgbm.LGBMRegressor(**SMALL, verbose=-1).fit(X, Y),
    "regressor_dart": lambda: lightgbm.LGBMRegressor(**SMALL, verbose=-1, boosting_type="dart").fit(X, Y),
    "regressor_linear_forest": lambda: lightgbm.LGBMRegressor(
        **SMALL, verbose=-1, boosting_type="rf", bagging_freq=1, bagging_fraction=0.7
    ).fit(X, Y),
    "regressor_poisson": lambda: lightgbm.LGBMRegressor(**SMALL, verbose=-1, objective="poisson").fit(X, np.exp(Y)),
    "regressor_tweedie": lambda: lightgbm.LGBMRegressor(**SMALL, verbose=-1, objective="tweedie").fit(X, np.exp(Y)),
    "regressor_quantile": lambda: lightgbm.LGBMRegressor(**SMALL, verbose=-1, objective="quantile").fit(X, Y),
    "classifier": lambda: lightgbm.LGBMClassifier(**SMALL, verbose=-1).fit(X, KINDS["two"]),
    "classifier_words": lambda: lightgbm.LGBMClassifier(**SMALL, verbose=-1).fit(
        X, np.array(["no", "yes"])[KINDS["two"]]
    ),
    "classifier_three": lambda: lightgbm.LGBMClassifier(**SMALL, verbose=-1).fit(X, KINDS["three"]),
    "classifier_ova": lambda: lightgbm.LGBMClassifier(**SMALL, verbose=-1, objective="multiclassova").fit(
        X, KINDS["three"]
    ),
    "ranker": lambda: lightgbm.LGBMRanker(**SMALL, verbose=-1).fit(X, np.digitize(Y, [-1, 0, 1]), group=[20] * 10),
    "categorical": lambda: lightgbm.LGBMClassifier(**SMALL, verbose=-1, min_data_per_group=1, cat_smooth=1).fit(
        np.floor(np.abs(np.nan_to_num(X)) * 4), KINDS["two"], categorical_feature=[0, 1]
    ),
    "booster": lambda: lightgbm.train(
        {"objective": "regression", "verbose": -1, "num_threads": 1}, lightgbm.Dataset(X, Y), 6
    ),
}
XGBOOST = {
    "regressor": lambda: xgboost.XGBRegressor(**SMALL).fit(X, Y),
    "regressor_base_score": lambda: xgboost.XGBRegressor(**SMALL, base_score=3.0).fit(X, Y),
    "regressor_poisson": lambda: xgboost.XGBRegressor(**SMALL, objective="count:poisson").fit(X, np.exp(Y)),
    "regressor_logistic": lambda: xgboost.XGBRegressor(**SMALL, objective="reg:logistic").fit(X, (Y > 0).astype(float)),
    "regressor_leafwise": lambda: xgboost.XGBRegressor(
        n_estimators=5, max_leaves=9, max_depth=0, tree_method="hist", grow_policy="lossguide"
    ).fit(X, Y),
    "classifier": lambda: xgboost.XGBClassifier(**SMALL).fit(X, KINDS["two"]),
    "classifier_three": lambda: xgboost.XGBClassifier(**SMALL).fit(X, KINDS["three"]),
    "classifier_softmax": lambda: xgboost.XGBClassifier(**SMALL, objective="multi:softmax").fit(X, KINDS["three"]),
    "ranker": lambda: xgboost.XGBRanker(**SMALL).fit(X, np.digitize(Y, [-1, 0, 1]), group=[20] * 10).get_booster(),
    "forest": lambda: xgboost.XGBRFClassifier(**SMALL).fit(X, KINDS["two"]),
    "booster": lambda: xgboost.train({"objective": "reg:squarederror", "max_depth": 4}, xgboost.DMatrix(X, Y), 6),
    "early_stopped": lambda: xgboost.XGBRegressor(**SMALL, early_stopping_rounds=1).fit(
        X[:150], Y[:150], eval_set=[(X[150:], Y[150:])], verbose=False
    ),
}


def converted(convert: Any, model: Any, **options: Any) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return convert(model, initial_types=TYPES, **options)


def check_rows(model: onnx.ModelProto, rows: np.ndarray = ROWS) -> None:
    check(model, {"X": rows}, {"X": rows[:1]}, {"X": rows[7:20]})


@pytest.mark.parametrize("name", LIGHTGBM)
def test_lightgbm(name: str) -> None:
    rows = np.floor(np.abs(np.nan_to_num(ROWS)) * 4) if name == "categorical" else ROWS
    check_rows(converted(onnxmltools.convert_lightgbm, LIGHTGBM[name](), zipmap=name != "classifier_three"), rows)


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_lightgbm_split(name: str) -> None:
    """Many small ensembles that are summed, which keeps the precision of large ones."""
    check_rows(converted(onnxmltools.convert_lightgbm, LIGHTGBM[name](), split=5 if name == "regressor" else None))


@pytest.mark.parametrize("name", XGBOOST)
def test_xgboost(name: str) -> None:
    check_rows(converted(onnxmltools.convert_xgboost, XGBOOST[name]()))


CATBOOST: dict[str, tuple[str, dict[str, Any], Any]] = {
    "regressor": ("CatBoostRegressor", {}, Y),
    "regressor_quantile": ("CatBoostRegressor", {"loss_function": "Quantile:alpha=0.3"}, Y),
    "regressor_poisson": ("CatBoostRegressor", {"loss_function": "Poisson"}, np.exp(Y)),
    "classifier": ("CatBoostClassifier", {}, KINDS["two"]),
    "classifier_words": ("CatBoostClassifier", {}, np.array(["no", "yes"])[KINDS["two"]]),
    "classifier_cross_entropy": ("CatBoostClassifier", {"loss_function": "CrossEntropy"}, KINDS["two"]),
    "classifier_three": ("CatBoostClassifier", {}, KINDS["three"]),
    "classifier_three_words": ("CatBoostClassifier", {}, np.array(["ant", "bee", "cat"])[KINDS["three"]]),
    "classifier_ova": ("CatBoostClassifier", {"loss_function": "MultiClassOneVsAll"}, KINDS["three"]),
    "deep": ("CatBoostClassifier", {"depth": 9, "iterations": 3}, KINDS["two"]),
}


@pytest.mark.parametrize("name", CATBOOST)
def test_catboost(name: str, tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost", reason="./dev families installs the tools of these tests")
    kind, options, target = CATBOOST[name]
    options = {
        "iterations": 12,
        "depth": 4,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
    } | options
    model = getattr(catboost, kind)(**options).fit(X, target)
    model.save_model(str(tmp_path / "model.onnx"), format="onnx")
    check(onnx.load(tmp_path / "model.onnx"), *({"features": rows} for rows in (ROWS, ROWS[:1], ROWS[7:20])))


def pipelines() -> dict[str, tuple[Any, Any, Any, dict]]:
    classifier = {"zipmap": [True, False, "columns"], "nocl": [True, False]}
    return {
        "lgbm_classifier": (
            lightgbm.LGBMClassifier,
            convert_lightgbm,
            calculate_linear_classifier_output_shapes,
            classifier,
        ),
        "lgbm_regressor": (
            lightgbm.LGBMRegressor,
            convert_lightgbm,
            calculate_linear_regressor_output_shapes,
            {"split": None},
        ),
        "xgb_classifier": (
            xgboost.XGBClassifier,
            convert_xgboost,
            calculate_linear_classifier_output_shapes,
            classifier,
        ),
        "xgb_regressor": (xgboost.XGBRegressor, convert_xgboost, calculate_linear_regressor_output_shapes, {}),
    }


@pytest.mark.parametrize("name", ["lgbm_classifier", "lgbm_regressor", "xgb_classifier", "xgb_regressor"])
def test_pipeline(name: str) -> None:
    kind, converter, shapes, options = pipelines()[name]
    skl2onnx.update_registered_converter(kind, kind.__name__, shapes, converter, options=options, overwrite=True)
    extra = {"verbose": -1} if name.startswith("lgbm") else {}
    model = make_pipeline(StandardScaler(), kind(**SMALL, **extra)).fit(
        X, KINDS["three"] if "classifier" in name else Y
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx_model = skl2onnx.convert_sklearn(
            model,
            initial_types=[("X", skl2onnx.common.data_types.FloatTensorType([None, FEATURES]))],
            target_opset={"": 18, "ai.onnx.ml": 3},
        )
    check_rows(onnx_model)
