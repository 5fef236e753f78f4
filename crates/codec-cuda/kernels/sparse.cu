// Scheme "sparse": the numbers that differ from their base, in order: classes of gaps, symbols of differences and raw bits of both;
// and back.
#include "diff.cuh"

// A block of the format that is being encoded: n numbers, 2^18 at most.
struct SparseBlock {
    const u8* raw;
    const u8* base;
    // For each tile: its changes, where the first is, the number after the last, raw bits but for the gap before the first.
    // After sparse_scan: changes and raw bits before it (x, w), the number after the last change before it (y), its changes (z).
    uint4* tiles;
    // A byte a change each.
    u8* gaps;
    u8* symbols;
    // Words of zeros, enough for the raw bits.
    u32* bits;
    DiffNumbers numbers;
    u32 n;
    u32 unused;
};

// Bits under the top one in the class of a gap.
#define SPARSE_GAP_T 2u
// Where the number after the last change is not known.
#define SPARSE_NOWHERE 0xffffffffu

DEVICE u32 gap_width(u32 gap) { return diff_width(diff_top(gap), SPARSE_GAP_T); }

// Bit k is set where number k of two packs differs.
template <u32 SIZE>
DEVICE u32 differing(const DiffPack& a, const DiffPack& b) {
    const u32 V = DIFF_PER_LANE(SIZE);
    if (((a.w[0] ^ b.w[0]) | (a.w[1] ^ b.w[1]) | (a.w[2] ^ b.w[2]) | (a.w[3] ^ b.w[3])) == 0) return 0;
    u32 mask = 0;
#pragma unroll
    for (u32 k = 0; k < V; k++) mask |= (diff_get<SIZE>(a, k) != diff_get<SIZE>(b, k) ? 1u : 0u) << k;
    return mask;
}

// For a lane that starts at number i: the number after the last change before it, given the lanes' changes, those of none of which
// are before `next`. `next` becomes the number after the last change of all.
DEVICE u32 next_before(u32 mask, u32 some, u32 i, u32& next) {
    u32 after = i + diff_top(mask) + 1u, lower = some & lanes_below();
    u32 other = __shfl_sync(ALL, after, (i32)diff_top(lower));
    u32 out = lower ? other : next;
    next = __shfl_sync(ALL, after, (i32)diff_top(some));
    return out;
}

// Raw bits of a lane's changes: numbers i + k for the bits k of mask. They are few: read again, one by one.
template <u32 SIZE>
DEVICE u32 change_bits(const SparseBlock& b, u32 mask, u32 i, u32 next) {
    u32 bits = 0;
#pragma unroll 1
    for (; mask; mask &= mask - 1u) {
        u32 at = i + (u32)__ffs((i32)mask) - 1u;
        bool positive;
        bits += next == SPARSE_NOWHERE ? 0u : gap_width(at - next);
        bits += diff_width(diff_top(diff_of<SIZE>(b.numbers, diff_load_one<SIZE>(b.raw, at), diff_load_one<SIZE>(b.base, at), positive)),
                         diff_most_t<SIZE>());
        next = at + 1u;
    }
    return bits;
}

template <u32 SIZE>
DEVICE void count_tile(const SparseBlock& b, u32 tile) {
    const u32 V = DIFF_PER_LANE(SIZE);
    u32 end = min(b.n, (tile + 1u) * DIFF_TILE), lane = lane_id();
    u32 count = 0, bits = 0, first = SPARSE_NOWHERE, next = SPARSE_NOWHERE;
    for (u32 at = tile * DIFF_TILE; at < end; at += WARP * V) {
        u32 i = at + lane * V;
        DiffPack now = diff_load<SIZE>(b.raw, i, b.n), old = diff_load<SIZE>(b.base, i, b.n);
        u32 mask = differing<SIZE>(now, old), some = __ballot_sync(ALL, mask != 0);
        if (!some) continue;
        u32 leads = __shfl_sync(ALL, i + (u32)__ffs((i32)mask) - 1u, __ffs((i32)some) - 1);
        first = min(first, leads);
        u32 before = next_before(mask, some, i, next);
        count += (u32)__popc(mask);
        bits += change_bits<SIZE>(b, mask, i, before);
    }
    count = warp_sum(count);
    bits = warp_sum(bits);
    if (lane == 0) b.tiles[tile] = make_uint4(count, first, count ? next : 0u, bits);
}

// tiles[w] = block | tile << 32, a warp each. Reads raw and base, writes the tile.
KERNEL(sparse_count, (const SparseBlock* blocks, const u64* tiles, u32 count)) {
    u32 w = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (w >= count) return;
    u64 at = tiles[w];
    SparseBlock b = blocks[(u32)at];
    u32 tile = (u32)(at >> 32);
    if (b.numbers.size == 1)
        count_tile<1>(b, tile);
    else if (b.numbers.size == 2)
        count_tile<2>(b, tile);
    else if (b.numbers.size == 4)
        count_tile<4>(b, tile);
    else
        count_tile<8>(b, tile);
}

DEVICE u32 warp_max_before(u32 v, u32& all) {
    u32 most = v;
    for (u32 d = 1; d < WARP; d <<= 1) {
        u32 other = __shfl_up_sync(ALL, most, d);
        if (lane_id() >= d) most = max(most, other);
    }
    all = __shfl_sync(ALL, most, 31);
    u32 before = __shfl_up_sync(ALL, most, 1);
    return lane_id() ? before : 0u;
}

// Puts the tiles of each block in order; totals[j] becomes block j's changes and raw bits. A warp to a block.
KERNEL(sparse_scan, (const SparseBlock* blocks, u32 count, uint2* totals)) {
    u32 j = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (j >= count) return;
    uint4* tiles = blocks[j].tiles;
    u32 have = (blocks[j].n + DIFF_TILE - 1u) / DIFF_TILE, lane = lane_id();
    u32 changes = 0, bits = 0, next = 0;
    for (u32 at = 0; at < have; at += WARP) {
        bool live = at + lane < have;
        uint4 v = live ? tiles[at + lane] : make_uint4(0, 0, 0, 0);
        u32 most, before = max(next, warp_max_before(v.z, most));
        next = max(next, most);
        u32 own = v.w + (v.x ? gap_width(v.y - before) : 0u);
        u32 c = changes + warp_before(v.x), w = bits + warp_before(own);
        if (live) tiles[at + lane] = make_uint4(c, before, v.x, w);
        changes = __shfl_sync(ALL, c + v.x, 31);
        bits = __shfl_sync(ALL, w + own, 31);
    }
    if (lane == 0) totals[j] = make_uint2(changes, bits);
}

// Ors v, of at most 63 bits, into words of zeros.
DEVICE void or_bits(u32* words, u32 pos, u64 v) {
    u32 shift = pos & 31u;
    u64 low = v << shift, high = (v >> 1) >> (63u - shift);
    u32* at = words + (pos >> 5);
    if ((u32)low) atomicOr(at, (u32)low);
    if (low >> 32) atomicOr(at + 1, (u32)(low >> 32));
    if (high) atomicOr(at + 2, (u32)high);
}

template <u32 SIZE>
DEVICE void emit_tile(const SparseBlock& b, u32 tile, uint4 start) {
    const u32 V = DIFF_PER_LANE(SIZE);
    u32 end = min(b.n, (tile + 1u) * DIFF_TILE), lane = lane_id(), next = start.y;
    for (u32 at = tile * DIFF_TILE; at < end; at += WARP * V) {
        u32 i = at + lane * V;
        DiffPack now = diff_load<SIZE>(b.raw, i, b.n), old = diff_load<SIZE>(b.base, i, b.n);
        u32 mask = differing<SIZE>(now, old), some = __ballot_sync(ALL, mask != 0);
        if (!some) continue;
        u32 before = next_before(mask, some, i, next), count = (u32)__popc(mask);
        u32 bits = change_bits<SIZE>(b, mask, i, before);
        u32 c = start.x + warp_before(count), pos = start.w + warp_before(bits);
        start.x = __shfl_sync(ALL, c + count, 31);
        start.w = __shfl_sync(ALL, pos + bits, 31);
#pragma unroll 1
        for (; mask; mask &= mask - 1u) {
            u32 j = i + (u32)__ffs((i32)mask) - 1u, gap = j - before, p = diff_top(gap), width = diff_width(p, SPARSE_GAP_T);
            before = j + 1u;
            b.gaps[c] = (u8)diff_class(gap, p, SPARSE_GAP_T);
            or_bits(b.bits, pos, gap & ((1u << width) - 1u));
            pos += width;
            bool positive;
            DiffNumber<SIZE> m = diff_of<SIZE>(b.numbers, diff_load_one<SIZE>(b.raw, j), diff_load_one<SIZE>(b.base, j), positive);
            p = diff_top(m);
            width = diff_width(p, diff_most_t<SIZE>());
            b.symbols[c] = (u8)diff_symbol(diff_class(m, p, diff_most_t<SIZE>()), positive);
            or_bits(b.bits, pos, (u64)m & ((1ull << width) - 1ull));
            pos += width;
            c++;
        }
    }
}

// As sparse_count, after sparse_scan: reads raw, base and the tile, writes the classes and symbols of its changes and ors their raw
// bits into place.
KERNEL(sparse_emit, (const SparseBlock* blocks, const u64* tiles, u32 count)) {
    u32 w = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (w >= count) return;
    u64 at = tiles[w];
    SparseBlock b = blocks[(u32)at];
    u32 tile = (u32)(at >> 32);
    uint4 start = b.tiles[tile];
    if (start.z == 0) return;
    if (b.numbers.size == 1)
        emit_tile<1>(b, tile, start);
    else if (b.numbers.size == 2)
        emit_tile<2>(b, tile, start);
    else if (b.numbers.size == 4)
        emit_tile<4>(b, tile, start);
    else
        emit_tile<8>(b, tile, start);
}

// A block of the format that is being decoded: n numbers, 2^23 at most, of which `out` has those of the base already.
struct SparseCoded {
    const u8* base;
    u8* out;
    // Classes and symbols of `changes` changes, n at most: any bytes.
    const u8* gaps;
    const u8* symbols;
    // The raw bits: `len` bytes, at any address.
    const u8* bits;
    DiffNumbers numbers;
    u32 n;
    u32 changes;
    u32 len;
    u32 unused;
};

#define SPARSE_WARPS 8u

// Sum over the threads below this one; `all` becomes that over the block. `room` has a word a warp.
DEVICE u32 block_before(u32 v, u32* room, u32& all) {
    u32 before = warp_before(v);
    __syncthreads();
    if (lane_id() == 31u) room[warp_id()] = before + v;
    __syncthreads();
    all = 0;
#pragma unroll
    for (u32 w = 0; w < SPARSE_WARPS; w++) {
        if (w < warp_id()) before += room[w];
        all += room[w];
    }
    return before;
}

template <u32 SIZE>
DEVICE void change(const SparseCoded& b, u32 at, u32 s, u64 raw) {
    DiffNumber<SIZE> magnitude = (DiffNumber<SIZE>)(diff_least<u64>((s + 1u) >> 1, diff_most_t<SIZE>()) + raw);
    diff_store_one<SIZE>(b.out, at, diff_apply<SIZE>(b.numbers, diff_load_one<SIZE>(b.base, at), magnitude, s & 1u));
}

// Changes the numbers of block blockIdx.x; its bad becomes 1 where a change is past the end or raw bits do not end in the last byte.
// SPARSE_WARPS warps a block of threads. Raw bits are below 2^23 * 95 < 2^32; a number past the end counts as n, so that the sum
// of 256 gaps stays below 2^32, too.
KERNEL(sparse_apply, (const SparseCoded* blocks, u32* bad)) {
    __shared__ u32 room[2][SPARSE_WARPS];
    __shared__ u32 wrong;
    SparseCoded b = blocks[blockIdx.x];
    u32 t = b.numbers.size == 8 ? diff_most_t<8>() : b.numbers.size == 4 ? diff_most_t<4>() : diff_most_t<1>();
    if (threadIdx.x == 0) wrong = 0;
    u32 bits = 0, next = 0;
    bool fine = true;
    for (u32 first = 0; first < b.changes && fine; first += blockDim.x) {
        u32 j = first + threadIdx.x;
        bool live = j < b.changes;
        u32 g = live ? b.gaps[j] : 0u, s = live ? b.symbols[j] : 0u;
        u32 wide = min(diff_symbol_width(2u * g, SPARSE_GAP_T), 32u), width = diff_symbol_width(s, t), all;
        u32 pos = bits + block_before(wide + width, room[0], all);
        bits += all;
        bool inside = pos + wide + width <= 8ull * b.len;
        u64 gap = diff_least<u64>(g, SPARSE_GAP_T) + (inside ? diff_read_bits(b.bits, pos, wide) : 0ull);
        u32 less = gap < b.n ? (u32)gap : b.n;
        u32 at = next + less + block_before(live ? less + 1u : 0u, room[1], all);
        next += all;
        bool good = inside && at < b.n;
        if (live && !good) wrong = 1;
        if (live && good) {
            u64 raw = diff_read_bits(b.bits, pos + wide, width);
            if (b.numbers.size == 1)
                change<1>(b, at, s, raw);
            else if (b.numbers.size == 2)
                change<2>(b, at, s, raw);
            else if (b.numbers.size == 4)
                change<4>(b, at, s, raw);
            else
                change<8>(b, at, s, raw);
        }
        __syncthreads();
        fine = wrong == 0;
    }
    if (threadIdx.x == 0) bad[blockIdx.x] = fine && (bits >> 3) + ((bits & 7u) != 0) == b.len ? 0u : 1u;
}
