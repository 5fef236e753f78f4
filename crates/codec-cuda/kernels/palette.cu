// Palettes being encoded: one pass that finds symbols, places, raw contexts and counts; then exceptions; then contexts.
#include "palette.cuh"

#define HIST 8192u
#define FULL 2u

struct Segment {
    // Numbers; base and grandparent may be null.
    const u8* raw;
    const u8* base;
    const u8* grandparent;
    // 256 bounds and 256 values, for PaletteTable.
    const u8* table;
    // A byte a number, up to a multiple of 16; places where there is a base, contexts where there is a grandparent.
    u8* symbols;
    u8* places;
    u16* contexts;
    // Counts, values + 1 in a row: by place (one row without a base), or null; by raw context, or null.
    u32* near;
    u32* far;
    // Exceptions of each block of 2^18 numbers; the or of all their bits.
    u32* strays;
    u64* bits;
    u32 n, values;
    u32 levels, flags;
    // Counters of a copy in shared memory, and how many copies there are, a power of two: (cells | 1) * copies <= HIST. With FULL they are all of
    // one kind's counts; else only those of symbol 0, by raw context, then by place: the others go to global memory, where most
    // tensors have few and scattered ones.
    u32 cells, copies;
};
struct Tile {
    u32 segment, first;
};

template <u32 N, u32 E>
DEVICE void put_contexts(u16* out, const u32 (&v)[E]) {
    if constexpr (E == 4)
        *(uint2*)out = make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
    else
        *(u32*)out = v[0] | v[1] << 16;
}

// Counts a symbol: in this thread's copy at `mine`, or in the row at `rows`.
DEVICE void count_one(u32* mine, u32* rows, u32 row, u32 symbol, u32 width, bool full) {
    if (full)
        atomicAdd(mine + row * width + symbol, 1u);
    else if (symbol == 0)
        atomicAdd(mine + row, 1u);
    else
        atomicAdd(rows + (u64)row * width + symbol, 1u);
}

template <u32 N>
DEVICE void look(const Segment* segments, Tile tile, u32 length) {
    typedef typename PaletteNumber<N>::Bits Bits;
    typedef typename PaletteNumber<N>::Ordered Ordered;
    constexpr u32 E = PaletteNumber<N>::unit;
    __shared__ u32 hist[HIST];
    __shared__ PaletteTable<N> table;
    const Segment s = segments[tile.segment];
    for (u32 i = threadIdx.x; i < min((s.cells | 1u) * s.copies, HIST); i += blockDim.x) hist[i] = 0;
    palette_fill(table, s.table, s.values);
    __syncthreads();
    bool is_float = s.flags & PALETTE_FLOAT, full = s.flags & FULL;
    u32 last = s.values - 1u, width = s.values + 1u;
    u32* mine = hist + (lane_id() & (s.copies - 1u)) * (s.cells | 1u);
    u32* mine_near = mine + (s.far ? min(s.values, PALETTE_PLACES) * PALETTE_PER_PLACE : 0u);
    bool whole = (((u64)s.raw | (u64)s.base | (u64)s.grandparent) & 15u) == 0;
    u32 end = min(tile.first + length, s.n);
    u32 strays = 0;
    u64 bits = 0;
    for (u32 at = tile.first + threadIdx.x * E; at < end; at += blockDim.x * E) {
        Bits v[E], b[E], g[E];
        palette_load_unit<N>(s.raw, at, s.n, whole, v);
        if (s.base) palette_load_unit<N>(s.base, at, s.n, whole, b);
        if (s.grandparent) palette_load_unit<N>(s.grandparent, at, s.n, whole, g);
        Ordered o[E];
        u32 symbols[E], places[E], contexts[E];
#pragma unroll
        for (u32 e = 0; e < E; e++) o[e] = palette_ordered<N>(v[e], is_float), places[e] = 0, contexts[e] = 0;
        palette_places<N, E>(table, s.levels, last, o, symbols);
#pragma unroll
        for (u32 e = 0; e < E; e++) {
            if (table.values[symbols[e]] == o[e]) continue;
            symbols[e] = s.values;
            if (at + e < s.n) strays++, bits |= v[e];
        }
        if (s.base) {
            Ordered parent[E];
#pragma unroll
            for (u32 e = 0; e < E; e++) parent[e] = palette_ordered<N>(b[e], is_float);
            palette_places<N, E>(table, s.levels, last, parent, places);
            if (s.grandparent) {
                u32 beyond[E];
#pragma unroll
                for (u32 e = 0; e < E; e++) o[e] = palette_ordered<N>(g[e], is_float);
                palette_places<N, E>(table, s.levels, last, o, beyond);
                palette_contexts_of<N, E>(table, parent, places, o, beyond, contexts);
                put_contexts<N, E>(s.contexts + at, contexts);
            }
#pragma unroll
            for (u32 e = 0; e < E; e++) symbols[e] = palette_turn_back(symbols[e], places[e], s.values);
            palette_put_bytes<E>(s.places + at, places);
        }
        palette_put_bytes<E>(s.symbols + at, symbols);
#pragma unroll
        for (u32 e = 0; e < E; e++) {
            if (at + e >= s.n) continue;
            if (s.far) count_one(mine, s.far, contexts[e], symbols[e], width, full);
            if (s.near) count_one(mine_near, s.near, places[e], symbols[e], width, full);
        }
    }
    strays = warp_sum(strays);
    u32 low = warp_or((u32)bits), high = warp_or((u32)(bits >> 32));
    if (lane_id() == 0 && strays) {
        atomicAdd(s.strays + (tile.first >> 18), strays);
        atomicOr(s.bits, (u64)high << 32 | low);
    }
    __syncthreads();
    u32 rows_far = s.far ? min(s.values, PALETTE_PLACES) * PALETTE_PER_PLACE : 0u;
    for (u32 c = threadIdx.x; c < s.cells; c += blockDim.x) {
        u32 sum = 0;
        for (u32 i = 0; i < s.copies; i++) sum += hist[i * (s.cells | 1u) + c];
        if (!sum) continue;
        if (full)
            atomicAdd((s.far ? s.far : s.near) + c, sum);
        else if (c < rows_far)
            atomicAdd(s.far + (u64)c * width, sum);
        else
            atomicAdd(s.near + (u64)(c - rows_far) * width, sum);
    }
}

// Of each tile, `length` numbers of a segment from `first` on: writes symbols (in the context of places), places and contexts, and adds to
// its counts. `length` is a multiple of 16 that divides 2^18.
KERNEL(palette_look_2, (const Segment* segments, const Tile* tiles, u32 length)) {
    look<2>(segments, tiles[blockIdx.x], length);
}
KERNEL(palette_look_4, (const Segment* segments, const Tile* tiles, u32 length)) {
    look<4>(segments, tiles[blockIdx.x], length);
}
KERNEL(palette_look_8, (const Segment* segments, const Tile* tiles, u32 length)) {
    look<8>(segments, tiles[blockIdx.x], length);
}

// A block of 2^18 numbers with exceptions.
struct Strays {
    const u8* symbols;
    const u8* raw;
    // Null where no differences are wanted.
    const u8* base;
    // Exceptions without their zero low bytes.
    u8* bytes;
    // Symbols of their differences, how often each of 256 occurs in the segment, bits below them in this block.
    u8* classes;
    u32* counts;
    u32* bits;
    // For palette_low: zeroed, room for the bits and 8 bytes; the context of strangers goes to ctx.
    u32* low;
    u8* ctx;
    u32 n, shape;
    u32 leaf, unused;
};

// Block b's exceptions: bytes, and with a base classes, counts and bits.
KERNEL(palette_strays, (const Strays* blocks)) {
    __shared__ u32 room[2][32];
    __shared__ u32 hist[256];
    const Strays b = blocks[blockIdx.x];
    const PaletteShape s = palette_shape(b.shape);
    u32 each = s.size - s.zero, before = 0, bits = 0, turn = 0;
    for (u32 i = threadIdx.x; i < 256u; i += blockDim.x) hist[i] = 0;
    for (u32 start = 0; start < b.n; start += 16u * blockDim.x, turn ^= 1u) {
        u32 at = start + 16u * threadIdx.x;
        u32 mask = palette_mask(b.symbols, at, b.n, s.values), total;
        u32 e = before + palette_before((u32)__popc(mask), room[turn], total);
        before += total;
        for (; mask; mask &= mask - 1u, e++) {
            u32 i = at + (u32)__ffs((int)mask) - 1u;
            u64 v = palette_load_any(b.raw, i, s.size);
            for (u32 k = 0; k < each; k++) b.bytes[(u64)e * each + k] = (u8)(v >> 8u * (s.zero + k));
            if (!b.base) continue;
            u32 symbol = palette_symbol(palette_difference(v, palette_load_any(b.base, i, s.size), s));
            b.classes[e] = (u8)symbol;
            atomicAdd(hist + symbol, 1u);
            bits += palette_width(symbol);
        }
    }
    __syncthreads();
    if (!b.base) return;
    for (u32 i = threadIdx.x; i < 256u; i += blockDim.x)
        if (hist[i]) atomicAdd(b.counts + i, hist[i]);
    bits = warp_sum(bits);
    if (lane_id() == 0 && bits) atomicAdd(b.bits, bits);
}

// Block b's raw bits, and a context for each of its classes.
KERNEL(palette_low, (const Strays* blocks)) {
    __shared__ u32 room[4][32];
    const Strays b = blocks[blockIdx.x];
    const PaletteShape s = palette_shape(b.shape);
    u32 before = 0, bits = 0, turn = 0;
    for (u32 start = 0; start < b.n; start += 16u * blockDim.x, turn ^= 2u) {
        u32 at = start + 16u * threadIdx.x;
        u32 mask = palette_mask(b.symbols, at, b.n, s.values), total;
        u32 count = (u32)__popc(mask);
        u32 e = before + palette_before(count, room[turn], total);
        before += total;
        u32 width = 0;
        for (u32 k = 0; k < count; k++) width += palette_width(b.classes[e + k]);
        u32 bit = bits + palette_before(width, room[turn + 1u], total);
        bits += total;
        for (; mask; mask &= mask - 1u, e++) {
            u32 i = at + (u32)__ffs((int)mask) - 1u;
            i64 d = palette_difference(palette_load_any(b.raw, i, s.size), palette_load_any(b.base, i, s.size), s);
            u32 symbol = palette_symbol(d);
            u64 v = (d < 0 ? 0ull - (u64)d : (u64)d) - palette_least(symbol);
            u32 w = bit >> 5, shift = bit & 31u;
            u64 first = v << shift;
            if (first) {
                atomicOr(b.low + w, (u32)first);
                atomicOr(b.low + w + 1u, (u32)(first >> 32));
            }
            if (shift && v >> (64u - shift)) atomicOr(b.low + w + 2u, (u32)(v >> (64u - shift)));
            bit += palette_width(symbol);
            b.ctx[e] = (u8)b.leaf;
        }
    }
}

// A segment whose plan is made. mode 0: symbols become places in the table; 1: places become contexts, by a map of 256; 2: places become those of
// raw contexts, by a map of entries.
struct Planned {
    u8* symbols;
    u8* places;
    const u16* contexts;
    const u8* map;
    u32 n, values;
    u32 mode, entries;
};

// A tile of a segment, up to a multiple of 16 numbers: what lies beyond n is read and written but means nothing.
KERNEL(palette_contexts, (const Planned* segments, const Tile* tiles, u32 length)) {
    __shared__ u8 map[PALETTE_PLACES * PALETTE_PER_PLACE];
    Tile tile = tiles[blockIdx.x];
    const Planned s = segments[tile.segment];
    if (s.mode)
        for (u32 i = threadIdx.x; i < s.entries; i += blockDim.x) map[i] = s.map[i];
    __syncthreads();
    u32 end = min(tile.first + length, s.n);
    for (u32 at = tile.first + threadIdx.x * 8u; at < end; at += blockDim.x * 8u) {
        u32 v[8];
        palette_take_bytes<8>(s.places + at, v);
        if (s.mode == 0) {
            u32 symbols[8];
            palette_take_bytes<8>(s.symbols + at, symbols);
#pragma unroll
            for (u32 e = 0; e < 8u; e++) symbols[e] = palette_turn(symbols[e], v[e], s.values);
            palette_put_bytes<8>(s.symbols + at, symbols);
            continue;
        }
        if (s.mode == 2u) {
            uint4 q = *(const uint4*)(s.contexts + at);
            v[0] = q.x & 0xffffu, v[1] = q.x >> 16, v[2] = q.y & 0xffffu, v[3] = q.y >> 16;
            v[4] = q.z & 0xffffu, v[5] = q.z >> 16, v[6] = q.w & 0xffffu, v[7] = q.w >> 16;
        }
#pragma unroll
        for (u32 e = 0; e < 8u; e++) v[e] = map[min(v[e], s.entries - 1u)];
        palette_put_bytes<8>(s.places + at, v);
    }
}
