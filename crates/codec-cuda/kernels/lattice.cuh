// Cells of a lattice and what a parent says about them: the arithmetic of docs/format-lattice.md, operation for operation, so that every
// bit is that of mdl_codec::quant::lattice. Shared by the kernels that quantise, encode and decode.
#pragma once
#include "prelude.cuh"

#define LATTICE_LIMIT 1048576.0f
// Adding and taking away 1.5 * 2^23 rounds to an integer, ties to even, where |x| is at most 2^22.
#define LATTICE_ROUND 12582912.0f
#define GROUP 32u
// Symbols up to this one leave no raw bits: their magnitude is half of them, rounded up.
#define PLAIN 14u
// As `Dtype` has them; anything else is bf16.
#define DTYPE_F32 2u
#define DTYPE_F16 3u

// Elements of a tensor on a lattice. Element i has the factors rows[(ahead + i) / period] and cols[(turn + i) % period].
struct Piece {
    // Or null: then there are none.
    const float* rows;
    const float* cols;
    u64 seed;
    // Position of element 0 in the tensor.
    u64 first;
    float step;
    u32 seeded;
    u32 period;
    u32 ahead;
    u32 turn;
    u32 dtype;
};

DEVICE u32 value_size(u32 dtype) { return dtype == DTYPE_F32 ? 4u : 2u; }

DEVICE float from_f16(u32 h) {
    u32 sign = (h & 0x8000u) << 16, m = h & 0x7fffu;
    // The exponents' biases differ by 112; a product with a power of two is exact, also from below the normal range.
    u32 small = __float_as_uint(__fmul_rn(__uint_as_float(m << 13), __uint_as_float((127u + 112u) << 23)));
    return __uint_as_float(sign | (m >= 0x7c00u ? 0x7f800000u | (m & 0x3ffu) << 13 : small));
}
DEVICE u32 to_f16(float v) {
    u32 b = __float_as_uint(v), sign = b >> 16 & 0x8000u, m = b & 0x7fffffffu;
    if (m > 0x7f800000u) return sign | 0x7e00u;
    if (m >= 0x477ff000u) return sign | 0x7c00u;
    // Below 2^-14: numbers next to 1/2 have the same spacing as subnormal halves, so the sum rounds as they do.
    if (m < 0x38800000u) return sign | (__float_as_uint(__fadd_rn(__uint_as_float(m), 0.5f)) - 0x3f000000u);
    return sign | (m + 0xfffu + (m >> 13 & 1u) - (112u << 23)) >> 13;
}
DEVICE u32 to_bf16(float v) {
    u32 b = __float_as_uint(v);
    return (b & 0x7fffffffu) > 0x7f800000u ? b >> 16 | 0x40u : (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
}
DEVICE float from_half(u32 h, u32 dtype) { return dtype == DTYPE_F16 ? from_f16(h) : __uint_as_float(h << 16); }
DEVICE u32 to_half(float v, u32 dtype) { return dtype == DTYPE_F16 ? to_f16(v) : to_bf16(v); }
// The number of the dtype that is nearest to v.
DEVICE float in_dtype(float v, u32 dtype) { return dtype == DTYPE_F32 ? v : from_half(to_half(v, dtype), dtype); }

DEVICE float load_value(const u8* p, u32 dtype, u32 i) {
    return dtype == DTYPE_F32 ? ((const float*)p)[i] : from_half(((const u16*)p)[i], dtype);
}
// The elements i to i + 3, of which `count` are there; the others are 0.
DEVICE void load_four(const u8* p, u32 dtype, u32 i, u32 count, float v[4]) {
    const u8* at = p + (u64)i * value_size(dtype);
    if (count == 4u && dtype == DTYPE_F32 && ((u64)at & 15u) == 0) {
        uint4 w = *(const uint4*)at;
        v[0] = __uint_as_float(w.x), v[1] = __uint_as_float(w.y), v[2] = __uint_as_float(w.z), v[3] = __uint_as_float(w.w);
    } else if (count == 4u && dtype != DTYPE_F32 && ((u64)at & 7u) == 0) {
        uint2 w = *(const uint2*)at;
        v[0] = from_half(w.x & 0xffffu, dtype), v[1] = from_half(w.x >> 16, dtype);
        v[2] = from_half(w.y & 0xffffu, dtype), v[3] = from_half(w.y >> 16, dtype);
    } else {
#pragma unroll
        for (u32 j = 0; j < 4; j++) v[j] = j < count ? load_value(at, dtype, j) : 0.0f;
    }
}
DEVICE void store_four(u8* p, u32 dtype, u32 i, u32 count, const float v[4]) {
    u8* at = p + (u64)i * value_size(dtype);
    if (dtype == DTYPE_F32) {
        if (count == 4u && ((u64)at & 15u) == 0) {
            *(uint4*)at = make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
        } else {
#pragma unroll
            for (u32 j = 0; j < 4; j++)
                if (j < count) ((float*)at)[j] = v[j];
        }
    } else if (count == 4u && ((u64)at & 7u) == 0) {
        *(uint2*)at = make_uint2(to_half(v[0], dtype) | to_half(v[1], dtype) << 16, to_half(v[2], dtype) | to_half(v[3], dtype) << 16);
    } else {
#pragma unroll
        for (u32 j = 0; j < 4; j++)
            if (j < count) ((u16*)at)[j] = (u16)to_half(v[j], dtype);
    }
}

// Output pair + 1 of splitmix64: the offsets of the positions 2 * pair and 2 * pair + 1.
DEVICE u64 offset_pair(u64 seed, u64 pair) {
    u64 z = seed + (pair + 1u) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}
DEVICE float offset_of(u64 z, u64 position) {
    i32 top = (i32)(u32)((position & 1u) ? z >> 8 : z >> 32);
    return __fmul_rn((float)(top >> 8), 1.0f / 16777216.0f);
}

// Steps and offsets of the elements i to i + 3.
DEVICE void cells_of_four(const Piece& p, u32 i, u32 count, float d[4], float o[4]) {
    u32 row = 0, col = 0, turn = 0;
    bool shaped = p.rows || p.cols;
    if (shaped) {
        row = (p.ahead + i) / p.period;
        col = p.ahead + i - row * p.period;
        turn = (p.turn + i) % p.period;
    }
    u64 z = 0;
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        float step = p.step;
        if (shaped && j < count) {
            if (p.rows) step = __fmul_rn(step, p.rows[row]);
            if (p.cols) step = __fmul_rn(step, p.cols[turn]);
            if (++col == p.period) col = 0, row++;
            if (++turn == p.period) turn = 0;
        }
        d[j] = step;
        o[j] = 0.0f;
        if (p.seeded) {
            u64 at = p.first + i + j;
            if (j == 0 || (at & 1u) == 0) z = offset_pair(p.seed, at >> 1);
            o[j] = offset_of(z, at);
        }
    }
}
// The same of one element.
DEVICE void cell_of(const Piece& p, u32 i, float& d, float& o) {
    d = p.step;
    if (p.rows) d = __fmul_rn(d, p.rows[(p.ahead + i) / p.period]);
    if (p.cols) d = __fmul_rn(d, p.cols[(p.turn + i) % p.period]);
    u64 at = p.first + i;
    o = p.seeded ? offset_of(offset_pair(p.seed, at >> 1), at) : 0.0f;
}

// The nearest integer, ties to even, for |x| up to 2^22; anything else gives something.
DEVICE i32 level_of(float x) { return (i32)(__float_as_uint(__fadd_rn(x, LATTICE_ROUND)) - __float_as_uint(LATTICE_ROUND)); }
DEVICE float place_of(float w, float d, float o) { return __fsub_rn(__fdiv_rn(w, d), o); }
DEVICE float number_of(i32 q, float d, float o) { return __fmul_rn(__fadd_rn((float)q, o), d); }

// What the parent says of an element. A parent outside of every cell says nothing.
DEVICE float inside_of(float parent, float d, float o) {
    float x = place_of(parent, d, o);
    return fabsf(x) < LATTICE_LIMIT - 1.0f ? x : 0.0f;
}
// Predicted level, class of context, and whether differences are mirrored. Where there is none, `grandparent` is the
// parent.
DEVICE void look(float parent, float grandparent, bool moves, float d, float o, i32& guess, u32& cls, bool& mirror) {
    float x = inside_of(parent, d, o);
    guess = level_of(x);
    float inside = __fsub_rn(x, __fsub_rn(__fadd_rn(x, LATTICE_ROUND), LATTICE_ROUND));
    i32 at = level_of(__fmul_rn(fabsf(inside), 14.0f));
    float m = moves ? __fdiv_rn(__fsub_rn(parent, grandparent), d) : 0.0f;
    float far = fabsf(m);
    i32 size = (i32)(far >= 0.0625f) + (i32)(far >= 0.25f) + (i32)(far >= 1.0f);
    mirror = (at > 0 && inside < 0.0f) || (at == 0 && size > 0 && m < 0.0f);
    cls = (u32)(at * 7 + 3 + (mirror == (m < 0.0f) ? size : -size));
}

// Raw bits under the class of a magnitude.
DEVICE u32 shift_of(u32 magnitude) { return 29u - (u32)__clz((i32)(magnitude | 4u)); }
// The same of a class, and the least magnitude in it.
DEVICE u32 class_shift(u32 c) { return c < 8u ? 0u : (c >> 2) - 1u; }
DEVICE u32 class_least(u32 c) { return c < 8u ? c : (4u | (c & 3u)) << (((c >> 2) - 1u) & 31u); }

// Step of activity: 0 below 8, then two an octave, cut off at `top`: a float's exponent and its first mantissa bit.
DEVICE u32 activity_step(u32 v, u32 top) {
    i32 s = (i32)(__float_as_uint((float)v) >> 22) - 259;
    return (u32)max(0, min(s, (i32)top));
}
