// sq-kernels-inl.h - everything of a kernel table that is not tied to one instruction set, written once over vectors of 16 lanes.
//
// Included by each sq-kernels-<isa>.cpp inside its namespace and, except for plain, inside a region of that target, so that no code compiled for a newer CPU
// can reach an older one. It has no include guard and includes nothing. Before it, the file defines in the same namespace
//   vf, vi                     16 floats, 16 int32
//   load, store                16 floats, 64-byte aligned                loadu, storeu: any alignment
//   load_n, store_n (p, n)     the first n of 16 floats, n in 1..16, zeros in the rest; touches nothing beyond p[n-1]
//   splat, splat_i             one value in all lanes
//   add, sub, mul, div         correctly rounded; never fused with one another
//   fma(a, b, c)               a * b + c rounded once; fnma(a, b, c): c - a * b
//   min(a, b), max(a, b)       a < b ? a : b, a > b ? a : b; so NaN in either gives b
//   abs, copysign(a, sign)     by bits
//   low_abs(a, c)              min(abs(a), c) for c > 0
//   ldexp(a, n)                a * 2^n, n integral in -126..0, a in 0.5..2^17
//   to_int                     rounded to nearest even; NaN and values outside int32 give INT32_MIN
//   to_float, load_i, add_i, sub_i, max_i, sub_mul_i(a, b, c) = a - b * c    int32, wrapping
//   sum_i, highest_i           of all 16 lanes
//   low_byte, high_byte        of values in 0..65535: x & 255, x >> 8
//   load_s8                    16 int8 widened to int32
//   store_u8(p, v, zero)       16 bytes: v + zero clamped to 0..255; INT32_MIN gives 0; v <= 255 - zero
//   store_u8x4(p, v0, v1, v2, v3, zero)   64 bytes, any alignment
//   store_4x16(p, r0 .. r3)    64 bytes p[4 c + j] = r_j[c] ^ 0x80 from 16 bytes at each r_j; p 64-byte aligned
//   first_n(v, n, fill)        lanes n and up replaced by fill's, floats or int32
//   lanes(v, float[16])        store to an aligned array
//   SQ_INLINE                  inline, if need be by force: what takes or gives vf4 must not go through memory
// and the product of one tile, with its largest rows and panels, for integers and for floats (int_tile in sq-kernels.h is the contract of both):
//   INT_ROWS, INT_PANELS, tile_u8s8, tile_s8u8    and    F32_ROWS, F32_PANELS, tile_f32
//
// Polynomials come from tests/make-polynomials.py.

// ---- four vectors ----

// Four vectors side by side. Functions written for either vf or vf4 let four chains of dependent operations run between one another: one chain at a time, the
// window of a CPU is too small to keep its multipliers busy.
struct vf4 {
    vf a, b, c, d;
};
struct vi4 {
    vi a, b, c, d;
};

SQ_INLINE vf4 add(vf4 x, vf4 y) { return {add(x.a, y.a), add(x.b, y.b), add(x.c, y.c), add(x.d, y.d)}; }
SQ_INLINE vf4 sub(vf4 x, vf4 y) { return {sub(x.a, y.a), sub(x.b, y.b), sub(x.c, y.c), sub(x.d, y.d)}; }
SQ_INLINE vf4 mul(vf4 x, vf4 y) { return {mul(x.a, y.a), mul(x.b, y.b), mul(x.c, y.c), mul(x.d, y.d)}; }
SQ_INLINE vf4 div(vf4 x, vf4 y) { return {div(x.a, y.a), div(x.b, y.b), div(x.c, y.c), div(x.d, y.d)}; }
SQ_INLINE vf4 fma(vf4 x, vf4 y, vf4 z) { return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b), fma(x.c, y.c, z.c), fma(x.d, y.d, z.d)}; }
SQ_INLINE vf4 fnma(vf4 x, vf4 y, vf4 z) { return {fnma(x.a, y.a, z.a), fnma(x.b, y.b, z.b), fnma(x.c, y.c, z.c), fnma(x.d, y.d, z.d)}; }
SQ_INLINE vf4 min(vf4 x, vf4 y) { return {min(x.a, y.a), min(x.b, y.b), min(x.c, y.c), min(x.d, y.d)}; }
SQ_INLINE vf4 max(vf4 x, vf4 y) { return {max(x.a, y.a), max(x.b, y.b), max(x.c, y.c), max(x.d, y.d)}; }
SQ_INLINE vf4 abs(vf4 x) { return {abs(x.a), abs(x.b), abs(x.c), abs(x.d)}; }
SQ_INLINE vf4 copysign(vf4 x, vf4 y) { return {copysign(x.a, y.a), copysign(x.b, y.b), copysign(x.c, y.c), copysign(x.d, y.d)}; }
SQ_INLINE vf4 low_abs(vf4 x, vf4 y) { return {low_abs(x.a, y.a), low_abs(x.b, y.b), low_abs(x.c, y.c), low_abs(x.d, y.d)}; }
SQ_INLINE vi4 add_i(vi4 x, vi4 y) { return {add_i(x.a, y.a), add_i(x.b, y.b), add_i(x.c, y.c), add_i(x.d, y.d)}; }
SQ_INLINE vi4 sub_i(vi4 x, vi4 y) { return {sub_i(x.a, y.a), sub_i(x.b, y.b), sub_i(x.c, y.c), sub_i(x.d, y.d)}; }
SQ_INLINE vi4 low_byte(vi4 x) { return {low_byte(x.a), low_byte(x.b), low_byte(x.c), low_byte(x.d)}; }
SQ_INLINE vi4 high_byte(vi4 x) { return {high_byte(x.a), high_byte(x.b), high_byte(x.c), high_byte(x.d)}; }
SQ_INLINE vf4 ldexp(vf4 x, vf4 y) { return {ldexp(x.a, y.a), ldexp(x.b, y.b), ldexp(x.c, y.c), ldexp(x.d, y.d)}; }
SQ_INLINE vi4 to_int(vf4 x) { return {to_int(x.a), to_int(x.b), to_int(x.c), to_int(x.d)}; }
SQ_INLINE vf4 to_float(vi4 x) { return {to_float(x.a), to_float(x.b), to_float(x.c), to_float(x.d)}; }
SQ_INLINE vi4 sub_mul_i(vi4 x, vi4 y, vi4 z) {
    return {sub_mul_i(x.a, y.a, z.a), sub_mul_i(x.b, y.b, z.b), sub_mul_i(x.c, y.c, z.c), sub_mul_i(x.d, y.d, z.d)};
}
SQ_INLINE void store(float *p, vf4 x) {
    store(p, x.a);
    store(p + 16, x.b);
    store(p + 32, x.c);
    store(p + 48, x.d);
}
SQ_INLINE void store_u8(uint8_t *p, vi4 x, int32_t zero) { store_u8x4(p, x.a, x.b, x.c, x.d, zero); }

// One value in all lanes, and loads, for V = vf or vf4 and the integers that go with it
template <class V> SQ_INLINE V all(float a) {
    if constexpr (sizeof(V) == sizeof(vf)) return splat(a);
    else return {splat(a), splat(a), splat(a), splat(a)};
}
template <class V> SQ_INLINE V get(const float *p) {
    if constexpr (sizeof(V) == sizeof(vf)) return load(p);
    else return {load(p), load(p + 16), load(p + 32), load(p + 48)};
}
template <class V> SQ_INLINE auto all_i(int32_t a) {
    if constexpr (sizeof(V) == sizeof(vf)) return splat_i(a);
    else return vi4{splat_i(a), splat_i(a), splat_i(a), splat_i(a)};
}
template <class V> SQ_INLINE auto get_i(const int32_t *p) {
    if constexpr (sizeof(V) == sizeof(vf)) return load_i(p);
    else return vi4{load_i(p), load_i(p + 16), load_i(p + 32), load_i(p + 48)};
}

// ---- reductions ----

// The fixed tree: lane i with i + 8, then i + 4, i + 2, i + 1.
template <class Op> inline float reduce(vf v, Op op) {
    alignas(64) float a[16];
    lanes(v, a);
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            a[i] = op(a[i], a[i + half]);
    return a[0];
}

inline float reduce_add(vf v) {
    return reduce(v, [](float a, float b) { return a + b; });
}

inline float reduce_max(vf v) {
    return reduce(v, [](float a, float b) { return a > b ? a : b; });
}

inline float reduce_min(vf v) {
    return reduce(v, [](float a, float b) { return a < b ? a : b; });
}

// Adds up a row in four vectors, to hide the latency of an addition: vector i of the row goes to sum i mod 4 through term(sum, first column), then
// (s0 + s1) + (s2 + s3), then reduce.
template <class Term> inline float row_sum(size_t n, Term term) {
    vf s0 = splat(0.0f), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    for (; i + 48 < n; i += 64) {
        s0 = term(s0, i);
        s1 = term(s1, i + 16);
        s2 = term(s2, i + 32);
        s3 = term(s3, i + 48);
    }
    if (i < n)
        s0 = term(s0, i);
    if (i + 16 < n)
        s1 = term(s1, i + 16);
    if (i + 32 < n)
        s2 = term(s2, i + 32);
    return reduce_add(add(add(s0, s1), add(s2, s3)));
}

// ---- functions ----

// e^x for x <= 0, relative error below 2e-7. x below -87 counts as -87 (e^-87 = 1.6e-38, still a normal number; nothing beside a softmax's 1). NaN gives NaN.
// n = rne(x / ln 2), r = x - n ln 2 in two fused steps (Cody and Waite), polynomial of degree 5 on |r| <= ln(2)/2 with relative error 1.1e-7.
template <class V> SQ_INLINE V exp_neg(V x) {
    const V round = all<V>(12582912.0f); // 1.5 * 2^23: adding it leaves the sum's unit at 1
    x = max(all<V>(-87.0f), x);
    V n = sub(fma(x, all<V>(1.44269504f), round), round);
    V r = fnma(n, all<V>(0.693147182f), x);
    r = fnma(n, all<V>(-1.90465421e-9f), r); // ln 2 minus the float above
    V p = fma(all<V>(0.00831252709f), r, all<V>(0.0418901145f));
    p = fma(p, r, all<V>(0.166671142f));
    p = fma(p, r, all<V>(0.499992311f));
    p = fma(p, r, all<V>(1.0f));
    p = fma(p, r, all<V>(1.0f));
    return ldexp(p, n);
}

// rne(TOP * 2^x) for x = diff * factor, diff <= 0 and 0 <= factor <= 2: n = rne(x), f = x - n, and a polynomial of degree 3 whose relative error on |f| <= 1/2 is
// 1.01e-4. diff = 0 gives TOP, 255 or 65535. x below LOWEST_EXPONENT gives 0 as that does: further down, 2^x would be a denormal number, which takes CPUs a hundred cycles.
constexpr float LOWEST_EXPONENT = -40;

template <int32_t TOP, class V, class I> SQ_INLINE I exp2_int(I diff, float factor) {
    constexpr float top = TOP;
    const V round = all<V>(12582912.0f), a = all<V>(factor); // see exp_neg
    const V x = max(all<V>(LOWEST_EXPONENT / factor), to_float(diff)); // -infinity for factor 0
    const V n = sub(fma(x, a, round), round), f = fma(x, a, sub(all<V>(0.0f), n));
    V p = fma(all<V>(0.0550089255f * top), f, all<V>(0.242210954f * top));
    p = fma(p, f, all<V>(0.693282902f * top));
    p = fma(p, f, all<V>(top));
    return to_int(ldexp(p, n));
}

// tanh by (1 - e) / (1 + e), e = exp(-2 |x|), absolute error below 5e-7.
template <class V> SQ_INLINE V tanh_of(V x) {
    const V one = all<V>(1.0f);
    V e = exp_neg(mul(abs(x), all<V>(-2.0f)));
    return copysign(div(sub(one, e), add(one, e)), x);
}

// Either GELU as max(x, 0) - u Q(u), u = min(|x|, c), where Q falls like Phi(-u): ten operations in all. Q is four Horner steps, a squaring among them and two
// at the end, each with a free constant; squarings flatten the tail of a Gaussian into what a short polynomial can follow. One step more would cut the error to
// 8e-7, but this is the epilogue of the widest layer (K = 384: an operation costs 1 % of the layer's time), and the result is rounded to 8 bits. Every x below
// -c gives -c Q(c). NaN gives NaN.
template <class V> SQ_INLINE V gelu_by(V x, float c, const float *q) {
    V u = low_abs(x, all<V>(c));
    V w = fma(all<V>(q[0]), u, all<V>(q[1]));
    w = fma(w, u, all<V>(q[2]));
    w = fma(w, u, all<V>(q[3]));
    w = fma(w, w, all<V>(q[4]));
    w = fma(w, u, all<V>(q[5]));
    w = fma(w, w, all<V>(q[6]));
    w = fma(w, w, all<V>(q[7]));
    return fnma(u, w, max(all<V>(0.0f), x));
}

// x Phi(x); absolute error below 3e-6 besides the rounding of a large x, 6e-7 below -5.5.
template <class V> SQ_INLINE V gelu_erf(V x) {
    static constexpr float q[] = {0.00179973699f, -0.0332691483f, 0.111869365f, 0.214115068f, 0.121255383f, -0.846472859f, -0.00934099033f, -1.04423364e-07f};
    return gelu_by(x, 5.5f, q);
}

// x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2; absolute error below 5e-6 besides the rounding of a large x, 1.3e-6 below -5.
template <class V> SQ_INLINE V gelu_tanh(V x) {
    static constexpr float q[] = {0.00215005549f, -0.0316946208f, 0.106020615f, 0.237514436f, 0.111304119f, -0.839937091f, 0.00155277376f, -2.83786471e-06f};
    return gelu_by(x, 5.0f, q);
}

template <activation A, class V> SQ_INLINE V activate(V x) {
    switch (A) {
    case ACT_GELU_ERF: return gelu_erf(x);
    case ACT_GELU_TANH: return gelu_tanh(x);
    case ACT_RELU: return max(all<V>(0.0f), x);
    case ACT_TANH: return tanh_of(x);
    default: return x;
    }
}

// ---- rows ----

inline void embed_s8(const int8_t *word, float scale, const float *add, size_t n, float *out) {
    for (size_t i = 0; i < n; i += 16)
        store(out + i, fma(to_float(load_s8(word + i)), splat(scale), load(add + i)));
}

inline void add_rows(const float *a, const float *b, size_t n, float *out) {
    for (size_t i = 0; i < n; i += 16)
        store(out + i, add(load(a + i), load(b + i)));
}

inline void scale_row(const float *x, float factor, size_t n, float *out) {
    for (size_t i = 0; i < n; i += 16)
        store(out + i, mul(load(x + i), splat(factor)));
}

inline float sum_squares(const float *x, size_t n) {
    return row_sum(n, [x](vf sum, size_t i) { return fma(load(x + i), load(x + i), sum); });
}

inline void norm(const float *x, const float *gamma, const float *beta, float eps, size_t n, float *out) {
    const float mean = row_sum(n, [x](vf sum, size_t i) { return add(sum, load(x + i)); }) / (float)n;
    const vf m = splat(mean), zero = splat(0.0f);
    const float squares = row_sum(n, [=](vf sum, size_t i) {
        vf d = first_n(sub(load(x + i), m), n - i, zero);
        return fma(d, d, sum);
    });
    const vf r = splat(1.0f / sqrtf(squares / (float)n + eps));
    for (size_t i = 0; i < n; i += 16)
        store(out + i, fma(mul(sub(load(x + i), m), r), load(gamma + i), load(beta + i)));
}

// The integer to which y (already multiplied) is quantised, before the zero point is added: no higher than high = 255 - zero, NaN gives INT32_MIN.
template <class V> SQ_INLINE auto rounded(V y, V high) {
    return to_int(min(high, y));
}

// q[i] = clamp(rne(value(i)) + zero, 0, 255) for columns below n, 16 at a time
template <class Value> inline void quant_row(size_t n, int32_t zero, uint8_t *q, Value value) {
    const vf high = splat((float)(255 - zero));
    size_t i = 0;
    for (; i + 48 < n; i += 64)
        store_u8(q + i, rounded(vf4{value(i), value(i + 16), value(i + 32), value(i + 48)}, all<vf4>((float)(255 - zero))), zero);
    for (; i < n; i += 16)
        store_u8(q + i, rounded(value(i), high), zero);
}

inline void quant_static(const float *x, const float *mult, int32_t zero, size_t n, uint8_t *q) {
    quant_row(n, zero, q, [=](size_t i) { return mul(load(x + i), load(mult + i)); });
}

inline void quant_dynamic(const float *x, const float *mult, size_t n, uint8_t *q, float *scale, int32_t *zero) {
    vf low = splat(0.0f), high = low;
    for (size_t i = 0; i < n; i += 16) {
        vf v = mul(load(x + i), load(mult + i));
        low = min(v, low);
        high = max(v, high);
    }
    const float lo = reduce_min(low), range = reduce_max(high) - lo;
    const bool flat = range < 1e-30f;
    const float inverse = flat ? 1.0f : 255.0f / range;
    const float z = -lo * inverse; // 0..255; NaN when the range is infinite
    *scale = flat ? 1.0f : range / 255.0f;
    *zero = flat || !(z > 0.0f) ? 0 : (int32_t)((z + 12582912.0f) - 12582912.0f); // rne, see exp_neg
    const vf factor = splat(inverse);
    quant_row(n, *zero, q, [=](size_t i) { return mul(mul(load(x + i), load(mult + i)), factor); });
}

// ---- linear layers ----

// The fewest parts of n that are no longer than `longest`, nearly equal: edge tiles then are not much smaller than the others. The first n mod count parts
// have one more than the rest.
struct parts {
    size_t count, size, n_longer;
    parts(size_t n, size_t longest) : count((n + longest - 1) / longest), size(n / count), n_longer(n % count) {}
    size_t start(size_t i) const { return i * size + (i < n_longer ? i : n_longer); }
    size_t length(size_t i) const { return size + (i < n_longer); }
};

// y of 16 or 64 columns before the activation, from the products
template <class V> SQ_INLINE V scaled(const gemm_args &g, const int32_t *acc, size_t row, size_t col) {
    if (!g.row_scale) return fma(to_float(get_i<V>(acc)), get<V>(g.scale + col), get<V>(g.bias + col));
    const V scale = mul(all<V>(g.row_scale[row]), get<V>(g.scale + col));
    const auto v = sub_mul_i(get_i<V>(acc), all_i<V>(g.row_zero[row]), get_i<V>(g.comp + col));
    return fma(to_float(v), scale, get<V>(g.bias + col));
}

template <class V> SQ_INLINE V scaled(const gemm_args &g, const float *acc, size_t, size_t col) { return add(get<V>(acc), get<V>(g.bias + col)); }

// Columns col .. of one row, 16 or 64 of them, from products to output; high = 255 - out_zero
template <class V, activation A, class Acc> SQ_INLINE void finish_columns(const gemm_args &g, float high, const Acc *acc, size_t row, size_t col) {
    const size_t at = row * g.out_stride + col;
    V y = activate<A>(scaled<V>(g, acc, row, col));
    if (g.residual) y = add(y, get<V>(g.residual + at));
    if (g.out_u8)
        store_u8((uint8_t *)g.out + at, rounded(g.out_mul ? mul(y, get<V>(g.out_mul + col)) : y, all<V>(high)), g.out_zero);
    else
        store((float *)g.out + at, y);
}

// What follows the product of one tile: acc [rows][acc_stride] becomes rows row .. of columns col .. of the output.
template <activation A, class Acc>
void finish(const gemm_args *args, const Acc *acc, size_t acc_stride, size_t row, size_t rows, size_t col, size_t panels) {
    const gemm_args g = *args; // a copy that no store through g.out can alias
    const float high = (float)(255 - g.out_zero);
    const size_t end = row + rows;
    if (panels == 4)
        for (; row < end; row++, acc += acc_stride)
            finish_columns<vf4, A>(g, high, acc, row, col);
    for (; row < end; row++, acc += acc_stride)
        for (size_t p = 0; p < panels; p++)
            finish_columns<vf, A>(g, high, acc + 16 * p, row, col + 16 * p);
}

template <class Acc> using finish_function = void (*)(const gemm_args *, const Acc *, size_t, size_t, size_t, size_t, size_t);

template <class Acc> inline finish_function<Acc> finish_for(activation act) {
    switch (act) {
    case ACT_GELU_ERF: return finish<ACT_GELU_ERF, Acc>;
    case ACT_GELU_TANH: return finish<ACT_GELU_TANH, Acc>;
    case ACT_RELU: return finish<ACT_RELU, Acc>;
    case ACT_TANH: return finish<ACT_TANH, Acc>;
    default: return finish<ACT_NONE, Acc>;
    }
}

// Activations of one block of rows. They and a group of four panels (K = 4096: 256 KiB) stay in a second-level cache of 1 MiB or more, while the weights stream
// past once a block.
constexpr size_t BLOCK_BYTES = 512 * 1024;

// Walks blocks of rows, groups of at most max_panels panels, tiles of at most max_rows rows. The products of a tile go through the buffer acc
// [max_rows][16 max_panels] to `finish`: a store and a load a vector, which no multiply-add unit notices, against one copy of every activation and output form
// per tile size.
template <class X, class W, class Acc, class Tile>
inline void gemm(const gemm_args *g, const X *x, const W *w, size_t max_rows, size_t max_panels, Tile tile, Acc *acc) {
    const finish_function<Acc> finish_tile = finish_for<Acc>(g->act);
    const size_t panel_size = 16 * g->k, acc_stride = 16 * max_panels;
    const parts blocks(g->m, BLOCK_BYTES / (g->k * sizeof(X)) + max_rows), groups(g->n_panels, max_panels);
    for (size_t b = 0; b < blocks.count; b++) {
        const parts tiles(blocks.length(b), max_rows);
        for (size_t p = 0; p < groups.count; p++) {
            const size_t panel = groups.start(p), panels = groups.length(p), next = p + 1 < groups.count ? p + 1 : 0;
            // The tiles of this group prefetch the next one, an equal part each.
            const size_t next_bytes = p + 1 < groups.count ? groups.length(next) * panel_size * sizeof(W) : 0, n_lines = (next_bytes / 64 + tiles.count - 1) / tiles.count;
            const W *ahead = w + groups.start(next) * panel_size;
            for (size_t t = 0; t < tiles.count; t++) {
                const size_t row = blocks.start(b) + tiles.start(t), rows = tiles.length(t);
                tile(rows, panels, x + row * g->x_stride, g->x_stride, w + panel * panel_size, g->k, acc, acc_stride, ahead + t * n_lines * 64 / sizeof(W), n_lines);
                finish_tile(g, acc, acc_stride, row, rows, 16 * panel, panels);
            }
        }
    }
}

inline void gemm_u8s8(const gemm_args *g) {
    alignas(64) int32_t acc[INT_ROWS * INT_PANELS * 16];
    gemm(g, (const uint8_t *)g->x, (const int8_t *)g->w, INT_ROWS, INT_PANELS, tile_u8s8, acc);
}

inline void gemm_f32(const gemm_args *g) {
    alignas(64) float acc[F32_ROWS * F32_PANELS * 16];
    gemm(g, (const float *)g->x, (const float *)g->w, F32_ROWS, F32_PANELS, tile_f32, acc);
}

// ---- attention ----

// Keys as f32 weight panels [s/16][d][16], values as [d/16][s][16]; what lies past s or d is 0.
inline void pack_keys(const attention_args *a, float *keys) {
    for (size_t j = 0; j < round_up(a->s, 16); j++) {
        float *to = keys + j / 16 * 16 * a->d + j % 16;
        for (size_t c = 0; c < a->d; c++)
            to[16 * c] = j < a->s ? a->k[j * a->stride + c] : 0.0f;
    }
}

inline void pack_values(const attention_args *a, float *values) {
    for (size_t c = 0; c < a->d; c += 16)
        for (size_t j = 0; j < a->s; j++, values += 16)
            store(values, a->d - c < 16 ? load_n(a->v + j * a->stride + c, a->d - c) : loadu(a->v + j * a->stride + c));
}

// out [rows][out_stride] = x [rows][k] times panels
inline void products(const float *x, size_t x_stride, size_t rows, const float *w, size_t n_panels, size_t k, float *out, size_t out_stride) {
    const parts groups(n_panels, F32_PANELS), tiles(rows, F32_ROWS);
    for (size_t p = 0; p < groups.count; p++) {
        const size_t panel = groups.start(p), panels = groups.length(p);
        for (size_t t = 0; t < tiles.count; t++) {
            const size_t row = tiles.start(t), n = tiles.length(t);
            tile_f32(n, panels, x + row * x_stride, x_stride, w + panel * 16 * k, k, out + row * out_stride + 16 * panel, out_stride, w, 0);
        }
    }
}

// Replaces s scores by exp(score - highest), fills up to 16 with 0 and returns 1 / their sum.
inline float softmax_row(float *x, size_t s) {
    const vf zero = splat(0.0f), lowest = splat(-INFINITY);
    vf high = lowest, sum = zero;
    for (size_t j = 0; j < s; j += 16)
        high = max(first_n(load(x + j), s - j, lowest), high);
    high = splat(reduce_max(high));
    for (size_t j = 0; j < s; j += 16) {
        vf e = first_n(exp_neg(sub(load(x + j), high)), s - j, zero);
        store(x + j, e);
        sum = add(sum, e);
    }
    return 1.0f / reduce_add(sum);
}

inline void attention(const attention_args *a) {
    const size_t s16 = round_up(a->s, 16), d16 = round_up(a->d, 16);
    float *keys = a->scratch, *values = keys + s16 * d16, *scores = values + s16 * d16;
    alignas(64) float out[16 * 16 * F32_PANELS];
    pack_keys(a, keys);
    pack_values(a, values);
    for (size_t first = a->first; first < a->past; first += 16) {
        const size_t rows = a->past - first < 16 ? a->past - first : 16;
        float inverse[16];
        products(a->q + first * a->stride, a->stride, rows, keys, s16 / 16, a->d, scores, s16);
        for (size_t r = 0; r < rows; r++)
            inverse[r] = softmax_row(scores + r * s16, a->s);
        for (size_t c = 0; c < d16; c += 16 * F32_PANELS) {
            const size_t n = d16 - c < 16 * F32_PANELS ? d16 - c : 16 * F32_PANELS;
            products(scores, s16, rows, values + c * a->s, n / 16, a->s, out, 16 * F32_PANELS);
            for (size_t r = 0; r < rows; r++)
                for (size_t i = 0; i < n; i += 16) {
                    float *to = a->out + (first + r) * a->out_stride + c + i;
                    const vf y = mul(load(out + r * 16 * F32_PANELS + i), splat(inverse[r]));
                    if (a->d - c - i < 16)
                        store_n(to, a->d - c - i, y);
                    else
                        storeu(to, y);
                }
        }
    }
}

// ---- attention in integers ----

// Where the parts of the scratch lie, and the padded lengths; k_step is the tiles'.
struct attention_s8_layout {
    size_t d, s, s16;            // head width and tokens rounded up to k_step, tokens to 16
    uint8_t *keys, *values;      // u8 panels [s16/16][d/4][16][4]; s8 panels [head width/16][s/4][16][4]
    uint8_t *q, *e;              // s8 [rows][d]; u8 [rows][s], of 16-bit weights the high bytes, and behind them the low bytes
    int32_t *scores;             // [rows][s16]; when the scores are done with, the weighted sums, as many rows as of e [][head width]
    attention_s8_layout(const attention_s8_args *a, size_t k_step)
        : d(round_up(a->d, k_step)), s(round_up(a->s, k_step)), s16(round_up(a->s, 16)), keys(a->scratch), values(keys + s16 * d), q(values + a->d * s),
          e(q + ATTENTION_S8_ROWS * d), scores((int32_t *)(e + 2 * ATTENTION_S8_ROWS * s)) {}
};

// Four channels of a key are one word of its panel. The padding of d is 0; keys past the last are left as they are: nobody looks at their scores.
inline void pack_keys_u8(const attention_s8_args *a, const attention_s8_layout &at) {
    for (size_t j = 0; j < a->s; j++) {
        const uint8_t *from = a->k + j * a->stride;
        uint8_t *to = at.keys + j / 16 * 16 * at.d + j % 16 * 4;
        for (size_t c = 0; c < a->d; c += 4, to += 64)
            __builtin_memcpy(to, from + c, 4);
        for (size_t c = a->d; c < at.d; c += 4, to += 64)
            __builtin_memset(to, 0, 4);
    }
}

// Past the last token its row is repeated: it meets e = 0.
inline void pack_values_s8(const attention_s8_args *a, const attention_s8_layout &at) {
    const auto row = [=](size_t j) { return a->v + (j < a->s ? j : a->s - 1) * a->stride; };
    for (size_t j = 0; j < at.s; j += 4) {
        const uint8_t *r0 = row(j), *r1 = row(j + 1), *r2 = row(j + 2), *r3 = row(j + 3);
        for (size_t c = 0; c < a->d; c += 16)
            store_4x16(at.values + c * at.s + 16 * j, r0 + c, r1 + c, r2 + c, r3 + c);
    }
}

inline void copy_queries_s8(const attention_s8_args *a, size_t first, size_t rows, const attention_s8_layout &at) {
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *from = a->q + (first + r) * a->stride;
        for (size_t c = 0; c < a->d; c += 8) {
            uint64_t eight;
            __builtin_memcpy(&eight, from + c, 8);
            eight ^= 0x8080808080808080u;
            __builtin_memcpy(at.q + r * at.d + c, &eight, 8);
        }
        __builtin_memset(at.q + r * at.d + a->d, 0, at.d - a->d);
    }
}

// out [rows][16 n_panels] = x [rows][k] times panels, rows at most one tile's
inline void tile_row(int_tile tile, size_t max_panels, size_t rows, const uint8_t *x, const uint8_t *w, size_t n_panels, size_t k, int32_t *out) {
    const parts groups(n_panels, max_panels);
    for (size_t p = 0; p < groups.count; p++) {
        const int8_t *panel = (const int8_t *)w + groups.start(p) * 16 * k;
        tile(rows, groups.length(p), x, k, panel, k, out + 16 * groups.start(p), 16 * n_panels, panel, 0);
    }
}

inline int32_t highest_score(const int32_t *score, size_t s) {
    const vi lowest = splat_i(INT32_MIN);
    vi high = lowest;
    size_t j = 0;
    for (; j + 16 <= s; j += 16)
        high = max_i(load_i(score + j), high);
    if (j < s)
        high = max_i(first_n(load_i(score + j), s - j, lowest), high);
    return highest_i(high);
}

// Weights of 8 bits, or of 16 bits as high and low byte
template <int32_t TOP, class I> SQ_INLINE void store_weights(I x, uint8_t *e, uint8_t *low) {
    if constexpr (TOP > 255) {
        store_u8(low, low_byte(x), 0);
        x = high_byte(x);
    }
    store_u8(e, x, 0);
}

// Weights of s keys from their scores, 0 up to `end`; returns the sum.
template <int32_t TOP> inline int32_t softmax_int(const int32_t *score, size_t s, size_t end, int32_t high, float factor, uint8_t *e, uint8_t *low) {
    const vi zero = splat_i(0);
    vi4 sums = {zero, zero, zero, zero};
    size_t j = 0;
    for (; j + 64 <= s; j += 64) {
        const vi4 x = exp2_int<TOP, vf4>(sub_i(get_i<vf4>(score + j), all_i<vf4>(high)), factor);
        sums = add_i(sums, x);
        store_weights<TOP>(x, e + j, low + j);
    }
    for (; j < s; j += 16) {
        const vi x = first_n(exp2_int<TOP, vf>(sub_i(load_i(score + j), splat_i(high)), factor), s - j, zero);
        sums.a = add_i(sums.a, x);
        store_weights<TOP>(x, e + j, low + j);
    }
    for (; j < end; j += 16)
        store_weights<TOP>(zero, e + j, low + j);
    return sum_i(add_i(add_i(sums.a, sums.b), add_i(sums.c, sums.d)));
}

// 16 or 64 columns of one row of the output. low: sums with the low bytes, or null
template <class V> SQ_INLINE void finish_attention(const attention_s8_args *a, const int32_t *acc, const int32_t *low, float inverse, size_t row, size_t c) {
    const size_t at = row * a->out_stride + c;
    V sum = to_float(get_i<V>(acc + c));
    if (low)
        sum = fma(sum, all<V>(256.0f), to_float(get_i<V>(low + c)));
    const V y = mul(mul(sum, all<V>(inverse)), get<V>(a->mul + c));
    if (a->out_u8)
        store_u8((uint8_t *)a->out + at, rounded(y, all<V>((float)(255 - a->out_zero))), a->out_zero);
    else
        store((float *)a->out + at, y);
}

// Rows first .. first + rows - 1, at most one tile's: scores, softmax, weighted values
template <int32_t TOP>
inline void attention_s8_rows(const attention_s8_args *a, const int_tiles &tiles, const attention_s8_layout &at, size_t first, size_t rows) {
    int32_t high[ATTENTION_S8_ROWS], sum[ATTENTION_S8_ROWS];
    uint8_t *low = at.e + rows * at.s;
    copy_queries_s8(a, first, rows, at);
    tile_row(tiles.s8u8, tiles.panels, rows, at.q, at.keys, at.s16 / 16, at.d, at.scores);
    for (size_t r = 0; r < rows; r++)
        high[r] = highest_score(at.scores + r * at.s16, a->s);
    for (size_t r = 0; r < rows; r++)
        sum[r] = softmax_int<TOP>(at.scores + r * at.s16, a->s, at.s, high[r], a->factor, at.e + r * at.s, low + r * at.s);
    int32_t *acc = at.scores, *acc_low = TOP > 255 ? acc + rows * a->d : nullptr;
    tile_row(tiles.u8s8, tiles.panels, rows, at.e, at.values, a->d / 16, at.s, acc);
    if (acc_low)
        tile_row(tiles.u8s8, tiles.panels, rows, low, at.values, a->d / 16, at.s, acc_low);
    for (size_t r = 0; r < rows; r++) {
        const float inverse = 1.0f / (float)sum[r];
        const int32_t *own = acc + r * a->d, *own_low = acc_low ? acc_low + r * a->d : nullptr;
        size_t c = 0;
        for (; c + 64 <= a->d; c += 64)
            finish_attention<vf4>(a, own, own_low, inverse, first + r, c);
        for (; c < a->d; c += 16)
            finish_attention<vf>(a, own, own_low, inverse, first + r, c);
    }
}

inline void attention_s8_by(const attention_s8_args *a, const int_tiles &tiles) {
    const attention_s8_layout at(a, tiles.k_step);
    pack_keys_u8(a, at);
    pack_values_s8(a, at);
    for (size_t first = a->first, rows; first < a->past; first += rows) {
        rows = tiles.block_rows(a->past - first);
        (a->fine ? attention_s8_rows<65535> : attention_s8_rows<255>)(a, tiles, at, first, rows);
    }
}

// Blocks of rows of tables whose tiles take any number: nearly equal
template <size_t ROWS> inline size_t equal_blocks(size_t left) { return parts(left, ROWS).length(0); }

inline void attention_s8(const attention_s8_args *a) { attention_s8_by(a, {equal_blocks<INT_ROWS>, INT_PANELS, 16, tile_u8s8, tile_s8u8}); }

// ---- the table ----

constexpr kernels make_table(const char *name, uint32_t needs) {
    return {name, needs, 1, gemm_u8s8, gemm_f32, attention, attention_s8, embed_s8, add_rows, scale_row, norm, quant_static, quant_dynamic, sum_squares, nullptr, nullptr};
}
