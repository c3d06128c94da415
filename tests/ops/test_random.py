"""Random operators: fresh numbers in every run, iteration, node and session; seeds that repeat them; what the numbers are
distributed like. Limits are those of five standard deviations, so that a right generator fails once in a million."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from peers import tensorbox

COUNT = 20000
OPERATORS = {  # a node of x that draws, with a place for its seed
    "RandomUniform": f"y = RandomUniform<shape = [{COUNT}]SEED>()",
    "RandomNormal": f"y = RandomNormal<shape = [{COUNT}]SEED>()",
    "RandomUniformLike": "y = RandomUniformLike<SEED>(x)",
    "RandomNormalLike": "y = RandomNormalLike<SEED>(x)",
    "Bernoulli": "y = Bernoulli<SEED>(x)",
    "Multinomial": f"l = Constant<value = float[1, 2] {{0, 0}}> () m = Multinomial<sample_size = {COUNT}SEED>(l) "
                   f"n = Constant<value_ints = [-1]>() k = Reshape(m, n) y = Cast<to = 1>(k)",
    "Dropout": "r = Constant<value_float = 0.5>() t = Constant<value = bool {1}>() y = Dropout<SEED>(x, r, t)",
    "BiasDropout": "b = Constant<value = float {0}>() bb = Expand(b, s) r = Constant<value_float = 0.5>() "
                   "t = Constant<value = bool {1}>() y = com.microsoft.BiasDropout<SEED>(x, bb, , r, t)",
}
HEADER = '<ir_version: 10, opset_import: ["": 22, "com.microsoft": 1]> '


def with_seed(name: str, seed: float | None) -> str:
    text = OPERATORS[name]
    if seed is None:
        return text.replace(", SEED", "").replace("SEED", "").replace("<>", "")
    value = f"seed = {seed}" if "Dropout" not in name else f"seed = {int(seed)}"
    return text.replace("]SEED", f"], {value}").replace(f"{COUNT}SEED", f"{COUNT}, {value}").replace("SEED", value)


def model(body: str, outputs: str = f"float[{COUNT}] y", inputs: str = f"float[{COUNT}] x") -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + f"g ({inputs}) => ({outputs}) {{ s = Shape(x) {body} }}")


def of(name: str, seed: float | None = None) -> onnx.ModelProto:
    return model(with_seed(name, seed))


X = {"x": np.full(COUNT, 0.5, np.float32)}


def runs(session: tensorbox.Session, count: int = 3) -> list[np.ndarray]:
    return [session.run(X)["y"] for _ in range(count)]


def differ(a: np.ndarray, b: np.ndarray) -> bool:
    """Not in one element, as far as chance goes: half of the elements of two coins are equal."""
    return bool(np.mean(a == b) < 0.5 + 5 * 0.5 / np.sqrt(a.size))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """In standard deviations of what independent numbers have."""
    return abs(float(np.corrcoef(a.ravel(), b.ravel())[0, 1])) * np.sqrt(a.size)


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_run_and_session_has_its_own(name: str, compile: bool) -> None:
    one, other = (tensorbox.Session(of(name), compile=compile) for _ in range(2))
    drawn = runs(one) + runs(other)
    for i in range(len(drawn)):
        for j in range(i):
            assert differ(drawn[i], drawn[j]), f"runs {j} and {i}"


@pytest.mark.parametrize("name", OPERATORS)
def test_a_seed_of_the_session_repeats_its_runs(name: str) -> None:
    one, same, evaluated, other = (tensorbox.Session(of(name), seed=seed, compile=compile)
                                   for seed, compile in ((7, True), (7, True), (7, False), (-7, False)))
    drawn = runs(one)
    for again in (runs(same), runs(evaluated)):
        for a, b in zip(drawn, again, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert differ(drawn[0], runs(other, 1)[0])
    assert differ(drawn[0], drawn[1])


@pytest.mark.parametrize("name", OPERATORS)
def test_a_seed_of_the_node_repeats_from_the_first_run_on(name: str) -> None:
    """Of the session it is independent; each run goes on where the last one ended, as in ONNX Runtime."""
    one, same, other = (tensorbox.Session(of(name, seed), compile=False) for seed in (3.0, 3.0, 4.0))
    drawn = runs(one)
    for a, b in zip(drawn, runs(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert differ(drawn[0], drawn[1])
    assert differ(drawn[0], runs(other, 1)[0])


@pytest.mark.parametrize("name", OPERATORS)
def test_equal_nodes_are_not_one(name: str) -> None:
    first = with_seed(name, None)
    second = first[first.index("m = " if name == "Multinomial" else "y = "):]  # what is before is constant
    second = re.sub(r"\b([ymnk])\b(?= = |,|\))", r"\g<1>2", second)
    for compile in (False, True):
        session = tensorbox.Session(model(f"{first} {second}", f"float[{COUNT}] y, float[{COUNT}] y2"), compile=compile)
        got = session.run(X)
        assert differ(got["y"], got["y2"])
        assert correlation(got["y"], got["y2"]) < 5


def loops(name: str) -> dict[str, onnx.ModelProto]:
    """The operator in bodies: three draws stacked into y."""
    node = with_seed(name, None).replace("y = ", "e = ").replace("s)", "shape)")
    body = f"shape = Shape(x) {node} c = Identity(cc)"
    head = f"({{}} bool cc) => (bool c, float[{COUNT}] e)"
    known = "trips = Constant<value_int = 3>() yes = Constant<value = bool {1}>()"
    loop = f"y = Loop(trips, yes) <body = b {head.format('int64 i,')} {{ {body} }}>"
    out = {
        "unrolled": model(f"{known} {loop}", f"float[3, {COUNT}] y"),
        "run": model(f"yes = Constant<value = bool {{1}}>() {loop}", f"float[n, {COUNT}] y", f"float[{COUNT}] x, int64 trips"),
        "scan": model("z = Constant<value = float[3] {0, 0, 0}>() "
                      f"y = Scan<num_scan_inputs = 1, body = b (float part) => (float[{COUNT}] e) {{ shape = Shape(x) {node} }}>(z)", f"float[3, {COUNT}] y"),
    }
    return out


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("form", ["unrolled", "run", "scan"])
@pytest.mark.parametrize("name", ["RandomUniformLike", "RandomNormal", "Bernoulli", "Dropout"])
def test_every_iteration_has_its_own(name: str, form: str, compile: bool) -> None:
    feeds = X | ({"trips": np.array(3)} if form == "run" else {})
    session, same = (tensorbox.Session(loops(name)[form], compile=compile, seed=5) for _ in range(2))
    drawn = [session.run(feeds)["y"] for _ in range(2)]
    rows = np.concatenate(drawn)
    assert rows.shape == (6, COUNT)
    for i in range(6):
        for j in range(i):
            assert differ(rows[i], rows[j])
            assert correlation(rows[i], rows[j]) < 5
    np.testing.assert_array_equal(rows, np.concatenate([same.run(feeds)["y"] for _ in range(2)]))


def test_unrolled_and_run_loops_draw_the_same() -> None:
    forms = loops("RandomUniformLike")
    unrolled = tensorbox.Session(forms["unrolled"], seed=9).run(X)["y"]
    run = tensorbox.Session(forms["run"], seed=9).run(X | {"trips": np.array(3)})["y"]
    np.testing.assert_array_equal(unrolled, run)


@pytest.mark.parametrize("condition", ["c = Constant<value = bool {1}>()", ""])
def test_branches(condition: str) -> None:
    inputs = f"float[{COUNT}] x" + ("" if condition else ", bool c")
    text = (f"{condition} y = If(c) <then_branch = a () => (float[{COUNT}] e) {{ e = RandomUniformLike(x) }}, "
            f"else_branch = b () => (float[{COUNT}] f) {{ f = RandomNormalLike(x) }}>")
    session = tensorbox.Session(model(text, inputs=inputs))
    feeds = X | ({} if condition else {"c": np.array(True)})
    one, two = (session.run(feeds)["y"] for _ in range(2))
    assert differ(one, two)
    assert one.min() >= 0 and one.max() < 1
    if not condition:
        assert session.run(X | {"c": np.array(False)})["y"].min() < 0


def test_training_mode_of_a_run() -> None:
    session = tensorbox.Session(model("r = Constant<value_float = 0.25>() y = Dropout(x, r, t)", inputs=f"float[{COUNT}] x, bool t"))
    np.testing.assert_array_equal(session.run(X | {"t": np.array(False)})["y"], X["x"])
    one, two = (session.run(X | {"t": np.array(True)})["y"] for _ in range(2))
    for y in (one, two):
        assert set(np.unique(y)) == {np.float32(0), np.float32(0.5) / np.float32(0.75)}
        assert abs(np.mean(y == 0) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / COUNT)
    assert abs(np.mean((one == 0) & (two == 0)) - 0.0625) < 5 * np.sqrt(0.0625 * 0.9375 / COUNT)


@pytest.mark.parametrize("seed", [None, 3.0])
def test_several_callers_never_share_a_draw(seed: float | None) -> None:
    session = tensorbox.Session(of("RandomUniform", seed))
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: session.run(X)["y"][:4].tobytes(), range(200)))
    assert len(set(drawn)) == 200
    if seed is not None:  # in whatever order, they are those of one caller
        alone = tensorbox.Session(of("RandomUniform", seed))
        assert {alone.run(X)["y"][:4].tobytes() for _ in range(200)} == set(drawn)


def test_set_seed() -> None:
    """Of sessions made afterwards that have none of their own; without one, processes differ."""
    program = (f"import sys, onnx, numpy as np, tensorbox\n"
               f"m = onnx.parser.parse_model({onnx.printer.to_text(of('RandomUniform'))!r})\n"
               f"if len(sys.argv) > 1: tensorbox.set_seed(int(sys.argv[1]))\n"
               f"s = [tensorbox.Session(m, compile=False), tensorbox.Session(m, compile=False, seed=8)]\n"
               f"print(*[float(x.run({{'x': np.zeros({COUNT}, np.float32)}})['y'][0]) for x in s])")
    folder = str(Path(tensorbox.__file__).parents[1])

    def run(*arguments: str) -> list[float]:
        out = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r})\n{program}", *arguments],
                             capture_output=True, text=True, check=True)
        return [float(v) for v in out.stdout.split()]

    none, again, one, same, other = run(), run(), run("1"), run("1"), run("2")
    assert one == same and one[1] == none[1] == other[1]
    assert len({none[0], again[0], one[0], other[0]}) == 4


def distance(values: np.ndarray, cdf: np.ndarray) -> float:
    """Kolmogorov's distance, in units of 1 / sqrt(n): above 2.6 once in a million. `cdf`: of the sorted values."""
    n = values.size
    steps = np.arange(n + 1) / n
    return float(max(np.abs(cdf - steps[1:]).max(), np.abs(cdf - steps[:-1]).max()) * np.sqrt(n))


def normal_cdf(x: np.ndarray) -> np.ndarray:
    from math import erfc
    return 0.5 * np.vectorize(erfc)(-x / np.sqrt(2))


@pytest.mark.parametrize("along", ["elements", "runs", "sessions", "nodes"])
@pytest.mark.parametrize("name", ["RandomUniform", "RandomNormal"])
def test_distribution(name: str, along: str) -> None:
    """The numbers of one draw, and the first numbers of many draws, which come from many seeds."""
    if along == "elements":
        values = np.concatenate(runs(tensorbox.Session(of(name, None), compile=False)))
    elif along == "runs":
        small = tensorbox.Session(model(f"y = {name}<shape = [3]>()", "float[3] y"), compile=False)
        values = np.array([small.run(X)["y"][0] for _ in range(2000)])
        assert correlation(values[1:], values[:-1]) < 5
    elif along == "sessions":
        small = model(f"y = {name}<shape = [3]>()", "float[3] y")
        values = np.array([tensorbox.Session(small, compile=False, seed=seed).run(X)["y"][0] for seed in range(300)])
        assert correlation(values[1:], values[:-1]) < 5
    else:
        nodes = " ".join(f"y{i} = {name}<shape = [1]>()" for i in range(200))
        outputs = " ".join(f"y{i}," for i in range(200)).rstrip(",")
        session = tensorbox.Session(model(f"{nodes} y = Concat<axis = 0>({outputs})", "float[200] y"), compile=False)
        values = np.concatenate([session.run(X)["y"] for _ in range(10)])
    values = np.sort(values.astype(np.float64))
    cdf = values if name == "RandomUniform" else normal_cdf(values)
    assert distance(values, cdf) < 2.6
    mean, variance, fourth = (0.5, 1 / 12, 1 / 80) if name == "RandomUniform" else (0, 1, 3)
    n = values.size
    assert abs(values.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(np.mean((values - mean) ** 2) - variance) < 5 * np.sqrt((fourth - variance**2) / n)


def test_multinomial_follows_its_rows() -> None:
    p = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0, 0.3, 0]])
    text = (f'{HEADER} g (float[2, 4] x) => (int32[2, {COUNT}] y) {{ y = Multinomial<sample_size = {COUNT}>(x) }}')
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype(np.float32)
    session = tensorbox.Session(onnx.parser.parse_model(text))
    one, two = (session.run({"x": logits})["y"] for _ in range(2))
    for y in (one, two):
        share = np.stack([np.bincount(row, minlength=4) for row in y]) / COUNT
        assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / COUNT)).all()
    together = np.mean((one[0] == 3) & (two[0] == 3))
    assert abs(together - 0.16) < 5 * np.sqrt(0.16 * 0.84 / COUNT)


def test_compare_gives_both_sides_the_same_numbers() -> None:
    assert all(d.ok for d in tensorbox.compare(of("RandomNormalLike"), X))


@pytest.mark.parametrize("size", [0, 1, 7])
def test_small_sizes(size: int) -> None:
    text = f"{HEADER} g (float[n] x) => (float[n] y) {{ y = RandomUniformLike(x) }}"
    session = tensorbox.Session(onnx.parser.parse_model(text))
    y = session.run({"x": np.zeros(size, np.float32)})["y"]
    assert y.shape == (size,) and len(set(y.tolist())) == size
