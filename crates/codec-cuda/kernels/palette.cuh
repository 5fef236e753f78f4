// What both directions of the palette schemes need (docs/format-segments.md, schemes 5, 6 and 9): numbers as monotone integers, nearest
// values, raw contexts, and exceptions one after the other.
//
// Nearest values are searched for in shared memory rather than looked up by a number's upper 16 bits: a table of 65,536 answers does not
// fit there, from global memory each of its gathers costs as much L1 time as the whole search, and few values need few steps (16 take
// four). The bounds lie as a complete tree in level order: a level's candidates are neighbours, so that lanes of a warp hardly ever meet
// in a bank, which they would in a sorted array (its middles are powers of two apart).
#pragma once
#include "prelude.cuh"

#define PALETTE_FAR 3
#define PALETTE_KINDS 3u
#define PALETTE_PLACES 64u
// Raw contexts to a step of the axis of places.
#define PALETTE_PER_PLACE ((2u * PALETTE_FAR + 1u) * PALETTE_KINDS)
#define PALETTE_FLOAT 1u

// How numbers of N bytes are held, and how many a thread does at once: 16 bytes of them, but no more than 4, whose searches and
// counters still fit 64 registers.
template <u32 N>
struct PaletteNumber {
    typedef u32 Bits;
    typedef i32 Ordered;
    static constexpr u32 unit = 4;
};
template <>
struct PaletteNumber<8> {
    typedef u64 Bits;
    typedef i64 Ordered;
    static constexpr u32 unit = 2;
};

// The monotone integer, signed.
template <u32 N>
DEVICE typename PaletteNumber<N>::Ordered palette_ordered(typename PaletteNumber<N>::Bits v, bool is_float) {
    if constexpr (N == 8) return is_float && (i64)v < 0 ? (i64)(v ^ 0x7fffffffffffffffull) : (i64)v;
    if constexpr (N == 4) return is_float && (i32)v < 0 ? (i32)(v ^ 0x7fffffffu) : (i32)v;
    i32 s = (i32)(i16)(u16)v;
    return is_float && s < 0 ? s ^ 0x7fff : s;
}

template <u32 N>
DEVICE typename PaletteNumber<N>::Bits palette_load(const u8* p, u32 i) {
    if constexpr (N == 8) return ((const u64*)p)[i];
    if constexpr (N == 4) return ((const u32*)p)[i];
    return ((const u16*)p)[i];
}

// Numbers at..at + unit of n; zeros from n on. `whole`: p is 16-aligned, and at is a multiple of the unit.
template <u32 N>
DEVICE void palette_load_unit(const u8* p, u32 at, u32 n, bool whole,
                              typename PaletteNumber<N>::Bits (&v)[PaletteNumber<N>::unit]) {
    constexpr u32 E = PaletteNumber<N>::unit;
    if (whole && at + E <= n) {
        if constexpr (N == 8) {
            uint4 q = *(const uint4*)(p + (u64)at * N);
            v[0] = (u64)q.y << 32 | q.x;
            v[1] = (u64)q.w << 32 | q.z;
        } else if constexpr (N == 4) {
            uint4 q = *(const uint4*)(p + (u64)at * N);
            v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
        } else {
            uint2 q = *(const uint2*)(p + (u64)at * N);
            v[0] = q.x & 0xffffu, v[1] = q.x >> 16, v[2] = q.y & 0xffffu, v[3] = q.y >> 16;
        }
    } else {
#pragma unroll
        for (u32 e = 0; e < E; e++) v[e] = at + e < n ? palette_load<N>(p, at + e) : 0;
    }
}

// The table in shared memory: bounds as a tree from 1 on, the values' monotone integers, and where raw contexts of a place begin.
template <u32 N>
struct PaletteTable {
    typename PaletteNumber<N>::Ordered tree[256], values[256];
    u16 rows[256];
};

// Fills it from 256 numbers of the tree and 256 values at `from`. To be followed by __syncthreads.
template <u32 N>
DEVICE void palette_fill(PaletteTable<N>& t, const u8* from, u32 values) {
    typedef typename PaletteNumber<N>::Ordered O;
    for (u32 i = threadIdx.x; i < 256u; i += blockDim.x) {
        t.tree[i] = ((const O*)from)[i];
        t.values[i] = ((const O*)from)[256u + i];
        u32 step = values > PALETTE_PLACES ? min(i, values) * PALETTE_PLACES / values : i;
        t.rows[i] = (u16)(step * PALETTE_PER_PLACE);
    }
}

// Indices of the nearest values of E numbers at once, so that their searches' loads overlap. `levels` is that of the tree.
template <u32 N, u32 E>
DEVICE void palette_places(const PaletteTable<N>& t, u32 levels, u32 last,
                           const typename PaletteNumber<N>::Ordered (&o)[E], u32 (&p)[E]) {
#pragma unroll
    for (u32 e = 0; e < E; e++) p[e] = 1;
    for (u32 l = 0; l < levels; l++) {
#pragma unroll
        for (u32 e = 0; e < E; e++) p[e] = 2u * p[e] + (t.tree[p[e]] <= o[e] ? 1u : 0u);
    }
#pragma unroll
    for (u32 e = 0; e < E; e++) p[e] = min(p[e] - (1u << levels), last);
}

// Raw contexts, from the monotone integers and places of parents and grandparents.
template <u32 N, u32 E>
DEVICE void palette_contexts_of(const PaletteTable<N>& t, const typename PaletteNumber<N>::Ordered (&parent)[E],
                                const u32 (&p)[E], const typename PaletteNumber<N>::Ordered (&grandparent)[E],
                                const u32 (&g)[E], u32 (&raw)[E]) {
#pragma unroll
    for (u32 e = 0; e < E; e++) {
        i32 moved = min(max((i32)p[e] - (i32)g[e], -PALETTE_FAR), PALETTE_FAR) + PALETTE_FAR;
        u32 kind = t.values[p[e]] == parent[e] ? 0u : t.values[g[e]] == grandparent[e] ? 1u : 2u;
        raw[e] = t.rows[p[e]] + (u32)moved * PALETTE_KINDS + kind;
    }
}

// What a symbol stands for in the context of a place, and back; `values` is the exception, which stays.
DEVICE u32 palette_turn(u32 symbol, u32 place, u32 values) {
    u32 i = symbol + place;
    return symbol >= values ? values : i >= values ? i - values : i;
}
DEVICE u32 palette_turn_back(u32 index, u32 place, u32 values) {
    return index >= values ? values : index >= place ? index - place : index + values - place;
}

// Puts E bytes at out, which is E-aligned.
template <u32 E>
DEVICE void palette_put_bytes(u8* out, const u32 (&v)[E]) {
    if constexpr (E == 8) {
        *(uint2*)out = make_uint2(v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24, v[4] | v[5] << 8 | v[6] << 16 | v[7] << 24);
    } else if constexpr (E == 4) {
        *(u32*)out = v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24;
    } else {
        *(u16*)out = (u16)(v[0] | v[1] << 8);
    }
}
template <u32 E>
DEVICE void palette_take_bytes(const u8* from, u32 (&v)[E]) {
    u64 all;
    if constexpr (E == 8) {
        uint2 q = *(const uint2*)from;
        all = (u64)q.y << 32 | q.x;
    } else if constexpr (E == 4) {
        all = *(const u32*)from;
    } else {
        all = *(const u16*)from;
    }
#pragma unroll
    for (u32 e = 0; e < E; e++) v[e] = (u32)(all >> 8u * e) & 255u;
}

// Which of the 16 symbols at..at + 16 of n are `symbol`; `symbols` is 16-aligned and may be read up to a multiple of 16.
DEVICE u32 palette_mask(const u8* symbols, u32 at, u32 n, u32 symbol) {
    if (at >= n) return 0;
    uint4 q = *(const uint4*)(symbols + at);
    u32 mask = 0;
#pragma unroll
    for (u32 j = 0; j < 4u; j++) {
        mask |= ((q.x >> 8u * j & 255u) == symbol ? 1u : 0u) << j;
        mask |= ((q.y >> 8u * j & 255u) == symbol ? 1u : 0u) << (4u + j);
        mask |= ((q.z >> 8u * j & 255u) == symbol ? 1u : 0u) << (8u + j);
        mask |= ((q.w >> 8u * j & 255u) == symbol ? 1u : 0u) << (12u + j);
    }
    return n - at < 16u ? mask & ((1u << (n - at)) - 1u) : mask;
}

// Sum over the threads below this one, and over all. `room` is shared and alternates between two calls, so that one barrier is enough.
DEVICE u32 palette_before(u32 v, u32* room, u32& total) {
    u32 before = warp_before(v);
    if (lane_id() == 31u) room[warp_id()] = before + v;
    __syncthreads();
    total = 0;
    for (u32 w = 0; w < blockDim.x / WARP; w++) {
        u32 sum = room[w];
        if (w < warp_id()) before += sum;
        total += sum;
    }
    return before;
}

// A number of `size` bytes, in the width of w = 8 * (size - zero) bits once its `zero` low bytes are off.
struct PaletteShape {
    u32 values, size, zero, is_float;
};
DEVICE PaletteShape palette_shape(u32 packed) {
    return {packed & 255u, packed >> 8 & 255u, packed >> 16 & 255u, packed >> 24};
}
DEVICE u64 palette_load_any(const u8* p, u32 i, u32 size) {
    return size == 8u ? ((const u64*)p)[i] : size == 4u ? ((const u32*)p)[i] : ((const u16*)p)[i];
}
DEVICE u64 palette_monotone(u64 v, u32 w, bool is_float) {
    return is_float && (v >> (w - 1u) & 1u) ? v ^ ((1ull << (w - 1u)) - 1ull) : v;
}
// The difference of a stranger to its parent (diff.rs), both whole.
DEVICE i64 palette_difference(u64 v, u64 parent, PaletteShape s) {
    u32 w = 8u * (s.size - s.zero);
    v >>= 8u * s.zero, parent >>= 8u * s.zero;
    u64 d = palette_monotone(v, w, s.is_float) - palette_monotone(parent, w, s.is_float);
    i64 apart = (i64)(d << (64u - w)) >> (64u - w);
    return s.is_float && (parent >> (w - 1u) & 1u) ? (i64)(0ull - (u64)apart) : apart;
}
DEVICE u64 palette_apply(u64 parent, i64 d, PaletteShape s) {
    u32 w = 8u * (s.size - s.zero);
    parent >>= 8u * s.zero;
    u64 step = s.is_float && (parent >> (w - 1u) & 1u) ? 0ull - (u64)d : (u64)d;
    u64 m = (palette_monotone(parent, w, s.is_float) + step) & (~0ull >> (64u - w));
    return palette_monotone(m, w, s.is_float) << 8u * s.zero;
}
// The symbol of a difference with one bit under the top one in its class, and what a symbol leaves to raw bits.
DEVICE u32 palette_symbol(i64 d) {
    u64 m = d < 0 ? 0ull - (u64)d : (u64)d;
    u32 p = max(63u - (u32)__clzll((i64)(m | 1ull)), 1u);
    u32 cls = ((p - 1u) << 1) + (u32)(m >> (p - 1u));
    return (2u * cls - (d > 0 ? 1u : 0u)) & 255u;
}
DEVICE u32 palette_width(u32 symbol) {
    u32 cls = (symbol + 1u) / 2u;
    return cls < 4u ? 0u : (cls >> 1) - 1u;
}
DEVICE u64 palette_least(u32 symbol) {
    u32 cls = (symbol + 1u) / 2u;
    return cls < 4u ? cls : (u64)(2u | (cls & 1u)) << palette_width(symbol);
}
