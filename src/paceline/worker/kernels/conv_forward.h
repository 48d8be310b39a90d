// The forward pass of conv.cpp: sums, ReLU and pooling of a block of samples, and which of four the pooling took.
#pragma once
#include "conv_blocks.h"

namespace {

// What torch does, lane by lane: a later NaN replaces what is there. For cells that have one, and so out of the way.
template <class T> __attribute__((noinline, cold)) void with_nan(const V<T> (&y)[4], V<T>& best, Byte<T>& at) {
    for (int l = 0; l < lanes<T>; l++) {
        T top = y[0][l];
        int place = 0;
        for (int i = 1; i < 4; i++) if (y[i][l] > top || y[i][l] != y[i][l]) top = y[i][l], place = i;
        best[l] = top;
        at[l] = uint8_t(place);
    }
}

// The first of the largest of a cell, cut at zero, and the word that says which it was. Where `odd` is asked for, it only learns
// that there was a NaN: a call in the loop, even one never made, costs it its registers.
template <class T> INLINE V<T> choose(V<T> a, V<T> b, V<T> c, V<T> d, Byte<T>& word, unsigned* odd) {
#if WIDE
    if constexpr (sizeof(T) == 4) if (odd) {  // comparisons stay in mask registers
        const __mmask16 right = _mm512_cmp_ps_mask(b, a, _CMP_GT_OQ), right2 = _mm512_cmp_ps_mask(d, c, _CMP_GT_OQ);
        const __m512 high = _mm512_mask_mov_ps(a, right, b), low = _mm512_mask_mov_ps(c, right2, d);
        const __mmask16 below = _mm512_cmp_ps_mask(low, high, _CMP_GT_OQ);
        const __m512 top = _mm512_mask_mov_ps(high, below, low);
        *odd |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) | _mm512_cmp_ps_mask(c, d, _CMP_UNORD_Q);
        const __mmask16 alive = _mm512_cmp_ps_mask(top, _mm512_setzero_ps(), _CMP_NLE_UQ);
        __m128i bytes = _mm_maskz_set1_epi8(alive, ALIVE);
        bytes = _mm_mask_add_epi8(bytes, (right & ~below) | (right2 & below), bytes, _mm_set1_epi8(1));
        word = Byte<T>(_mm_mask_add_epi8(bytes, below, bytes, _mm_set1_epi8(2)));
        return _mm512_maskz_mov_ps(alive, top);
    }
#endif
    const M<T> right = b > a, right2 = d > c;
    const V<T> high = right ? b : a, low = right2 ? d : c, probe = (a + b) + (c + d);
    const M<T> below = low > high;
    V<T> top = below ? low : high;
    word = __builtin_convertvector(((below ? right2 : right) & 1) | (below & 2), Byte<T>);
    if (__builtin_expect(any<T>(probe != probe), 0)) with_nan<T>({a, b, c, d}, top, word);
    const M<T> dead = top <= V<T>{};
    word |= __builtin_convertvector(~dead & ALIVE, Byte<T>);
    return dead ? V<T>{} : top;
}

// All outputs of a block, each `step` numbers after the last one. `quick`: true when there was a NaN, and all is to be done again.
template <class T, bool pool, bool quick>
bool outputs(const Shape& s, const V<T>* in, const T* w, const T* bias, T* out, long step, uint8_t* index, long from) {
    constexpr int L = lanes<T>;
    unsigned odd = 0;
    const long high = s.out_h(), wide = s.out_w(), padded = (s.n + L - 1) / L * L;
    auto keep = [&](long at, V<T> v, Byte<T> word) __attribute__((always_inline)) {
        std::memcpy(out + at * step, &v, 64);
        std::memcpy(index + at * padded + from, &word, L);
    };
    auto single = [&](long at, V<T> v) __attribute__((always_inline)) {
        const M<T> dead = v <= V<T>{};
        keep(at, dead ? V<T>{} : v, __builtin_convertvector(~dead & ALIVE, Byte<T>));
    };
    auto emit = [&](long k, long row, long col, V<T> a, V<T> b, V<T> c, V<T> d) __attribute__((always_inline)) {
        if constexpr (pool) {
            Byte<T> word;
            const V<T> top = choose<T>(a, b, c, d, word, quick ? &odd : nullptr);
            keep((k * high + row) * wide + col, top, word);
            return;
        }
        const long y = 2 * row, z = 2 * col, at = (k * high + y) * wide + z;
        single(at, a);
        if (z + 1 < wide) single(at + 1, b);
        if (y + 1 < high) single(at + wide, c);
        if (z + 1 < wide && y + 1 < high) single(at + wide + 1, d);
    };
    walk<T>(in, s, s.rows(), s.cols(), s.c, s.k, w, bias, emit);
    return odd != 0;
}

template <class S, class T = typename Of<S>::Same>
bool forward_block(const Shape& s, const S* x, bool inner, const T* w, const T* bias, S* out, bool out_inner, uint8_t* index, long from) {
    const long size = s.out_h() * s.out_w();
    const bool direct = out_inner && std::is_same_v<S, T> && from + lanes<T> <= s.n;  // else to be turned round, rounded or cut off
    if (!scratch.reset(size_t(s.c * s.plane() + s.k * size) * 64)) return false;
    V<T>* in = scratch.take<V<T>>(s.c * s.plane());
    V<T>* held = scratch.take<V<T>>(s.k * size);
    std::memset(static_cast<void*>(in), 0, size_t(s.c * s.plane()) * 64);
    with_borders<S, T>(x, inner, s.n, s.c, s, from, in);
    T* to = direct ? reinterpret_cast<T*>(out) + from : reinterpret_cast<T*>(held);
    const long step = direct ? s.n : lanes<T>;
    if (!s.pool) outputs<T, false, false>(s, in, w, bias, to, step, index, from);
    else if (!(WIDE && sizeof(T) == 4) || outputs<T, true, WIDE && sizeof(T) == 4>(s, in, w, bias, to, step, index, from))
        outputs<T, true, false>(s, in, w, bias, to, step, index, from);
    for (long k = 0; !direct && k < s.k; k++) give<S, T>(held + k * size, out, out_inner, s.n, s.k, size, k, from);
    return true;
}

template <class S>
bool forward(const Shape& s, const S* x, bool inner, const S* w, const S* b, S* out, bool out_inner, uint8_t* index, int threads) {
    typedef typename Of<S>::Same T;
    constexpr int L = lanes<T>;
    if (!shared.reset(size_t(s.k * s.c * 9 + s.k + 32) * sizeof(T))) return false;
    T* weights = shared.take<T>(s.k * s.c * 9);
    T* bias = b ? shared.take<T>(s.k) : nullptr;
    arrange(w, s.k, s.c, false, weights);
    for (long k = 0; b && k < s.k; k++) bias[k] = value(b[k]);
    const long blocks = (s.n + L - 1) / L;
    bool enough = true;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : enough) if (threads > 1)
    for (long i = 0; i < blocks; i++) enough = forward_block<S>(s, x, inner, weights, bias, out, out_inner, index, i * L) && enough;
    return enough;
}

}  // namespace
