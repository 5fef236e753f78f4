// Floats as the quantiser sees them (mdl_codec::quant::numbers): 16-bit keys, f32, bf16; and pieces of 16 bytes of them in registers.
// Shared by the kernels of sketches, reconstructions and deviations.
#pragma once
#include "prelude.cuh"

// Kinds of elements, as the host passes them.
#define NUM_F64 0u
#define NUM_F32 1u
#define NUM_F16 2u
#define NUM_BF16 3u

DEVICE u32 num_size(u32 kind) { return kind == NUM_F64 ? 8u : kind == NUM_F32 ? 4u : 2u; }

// Bits of the f32 nearest to an f64. A NaN keeps its sign and the top of its payload, as processors do: its key is counted, too.
DEVICE u32 num_narrow(u64 bits) {
    if ((bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull)
        return ((u32)(bits >> 32) & 0x80000000u) | 0x7fc00000u | ((u32)(bits >> 29) & 0x3fffffu);
    return __float_as_uint(__double2float_rn(__longlong_as_double((i64)bits)));
}

// Bits of the f32 that an f16 is; exact.
DEVICE u32 num_from_f16(u32 bits) {
    u32 magnitude = (bits & 0x7fffu) << 13;
    // 2^112 moves the exponent from one bias to the other, subnormals included.
    u32 finite = __float_as_uint(__fmul_rn(__uint_as_float(magnitude), 5192296858534827628530496329220096.0f));
    return ((bits & 0x7c00u) == 0x7c00u ? 0x7f800000u | magnitude : finite) | (bits & 0x8000u) << 16;
}

// The bf16 nearest to a finite f32, ties to even; the largest finite one instead of an infinity.
DEVICE u32 num_to_bf16(u32 bits) {
    u32 rounded = (bits + (0x7fffu + (bits >> 16 & 1u))) >> 16;
    return (rounded & 0x8000u) | min(rounded & 0x7fffu, 0x7f7fu);
}

// The f16 nearest to a finite f32, ties to even; the largest finite one instead of an infinity.
DEVICE u32 num_to_f16(u32 bits) {
    u32 sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477fe000u) return sign | 0x7bffu;
    if (magnitude >= 113u << 23) {
        u32 rebased = magnitude - (112u << 23);
        return sign | (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13;
    }
    // Below 2^-14 in units of 2^-24: adding 2^23 leaves the rounded number of them in the mantissa.
    float units = __fmul_rn(__uint_as_float(magnitude), 16777216.0f);
    return sign | (__float_as_uint(__fadd_rn(units, 8388608.0f)) & 0x7fffffu);
}

// Key and f32 bits of what num_load gave.
DEVICE u32 num_key(u32 kind, u32 bits) { return kind <= NUM_F32 ? bits >> 16 : bits; }
DEVICE u32 num_wide(u32 kind, u32 bits) {
    return kind <= NUM_F32 ? bits : kind == NUM_BF16 ? bits << 16 : num_from_f16(bits);
}

// Elements first..first + n of `from`, of n <= per <= 8 (per is 2, 4 or 8): f64 as the bits of an f32, the others as they are.
// Those beyond n are 0.
DEVICE void num_load(u32 kind, const u8* from, u64 first, u32 per, u32 n, u32 (&bits)[8]) {
    const u8* p = from + first * num_size(kind);
    bool whole = n == per && ((u64)p & 15u) == 0u;
#pragma unroll
    for (u32 j = 0; j < 8; j++) bits[j] = 0u;
    if (kind == NUM_F64) {
#pragma unroll
        for (u32 q = 0; q < 4; q++) {
            if (2u * q >= per) continue;
            uint4 v = make_uint4(0u, 0u, 0u, 0u);
            if (whole) {
                v = *(const uint4*)(p + 16u * q);
            } else {
                if (2u * q < n) {
                    uint2 e = *(const uint2*)(p + 16u * q);
                    v.x = e.x;
                    v.y = e.y;
                }
                if (2u * q + 1u < n) {
                    uint2 e = *(const uint2*)(p + 16u * q + 8u);
                    v.z = e.x;
                    v.w = e.y;
                }
            }
            bits[2 * q] = num_narrow((u64)v.x | (u64)v.y << 32);
            bits[2 * q + 1] = num_narrow((u64)v.z | (u64)v.w << 32);
        }
    } else if (kind == NUM_F32) {
#pragma unroll
        for (u32 q = 0; q < 2; q++) {
            if (4u * q >= per) continue;
            if (whole && per >= 4u) {
                uint4 v = *(const uint4*)(p + 16u * q);
                bits[4 * q] = v.x;
                bits[4 * q + 1] = v.y;
                bits[4 * q + 2] = v.z;
                bits[4 * q + 3] = v.w;
            } else {
#pragma unroll
                for (u32 j = 0; j < 4; j++)
                    if (4u * q + j < n) bits[4 * q + j] = *(const u32*)(p + 16u * q + 4u * j);
            }
        }
    } else if (whole && per == 8u) {
        uint4 v = *(const uint4*)p;
        u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (u32 j = 0; j < 8; j++) bits[j] = w[j / 2] >> (j % 2 * 16u) & 0xffffu;
    } else {
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            if (j < n) bits[j] = *(const u16*)(p + 2u * j);
    }
}

// |g w| in f32, its bits; a NaN is one NaN whatever made it.
DEVICE u32 num_sensitivity(u32 g, u32 w) {
    return min(__float_as_uint(__fmul_rn(__uint_as_float(g), __uint_as_float(w))) & 0x7fffffffu, 0x7fc00000u);
}
