"""Estimators of scikit-learn that skl2onnx converts, fitted on small data."""

from __future__ import annotations

import numpy as np
from sklearn import (
    calibration,
    cluster,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    gaussian_process,
    impute,
    linear_model,
    mixture,  # noqa: F401
    model_selection,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    random_projection,
    svm,
    tree,
)
from sklearn.gaussian_process import kernels

random = np.random.default_rng(3)
FEATURES = 5
X = random.normal(size=(80, FEATURES)).astype(np.float32)
Y = (X @ random.normal(size=FEATURES) + 0.2 * random.normal(size=80)).astype(np.float32)
POSITIVE = np.exp(Y / 3)
TWO = (Y > 0).astype(np.int64)
THREE = np.digitize(Y, [-0.7, 0.7]).astype(np.int64)
WORDS = np.array(["ant", "bee", "cat"])[THREE]
MANY = np.stack([Y, X[:, 0] * 2], 1)
LABELS = np.stack([TWO, (X[:, 1] > 0).astype(np.int64)], 1)

REGRESSORS = {
    "linear": linear_model.LinearRegression(),
    "ridge": linear_model.RidgeCV(),
    "lasso": linear_model.Lasso(0.1),
    "elastic_net": linear_model.ElasticNet(0.1),
    "lars": linear_model.LassoLars(0.01),
    "omp": linear_model.OrthogonalMatchingPursuit(),
    "bayesian_ridge": linear_model.BayesianRidge(),
    "ard": linear_model.ARDRegression(),
    "huber": linear_model.HuberRegressor(),
    "sgd": linear_model.SGDRegressor(random_state=0),
    "theil_sen": linear_model.TheilSenRegressor(random_state=0),
    "ransac": linear_model.RANSACRegressor(random_state=0),
    "quantile": linear_model.QuantileRegressor(solver="highs"),
    "linear_svr": svm.LinearSVR(max_iter=5000),
    "svr_rbf": svm.SVR(),
    "svr_poly": svm.SVR(kernel="poly"),
    "nu_svr": svm.NuSVR(kernel="sigmoid"),
    "tree": tree.DecisionTreeRegressor(max_depth=5),
    "extra_tree": tree.ExtraTreeRegressor(max_depth=4),
    "forest": ensemble.RandomForestRegressor(7, max_depth=5),
    "extra_trees": ensemble.ExtraTreesRegressor(6, max_depth=4),
    "gradient_boosting": ensemble.GradientBoostingRegressor(n_estimators=9),
    "ada_boost": ensemble.AdaBoostRegressor(n_estimators=5),
    "hist_gradient_boosting": ensemble.HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=4),
    "bagging": ensemble.BaggingRegressor(n_estimators=4),
    "voting": ensemble.VotingRegressor(
        [("a", linear_model.LinearRegression()), ("b", tree.DecisionTreeRegressor(max_depth=3))]
    ),
    "stacking": ensemble.StackingRegressor(
        [("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=3))], passthrough=True
    ),
    "mlp": neural_network.MLPRegressor(hidden_layer_sizes=(8, 6), max_iter=60),
    "mlp_tanh": neural_network.MLPRegressor(hidden_layer_sizes=(8,), activation="tanh", max_iter=60),
    "knn": neighbors.KNeighborsRegressor(4),
    "knn_distance": neighbors.KNeighborsRegressor(4, weights="distance", metric="manhattan"),
    "knn_minkowski": neighbors.KNeighborsRegressor(3, p=3),
    "knn_cosine": neighbors.KNeighborsRegressor(4, metric="cosine", algorithm="brute"),
    "gaussian_process": gaussian_process.GaussianProcessRegressor(
        kernels.ConstantKernel(2.0) * kernels.RBF(2.0) + kernels.WhiteKernel(0.1), optimizer=None
    ),
    "gaussian_process_matern": gaussian_process.GaussianProcessRegressor(
        kernels.Matern(2.0, nu=1.5), alpha=0.1, optimizer=None, normalize_y=True
    ),
    "gaussian_process_quadratic": gaussian_process.GaussianProcessRegressor(
        kernels.RationalQuadratic() + kernels.DotProduct(), alpha=0.5, optimizer=None
    ),
    "gaussian_process_sine": gaussian_process.GaussianProcessRegressor(
        kernels.ExpSineSquared(2.0, 5.0), alpha=5.0, optimizer=None
    ),
    "pls": cross_decomposition.PLSRegression(2),
    "grid_search": model_selection.GridSearchCV(linear_model.Ridge(), {"alpha": [0.1, 1.0]}),
    "isotonic_free": linear_model.Lars(n_nonzero_coefs=3),
}
COUNTS = {
    "poisson": linear_model.PoissonRegressor(),
    "gamma": linear_model.GammaRegressor(),
    "tweedie": linear_model.TweedieRegressor(power=1.5),
    "hist_poisson": ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=5),
}
MULTI_REGRESSORS = {
    "linear": linear_model.LinearRegression(),
    "multi_task_lasso": linear_model.MultiTaskLasso(0.05),
    "tree": tree.DecisionTreeRegressor(max_depth=4),
    "forest": ensemble.RandomForestRegressor(5, max_depth=4),
    "knn": neighbors.KNeighborsRegressor(3),
    "mlp": neural_network.MLPRegressor(hidden_layer_sizes=(6,), max_iter=50),
    "multi_output": multioutput.MultiOutputRegressor(svm.SVR()),
    "gaussian_process": gaussian_process.GaussianProcessRegressor(kernels.RBF(), alpha=0.2, optimizer=None),
}
CLASSIFIERS = {
    "logistic": linear_model.LogisticRegression(),
    "logistic_cv": linear_model.LogisticRegressionCV(Cs=2, cv=2),
    "ridge": linear_model.RidgeClassifier(),
    "sgd": linear_model.SGDClassifier(loss="modified_huber", random_state=0),
    "sgd_log": linear_model.SGDClassifier(loss="log_loss", random_state=0),
    "perceptron": linear_model.Perceptron(),
    "passive_aggressive": linear_model.SGDClassifier(loss="squared_hinge", random_state=1),
    "linear_svc": svm.LinearSVC(max_iter=5000),
    "svc_rbf": svm.SVC(probability=True, random_state=0),
    "svc_linear": svm.SVC(kernel="linear"),
    "svc_poly": svm.SVC(kernel="poly", coef0=1.0),
    "nu_svc": svm.NuSVC(kernel="sigmoid", nu=0.3),
    "tree": tree.DecisionTreeClassifier(max_depth=5),
    "extra_tree": tree.ExtraTreeClassifier(max_depth=4),
    "forest": ensemble.RandomForestClassifier(7, max_depth=5),
    "extra_trees": ensemble.ExtraTreesClassifier(6),
    "gradient_boosting": ensemble.GradientBoostingClassifier(n_estimators=6),
    "ada_boost": ensemble.AdaBoostClassifier(n_estimators=5),
    "hist_gradient_boosting": ensemble.HistGradientBoostingClassifier(max_iter=6, min_samples_leaf=4),
    "bagging": ensemble.BaggingClassifier(n_estimators=4),
    "voting_soft": ensemble.VotingClassifier(
        [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))],
        voting="soft",
        flatten_transform=False,
    ),
    "voting_hard": ensemble.VotingClassifier(
        [
            ("a", linear_model.LogisticRegression()),
            ("b", tree.DecisionTreeClassifier(max_depth=3)),
            ("c", naive_bayes.GaussianNB()),
        ],
        flatten_transform=False,
    ),
    "stacking": ensemble.StackingClassifier(
        [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))]
    ),
    "calibrated_sigmoid": calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2),
    "calibrated_isotonic": calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), method="isotonic", cv=2),
    "mlp": neural_network.MLPClassifier(hidden_layer_sizes=(8,), max_iter=80),
    "mlp_logistic": neural_network.MLPClassifier(hidden_layer_sizes=(6, 5), activation="logistic", max_iter=80),
    "knn": neighbors.KNeighborsClassifier(4),
    "knn_distance": neighbors.KNeighborsClassifier(4, weights="distance"),
    "gaussian_nb": naive_bayes.GaussianNB(),
    "bernoulli_nb": naive_bayes.BernoulliNB(),
    "lda": discriminant_analysis.LinearDiscriminantAnalysis(),
    "qda": discriminant_analysis.QuadraticDiscriminantAnalysis(),
    "one_vs_rest": multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    "one_vs_one": multiclass.OneVsOneClassifier(svm.LinearSVC()),
    "grid_search": model_selection.GridSearchCV(tree.DecisionTreeClassifier(), {"max_depth": [2, 3]}),
}
TWO_CLASSES = {
    **{
        name: CLASSIFIERS[name]
        for name in (
            "logistic",
            "sgd_log",
            "svc_rbf",
            "svc_linear",
            "forest",
            "gradient_boosting",
            "hist_gradient_boosting",
            "ada_boost",
            "linear_svc",
            "knn",
            "mlp",
            "calibrated_sigmoid",
            "lda",
            "stacking",
            "ridge",
            "one_vs_rest",
        )
    },
    "threshold": model_selection.TunedThresholdClassifierCV(linear_model.LogisticRegression(), cv=2),
}
MULTI_LABEL = {
    "multi_output": multioutput.MultiOutputClassifier(linear_model.LogisticRegression()),
    "tree": tree.DecisionTreeClassifier(max_depth=4),
    "forest": ensemble.RandomForestClassifier(4, max_depth=4),
    "knn": neighbors.KNeighborsClassifier(3),
    "mlp": neural_network.MLPClassifier(hidden_layer_sizes=(6,), max_iter=50),
    "one_vs_rest": multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
}
NOT_NEGATIVE = {
    "multinomial_nb": naive_bayes.MultinomialNB(),
    "complement_nb": naive_bayes.ComplementNB(),
    "categorical_nb": naive_bayes.CategoricalNB(),
}
OUTLIERS = {
    "isolation_forest": ensemble.IsolationForest(n_estimators=8, random_state=0),
    "one_class_svm": svm.OneClassSVM(),
    "local_outlier_factor": neighbors.LocalOutlierFactor(5, novelty=True),
    "sgd_one_class": linear_model.SGDOneClassSVM(random_state=0),
}
CLUSTERS = {
    "kmeans": cluster.KMeans(3, n_init=1, random_state=0),
    "mini_batch_kmeans": cluster.MiniBatchKMeans(3, n_init=1, random_state=0),
    "gaussian_mixture": mixture.GaussianMixture(2, random_state=0),
    "gaussian_mixture_diag": mixture.GaussianMixture(2, covariance_type="diag", random_state=0),
    "gaussian_mixture_tied": mixture.GaussianMixture(2, covariance_type="tied", random_state=0),
    "bayesian_mixture": mixture.BayesianGaussianMixture(n_components=2, random_state=0, max_iter=30),
}
TRANSFORMERS = {
    "standard": preprocessing.StandardScaler(),
    "min_max": preprocessing.MinMaxScaler(clip=True),
    "max_abs": preprocessing.MaxAbsScaler(),
    "robust": preprocessing.RobustScaler(),
    "normalizer_l1": preprocessing.Normalizer("l1"),
    "normalizer_l2": preprocessing.Normalizer(),
    "normalizer_max": preprocessing.Normalizer("max"),
    "binarizer": preprocessing.Binarizer(threshold=0.1),
    "polynomial": preprocessing.PolynomialFeatures(3),
    "polynomial_interaction": preprocessing.PolynomialFeatures(2, interaction_only=True, include_bias=False),
    "power_yeo_johnson": preprocessing.PowerTransformer(),
    "quantile": preprocessing.QuantileTransformer(n_quantiles=10),
    "bins_ordinal": preprocessing.KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
    "bins_onehot": preprocessing.KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"),
    "function": preprocessing.FunctionTransformer(),
    "pca": decomposition.PCA(3, whiten=True),
    "incremental_pca": decomposition.IncrementalPCA(2),
    "truncated_svd": decomposition.TruncatedSVD(2, random_state=0),
    "kernel_pca": decomposition.KernelPCA(2, kernel="rbf"),
    "lda": discriminant_analysis.LinearDiscriminantAnalysis(n_components=2),
    "variance": feature_selection.VarianceThreshold(0.9),
    "k_best": feature_selection.SelectKBest(k=2),
    "percentile": feature_selection.SelectPercentile(percentile=40),
    "from_model": feature_selection.SelectFromModel(linear_model.Lasso(0.2)),
    "rfe": feature_selection.RFE(linear_model.Ridge(), n_features_to_select=2),
    "rfecv": feature_selection.RFECV(linear_model.Ridge()),
    "fpr": feature_selection.SelectFpr(alpha=0.5),
    "gaussian_projection": random_projection.GaussianRandomProjection(3, random_state=0),
    "nca": neighbors.NeighborhoodComponentsAnalysis(2, max_iter=5, random_state=0),
    "random_trees": ensemble.RandomTreesEmbedding(4, max_depth=3, sparse_output=False),
    "knn_transformer": neighbors.KNeighborsTransformer(n_neighbors=3, mode="distance"),
}
MISSING = {
    "mean": impute.SimpleImputer(),
    "median": impute.SimpleImputer(strategy="median"),
    "constant": impute.SimpleImputer(strategy="constant", fill_value=7),
    "knn": impute.KNNImputer(n_neighbors=2),
    "hist_gradient_boosting": ensemble.HistGradientBoostingRegressor(max_iter=6, min_samples_leaf=4),
    "most_frequent": impute.SimpleImputer(strategy="most_frequent"),
}
