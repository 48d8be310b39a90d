// The backward pass of conv.cpp: gradients of weights, bias and input, in the general form and in AVX-512's.
#pragma once
#include "conv_blocks.h"

namespace {

// The gradient of a block, cut where the output was, and its sum for the bias; with pooling one vector a cell, or spread out to the
// places that were chosen (`spread`), then with borders.
template <class S, class T>
void cut(const Shape& s, const S* grad, bool inner, const uint8_t* index, long from, bool spread, V<T>* to, V<T>* bias) {
    constexpr int L = lanes<T>;
    const long size = s.out_h() * s.out_w(), padded = (s.n + L - 1) / L * L, wide = s.wide();
    for (long k = 0; k < s.k; k++) {
        const uint8_t* words = index + k * size * padded + from;
        V<T> total{};
        V<T>* row = to + k * s.plane() + wide + 1;
        long col = 0;
#if WIDE
        if constexpr (sizeof(T) == 4) if (!spread) {
            const __m128i bit = _mm_set1_epi8(ALIVE);
            each(grad, inner, s.n, s.k, size, k, from, [&](long p, V<T> v) __attribute__((always_inline)) {
                const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + p * padded));
                v = _mm512_maskz_mov_ps(_mm_test_epi8_mask(word, bit), v);
                total += v;
                to[k * size + p] = v;
            });
            bias[k] += total;
            continue;
        }
#endif
        each(grad, inner, s.n, s.k, size, k, from, [&](long p, V<T> v) __attribute__((always_inline)) {
            Byte<T> bytes;
            std::memcpy(&bytes, words + p * padded, L);
            const M<T> word = __builtin_convertvector(bytes, M<T>);
            v = (word & ALIVE) != 0 ? v : V<T>{};
            total += v;
            if (!s.pool) row[col] = v;
            else for (int i = 0; i < 4; i++) row[(i >> 1) * wide + 2 * col + (i & 1)] = (word & 3) == i ? v : V<T>{};
            if (++col == s.out_w()) { col = 0; row += s.pool ? 2 * wide : wide; }
        });
        bias[k] += total;
    }
}

// Sums of KB outputs' gradients times each of the nine inputs around them.
template <class T, int KB>
void weigh(const V<T>* x, const V<T>* g, const Shape& s, V<T>* acc, long next) {
    V<T> a[KB][9];
    UNROLL for (int k = 0; k < KB; k++) UNROLL for (int t = 0; t < 9; t++) a[k][t] = acc[k * next + t];
    const long wide = s.wide(), high = s.pool ? 2 * s.rows() : s.h, cols = s.pool ? 2 * s.cols() : s.w;
    for (long y = 0; y < high; y++) {
        const V<T>*in = x + y * wide, *up = g + (y + 1) * wide + 1;
        for (long z = 0; z < cols; z++, in++, up++)
            UNROLL for (int dy = 0; dy < 3; dy++) UNROLL for (int dx = 0; dx < 3; dx++) {
                const V<T> v = in[dy * wide + dx];
                UNROLL for (int k = 0; k < KB; k++) a[k][dy * 3 + dx] += up[k * s.plane()] * v;
            }
    }
    UNROLL for (int k = 0; k < KB; k++) UNROLL for (int t = 0; t < 9; t++) acc[k * next + t] = a[k][t];
}

// The input's gradient: the same sums as forward, with the weights turned round.
template <class T> void inputs(const Shape& s, const V<T>* up, const T* w, V<T>* held) {
    auto emit = [&](long c, long row, long col, V<T> p, V<T> q, V<T> r, V<T> t) __attribute__((always_inline)) {
        const long y = 2 * row, z = 2 * col, at = (c * s.h + y) * s.w + z;
        held[at] = p;
        if (z + 1 < s.w) held[at + 1] = q;
        if (y + 1 < s.h) held[at + s.w] = r;
        if (z + 1 < s.w && y + 1 < s.h) held[at + s.w + 1] = t;
    };
    walk<T>(up, s, (s.h + 1) / 2, (s.w + 1) / 2, s.k, s.c, w, nullptr, emit);
}

#if WIDE
// The same where each lane has one place in a cell: it takes its 3x3 of the 4x4 inputs.
void weigh_chosen(const __m512* x, const __m512* g, const uint8_t* words, long padded, const Shape& s, long from, long to, __m512* acc) {
    const long wide = s.wide(), cols = s.cols();
    __m512 a[9];
    UNROLL for (int t = 0; t < 9; t++) a[t] = acc[t];
    for (long row = from; row < to; row++)
        for (long col = 0; col < cols; col++) {
            const long at = row * cols + col;
            const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + at * padded));
            const __mmask16 right = _mm_test_epi8_mask(word, _mm_set1_epi8(1)), below = _mm_test_epi8_mask(word, _mm_set1_epi8(2));
            const __m512 up = g[at];
            const __m512* in = x + 2 * row * wide + 2 * col;
            __m512 old[3], now[3];
            UNROLL for (int r = 0; r < 4; r++) {
                UNROLL for (int dx = 0; dx < 3; dx++) now[dx] = _mm512_mask_mov_ps(in[r * wide + dx], right, in[r * wide + dx + 1]);
                if (r) UNROLL for (int dx = 0; dx < 3; dx++) a[(r - 1) * 3 + dx] = _mm512_fmadd_ps(up, _mm512_mask_mov_ps(old[dx], below, now[dx]), a[(r - 1) * 3 + dx]);
                UNROLL for (int dx = 0; dx < 3; dx++) old[dx] = now[dx];
            }
        }
    UNROLL for (int t = 0; t < 9; t++) acc[t] = a[t];
}

// For `spread_chosen`: where the nine weights lie among the 4x4 inputs, for each of the four places; 16 numbers a row of inputs.
template <class S> void tables(const S* w, const Shape& s, float* to) {
    for (long c = 0; c < s.c; c++)
        for (long k = 0; k < s.k; k++)
            for (int r = 0; r < 4; r++)
                for (int j = 0; j < 4; j++)
                    for (int i = 0; i < 4; i++) {
                        const int dy = r - (i >> 1), dx = j - (i & 1);
                        *to++ = dy < 0 || dy > 2 || dx < 0 || dx > 2 ? 0.f : value(w[(k * s.c + c) * 9 + dy * 3 + dx]);
                    }
}

// One input channel's gradient: each lane looks its own weights up.
void spread_chosen(const __m512* g, const uint8_t* words, long padded, const __m512* table, const Shape& s, __m512* to) {
    const long wide = s.wide(), cols = s.cols(), size = s.rows() * cols;
    for (long row = 0; row < s.rows(); row++) {
        __m512 a[4][4] = {};
        __m512* out = to + 2 * row * wide;
        for (long col = 0; col < cols; col++, out += 2) {
            const long at = row * cols + col;
            for (long k = 0; k < s.k; k++) {
                const __m512i word = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words + (k * size + at) * padded)));
                const __m512 up = g[k * size + at];
                UNROLL for (int j = 0; j < 4; j++) {
                    const __m512i place = _mm512_or_si512(word, _mm512_set1_epi32(4 * j));
                    UNROLL for (int r = 0; r < 4; r++) a[r][j] = _mm512_fmadd_ps(up, _mm512_permutexvar_ps(place, table[k * 4 + r]), a[r][j]);
                }
            }
            UNROLL for (int r = 0; r < 4; r++) UNROLL for (int j = 0; j < 2; j++) {
                out[r * wide + j] += a[r][j];
                a[r][j] = a[r][j + 2];
                a[r][j + 2] = __m512{};
            }
        }
        UNROLL for (int r = 0; r < 4; r++) UNROLL for (int j = 0; j < 2; j++) out[r * wide + j] += a[r][j];
    }
}
#endif

template <class S>
bool backward(const Shape& s, const S* x, bool inner, const S* w, const S* grad, bool grad_inner, const uint8_t* index, S* gx, S* gw, S* gb, int threads) {
    typedef typename Of<S>::Same T;
    constexpr int L = lanes<T>;
    const bool chosen = WIDE && L == 16 && s.pool;
    const long blocks = (s.n + L - 1) / L, chunks = std::min<long>(blocks, 16), num = s.k * s.c * 9, size = s.out_h() * s.out_w(), padded = blocks * L;
    if (!shared.reset(size_t(chunks * (num + s.k) + num + s.k * s.c * 64 + 128) * sizeof(T))) return false;
    T* sums = shared.take<T>(chunks * (num + s.k));
    T* weights = shared.take<T>(num);
    T* places = shared.take<T>(s.k * s.c * 64);
    if (gx && !chosen) arrange(w, s.c, s.k, true, weights);
#if WIDE
    if constexpr (sizeof(T) == 4) if (gx && chosen) tables(w, s, places);
#endif
    bool enough = true;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : enough) if (threads > 1)
    for (long chunk = 0; chunk < chunks; chunk++) {
        const long ins = s.c * s.plane(), ups = chosen ? s.k * size : s.k * s.plane(), outs = gx && chosen ? s.plane() : 0, helds = gx ? s.c * s.h * s.w : 0;
        if (!scratch.reset(size_t(ins + ups + outs + helds + num + s.k) * 64)) { enough = false; continue; }
        V<T>* in = scratch.take<V<T>>(ins);
        V<T>* up = scratch.take<V<T>>(ups);
        V<T>* back = scratch.take<V<T>>(outs);
        V<T>* held = scratch.take<V<T>>(helds);
        V<T>* acc = scratch.take<V<T>>(num + s.k);
        std::memset(static_cast<void*>(in), 0, ins * 64);
        if (!chosen) std::memset(static_cast<void*>(up), 0, ups * 64);
        std::memset(static_cast<void*>(acc), 0, (num + s.k) * 64);
        for (long block = chunk * blocks / chunks; block < (chunk + 1) * blocks / chunks; block++) {
            const long from = block * L;
            with_borders<S, T>(x, inner, s.n, s.c, s, from, in);
            cut<S, T>(s, grad, grad_inner, index, from, !chosen, up, acc + num);
#if WIDE
            if constexpr (sizeof(T) == 4) if (chosen) {
                const long some = std::max<long>(1, (256 / s.wide() - 2) / 2);  // rows of cells whose inputs stay near: 16 KB
                for (long c = 0; c < s.c; c++)
                    for (long row = 0; row < s.rows(); row += some)
                        for (long k = 0; k < s.k; k++)
                            weigh_chosen((const __m512*)in + c * s.plane(), (const __m512*)up + k * size, index + k * size * padded + from, padded, s, row, std::min(row + some, s.rows()), (__m512*)acc + (k * s.c + c) * 9);
                for (long c = 0; gx && c < s.c; c++) {
                    std::memset(static_cast<void*>(back), 0, outs * 64);
                    spread_chosen((const __m512*)up, index + from, padded, (const __m512*)places + c * s.k * 4, s, (__m512*)back);
                    for (long y = 0; y < s.h; y++) std::memcpy(static_cast<void*>(held + y * s.w), back + (y + 1) * s.wide() + 1, s.w * 64);
                    give<S, T>(held, gx, inner, s.n, s.c, s.h * s.w, c, from);
                }
                continue;
            }
#endif
            for (long c = 0; c < s.c; c++)
                for (long k = 0; k < s.k; k += 2) {
                    V<T>* at = acc + (k * s.c + c) * 9;
                    if (k + 1 < s.k) weigh<T, 2>(in + c * s.plane(), up + k * s.plane(), s, at, s.c * 9);
                    else weigh<T, 1>(in + c * s.plane(), up + k * s.plane(), s, at, s.c * 9);
                }
            if (!gx) continue;
            inputs<T>(s, up, weights, held);
            for (long c = 0; c < s.c; c++) give<S, T>(held + c * s.h * s.w, gx, inner, s.n, s.c, s.h * s.w, c, from);
        }
        for (long i = 0; i < num + s.k; i++) sums[chunk * (num + s.k) + i] = sum<T>(acc[i]);
    }
    for (long i = 0; i < num + s.k; i++) {
        T total = 0;  // of no samples at all, too
        for (long chunk = 0; chunk < chunks; chunk++) total += sums[chunk * (num + s.k) + i];
        if (i < num) put(gw + i, total);
        else if (gb) put(gb + i - num, total);
    }
    return enough;
}

}  // namespace
