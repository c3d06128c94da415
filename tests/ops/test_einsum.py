"""Einsum, against ONNX Runtime or onnx.reference: operands of products that are diagonals, transposes and broadcasts."""

from __future__ import annotations

import numpy as np
import pytest
from peers import compare, model_of, tensorbox

EQUATIONS = {
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "bij,bkj->bki": [(2, 3, 4), (2, 5, 4)],
    "bii,bjj->b": [(2, 3, 3), (2, 4, 4)],
    "bii,bij->bj": [(2, 3, 3), (2, 3, 4)],
    "iij,jk->ik": [(3, 3, 4), (4, 5)],
    "ii,jj->ij": [(3, 3), (4, 4)],
    "iji,jki->k": [(3, 4, 3), (4, 5, 3)],
    "...ii->...i": [(2, 3, 3)],
    "...ij,...jk": [(2, 1, 3, 4), (1, 6, 4, 5)],
    "bhqd,bkhd->bhqk": [(2, 3, 4, 5), (2, 6, 3, 5)],
    "i,j->ji": [(3,), (4,)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "bcln,bcsn,bhcls,bcshp->bclhp": [(1, 2, 3, 4), (1, 2, 3, 4), (1, 5, 2, 3, 3), (1, 2, 3, 5, 2)],
    "bld,bln,bld->bldn": [(2, 5, 3), (2, 5, 4), (2, 5, 3)],
    "bhld,bhld->bhl": [(2, 3, 5, 40), (2, 3, 5, 40)],
    "bixy,ioxy->boxy": [(2, 3, 4, 5), (3, 6, 4, 5)],
    "ij,ij->": [(7, 9), (7, 9)],
}
#: Of these a library of matrix products is asked for nothing: no sums, or sums for one row or column alone.
WITHOUT_LIBRARY = ["i,j->ji", "bld,bln,bld->bldn", "bhld,bhld->bhl", "ij,ij->"]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    random = np.random.default_rng(len(equation))
    inputs = {f"x{i}": random.normal(size=shape).astype(np.float32) for i, shape in enumerate(EQUATIONS[equation])}
    model = model_of("Einsum", inputs, ["y"], 12, equation=equation)
    compare(model, inputs, engine="reference")
    kinds = {kernel["kind"] for kernel in tensorbox.Session(model, compile=False).explain()}
    if equation in WITHOUT_LIBRARY:
        assert "extern" not in kinds
