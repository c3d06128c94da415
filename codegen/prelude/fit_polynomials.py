"""Coefficients of the polynomials in math.inc: minimax fits by Remez exchange, printed as f32 literals, lowest first.

Needs mpmath. Every fit gives q with f(x) = the formula beside it, small in the error of that formula.
"""
import struct

from mpmath import mp, mpf

mp.prec = 200


def remez(f, weight, degree, lo, hi, rounds=30):
    """q of `degree` minimising max |weight * (f - q)| on [lo, hi]."""
    n = degree + 2
    xs = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    grid = [lo + (hi - lo) * mpf(k) / 2000 for k in range(2001)]
    for _ in range(rounds):
        a = mp.matrix(n, n)
        b = mp.matrix(n, 1)
        for i, x in enumerate(xs):
            for j in range(degree + 1):
                a[i, j] = x**j
            a[i, degree + 1] = (-1) ** i / weight(x)
            b[i] = f(x)
        c = mp.lu_solve(a, b)
        q = [c[j] for j in range(degree + 1)]
        err = [weight(x) * (f(x) - mp.polyval(q[::-1], x)) for x in grid]
        peaks = [i for i in range(len(grid)) if (i == 0 or abs(err[i]) >= abs(err[i - 1]) or err[i] * err[i - 1] < 0)
                 and (i == len(grid) - 1 or abs(err[i]) >= abs(err[i + 1]) or err[i] * err[i + 1] < 0)]
        alternating = []
        for i in peaks:
            if alternating and err[i] * err[alternating[-1]] > 0:
                if abs(err[i]) > abs(err[alternating[-1]]):
                    alternating[-1] = i
            else:
                alternating.append(i)
        while len(alternating) > n:
            alternating.pop(0 if abs(err[alternating[0]]) < abs(err[alternating[-1]]) else -1)
        if len(alternating) < n:
            break
        new = [grid[i] for i in alternating]
        if new == xs:
            break
        xs = new
    return q, max(abs(e) for e in err)


def show(name, formula, f, weight, degree, lo, hi):
    q, err = remez(f, weight, degree, mpf(lo), mpf(hi))
    print(f"{name}: {formula} on [{mp.nstr(mpf(lo), 6)}, {mp.nstr(mpf(hi), 6)}], error {mp.nstr(err, 3)} = 2^{mp.nstr(mp.log(err, 2), 4)}")
    print("  " + ", ".join(repr(struct.unpack("f", struct.pack("f", float(c)))[0]) + "f" for c in q))
    print("  f64: " + ", ".join(repr(float(c)) for c in q))


def even(f):
    """f(sqrt(u)) for fits in u = x*x."""
    return lambda u: f(mp.sqrt(u))


tiny = mpf("1e-30")
ln2 = mp.log(2)
show("exp", "e^x = 1 + x + x^2 q(x)", lambda x: (mp.expm1(x) - x) / x**2 if abs(x) > 1e-9 else mpf(1) / 2 + x / 6,
     lambda x: x**2 + tiny, 4, -ln2 / 2, ln2 / 2)
show("exp2", "2^x = 1 + x q(x)", lambda x: mp.expm1(x * ln2) / x if abs(x) > 1e-20 else ln2, lambda x: abs(x) + tiny, 7,
     -0.5, 0.5)
r2 = mp.sqrt(2)
show("log", "log(1+x) = x - x^2/2 + x^3 q(x)",
     lambda x: (mp.log1p(x) - x + x**2 / 2) / x**3 if abs(x) > 1e-9 else mpf(1) / 3 - x / 4,
     lambda x: abs(x**3 / mp.log1p(x)) + tiny if abs(x) > 1e-9 else x**2 + tiny, 8, r2 / 2 - 1, r2 - 1)
show("tanh", "tanh x = x + x u q(u), u = x^2", even(lambda x: (mp.tanh(x) / x - 1) / x**2 if x > 1e-9 else -mpf(1) / 3),
     lambda u: u + tiny, 4, 0, 0.4)
show("erf", "erf x = x + x q(u), u = x^2", even(lambda x: mp.erf(x) / x - 1 if x > 1e-9 else 2 / mp.sqrt(mp.pi) - 1),
     lambda u: mpf(1), 6, 0, 1)
show("erfc", "erf x = 1 - e^(-x q(x))", lambda x: -mp.log(mp.erfc(x)) / x,
     lambda x: x * mp.erfc(x), 6, 1, 4.1)
show("gelu", "erfc(x / sqrt 2) / 2 = 2^-(1 + x q(x)), in the error of that, for extern_kernels/vector_activations.h",
     lambda x: -(mp.log(mp.erfc(x / r2) / 2) / ln2 + 1) / x, lambda x: x * ln2 * mp.erfc(x / r2) / 2, 7, "1e-4", 6)
show("sin", "sin x = x + x u q(u)", even(lambda x: (mp.sin(x) / x - 1) / x**2 if x > 1e-9 else -mpf(1) / 6),
     lambda u: u + tiny, 2, 0, (mp.pi / 4) ** 2)
show("cos", "cos x = 1 - u/2 + u^2 q(u)", even(lambda x: (mp.cos(x) - 1 + x**2 / 2) / x**4 if x > 1e-6 else mpf(1) / 24),
     lambda u: u**2 + tiny, 2, 0, (mp.pi / 4) ** 2)
show("sinh", "sinh x = x + x u q(u)", even(lambda x: (mp.sinh(x) / x - 1) / x**2 if x > 1e-9 else mpf(1) / 6),
     lambda u: u + tiny, 3, 0, 1)
show("asin", "asin x = x + x u q(u)", even(lambda x: (mp.asin(x) / x - 1) / x**2 if x > 1e-9 else mpf(1) / 6),
     lambda u: u + tiny, 4, 0, 0.25)
show("atan", "atan x = x + x u q(u)", even(lambda x: (mp.atan(x) / x - 1) / x**2 if x > 1e-9 else -mpf(1) / 3),
     lambda u: u + tiny, 4, 0, mp.tan(mp.pi / 8) ** 2)
show("log2", "log2((1+s)/(1-s)) = s q(u), u = s^2", even(lambda s: 2 * mp.atanh(s) / s / ln2 if s > 1e-9 else 2 / ln2),
     lambda u: mpf(1), 6, 0, ((r2 - 1) / (r2 + 1)) ** 2)
