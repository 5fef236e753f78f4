// Palettes being decoded: contexts from the bases, the streams, numbers, then the exceptions among them.
#include "palette.cuh"
#include "rans.cuh"

struct Segment {
    // Of n numbers each; grandparent is null in palette delta, both are in palette.
    const u8* base;
    const u8* grandparent;
    // 256 bounds and 256 values for PaletteTable, then the 256 values as bits.
    const u8* table;
    // Contexts by place, or by raw context.
    const u8* map;
    // A byte a number, up to a multiple of 16; null without a base.
    u8* places;
    u8* ctx;
    const u8* symbols;
    u8* out;
    u32 n, values;
    u32 levels, flags;
    u32 entries, unused;
};
struct Tile {
    u32 segment, first;
};

template <u32 N>
DEVICE void bases(const Segment* segments, Tile tile, u32 length) {
    typedef typename PaletteNumber<N>::Bits Bits;
    typedef typename PaletteNumber<N>::Ordered Ordered;
    constexpr u32 E = PaletteNumber<N>::unit;
    __shared__ PaletteTable<N> table;
    __shared__ u8 map[PALETTE_PLACES * PALETTE_PER_PLACE];
    const Segment s = segments[tile.segment];
    if (!s.base) return;
    palette_fill(table, s.table, s.values);
    for (u32 i = threadIdx.x; i < s.entries; i += blockDim.x) map[i] = s.map[i];
    __syncthreads();
    bool is_float = s.flags & PALETTE_FLOAT;
    bool whole = (((u64)s.base | (u64)s.grandparent) & 15u) == 0;
    u32 last = s.values - 1u, end = min(tile.first + length, s.n);
    for (u32 at = tile.first + threadIdx.x * E; at < end; at += blockDim.x * E) {
        Bits b[E], g[E];
        palette_load_unit<N>(s.base, at, s.n, whole, b);
        if (s.grandparent) palette_load_unit<N>(s.grandparent, at, s.n, whole, g);
        Ordered parent[E];
        u32 places[E], contexts[E];
#pragma unroll
        for (u32 e = 0; e < E; e++) parent[e] = palette_ordered<N>(b[e], is_float);
        palette_places<N, E>(table, s.levels, last, parent, places);
        palette_put_bytes<E>(s.places + at, places);
        if (s.grandparent) {
            Ordered o[E];
            u32 beyond[E];
#pragma unroll
            for (u32 e = 0; e < E; e++) o[e] = palette_ordered<N>(g[e], is_float);
            palette_places<N, E>(table, s.levels, last, o, beyond);
            palette_contexts_of<N, E>(table, parent, places, o, beyond, contexts);
        } else {
#pragma unroll
            for (u32 e = 0; e < E; e++) contexts[e] = places[e];
        }
#pragma unroll
        for (u32 e = 0; e < E; e++) contexts[e] = map[min(contexts[e], s.entries - 1u)];
        palette_put_bytes<E>(s.ctx + at, contexts);
    }
}

// Of each tile, `length` numbers (a multiple of 16) of a segment from `first` on: writes places and ctx.
KERNEL(palette_relatives_2, (const Segment* segments, const Tile* tiles, u32 length)) {
    bases<2>(segments, tiles[blockIdx.x], length);
}
KERNEL(palette_relatives_4, (const Segment* segments, const Tile* tiles, u32 length)) {
    bases<4>(segments, tiles[blockIdx.x], length);
}
KERNEL(palette_relatives_8, (const Segment* segments, const Tile* tiles, u32 length)) {
    bases<8>(segments, tiles[blockIdx.x], length);
}

// A block: its stream, and what follows the stream.
struct Block {
    const u8* stream;
    const u8* rest;
    // 4,096 slots for each context that ctx has, and for `leaf` where there are strangers.
    const u32* slots;
    u8* symbols;
    const u8* ctx;
    // Symbols of strangers, n at most; null where exceptions are listed.
    u8* classes;
    const u8* base;
    u8* out;
    u32 stream_len, rest_len;
    u32 n, shape;
    u32 lanes, leaf;
};

// A warp to a block: symbols and classes. bad[j] becomes 0 or 1, strays[j] how many exceptions it has.
KERNEL(palette_streams, (const Block* blocks, u32 count, u32* bad, u32* strays)) {
    u32 j = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (j >= count) return;
    const Block b = blocks[j];
    RansStream s;
    rans_open(s, b.stream, b.stream_len, b.lanes);
    rans_take_part(s, b.slots, b.ctx, b.n, b.lanes, b.symbols);
    __syncwarp();
    u32 found = 0;
    for (u32 at = 16u * lane_id(); at < b.n; at += 16u * WARP)
        found += (u32)__popc(palette_mask(b.symbols, at, b.n, b.shape & 255u));
    found = warp_sum(found);
    if (b.classes) rans_take_part(s, b.slots + 4096u * b.leaf, (const u8*)0, found, b.lanes, b.classes);
    bool good = rans_done(s);
    if (lane_id() == 0) {
        bad[j] = good ? 0u : 1u;
        strays[j] = found;
    }
}

template <u32 N>
DEVICE void numbers(const Segment* segments, Tile tile, u32 length) {
    typedef typename PaletteNumber<N>::Bits Bits;
    typedef typename PaletteNumber<N>::Ordered Ordered;
    constexpr u32 E = PaletteNumber<N>::unit;
    __shared__ Bits levels[256];
    const Segment s = segments[tile.segment];
    const Bits* from = (const Bits*)(s.table + 512u * sizeof(Ordered));
    for (u32 i = threadIdx.x; i < 256u; i += blockDim.x) levels[i] = from[i];
    __syncthreads();
    bool whole = ((u64)s.out & 15u) == 0;
    u32 end = min(tile.first + length, s.n);
    for (u32 at = tile.first + threadIdx.x * E; at < end; at += blockDim.x * E) {
        u32 symbols[E], places[E];
        palette_take_bytes<E>(s.symbols + at, symbols);
        if (s.places) palette_take_bytes<E>(s.places + at, places);
        Bits v[E];
#pragma unroll
        for (u32 e = 0; e < E; e++) v[e] = levels[palette_turn(symbols[e], s.places ? places[e] : 0u, s.values)];
        if (whole && at + E <= s.n) {
            u8* out = s.out + (u64)at * N;
            if constexpr (N == 8)
                *(uint4*)out = make_uint4((u32)v[0], (u32)(v[0] >> 32), (u32)v[1], (u32)(v[1] >> 32));
            else if constexpr (N == 4)
                *(uint4*)out = make_uint4(v[0], v[1], v[2], v[3]);
            else
                *(uint2*)out = make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
        } else {
#pragma unroll
            for (u32 e = 0; e < E; e++) {
                if (at + e >= s.n) continue;
                if constexpr (N == 8)
                    ((u64*)s.out)[at + e] = v[e];
                else if constexpr (N == 4)
                    ((u32*)s.out)[at + e] = v[e];
                else
                    ((u16*)s.out)[at + e] = (u16)v[e];
            }
        }
    }
}

// Writes the numbers of a tile; those of exceptions are anything.
KERNEL(palette_numbers_2, (const Segment* segments, const Tile* tiles, u32 length)) {
    numbers<2>(segments, tiles[blockIdx.x], length);
}
KERNEL(palette_numbers_4, (const Segment* segments, const Tile* tiles, u32 length)) {
    numbers<4>(segments, tiles[blockIdx.x], length);
}
KERNEL(palette_numbers_8, (const Segment* segments, const Tile* tiles, u32 length)) {
    numbers<8>(segments, tiles[blockIdx.x], length);
}

// `width` (at most 63) bits from `bit` on; zeros past the end.
DEVICE u64 take_bits(const u8* p, u32 len, u32 bit, u32 width) {
    u32 at = bit >> 3, shift = bit & 7u;
    u64 low = 0, high = at + 8u < len ? p[at + 8u] : 0u;
    for (u32 k = 0; k < 8u; k++) low |= (at + k < len ? (u64)p[at + k] : 0ull) << 8u * k;
    u64 v = low >> shift | (shift ? high << (64u - shift) : 0ull);
    return v & ((1ull << width) - 1ull);
}

DEVICE void store_any(u8* p, u32 i, u32 size, u64 v) {
    if (size == 8u)
        ((u64*)p)[i] = v;
    else if (size == 4u)
        ((u32*)p)[i] = (u32)v;
    else
        ((u16*)p)[i] = (u16)v;
}

// Writes block j's exceptions over its numbers, by the rest of the block. bad[j] becomes 1 where that is not what so many exceptions take.
KERNEL(palette_mend, (const Block* blocks, const u32* strays, u32* bad)) {
    __shared__ u32 room[4][32];
    const Block b = blocks[blockIdx.x];
    const PaletteShape s = palette_shape(b.shape);
    u32 count = strays[blockIdx.x], each = s.size - s.zero;
    // The same for all threads.
    bool wrong = bad[blockIdx.x] != 0u;
    bool fits = b.classes ? count || !b.rest_len : (u64)count * each == b.rest_len;
    u32 before = 0, bits = 0, turn = 0;
    u32 n = wrong || !fits || !count ? 0u : b.n;
    for (u32 start = 0; start < n; start += 16u * blockDim.x, turn ^= 2u) {
        u32 at = start + 16u * threadIdx.x;
        u32 mask = palette_mask(b.symbols, at, n, s.values), total;
        u32 found = (u32)__popc(mask);
        u32 e = before + palette_before(found, room[turn], total);
        before += total;
        u32 width = 0, bit = 0;
        if (b.classes) {
            for (u32 k = 0; k < found; k++) width += palette_width(b.classes[e + k]);
            bit = bits + palette_before(width, room[turn + 1u], total);
            bits += total;
        }
        for (; mask; mask &= mask - 1u, e++) {
            u32 i = at + (u32)__ffs((int)mask) - 1u;
            u64 v = 0;
            if (b.classes) {
                u32 symbol = b.classes[e];
                width = palette_width(symbol);
                u64 m = palette_least(symbol) + take_bits(b.rest, b.rest_len, bit, width);
                bit += width;
                v = palette_apply(palette_load_any(b.base, i, s.size), (i64)(symbol & 1u ? m : 0ull - m), s);
            } else {
                for (u32 k = 0; k < each; k++) v |= (u64)b.rest[(u64)e * each + k] << 8u * (s.zero + k);
            }
            store_any(b.out, i, s.size, v);
        }
    }
    if (threadIdx.x == 0 && !wrong && (!fits || (b.classes && (bits + 7u) / 8u != b.rest_len))) bad[blockIdx.x] = 1u;
}
