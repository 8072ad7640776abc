// sq-kernels-amx.cpp - the AMX table: AVX512-VNNI's, with the integer products done on tiles, by TDPBUSD, and TDPBSUD for the scores of attention. The packing is
// the same: a 1 KiB block of a panel, [16 groups of K][16 columns][4], is one tile; 16 rows of 64 u8 activations are another; 16 rows of 16 sums a third.
// HACKING.md has the arithmetic of its speed, tests/bench/amx-count counts instructions, tests/amx-emu.cpp runs them where there are no tiles.
//
// Tile instructions are asm statements: of GCC 12's intrinsics, _tile_loadd does not say that it reads memory and _tile_loadconfig names 8 of its 64 bytes, so
// that the compiler may drop or move stores before them. No compiler uses tile registers on its own, hence none is named as clobbered.
//
// Threads and signals. Tile state belongs to a thread. Every thread of a context, the caller's among them, configures its tiles when it enters a forward pass and
// releases them when it leaves: between calls a switch of threads has nothing more to save, the core may sleep deeply, and a Go or Java runtime may run something
// else on the thread. A cgo or foreign call stays on its thread until it returns. A signal within the pass finds the tiles saved in its frame, 8 KiB more, and put
// back on return; the handlers of Go (preemption) and Java (safepoints) run so. Permission (sq-cpu.cpp) is the process's and is inherited by fork; the kernel refuses it
// while some thread has an alternate signal stack too small for such a frame, which leaves AVX512-VNNI. A caller's own use of tiles does not survive a call of sq: by the
// calling convention no function preserves them.
#include "sq-kernels.h"

#if defined(__x86_64__)
#include <utility>

namespace sq {
namespace amx {
namespace {

// Intel SDM volume 1, table 18-4 (palette 1): bytes per row and rows of each of eight tile registers.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[8], more_row_bytes[8];
    uint8_t rows[8], more_rows[8];
};
static_assert(sizeof(tile_config) == 64, "as LDTILECFG reads it");

constexpr size_t TILE_ROWS = 16, TILE_K = 64, PANEL_TILE_BYTES = 1024;

constexpr size_t at_most(size_t n, size_t limit) { return n < limit ? n : limit; }

// Registers 0 and 1 are sums of a first tile of rows, 2 and 3 of a second, 4 and 5 their activations, 6 and 7 weights. With one tile of rows only, all of 0 to 3
// are its sums and 5 is weights too. Weights have 16 groups of K. Loading a configuration clears all registers and takes some 200 cycles.
void configure(const uint8_t (&rows)[8]) {
    tile_config c = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {}, {}, {}};
    for (size_t i = 0; i < 8; i++) c.rows[i] = rows[i];
    __asm__ volatile("ldtilecfg %0" ::"m"(c));
}

// For 1 to 31 rows: one tile, or a whole one and what remains
void configure(size_t n_rows) {
    const uint8_t n = (uint8_t)(n_rows > TILE_ROWS ? n_rows - TILE_ROWS : n_rows);
    if (n_rows > TILE_ROWS) configure({16, 16, n, n, 16, n, 16, 16});
    else configure({n, n, n, n, n, 16, 16, 16});
}

// Between kernels, a thread's tiles have 16 rows.
void thread_begin() { configure(TILE_ROWS); }
void thread_end() { __asm__ volatile("tilerelease"); }

#define SQ_INLINE inline __attribute__((always_inline))

template <int REGISTER> SQ_INLINE void zero() { __asm__ volatile("tilezero %%tmm%c0" ::"i"(REGISTER)); }
template <int REGISTER> SQ_INLINE void load(const void *p, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(REGISTER) : "memory");
}
template <int REGISTER> SQ_INLINE void store(int32_t *p, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride * sizeof *p), "i"(REGISTER) : "memory");
}
// U8_S8: x unsigned and w signed; otherwise the other way round
template <bool U8_S8, int ACC, int X, int W> SQ_INLINE void multiply_add() {
    if (U8_S8) __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(ACC), "i"(X), "i"(W));
    else __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(ACC), "i"(X), "i"(W));
}

// ---- blocks: some tiles of rows times some panels ----

// Two tiles of rows by two panels need 4 tile loads for 4 products; one by four, 5 for 4; one by three, 4 for 3.
template <size_t ROW_TILES> constexpr int weight_register(size_t panel) { return ROW_TILES == 2 ? 6 + (int)panel : 5 + (int)(panel % 3); }

// Where a block reads and writes, in the terms of int_tile. second_row: where the second tile of rows begins, 16, or less where tiles overlap
struct place {
    const uint8_t *x;
    size_t x_stride;
    const int8_t *w;
    size_t k;
    int32_t *out;
    size_t out_stride, second_row;
    const uint8_t *second_x(const uint8_t *first) const { return first + second_row * x_stride; }
    int32_t *second_out() const { return out + second_row * out_stride; }
    place at_panel(size_t p) const { return {x, x_stride, w + 16 * k * p, k, out + 16 * p, out_stride, second_row}; }
};

// 64 of K for panel P; w: its tile
template <bool U8_S8, size_t ROW_TILES, size_t P> SQ_INLINE void panel_step(const place &at, const uint8_t *x, const int8_t *w) {
    constexpr int W = weight_register<ROW_TILES>(P), SUM = (int)P;
    load<W>(w, TILE_K);
    multiply_add<U8_S8, SUM, 4, W>();
    if constexpr (ROW_TILES == 2) {
        if (P == 0) load<5>(at.second_x(x), at.x_stride);
        multiply_add<U8_S8, 2 + SUM, 5, W>();
    }
}

template <size_t ROW_TILES, size_t P> SQ_INLINE void store_panel(const place &at) {
    store<(int)P>(at.out + 16 * P, at.out_stride);
    if constexpr (ROW_TILES == 2) store<(int)(P + 2)>(at.second_out() + 16 * P, at.out_stride);
}

// `beside` says whether K is walked backwards, does something else after each tile of weights and after each 64 of K, and leaves `out` free before the sums are
// stored.
template <bool U8_S8, size_t ROW_TILES, class Beside, size_t... P> SQ_INLINE void block_of(place at, Beside *beside, std::index_sequence<P...>) {
    (zero<(int)P>(), ...);
    if constexpr (ROW_TILES == 2) (zero<(int)(P + 2)>(), ...);
    const bool backwards = beside->turn();
    const ptrdiff_t step = backwards ? -1 : 1;
    const uint8_t *x = at.x + (backwards ? at.k - TILE_K : 0);
    const int8_t *w = at.w + (backwards ? 16 * (at.k - TILE_K) : 0);
    for (size_t i = at.k / TILE_K; i > 0; i--, x += step * (ptrdiff_t)TILE_K, w += step * (ptrdiff_t)PANEL_TILE_BYTES) {
        load<4>(x, at.x_stride);
        ((panel_step<U8_S8, ROW_TILES, P>(at, x, w + 16 * at.k * P), beside->fetch()), ...);
        beside->step();
    }
    beside->before_store();
    (store_panel<ROW_TILES, P>(at), ...);
}

template <bool U8_S8, size_t ROW_TILES, size_t PANELS, class Beside> void block(const place &at, Beside *beside) {
    block_of<U8_S8, ROW_TILES>(at, beside, std::make_index_sequence<PANELS>());
}

// At most 16 rows (those configured) times 1 to 4 panels
template <bool U8_S8, class Beside> void few_rows(const place &at, size_t panels, Beside *beside) {
    switch (panels) {
    case 1: return block<U8_S8, 1, 1>(at, beside);
    case 2: return block<U8_S8, 1, 2>(at, beside);
    case 3: return block<U8_S8, 1, 3>(at, beside);
    default: return block<U8_S8, 1, 4>(at, beside);
    }
}

// Two tiles of rows times 1 to 4 panels
template <bool U8_S8, class Beside> void two_tiles(const place &at, size_t panels, Beside *beside) {
    if (panels < 3) return (panels == 1 ? block<U8_S8, 2, 1, Beside> : block<U8_S8, 2, 2, Beside>)(at, beside);
    if (panels == 3) {
        block<U8_S8, 2, 2>(at, beside);
        return block<U8_S8, 2, 1>(at.at_panel(2), beside);
    }
    const size_t first = beside->second_pair_first() ? 2 : 0;
    block<U8_S8, 2, 2>(at.at_panel(first), beside);
    block<U8_S8, 2, 2>(at.at_panel(2 - first), beside);
}

// ---- linear layers ----

// Weights that a thread streams past its rows before it returns to them with other tiles: they, and 512 KiB of activations, stay in a second-level cache of 2 MiB
// (Sapphire Rapids and later).
constexpr size_t SPAN_BYTES = 512 * 1024, BLOCK_BYTES = 512 * 1024;
constexpr size_t UNIT_ROWS = 2 * TILE_ROWS, UNIT_PANELS = 4, ACC_STRIDE = 16 * UNIT_PANELS, ACC_SIZE = UNIT_ROWS * ACC_STRIDE;
// Two tiles of rows and two panels, 64 K bytes, stay in the first-level cache of 48 KiB beside the sums.
constexpr size_t LONGEST_LEVEL_1_K = (48 * 1024 - ACC_SIZE * sizeof(int32_t)) / 64;

// What runs beside the tiles. The sums of a unit, up to 32 rows and 4 panels, have two places in turn: tile registers gather those of a block while those of the unit
// before, in memory, go through the epilogue, some rows after each 64 of K; the tile multiplier has work for 64 cycles and more meanwhile. Their 8 KiB stay in the
// first-level cache; a second buffer would not, beside activations and weights (K = 384: a fifth slower). Weights that come next are asked for in the same way.
class companion {
  public:
    explicit companion(const gemm_args *g) : g_(g), epilogue_(epilogue_avx512(g->act)), alternates_(g->k > LONGEST_LEVEL_1_K) {}

    int32_t *sums() { return acc_; }

    // Distributes cache lines over the n_tiles tiles of weights that come next.
    void prefetch(const int8_t *w, size_t n_lines, size_t n_tiles) {
        ahead_ = w;
        lines_each_ = (n_lines + n_tiles - 1) / n_tiles;
    }
    SQ_INLINE void fetch() {
        const int8_t *line = ahead_;
        for (size_t i = lines_each_; i > 0; i--, line += 64) __builtin_prefetch(line, 0, 2);
        ahead_ = line;
    }

    // The sums of these rows and panels are complete.
    void hand_over(size_t row, size_t rows, size_t panel, size_t panels) {
        row_ = row, rows_ = rows, done_ = 0, panel_ = panel, panels_ = panels;
        const size_t n_steps = g_->k / TILE_K, needed = (rows + n_steps - 1) / n_steps; // rows a step
        rows_at_once_ = needed > fewest_at_once() ? needed : fewest_at_once();
        countdown_ = interval_ = rows_at_once_ * n_steps < rows ? 1 : rows_at_once_ * n_steps / rows;
        mirrored_ = !mirrored_;
    }
    SQ_INLINE void step() {
        if (--countdown_ == 0) {
            countdown_ = interval_;
            finish(rows_at_once_);
        }
    }
    void before_store() { finish(rows_); }

    // Where a block's activations and weights do not stay in the first-level cache, every other block walks K backwards, and every other unit takes its two pairs of
    // panels in reverse: each block then begins with what the one before has just read, and finds part of that in the cache (K = 768, 1024: 2 to 5 % faster).
    bool turn() { return alternates_ && (backwards_ = !backwards_); }
    bool second_pair_first() const { return alternates_ && mirrored_; }

  private:
    // The fewest rows that go through the epilogue at once: enough to pay for the call, few enough for the tiles' queue not to run dry. GELU takes three times as
    // many operations.
    size_t fewest_at_once() const { return g_->act == ACT_NONE ? 16 : 4; }

    // At most n of the rows that wait
    __attribute__((noinline)) void finish(size_t n) {
        n = at_most(n, rows_ - done_);
        if (n == 0) return;
        epilogue_(g_, acc_ + done_ * ACC_STRIDE, ACC_STRIDE, row_ + done_, n, 16 * panel_, panels_);
        done_ += n;
    }

    alignas(64) int32_t acc_[ACC_SIZE];
    const gemm_args *g_;
    s32_epilogue epilogue_;
    bool alternates_, backwards_ = true, mirrored_ = false;
    size_t row_ = 0, rows_ = 0, done_ = 0, panel_ = 0, panels_ = 0; // of the sums that wait; rows done
    size_t rows_at_once_ = 0, interval_ = 1, countdown_ = 1;       // in steps
    const int8_t *ahead_ = nullptr;
    size_t lines_each_ = 0;
};

// Some rows times a range of panels. fetches: weights come from farther than the second-level cache.
void sweep(const gemm_args *g, companion *beside, size_t first_row, size_t rows, size_t panel, size_t past, bool fetches) {
    const int8_t *w = (const int8_t *)g->w;
    for (size_t panels; panel < past; panel += panels) {
        panels = at_most(past - panel, UNIT_PANELS);
        const size_t after = g->n_panels - panel - panels, n_lines = fetches ? at_most(after, UNIT_PANELS) * 16 * g->k / 64 : 0;
        beside->prefetch(w + (panel + panels) * 16 * g->k, n_lines, (rows + UNIT_ROWS - 1) / UNIT_ROWS * panels * (g->k / TILE_K));
        for (size_t r = 0; r < rows; r += UNIT_ROWS) {
            const size_t row = first_row + r, n = at_most(rows - r, UNIT_ROWS);
            const place at = {(const uint8_t *)g->x + row * g->x_stride, g->x_stride, w + panel * 16 * g->k, g->k, beside->sums(), ACC_STRIDE, TILE_ROWS};
            (n > TILE_ROWS ? two_tiles<true, companion> : few_rows<true, companion>)(at, panels, beside);
            beside->hand_over(row, n, panel, panels);
        }
    }
}

// Whole tiles first, then under one configuration of their own the last rows, fewer than 32, unless they are 16: these need none. By spans of panels, so that the
// second sweep finds the weights of a span in the second-level cache.
void gemm_u8s8(const gemm_args *g) {
    const size_t span = round_up(SPAN_BYTES / (16 * g->k) + 1, UNIT_PANELS);
    const size_t n_blocks = 1 + (g->m - 1) / (BLOCK_BYTES / g->k + UNIT_ROWS), block_rows = round_up((g->m + n_blocks - 1) / n_blocks, UNIT_ROWS);
    companion beside(g);
    for (size_t row = 0; row < g->m; row += block_rows) {
        const size_t rows = at_most(g->m - row, block_rows), rest = rows % TILE_ROWS == 0 ? 0 : rows % UNIT_ROWS, whole = rows - rest;
        for (size_t panel = 0; panel < g->n_panels; panel += span) {
            const size_t past = at_most(panel + span, g->n_panels);
            if (whole > 0) sweep(g, &beside, row, whole, panel, past, true);
            if (rest == 0) continue;
            configure(rest);
            sweep(g, &beside, row + whole, rest, panel, past, whole == 0);
            configure(TILE_ROWS);
        }
    }
    beside.before_store();
}

// ---- attention ----

// Beside the tiles of attention runs nothing.
struct nobody {
    void fetch() {}
    void step() {}
    void before_store() {}
    bool turn() { return false; }
    bool second_pair_first() { return false; }
};

// An int_tile. Of 17 to 32 rows the second tile ends at the last and may repeat rows of the first: a head has few products, too few to pay for another configuration.
template <bool U8_S8>
void tile(size_t rows, size_t panels, const uint8_t *x, size_t x_stride, const int8_t *w, size_t k, int32_t *out, size_t out_stride, const int8_t *, size_t) {
    nobody beside;
    const place at = {x, x_stride, w, k, out, out_stride, rows - TILE_ROWS};
    (rows > TILE_ROWS ? two_tiles<U8_S8, nobody> : few_rows<U8_S8, nobody>)(at, panels, &beside);
}

// Rows of attention's next block: 32, or first what is left over by 16 and 16 more, so that no tile is issued in excess; fewer than 16 as they are
size_t next_rows(size_t left) { return left < TILE_ROWS || left % TILE_ROWS == 0 ? at_most(left, UNIT_ROWS) : TILE_ROWS + left % TILE_ROWS; }

void attention_s8(const attention_s8_args *a) {
    const size_t rows = a->past - a->first;
    if (rows < TILE_ROWS) configure(rows);
    attention_s8_avx512(a, {next_rows, UNIT_PANELS, TILE_K, tile<true>, tile<false>});
    if (rows < TILE_ROWS) configure(TILE_ROWS);
}

} // namespace
} // namespace amx

const kernels *kernels_amx() {
    static const kernels table = [] {
        kernels k = *kernels_avx512vnni();
        k.name = "amx";
        k.needs |= CPU_AMX;
        k.gemm_u8s8 = amx::gemm_u8s8;
        k.attention_s8 = amx::attention_s8;
        k.n_tiles = 1;
        k.thread_begin = amx::thread_begin;
        k.thread_end = amx::thread_end;
        return k;
    }();
    return &table;
}

} // namespace sq

#undef SQ_INLINE
#endif
