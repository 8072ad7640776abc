#!/usr/bin/env python3
"""Finds the polynomial coefficients of sq-kernels-inl.h. Needs numpy; takes a minute.

exp: e^r = 1 + r + r^2 q(r), |r| <= ln(2)/2, q of degree 3, least relative error.
exp2: 2^f = 1 + f q(f), |f| <= 1/2, q of degree 2, least relative error.
gelu: x Phi(x) = max(x, 0) - u Q(u), u = min(|x|, c), where Q(u) = Phi(-u) is a smooth step from 1/2 down to 0. Q is computed as a chain of seven fused
multiply-adds, each either a Horner step w <- w u + p ("H") or a squaring w <- w w + p ("S"): squarings flatten the Gaussian tail into something that a
short polynomial can follow, as Phi(-u)^(1/4) is nearly exp(-u^2 / 8). The constants are fitted for the least absolute error of u Q(u) by iteratively
reweighted Gauss-Newton steps. All sequences of seven were tried from random starts: HHHSHSS is the best with 2.5e-6, then HHSSHSS with 3.3e-6, HHHHSSS
with 5.6e-6; plain Horner still has 3e-5 at nine steps.
"""
import math
import numpy as np

STEPS = "HHHSHSS"  # the first one starts from p[0]
START = [0.0018, -0.033, 0.112, 0.214, 0.121, -0.846, -0.0093, 0.0]


def chain(p, u):
    w = np.full_like(u, p[0])
    for step, q in zip(STEPS, p[1:]):
        w = w * (u if step == "H" else w) + q
    return w


def reweighted(residual, p, steps, tail=None):
    """Approximate minimax: Levenberg-Marquardt steps on weighted squares, weights raised where the error is large."""
    best, weight, damping = (math.inf, p), None, 1e-6
    for step in range(steps):
        r = residual(p)
        weight = np.ones_like(r) if weight is None else weight
        cols = []
        for k in range(len(p)):
            h = 1e-6 * max(1e-3, abs(p[k]))
            up, down = p.copy(), p.copy()
            up[k] += h
            down[k] -= h
            cols.append((residual(up) - residual(down)) / (2 * h))
        root = np.sqrt(weight)
        a = np.stack(cols, 1) * root[:, None]
        size = np.sqrt((a * a).sum(0)) + 1e-30
        for _ in range(20):
            left = np.vstack([a / size, math.sqrt(damping) * np.eye(len(p))])
            d = np.linalg.lstsq(left, np.concatenate([-r * root, np.zeros(len(p))]), rcond=None)[0] / size
            r2 = residual(p + d)
            if np.all(np.isfinite(r2)) and (weight * r2 * r2).sum() <= (weight * r * r).sum() * 1.0000001:
                p, r, damping = p + d, r2, max(damping / 5, 1e-14)
                break
            damping = max(damping, 1e-12) * 10
        worst = np.abs(r).max()
        if worst < best[0]:
            best = (worst, p.copy())
        if step > 15:
            weight = np.maximum(weight * (np.abs(r) / worst + 1e-3) ** 0.7, 1e-9)
            weight /= weight.mean()
    return best


def nodes(lo, hi, n=600):
    return (np.cos(np.pi * (np.arange(n) + 0.5) / n) + 1) / 2 * (hi - lo) + lo


def print_coefficients(name, p):
    print(name, ", ".join("%.9gf" % np.float32(v) for v in p))


def fit_gelu(name, tail, c):
    u = np.append(nodes(0, c), c)
    y = tail(u)
    stress = np.where(u == c, 4.0, 1.0)  # what is left at c is what every x < -c gets
    worst, p = reweighted(lambda p: stress * u * (chain(p, u) - y), np.array(START), 700)
    p32 = p.astype(np.float32).astype(float)
    print(name, "c", c, "error %.3g" % np.abs(u * (chain(p32, u) - y)).max(), "at c %.3g" % (c * chain(p32, np.array([float(c)]))[0]))
    print_coefficients(name, p)


def fit_exp():
    r = nodes(-math.log(2) / 2, math.log(2) / 2)
    poly = lambda p: 1 + r + r * r * (((p[0] * r + p[1]) * r + p[2]) * r + p[3])
    worst, p = reweighted(lambda p: poly(p) / np.exp(r) - 1, np.array([1 / 120, 1 / 24, 1 / 6, 1 / 2]), 200)
    print("exp error %.3g" % np.abs(poly(p.astype(np.float32).astype(float)) / np.exp(r) - 1).max())
    print_coefficients("exp", p)


def fit_exp2():
    f = nodes(-0.5, 0.5)
    poly = lambda p: 1 + f * ((p[0] * f + p[1]) * f + p[2])
    worst, p = reweighted(lambda p: poly(p) / 2 ** f - 1, np.array([0.055, 0.24, 0.69]), 200)
    print("exp2 error %.3g" % np.abs(poly(p.astype(np.float32).astype(float)) / 2 ** f - 1).max())
    print_coefficients("exp2", p)


def tail_erf(u):
    return np.array([0.5 * math.erfc(v / math.sqrt(2)) for v in u])


def tail_tanh(u):
    return 1 / (1 + np.exp(2 * math.sqrt(2 / math.pi) * (u + 0.044715 * u ** 3)))


if __name__ == "__main__":
    fit_exp()
    fit_exp2()
    fit_gelu("gelu_erf", tail_erf, 5.5)
    fit_gelu("gelu_tanh", tail_tanh, 5.0)
