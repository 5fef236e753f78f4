// What every kernel file stands on: plain types, the kernel macro, warp helpers. Read by NVRTC (CUDA) and, with shim.h before it,
// by a C++ compiler that runs the same source on the processor.
//
// Rules of the house, which the shim relies on:
// - blocks are one-dimensional and a multiple of 32 threads; grids have x and y;
// - every collective (sync, shuffle, ballot) is reached by all 32 lanes of a warp, __syncthreads by all threads of a block:
//   no thread returns before the last of them;
// - a kernel says in the comment above it which bytes it reads and writes, in terms of its arguments.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#ifndef MDL_SHIM
#define KERNEL(name, params) extern "C" __global__ void name params
#define DEVICE static __device__ __forceinline__
// What other threads change or set at the same time, with no barrier between: some value that it had; one that all agree on.
DEVICE u32 relaxed_load(const u32* p) { return *(const volatile u32*)p; }
DEVICE void relaxed_store(u32* p, u32 v) { *(volatile u32*)p = v; }
#endif

#define WARP 32u
#define ALL 0xffffffffu

DEVICE u32 lane_id() { return threadIdx.x & 31u; }
DEVICE u32 warp_id() { return threadIdx.x >> 5; }
// Bits of the lanes below, and above, this one.
DEVICE u32 lanes_below() { return (1u << lane_id()) - 1u; }
DEVICE u32 lanes_above() { return lane_id() == 31u ? 0u : ALL << (lane_id() + 1u); }

// A little-endian number at any address.
DEVICE u32 load_u16(const u8* p) { return (u32)p[0] | (u32)p[1] << 8; }
DEVICE u32 load_u32(const u8* p) { return load_u16(p) | load_u16(p + 2) << 16; }
DEVICE void store_u16(u8* p, u32 v) {
    p[0] = (u8)v;
    p[1] = (u8)(v >> 8);
}
DEVICE void store_u32(u8* p, u32 v) {
    store_u16(p, v);
    store_u16(p + 2, v >> 16);
}

DEVICE u32 warp_sum(u32 v) {
    for (u32 d = 16; d; d >>= 1) v += __shfl_xor_sync(ALL, v, d);
    return v;
}
DEVICE u32 warp_or(u32 v) {
    for (u32 d = 16; d; d >>= 1) v |= __shfl_xor_sync(ALL, v, d);
    return v;
}
// Sum over the lanes below this one.
DEVICE u32 warp_before(u32 v) {
    u32 sum = v;
    for (u32 d = 1; d < WARP; d <<= 1) {
        u32 other = __shfl_up_sync(ALL, sum, d);
        if (lane_id() >= d) sum += other;
    }
    return sum - v;
}
