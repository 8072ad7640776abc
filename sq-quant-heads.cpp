// sq-quant-heads.cpp - a change of basis within each head, offline, after which queries, keys and values lose least by rounding; see `head_bases` in sq-quant.h.
//
// Scores do not change when a head's queries become M'q and its keys inv(M) k. Steps are the same for all channels (what a score needs), so the rounding noise of a score
// is proportional to |M'q|^2 + |inv(M) k|^2. With A and B the second moments of q and k (of k about its mean, which softmax does not notice) its expectation
// tr(M'A M) + tr(inv(M) B inv(M)') depends on P = M M' only and is least for P A P = B, i.e.
//     P = A^(-1/2) (A^(1/2) B A^(1/2))^(1/2) A^(-1/2).
// M = P^(1/2) V H: V the eigenvectors of what then is the moment of both, and H orthogonal with entries of equal magnitude, as far as there is such a matrix: each new
// channel holds an equal share of every old one, so that none needs a wide range alone. (Hadamard rotations against outliers: QuaRot, Ashkboos et al. 2024.)
//
// Nor does the output layer's answer change when a head's values become M'v and its columns W of the output layer W inv(M)'. The noise of values and of what attention makes
// of them goes through W, that of W's own rounding meets the values: the same balance, with A the second moment of v and B = W'W.
#include "sq-quant.h"

#include <math.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace sq {

namespace {

// d x d, row-major
using square = std::vector<double>;

constexpr double RIDGE = 1e-3; // of a channel's own moment is added to it: directions that calibration hardly saw must not be blown up

square multiply(const square &a, const square &b, size_t d) {
    square c(d * d);
    for (size_t i = 0; i < d; i++)
        for (size_t t = 0; t < d; t++)
            for (size_t j = 0; j < d; j++) c[i * d + j] += a[i * d + t] * b[t * d + j];
    return c;
}

square turned(const square &a, size_t d) {
    square t(d * d);
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) t[j * d + i] = a[i * d + j];
    return t;
}

// Eigenvalues and, as columns of *vectors, eigenvectors of a symmetric matrix: Jacobi's rotations, cyclic (Golub and Van Loan, Matrix Computations, 8.5)
std::vector<double> eigen(square a, size_t d, square *vectors) {
    square &v = *vectors;
    v.assign(d * d, 0);
    for (size_t i = 0; i < d; i++) v[i * d + i] = 1;
    constexpr int SWEEPS = 30; // convergence is quadratic; ten are usual
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double off = 0, all = 0;
        for (size_t i = 0; i < d * d; i++) all += a[i] * a[i], off += i / d == i % d ? 0 : a[i] * a[i];
        if (off <= 1e-24 * all) break;
        for (size_t p = 0; p < d; p++)
            for (size_t q = p + 1; q < d; q++) {
                if (a[p * d + q] == 0) continue;
                const double tau = (a[q * d + q] - a[p * d + p]) / (2 * a[p * d + q]);
                const double t = (tau >= 0 ? 1 : -1) / (fabs(tau) + sqrt(1 + tau * tau)), c = 1 / sqrt(1 + t * t), s = t * c;
                for (size_t i = 0; i < d; i++) {
                    const double x = a[i * d + p], y = a[i * d + q];
                    a[i * d + p] = c * x - s * y, a[i * d + q] = s * x + c * y;
                }
                for (size_t i = 0; i < d; i++) {
                    const double x = a[p * d + i], y = a[q * d + i];
                    a[p * d + i] = c * x - s * y, a[q * d + i] = s * x + c * y;
                    const double u = v[i * d + p], w = v[i * d + q];
                    v[i * d + p] = c * u - s * w, v[i * d + q] = s * u + c * w;
                }
            }
    }
    std::vector<double> values(d);
    for (size_t i = 0; i < d; i++) values[i] = a[i * d + i];
    return values;
}

// a^exponent of a symmetric matrix with positive eigenvalues
square power(const square &a, size_t d, double exponent) {
    square v;
    const std::vector<double> values = eigen(a, d, &v);
    square scaled = v;
    for (size_t i = 0; i < d * d; i++) scaled[i] *= pow(std::max(values[i % d], 1e-30), exponent);
    return multiply(scaled, turned(v, d), d);
}

// Orthogonal: Hadamard's matrix (Sylvester's) where d is a power of two, else its product with a cosine transform of what is left
square even_mixture(size_t d) {
    const size_t p = d & (~d + 1), m = d / p; // d = p m, m odd
    square h(d * d);
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) {
            const bool is_odd = __builtin_popcountll((i % p) & (j % p)) % 2;
            const size_t a = i / p, b = j / p;
            const double cosine = a == 0 ? sqrt(1.0 / static_cast<double>(m))
                                         : sqrt(2.0 / static_cast<double>(m)) * cos(M_PI * (static_cast<double>(b) + 0.5) * static_cast<double>(a) / static_cast<double>(m));
            h[i * d + j] = (is_odd ? -1 : 1) * cosine / sqrt(static_cast<double>(p));
        }
    return h;
}

// M' and inv(M) for the moments a and b, see above. Channels are brought to equal moments in a and b first, so that the ridge means the same for large and small ones.
struct basis {
    square turned_m, inverse_m;
};

basis balance(square a, square b, size_t d) {
    std::vector<double> scale(d);
    for (size_t i = 0; i < d; i++) scale[i] = pow((b[i * d + i] + 1e-30) / (a[i * d + i] + 1e-30), 0.25);
    for (size_t i = 0; i < d * d; i++) {
        a[i] *= scale[i / d] * scale[i % d];
        b[i] /= scale[i / d] * scale[i % d];
    }
    for (size_t i = 0; i < d; i++) {
        a[i * d + i] = a[i * d + i] * (1 + RIDGE) + 1e-20;
        b[i * d + i] = b[i * d + i] * (1 + RIDGE) + 1e-20;
    }
    const square root_a = power(a, d, 0.5), inverse_root_a = power(a, d, -0.5);
    const square middle = power(multiply(multiply(root_a, b, d), root_a, d), d, 0.5);
    const square p = multiply(multiply(inverse_root_a, middle, d), inverse_root_a, d), root_p = power(p, d, 0.5);
    square vectors;
    eigen(multiply(multiply(root_p, a, d), root_p, d), d, &vectors);
    const square rotation = multiply(vectors, even_mixture(d), d);
    basis out{turned(multiply(root_p, rotation, d), d), multiply(turned(rotation, d), power(p, d, -0.5), d)};
    for (size_t i = 0; i < d * d; i++) {
        out.turned_m[i] *= scale[i % d];
        out.inverse_m[i] /= scale[i % d];
    }
    return out;
}

// Second moment of d columns from `first` of the observed rows, about their mean if is_centered
square moment(const attention_observer &seen, size_t first, size_t d, bool is_centered) {
    const size_t rows = seen.start(seen.n_seqs());
    std::vector<double> mean(d);
    for (size_t r = 0; is_centered && r < rows; r++)
        for (size_t i = 0; i < d; i++) mean[i] += static_cast<double>(seen.row(r)[first + i]) / static_cast<double>(rows);
    square a(d * d);
    for (size_t r = 0; r < rows; r++) {
        const float *x = seen.row(r) + first;
        for (size_t i = 0; i < d; i++)
            for (size_t j = 0; j < d; j++) a[i * d + j] += (static_cast<double>(x[i]) - mean[i]) * (static_cast<double>(x[j]) - mean[j]) / static_cast<double>(rows);
    }
    return a;
}

// W'W of d columns from `first`
square column_products(const float_linear &l, size_t first, size_t d) {
    square b(d * d);
    for (size_t n = 0; n < l.n; n++) {
        const float *w = &l.w[n * l.k + first];
        for (size_t i = 0; i < d; i++)
            for (size_t j = 0; j < d; j++) b[i * d + j] += static_cast<double>(w[i]) * static_cast<double>(w[j]);
    }
    return b;
}

} // namespace

head_bases choose_head_bases(const attention_observer &seen, const float_linear &out, size_t n_heads) {
    const size_t width = seen.width(), d = width / n_heads;
    head_bases bases;
    bases.d = d;
    for (auto *of : {&bases.query, &bases.key, &bases.value, &bases.out}) of->resize(n_heads);
    parallel_for(n_heads, [&](size_t h) {
        basis scores = balance(moment(seen, h * d, d, false), moment(seen, width + h * d, d, true), d);
        bases.query[h] = std::move(scores.turned_m);
        bases.key[h] = std::move(scores.inverse_m);
        basis values = balance(moment(seen, 2 * width + h * d, d, false), column_products(out, h * d, d), d);
        bases.value[h] = std::move(values.turned_m);
        bases.out[h] = std::move(values.inverse_m);
    });
    return bases;
}

namespace {

// Rows first .. first + d - 1 of w [.][k] and of bias: multiplied by m from the left
void multiply_rows(const square &m, size_t d, size_t first, size_t k, float *w, float *bias) {
    const std::vector<float> rows(w + first * k, w + (first + d) * k), old_bias(bias + first, bias + first + d);
    std::vector<double> sum(k);
    for (size_t i = 0; i < d; i++) {
        std::fill(sum.begin(), sum.end(), 0.0);
        double b = 0;
        for (size_t t = 0; t < d; t++) {
            for (size_t j = 0; j < k; j++) sum[j] += m[i * d + t] * static_cast<double>(rows[t * k + j]);
            b += m[i * d + t] * static_cast<double>(old_bias[t]);
        }
        for (size_t j = 0; j < k; j++) w[(first + i) * k + j] = static_cast<float>(sum[j]);
        bias[first + i] = static_cast<float>(b);
    }
}

} // namespace

void change_bases(const head_bases &bases, float_linear *qkv, float_linear *out) {
    const size_t d = bases.d, width = bases.query.size() * d;
    parallel_for(bases.query.size(), [&](size_t h) {
        multiply_rows(bases.query[h], d, h * d, qkv->k, qkv->w.data(), qkv->bias.data());
        multiply_rows(bases.key[h], d, width + h * d, qkv->k, qkv->w.data(), qkv->bias.data());
        multiply_rows(bases.value[h], d, 2 * width + h * d, qkv->k, qkv->w.data(), qkv->bias.data());
        const square &m = bases.out[h]; // inv(M), whose transpose the columns are multiplied by
        std::vector<double> sum(d);
        for (size_t n = 0; n < out->n; n++) {
            float *row = &out->w[n * out->k + h * d];
            for (size_t i = 0; i < d; i++) sum[i] = std::inner_product(row, row + d, m.begin() + static_cast<ptrdiff_t>(i * d), 0.0);
            for (size_t i = 0; i < d; i++) row[i] = static_cast<float>(sum[i]);
        }
    });
}

} // namespace sq
