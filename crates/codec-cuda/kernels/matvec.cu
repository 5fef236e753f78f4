// Products of compressed weights with a few vectors: decoded in registers and multiplied at once, so that of the weights only the
// compressed bytes are read. The order of every sum is fixed:
//
// 1. A row is cut where a chunk ends (a block's numbers, by CHUNK). Of such a piece lane l sums, in f32 by fused multiply-adds from +0 on,
//    the products of the numbers whose place in the block is l modulo 32, in order.
// 2. The 32 sums of a piece are added pairwise: lanes 16 apart, then 8, 4, 2 and 1.
// 3. The pieces of a row are added from the left, and the sum is rounded to the weights' type.
#include "weights.cuh"

// What is multiplied: `batch` vectors of `cols` numbers, one after the other, of the weights' type.
struct MatvecJob {
    const u8* x;
    // B sums for each piece: that of chunk c in row r is number c + r.
    float* pieces;
    u32 cols, batch;
};

DEVICE float matvec_wide(u32 kind, u32 bits) { return __uint_as_float(num_wide(kind, bits)); }

// Multiplies what it is handed with B vectors.
template <u32 KIND, u32 B>
struct Multiply {
    MatvecJob job;
    float acc[B];
    // The column of this lane's next number; of the row the chunk's number plus its own, and its columns that are still to come.
    u32 col, piece, left;

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (u32 v = 0; v < B; v++) acc[v] = 0.0f;
    }
    __device__ __forceinline__ void begin(const WeightBlock& b, u32 chunk) {
        u64 first = b.first + (u64)chunk * CHUNK, row = first / job.cols;
        u32 here = (u32)(first - row * job.cols);
        piece = b.chunk + chunk + (u32)row;
        left = job.cols - here;
        col = (u32)(((u64)here + lane_id()) % job.cols);
        clear();
    }
    __device__ __forceinline__ void flush() {
#pragma unroll
        for (u32 v = 0; v < B; v++) {
            float sum = acc[v];
#pragma unroll
            for (u32 d = 16; d; d >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(ALL, sum, (int)d));
            if (lane_id() == 0u) job.pieces[(u64)piece * B + v] = sum;
        }
        clear();
    }
    __device__ __forceinline__ void add(float w) {
        const u8* x = job.x;
        u64 stride = (u64)job.cols * num_size(KIND), at = (u64)col * num_size(KIND);
#pragma unroll
        for (u32 v = 0; v < B; v++) {
            if (B > 1u && v >= job.batch) continue;
            const u8* p = x + v * stride + at;
            u32 bits = KIND == NUM_F32 ? *(const u32*)p : (u32) * (const u16*)p;
            acc[v] = __fmaf_rn(w, matvec_wide(KIND, bits), acc[v]);
        }
    }
    // A row ends at most once in 32 numbers, unless rows are short.
    __device__ __forceinline__ void step(u32 m, u32, u32 bits) {
        float w = matvec_wide(KIND, bits);
        u32 lane = lane_id(), done = 0u;
        do {
            u32 part = min(left, m - done);
            if (lane - done < part) add(w);
            done += part;
            left -= part;
            if (left == 0u) {
                flush();
                piece++;
                left = job.cols;
            }
        } while (done < m);
        col += WARP;
        if (col >= job.cols) col = job.cols > WARP ? col - job.cols : col % job.cols;
    }
    __device__ __forceinline__ void end() {
        if (left < job.cols) flush();
    }
};

template <u32 KIND, u32 B>
DEVICE void matvec(const WeightBlock* blocks, const u32* tiles, const u8* x, float* pieces, u32 cols, u32 batch, u32 count) {
    Multiply<KIND, B> sink;
    u64 first = (u64)blockIdx.y * B;
    sink.job = {x + first * cols * num_size(KIND), pieces + first * count, cols, min(batch - (u32)first, B)};
    weight_tile<KIND>(blocks, tiles, sink);
}

#define MATVEC(name, kind, b)                                                                                                   \
    KERNEL(name, (const WeightBlock* blocks, const u32* tiles, const u8* x, float* pieces, u32 cols, u32 batch, u32 count)) {    \
        matvec<kind, b>(blocks, tiles, x, pieces, cols, batch, count);                                                          \
    }

// Sums of pieces, a block of 256 threads to a tile (weights.cuh) and, by grid.y, to so many of the `batch` vectors. Each of these groups of
// vectors has `count` pieces, after those of the group before.
MATVEC(matvec_f32_1, NUM_F32, 1u)
MATVEC(matvec_f32_4, NUM_F32, 4u)
MATVEC(matvec_f32_8, NUM_F32, 8u)
MATVEC(matvec_f32_16, NUM_F32, 16u)
MATVEC(matvec_f16_1, NUM_F16, 1u)
MATVEC(matvec_f16_4, NUM_F16, 4u)
MATVEC(matvec_f16_8, NUM_F16, 8u)
MATVEC(matvec_f16_16, NUM_F16, 16u)
MATVEC(matvec_bf16_1, NUM_BF16, 1u)
MATVEC(matvec_bf16_4, NUM_BF16, 4u)
MATVEC(matvec_bf16_8, NUM_BF16, 8u)
MATVEC(matvec_bf16_16, NUM_BF16, 16u)

// The weights' type nearest to an f32, ties to even; too large is infinite, NaN is NaN.
DEVICE u32 matvec_narrow(u32 kind, u32 bits) {
    u32 sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (kind == NUM_F32) return bits;
    if (kind == NUM_BF16) return magnitude > 0x7f800000u ? bits >> 16 | 0x40u : (bits + (0x7fffu + (bits >> 16 & 1u))) >> 16;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;
    return magnitude >= 0x477ff000u ? sign | 0x7c00u : num_to_f16(bits);
}

// The chunk that has a number: the last one that does not begin after it.
DEVICE u32 matvec_chunk(const u64* firsts, u32 chunks, u64 number) {
    u32 low = 0u, high = chunks;
    while (high - low > 1u) {
        u32 middle = low + (high - low) / 2u;
        if (firsts[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// A thread to a row and a vector.
template <u32 KIND>
DEVICE void finish(const u64* firsts, const float* pieces, u8* y, u32 chunks, u32 rows, u32 cols, u32 width, u32 batch) {
    u64 t = (u64)blockIdx.x * blockDim.x + threadIdx.x, row = t / batch;
    u32 v = (u32)(t % batch), count = chunks + rows;
    if (row >= rows) return;
    u64 first = row * cols, last = first + cols - 1u;
    u32 c = matvec_chunk(firsts, chunks, first);
    const float* sums = pieces + (u64)(v / width) * count * width + v % width;
    float sum = sums[(c + row) * width];
    for (c++; c < chunks && firsts[c] <= last; c++) sum = __fadd_rn(sum, sums[(c + row) * width]);
    u32 bits = matvec_narrow(KIND, __float_as_uint(sum));
    u64 at = (u64)v * rows + row;
    if (KIND == NUM_F32)
        ((u32*)y)[at] = bits;
    else
        ((u16*)y)[at] = (u16)bits;
}

#define FINISH(name, kind)                                                                                                        \
    KERNEL(name, (const u64* firsts, const float* pieces, u8* y, u32 chunks, u32 rows, u32 cols, u32 width, u32 batch)) {          \
        finish<kind>(firsts, pieces, y, chunks, rows, cols, width, batch);                                                        \
    }

// Sums the pieces of each row for `batch` vectors, `width` to a group (matvec_*); `chunks` chunks begin at the numbers firsts[0..]. Of y,
// vectors of `rows` numbers are written one after the other. Blocks of 256 threads.
FINISH(matvec_finish_f32, NUM_F32)
FINISH(matvec_finish_f16, NUM_F16)
FINISH(matvec_finish_bf16, NUM_BF16)
