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
#include "conv_backward.h"
#include "conv_forward.h"

namespace {

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
