// Convolution 3x3 (stride 1, zero padding 1) + bias + ReLU (+ max pooling 2x2) in one pass, forward and backward, on a CPU.
//
// Small images in small batches leave no dimension long enough for a vector but the batch itself. So a vector is 64 bytes of
// samples (16 of float), and everything else is a scalar loop around it. A block of samples is first copied into a scratch of
// [channel][row + border][column + border][sample]: there borders are zeros, the last block is filled up with zeros, and bf16 is
// float, so the loops that compute know nothing of all that. They walk over cells, 2x2 outputs, which are what pooling reduces.
//
// Where pooling chose among four, three of four gradients are zero, but other ones for every sample. With AVX-512 the backward pass
// does not multiply by those zeros: each lane selects its own 3x3 window of the 4x4 inputs of a cell (weights), or its own
// placement of the 3x3 weights in them (input). Elsewhere, in double and without pooling, gradients are spread out and all used.
//
// Sums are over fixed groups of samples in fixed order: the number of threads does not change a bit.
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

constexpr int ALIVE = 16;  // beside the two bits of the place in a cell: the output was not cut to zero

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
// What a call is about, as conv.py packs it: one pointer costs ctypes a tenth of seventeen arguments.
struct Asked {
    int64_t type, n, c, h, w, k, pool, threads;  // type: 0 float, 1 double, 2 bf16
    int64_t x, x_inner, weight;                  // inner: the batch is the innermost dimension, else the outermost
    int64_t bias, out, out_inner;                // forward
    int64_t grad, grad_inner, gx, gw, gb;        // backward; gx and gb may be 0
    int64_t index;
};
template <class S> bool ahead(const Asked& a) {
    const Shape s{a.n, a.c, a.h, a.w, a.k, int(a.pool)};
    return forward<S>(s, (const S*)a.x, a.x_inner, (const S*)a.weight, (const S*)a.bias, (S*)a.out, a.out_inner, (uint8_t*)a.index, int(a.threads));
}
template <class S> bool back(const Asked& a) {
    const Shape s{a.n, a.c, a.h, a.w, a.k, int(a.pool)};
    return backward<S>(s, (const S*)a.x, a.x_inner, (const S*)a.weight, (const S*)a.grad, a.grad_inner, (const uint8_t*)a.index, (S*)a.gx, (S*)a.gw, (S*)a.gb,
                int(a.threads));
}
}  // namespace

extern "C" {
// 0: there is not enough memory.
int conv_forward(const Asked* a) { return (a->type == 0 ? ahead<float> : a->type == 1 ? ahead<double> : ahead<bf16>)(*a); }
int conv_backward(const Asked* a) { return (a->type == 0 ? back<float> : a->type == 1 ? back<double> : back<bf16>)(*a); }
}
