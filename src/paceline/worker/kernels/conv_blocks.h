// What forward and backward of conv.cpp share: vectors of samples, blocks with borders, and the sums over the cells of a block.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define WIDE 1
#else
#define WIDE 0
#endif
#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

namespace {

struct bf16 { uint16_t bits; };
INLINE float value(float x) { return x; }
INLINE double value(double x) { return x; }
INLINE float value(bf16 x) { uint32_t wide = uint32_t(x.bits) << 16; float out; std::memcpy(&out, &wide, 4); return out; }
INLINE void put(float* to, float x) { *to = x; }
INLINE void put(double* to, double x) { *to = x; }
INLINE void put(bf16* to, float x) {  // to the nearest, ties to even; a NaN stays one
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    to->bits = x != x ? 0x7fc0 : uint16_t((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

template <class T> struct Of;
template <> struct Of<float> { typedef float V __attribute__((vector_size(64))); typedef int32_t M __attribute__((vector_size(64))); typedef float Same; typedef int32_t One; };
template <> struct Of<double> { typedef double V __attribute__((vector_size(64))); typedef int64_t M __attribute__((vector_size(64))); typedef double Same; typedef int64_t One; };
template <> struct Of<bf16> { typedef float Same; };
template <class T> using V = typename Of<T>::V;
template <class T> using M = typename Of<T>::M;
template <class T> constexpr int lanes = 64 / sizeof(T);
template <class T> INLINE V<T> all(T x) { return x - V<T>{}; }
template <class T> INLINE T sum(V<T> v) {
#if WIDE
    if constexpr (sizeof(T) == 4) return _mm512_reduce_add_ps(v);
#endif
    T each[lanes<T>];
    std::memcpy(each, &v, 64);
    for (int w = lanes<T> / 2; w; w /= 2) for (int i = 0; i < w; i++) each[i] += each[i + w];
    return each[0];
}
template <class T, class S> INLINE V<T> load(const S* at, int count) {
    V<T> v{};
    if constexpr (sizeof(S) == sizeof(T)) { if (count == lanes<T>) std::memcpy(&v, at, 64); else std::memcpy(&v, at, count * sizeof(T)); return v; }
#if WIDE
    if (count == lanes<T>) return V<T>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))), 16));
#endif
    for (int l = 0; l < count; l++) v[l] = value(at[l]);
    return v;
}
template <class T, class S> INLINE void store(S* at, V<T> v, int count) {
    if constexpr (sizeof(S) == sizeof(T)) { if (count == lanes<T>) std::memcpy(at, &v, 64); else std::memcpy(at, &v, count * sizeof(T)); return; }
    T each[lanes<T>];
    std::memcpy(each, &v, 64);
    for (int l = 0; l < count; l++) put(at + l, each[l]);
}
template <class T> INLINE bool any(M<T> mask) {
#if WIDE
    return _mm512_test_epi32_mask(__m512i(mask), __m512i(mask)) != 0;
#else
    typename Of<T>::One one = 0;
    for (int l = 0; l < lanes<T>; l++) one |= mask[l];
    return one != 0;
#endif
}

constexpr int ALIVE = 16;  // next to the two bits of the place in a cell: ReLU did not set the output to zero

struct Shape {
    long n, c, h, w, k;
    int pool;
    long rows() const { return pool ? h / 2 : (h + 1) / 2; }  // of cells
    long cols() const { return pool ? w / 2 : (w + 1) / 2; }
    long out_h() const { return pool ? h / 2 : h; }
    long out_w() const { return pool ? w / 2 : w; }
    long high() const { return (h + 1) / 2 * 2 + 2; }  // with borders
    long wide() const { return (w + 1) / 2 * 2 + 2; }
    long plane() const { return high() * wide(); }
};

// Grows, and stays with its thread: memory that is asked for anew in every call is mapped anew, page by page.
struct Scratch {
    char* data = nullptr;
    size_t size = 0, used = 0;
    ~Scratch() { std::free(data); }
    bool reset(size_t need) {  // false: there is not that much memory
        if (need > size) {
            std::free(data);
            size = (need + 4095) / 4096 * 4096;
            data = static_cast<char*>(std::aligned_alloc(4096, size));
            if (!data) size = 0;
        }
        used = 0;
        return data || !need;
    }
    template <class X> X* take(size_t count) { X* at = reinterpret_cast<X*>(data + used); used += (count * sizeof(X) + 63) / 64 * 64; return at; }
};
thread_local Scratch scratch, shared;

#if WIDE
INLINE void transpose(__m512 r[16]) {
    __m512 t[16];
    UNROLL for (int i = 0; i < 8; i++) { t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]); t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]); }
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 2; j++) {
        __m512d a = _mm512_castps_pd(t[4 * i + j]), b = _mm512_castps_pd(t[4 * i + j + 2]);
        r[4 * i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        r[4 * i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
    UNROLL for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88), b = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        __m512 c = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd), d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
        t[i] = _mm512_shuffle_f32x4(a, b, 0x88); t[i + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
        t[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88); t[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
    UNROLL for (int i = 0; i < 16; i++) r[i] = t[i];
}
#endif

// One channel of a block of samples, place by place, whichever of the two layouts it is in: emit(place, vector of samples).
template <class S, class F>
INLINE void each(const S* base, bool inner, long n, long channels, long size, long c, long from, F emit) {
    typedef typename Of<S>::Same T;
    constexpr int L = lanes<T>;
    const int count = int(std::min<long>(L, n - from));
    if (inner) {
        const S* at = base + c * size * n + from;
        for (long p = 0; p < size; p++, at += n) emit(p, load<T>(at, count));
        return;
    }
    const S* at = base + (from * channels + c) * size;
    const long step = channels * size;
#if WIDE
    if constexpr (sizeof(S) == 4) {
        for (long p = 0; p < size; p += 16) {
            const long some = std::min<long>(16, size - p);
            const __mmask16 mask = __mmask16((1u << some) - 1);
            __m512 r[16];
            if (count == 16) { UNROLL for (int l = 0; l < 16; l++) r[l] = _mm512_maskz_loadu_ps(mask, at + l * step + p); }
            else for (int l = 0; l < 16; l++) r[l] = l < count ? _mm512_maskz_loadu_ps(mask, at + l * step + p) : _mm512_setzero_ps();
            transpose(r);
            if (some == 16) { UNROLL for (int i = 0; i < 16; i++) emit(p + i, r[i]); } else for (int i = 0; i < some; i++) emit(p + i, r[i]);
        }
        return;
    }
#endif
    for (long p = 0; p < size; p++) {
        V<T> v{};
        for (int l = 0; l < count; l++) v[l] = value(at[l * step + p]);
        emit(p, v);
    }
}

// The way back for one channel of a block, to either layout.
template <class S, class T>
void give(const V<T>* block, S* base, bool inner, long n, long channels, long size, long c, long from) {
    const int count = int(std::min<long>(lanes<T>, n - from));
    if (inner) {
        for (long p = 0; p < size; p++) store<T>(base + (c * size + p) * n + from, block[p], count);
        return;
    }
    S* at = base + (from * channels + c) * size;
    const long step = channels * size;
#if WIDE
    if constexpr (sizeof(S) == 4) {
        for (long p = 0; p < size; p += 16) {
            const long some = std::min<long>(16, size - p);
            const __mmask16 mask = __mmask16((1u << some) - 1);
            __m512 r[16];
            if (some == 16) { UNROLL for (int i = 0; i < 16; i++) r[i] = block[p + i]; } else for (int i = 0; i < 16; i++) r[i] = block[p + std::min<long>(i, some - 1)];
            transpose(r);
            if (count == 16) { UNROLL for (int l = 0; l < 16; l++) _mm512_mask_storeu_ps(at + l * step + p, mask, r[l]); }
            else for (int l = 0; l < count; l++) _mm512_mask_storeu_ps(at + l * step + p, mask, r[l]);
        }
        return;
    }
#endif
    for (long p = 0; p < size; p++)
        for (int l = 0; l < count; l++) put(at + l * step + p, block[p][l]);
}

// The inputs of a block with their borders, which are zero already.
template <class S, class T>
void with_borders(const S* x, bool inner, long n, long channels, const Shape& s, long from, V<T>* to) {
    const long wide = s.wide();
    for (long c = 0; c < channels; c++) {
        V<T>* row = to + c * s.plane() + wide + 1;
        long col = 0;
        each(x, inner, n, channels, s.h * s.w, c, from, [&](long, V<T> v) { row[col] = v; if (++col == s.w) { col = 0; row += wide; } });
    }
}

// The 2x2 sums of one cell for KB outputs: 4 KB registers, each input of the 4x4 loaded once a channel.
template <class T, int KB>
INLINE void cell(const V<T>* x, long plane, long wide, const T* w, long channels, V<T> (&acc)[4][KB]) {
    for (long c = 0; c < channels; c++, x += plane, w += 9 * KB) {
        UNROLL for (int r = 0; r < 4; r++) {
            const V<T> in[4] = {x[r * wide], x[r * wide + 1], x[r * wide + 2], x[r * wide + 3]};
            UNROLL for (int o = 0; o < 2; o++) {
                const int dy = r - o;
                if (dy < 0 || dy > 2) continue;
                UNROLL for (int dx = 0; dx < 3; dx++) UNROLL for (int k = 0; k < KB; k++) {
                    const V<T> weight = all(w[(dy * 3 + dx) * KB + k]);
                    acc[2 * o][k] += in[dx] * weight;
                    acc[2 * o + 1][k] += in[dx + 1] * weight;
                }
            }
        }
    }
}

// As `cell` takes them: groups of 4 outputs, then single ones; flipped and the other way round for the input's gradient.
template <class S, class T>
void arrange(const S* w, long outs, long ins, bool flipped, T* to) {
    for (long k0 = 0, kb; k0 < outs; k0 += kb)
        for (long c = (kb = k0 + 4 <= outs ? 4 : 1, 0); c < ins; c++)
            for (int t = 0; t < 9; t++)
                for (long k = k0; k < k0 + kb; k++) *to++ = value(flipped ? w[(c * outs + k) * 9 + 8 - t] : w[(k * ins + c) * 9 + t]);
}

// cells of all rows and columns, KB outputs at a time: emit<KB>(k, row, column, sums)
template <class T, class F>
INLINE void walk(const V<T>* x, const Shape& s, long rows, long cols, long ins, long outs, const T* w, const T* bias, F emit) {
    auto group = [&](auto some, long k0, long row) {
        constexpr int KB = decltype(some)::value;
        for (long col = 0; col < cols; col++) {
            V<T> acc[4][KB];
            UNROLL for (int k = 0; k < KB; k++) acc[0][k] = acc[1][k] = acc[2][k] = acc[3][k] = all(bias ? bias[k0 + k] : T(0));
            cell<T, KB>(x + 2 * row * s.wide() + 2 * col, s.plane(), s.wide(), w + k0 * ins * 9, ins, acc);
            UNROLL for (int k = 0; k < KB; k++) emit(k0 + k, row, col, acc[0][k], acc[1][k], acc[2][k], acc[3][k]);
        }
    };
    for (long row = 0; row < rows; row++)
        for (long k0 = 0; k0 < outs; k0 += 4) {
            if (k0 + 4 <= outs) group(std::integral_constant<int, 4>{}, k0, row);
            else for (long k = k0; k < outs; k++) group(std::integral_constant<int, 1>{}, k, row);
        }
}

template <class T> using Byte __attribute__((vector_size(lanes<T>))) = uint8_t;

}  // namespace
