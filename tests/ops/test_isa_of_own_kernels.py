"""TBX_ISA bounds our own library kernels, too, not generated ones alone: their loops for narrower vectors, against numpy in
float64, in a process that is told so."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from peers import model_of, tensorbox

ISAS = ["sse", "avx2"]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def run(op: str, inputs: dict[str, np.ndarray], opset: int, constants: tuple[str, ...] = (), outputs: tuple[str, ...] = ("y",),
        **attributes: object) -> list[np.ndarray]:
    session = tensorbox.Session(model_of(op, inputs, list(outputs), opset, constants, **attributes), compile=False, threads=2)
    given = session.run({k: v for k, v in inputs.items() if k not in constants})
    return [given[name] for name in outputs]


def quantised(rows: int, k: int, n: int) -> tuple[tensorbox.Session, np.ndarray, np.ndarray]:
    """A product with 8-bit weights, its input and its result."""
    rng = np.random.default_rng(k + n)
    q, scales = rng.integers(0, 256, (n, k // 32, 32), dtype=np.uint8), rng.uniform(0.01, 0.1, (n, k // 32)).astype(np.float32)
    a = normal(rows, k)
    model = model_of("MatMulNBits", {"A": a, "B": q, "scales": scales}, ["Y"], 17, ["B", "scales"], domain="com.microsoft",
                     K=k, N=n, bits=8, block_size=32)
    w = (q.astype(np.float64) - 128) * scales[..., None]
    return tensorbox.Session(model, compile=False, threads=2), a, a.astype(np.float64) @ w.reshape(n, k).T


def check_all() -> int:
    """Every kernel at sizes 1, odd and real; returns the megabytes of a packed matrix of one column."""
    for rows, k, n in [(1, 32, 1), (3, 64, 33), (9, 768, 129)]:
        session, a, want = quantised(rows, k, n)
        np.testing.assert_allclose(session.run({"A": a})["Y"], want, 1e-4, 2e-5 * np.abs(want).max())
    for k, n in [(1, 1), (7, 33), (768, 770)]:
        a, b = normal(1, k), normal(k, n)
        want = a.astype(np.float64) @ b
        np.testing.assert_allclose(run("MatMul", {"a": a, "b": b}, 17, ("b",))[0], want, 1e-4, 1e-5 * k)
    for n, k in [(1, 1), (33, 5), (5001, 40)]:
        x = normal(2, n)
        values, places = run("TopK", {"x": x, "k": np.array([k])}, 17, ("k",), ("values", "places"))
        order = np.argsort(-x, axis=-1, kind="stable")[:, :k]
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))
    for queries, keys, depth in [(1, 1, 1), (5, 33, 7), (64, 130, 64)]:
        q, k, v = normal(1, 2, queries, depth), normal(1, 2, keys, depth), normal(1, 2, keys, depth)
        got = run("Attention", {"q": q, "k": k, "v": v}, 23)[0]
        scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / np.sqrt(depth)
        np.testing.assert_allclose(got, softmax(scores) @ v, 1e-4, 1e-5)
    session, a, _ = quantised(1, 32768, 1)
    session.run({"A": a})
    told = [decision for kernel in session.explain() for decision in kernel["decisions"] if "weights packed" in decision]
    return float(told[0].split()[2])


@pytest.mark.parametrize("isa", ISAS)
def test_own_kernels(isa: str) -> None:
    done = subprocess.run([sys.executable, __file__], env={**os.environ, "TBX_ISA": isa}, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    # A panel is as wide as four vectors, whatever it has to hold; a scale of four bytes comes to 32 of its rows.
    columns = 4 * {"sse": 4, "avx2": 8}[isa]
    assert float(done.stdout) == pytest.approx(32768 * columns * 1.125 / 1e6, rel=0.01), done.stdout


if __name__ == "__main__":
    print(check_all())
