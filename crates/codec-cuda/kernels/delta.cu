// Scheme "delta": symbols, contexts and raw bits of numbers against their base, and back.
#include "diff.cuh"

// A block of the format that is being encoded: n numbers, 2^18 at most.
struct DeltaBlock {
    const u8* raw;
    const u8* base;
    // For each tile: its raw bits with 0, 1, 2 and 3 bits in the class; after delta_scan, those of the tiles before it.
    uint4* tiles;
    // 256 counts for each exponent of the segment, and whether it occurs.
    u32* counts;
    u32* seen;
    // A byte a number each, aligned to 16; ctx may be null.
    u8* symbols;
    u8* ctx;
    // 256 bytes.
    const u8* map;
    // Words of zeros, enough for the raw bits.
    u32* bits;
    DiffNumbers numbers;
    u32 n;
    u32 t;
};

#define DELTA_ROWS 32u

// Counts one symbol. Exponents e and e + 32 want the same row; it belongs to the first that comes, others count in global memory.
DEVICE void tally(u32* counts, u32* owner, const DeltaBlock& b, u32 e, u32 s) {
    u32 row = e & (DELTA_ROWS - 1u);
    u32 own = relaxed_load(&owner[row]);
    if (own == 0) {
        own = atomicCAS(&owner[row], 0u, e + 1u);
        if (own == 0) own = e + 1u;
    }
    if (own == e + 1u)
        atomicAdd(&counts[row << 8 | s], 1u);
    else {
        atomicAdd(&b.counts[e << 8 | s], 1u);
        relaxed_store(&b.seen[e], 1u);
    }
}

template <u32 SIZE>
DEVICE void count_tile(const DeltaBlock& b, u32 tile, u32* counts, u32* owner) {
    const u32 V = DIFF_PER_LANE(SIZE);
    u32 end = min(b.n, (tile + 1u) * DIFF_TILE), lane = lane_id();
    u32 sums[4] = {0, 0, 0, 0};
    for (u32 i = tile * DIFF_TILE + lane * V; i < end; i += WARP * V) {
        DiffPack now = diff_load<SIZE>(b.raw, i, b.n), old = diff_load<SIZE>(b.base, i, b.n);
#pragma unroll
        for (u32 k = 0; k < V; k++) {
            if (i + k >= end) continue;
            bool positive;
            DiffNumber<SIZE> o = diff_get<SIZE>(old, k);
            DiffNumber<SIZE> m = diff_of<SIZE>(b.numbers, diff_get<SIZE>(now, k), o, positive);
            u32 p = diff_top(m);
#pragma unroll
            for (u32 t = 0; t < 4; t++) sums[t] += diff_width(p, t);
            u32 s = diff_symbol(diff_class(m, p, diff_most_t<SIZE>()), positive);
            tally(counts, owner, b, diff_exponent<SIZE>(b.numbers, o), s);
        }
    }
#pragma unroll
    for (u32 t = 0; t < 4; t++) sums[t] = warp_sum(sums[t]);
    if (lane == 0) b.tiles[tile] = make_uint4(sums[0], sums[1], sums[2], sums[3]);
}

// groups[x] = block | group << 32: its tiles group * w to group * w + w - 1, for w warps. Reads raw and base, writes their tiles, adds
// to counts and sets seen.
KERNEL(delta_count, (const DeltaBlock* blocks, const u64* groups)) {
    __shared__ uint4 room[DELTA_ROWS * 64];
    __shared__ u32 owner[DELTA_ROWS];
    u32* counts = (u32*)room;
    u64 group = groups[blockIdx.x];
    DeltaBlock b = blocks[(u32)group];
    for (u32 i = threadIdx.x; i < DELTA_ROWS * 64u; i += blockDim.x) room[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < DELTA_ROWS) owner[threadIdx.x] = 0;
    __syncthreads();
    u32 tile = (u32)(group >> 32) * (blockDim.x / WARP) + warp_id();
    if (tile * DIFF_TILE < b.n) {
        if (b.numbers.size == 1)
            count_tile<1>(b, tile, counts, owner);
        else if (b.numbers.size == 2)
            count_tile<2>(b, tile, counts, owner);
        else if (b.numbers.size == 4)
            count_tile<4>(b, tile, counts, owner);
        else
            count_tile<8>(b, tile, counts, owner);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < DELTA_ROWS * 256u; i += blockDim.x)
        if (counts[i]) atomicAdd(&b.counts[(owner[i >> 8] - 1u) << 8 | (i & 255u)], counts[i]);
    if (threadIdx.x < DELTA_ROWS && owner[threadIdx.x]) b.seen[owner[threadIdx.x] - 1u] = 1;
}

// Turns the sums of each block's tiles into those before them; totals[j] becomes block j's. A warp to a block.
KERNEL(delta_scan, (const DeltaBlock* blocks, u32 count, uint4* totals)) {
    u32 j = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (j >= count) return;
    uint4* tiles = blocks[j].tiles;
    u32 have = (blocks[j].n + DIFF_TILE - 1u) / DIFF_TILE, lane = lane_id();
    uint4 sum = make_uint4(0, 0, 0, 0);
    for (u32 at = 0; at < have; at += WARP) {
        bool live = at + lane < have;
        uint4 v = live ? tiles[at + lane] : make_uint4(0, 0, 0, 0);
        uint4 to = make_uint4(sum.x + warp_before(v.x), sum.y + warp_before(v.y), sum.z + warp_before(v.z),
                              sum.w + warp_before(v.w));
        if (live) tiles[at + lane] = to;
        sum.x = __shfl_sync(ALL, to.x + v.x, 31);
        sum.y = __shfl_sync(ALL, to.y + v.y, 31);
        sum.z = __shfl_sync(ALL, to.z + v.z, 31);
        sum.w = __shfl_sync(ALL, to.w + v.w, 31);
    }
    if (lane == 0) totals[j] = sum;
}

// Words of a warp's bits on their way: what 32 lanes have, 128 bits each, after up to 31 bits of before.
#define DELTA_STAGE 132u

// Moves 128 bits up by `width`, which is below that of a number, and puts v in its place.
template <u32 SIZE>
DEVICE void bits_push(DiffPack& x, DiffNumber<SIZE> v, u32 width) {
    if constexpr (SIZE == 8) {
        u64 low = x.w[0] | (u64)x.w[1] << 32, high = x.w[2] | (u64)x.w[3] << 32;
        high = high << width | (low >> 1) >> (63u - width);
        low = low << width | v;
        x = {{(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)}};
    } else {
        x.w[3] = __funnelshift_l(x.w[2], x.w[3], width);
        x.w[2] = __funnelshift_l(x.w[1], x.w[2], width);
        x.w[1] = __funnelshift_l(x.w[0], x.w[1], width);
        x.w[0] = x.w[0] << width | v;
    }
}

// Takes the lowest `width` of 128 bits, fewer than a number has, and moves the others down.
template <u32 SIZE>
DEVICE DiffNumber<SIZE> bits_pop(DiffPack& x, u32 width) {
    DiffNumber<SIZE> v;
    if constexpr (SIZE == 8) {
        u64 low = x.w[0] | (u64)x.w[1] << 32, high = x.w[2] | (u64)x.w[3] << 32;
        v = low & ((1ull << width) - 1ull);
        low = low >> width | (high << 1) << (63u - width);
        high >>= width;
        x = {{(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)}};
    } else {
        v = x.w[0] & ((1u << width) - 1u);
        x.w[0] = __funnelshift_r(x.w[0], x.w[1], width);
        x.w[1] = __funnelshift_r(x.w[1], x.w[2], width);
        x.w[2] = __funnelshift_r(x.w[2], x.w[3], width);
        x.w[3] >>= width;
    }
    return v;
}

// Where a warp's bits go: the next word, and bits already in stage[0]. The first word may be another tile's, too.
struct BitRun {
    u32* words;
    u32 fill;
    bool shared;
};

// Appends the first `width` of this lane's bits, after those of the lanes below; the others are zeros.
DEVICE void put_lanes(BitRun& run, u32* stage, const DiffPack& bits, u32 width) {
    u32 lane = lane_id(), before = warp_before(width);
    u32 end = run.fill + __shfl_sync(ALL, before + width, 31);
    if (end == run.fill) return;
    u32 pos = run.fill + before, word = pos >> 5, shift = pos & 31u;
#pragma unroll
    for (u32 k = 0; k < 5; k++) {
        u32 v = __funnelshift_l(k > 0 ? bits.w[k - 1] : 0u, k < 4 ? bits.w[k] : 0u, shift);
        if (v) atomicOr(&stage[word + k], v);
    }
    __syncwarp();
    u32 whole = end >> 5, rest = stage[whole];
    for (u32 k = lane; k < whole; k += WARP) {
        if (k == 0 && run.shared)
            atomicOr(run.words, stage[0]);
        else
            run.words[k] = stage[k];
    }
    __syncwarp();
    for (u32 k = lane; k <= whole; k += WARP) stage[k] = k == 0 ? rest : 0u;
    __syncwarp();
    run.words += whole;
    run.fill = end & 31u;
    run.shared = run.shared && whole == 0;
}

template <u32 SIZE>
DEVICE void emit_tile(const DeltaBlock& b, u32 tile, u32* stage) {
    const u32 V = DIFF_PER_LANE(SIZE);
    u32 end = min(b.n, (tile + 1u) * DIFF_TILE), lane = lane_id();
    uint4 starts = b.tiles[tile];
    u32 start = b.t == 0 ? starts.x : b.t == 1 ? starts.y : b.t == 2 ? starts.z : starts.w;
    BitRun run = {b.bits + (start >> 5), start & 31u, (start & 31u) != 0};
    for (u32 at = tile * DIFF_TILE; at < end; at += WARP * V) {
        u32 i = at + lane * V;
        DiffPack now = diff_load<SIZE>(b.raw, i, b.n), old = diff_load<SIZE>(b.base, i, b.n);
        DiffPack symbols = {{0, 0, 0, 0}}, ctx = {{0, 0, 0, 0}}, bits = {{0, 0, 0, 0}};
        u32 total = 0;
        // From the last to the first: each pushes those after it up. Past the end there are zeros on both sides, of no width.
#pragma unroll
        for (u32 r = 0; r < V; r++) {
            const u32 k = V - 1u - r;
            bool positive;
            DiffNumber<SIZE> o = diff_get<SIZE>(old, k);
            DiffNumber<SIZE> m = diff_of<SIZE>(b.numbers, diff_get<SIZE>(now, k), o, positive);
            u32 p = diff_top(m), width = diff_width(p, b.t);
            symbols.w[k >> 2] |= diff_symbol(diff_class(m, p, b.t), positive) << 8 * (k & 3);
            if (b.ctx && i + k < end) ctx.w[k >> 2] |= (u32)b.map[diff_exponent<SIZE>(b.numbers, o)] << 8 * (k & 3);
            bits_push<SIZE>(bits, m & (((DiffNumber<SIZE>)1 << width) - 1u), width);
            total += width;
        }
        diff_store_bytes<SIZE>(b.symbols, i, b.n, symbols);
        if (b.ctx) diff_store_bytes<SIZE>(b.ctx, i, b.n, ctx);
        put_lanes(run, stage, bits, total);
    }
    if (lane == 0 && run.fill) atomicOr(run.words, stage[0]);
}

// tiles[w] = block | tile << 32, a warp each. Reads raw, base and the tile's start, writes its symbols and contexts and ors its raw
// bits into place. At most 8 warps a block of threads.
KERNEL(delta_emit, (const DeltaBlock* blocks, const u64* tiles, u32 count)) {
    __shared__ u32 stages[8 * DELTA_STAGE];
    u32 w = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (w >= count) return;
    u32* stage = stages + warp_id() * DELTA_STAGE;
    for (u32 k = lane_id(); k < DELTA_STAGE; k += WARP) stage[k] = 0;
    __syncwarp();
    u64 at = tiles[w];
    DeltaBlock b = blocks[(u32)at];
    u32 tile = (u32)(at >> 32);
    if (b.numbers.size == 1)
        emit_tile<1>(b, tile, stage);
    else if (b.numbers.size == 2)
        emit_tile<2>(b, tile, stage);
    else if (b.numbers.size == 4)
        emit_tile<4>(b, tile, stage);
    else
        emit_tile<8>(b, tile, stage);
}

// A block of the format that is being decoded: n numbers, 2^23 at most.
struct DeltaCoded {
    const u8* base;
    u8* out;
    // A byte a number each, aligned to 16; ctx may be null.
    u8* symbols;
    u8* ctx;
    const u8* map;
    // The raw bits: `len` bytes, at any address.
    const u8* bits;
    // For each tile, its raw bits; after delta_check, those before it.
    u32* tiles;
    DiffNumbers numbers;
    u32 n;
    u32 t;
    u32 len;
    u32 unused;
};

template <u32 SIZE>
DEVICE void context_tile(const DeltaCoded& b, u32 tile) {
    const u32 V = DIFF_PER_LANE(SIZE);
    u32 end = min(b.n, (tile + 1u) * DIFF_TILE);
    for (u32 i = tile * DIFF_TILE + lane_id() * V; i < end; i += WARP * V) {
        DiffPack old = diff_load<SIZE>(b.base, i, b.n), ctx = {{0, 0, 0, 0}};
#pragma unroll
        for (u32 k = 0; k < V; k++)
            ctx.w[k >> 2] |= (u32)b.map[diff_exponent<SIZE>(b.numbers, diff_get<SIZE>(old, k))] << 8 * (k & 3);
        diff_store_bytes<SIZE>(b.ctx, i, b.n, ctx);
    }
}

// tiles[w] = block | tile << 32, a warp each. Reads base, writes the tile's contexts, where the block has them.
KERNEL(delta_contexts, (const DeltaCoded* blocks, const u64* tiles, u32 count)) {
    u32 w = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (w >= count) return;
    u64 at = tiles[w];
    DeltaCoded b = blocks[(u32)at];
    u32 tile = (u32)(at >> 32);
    if (!b.ctx) return;
    if (b.numbers.size == 1)
        context_tile<1>(b, tile);
    else if (b.numbers.size == 2)
        context_tile<2>(b, tile);
    else if (b.numbers.size == 4)
        context_tile<4>(b, tile);
    else
        context_tile<8>(b, tile);
}

// The same: reads symbols, writes the tile's raw bits to its block's `tiles`.
KERNEL(delta_widths, (const DeltaCoded* blocks, const u64* tiles, u32 count)) {
    u32 w = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (w >= count) return;
    u64 at = tiles[w];
    DeltaCoded b = blocks[(u32)at];
    u32 tile = (u32)(at >> 32), end = min(b.n, (tile + 1u) * DIFF_TILE), sum = 0;
    for (u32 i = tile * DIFF_TILE + lane_id() * 8u; i < end; i += WARP * 8u) {
        // Symbol 0, which stands past the end, has no raw bits.
        DiffPack symbols = diff_load_bytes<1>(b.symbols, i, b.n);
#pragma unroll
        for (u32 k = 0; k < 8; k++) sum += diff_symbol_width(symbols.w[k >> 2] >> 8 * (k & 3) & 255u, b.t);
    }
    sum = warp_sum(sum);
    if (lane_id() == 0) b.tiles[tile] = sum;
}

// Turns the raw bits of each block's tiles into those before them. bad[j] becomes 1 where block j's do not end in its last byte.
// A warp to a block. All sums are below 2^23 * 63 < 2^32.
KERNEL(delta_check, (const DeltaCoded* blocks, u32 count, u32* bad)) {
    u32 j = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (j >= count) return;
    u32* tiles = blocks[j].tiles;
    u32 have = (blocks[j].n + DIFF_TILE - 1u) / DIFF_TILE, lane = lane_id(), sum = 0;
    for (u32 at = 0; at < have; at += WARP) {
        bool live = at + lane < have;
        u32 v = live ? tiles[at + lane] : 0u, to = sum + warp_before(v);
        if (live) tiles[at + lane] = to;
        sum = __shfl_sync(ALL, to + v, 31);
    }
    if (lane == 0) bad[j] = (sum >> 3) + ((sum & 7u) != 0) == blocks[j].len ? 0u : 1u;
}

template <u32 SIZE>
DEVICE void apply_tile(const DeltaCoded& b, u32 tile) {
    const u32 V = DIFF_PER_LANE(SIZE);
    u32 end = min(b.n, (tile + 1u) * DIFF_TILE), lane = lane_id(), start = b.tiles[tile];
    u32 skew = (u32)((u64)b.bits & 3) * 8u;
    const u32* words = (const u32*)((u64)b.bits & ~3ull);
    for (u32 first = tile * DIFF_TILE; first < end; first += WARP * V) {
        u32 i = first + lane * V, total = 0, widest = 0;
        DiffPack symbols = diff_load_bytes<SIZE>(b.symbols, i, b.n), old = diff_load<SIZE>(b.base, i, b.n), now = {{0, 0, 0, 0}};
#pragma unroll
        for (u32 k = 0; k < V; k++) {
            u32 width = diff_symbol_width(symbols.w[k >> 2] >> 8 * (k & 3) & 255u, b.t);
            total += width;
            widest = max(widest, width);
        }
        u32 pos = start + warp_before(total);
        start = __shfl_sync(ALL, pos + total, 31);
        if (total > 128u || (SIZE < 8 && widest > 31u)) {
            // No encoder makes such numbers: one by one.
#pragma unroll 1
            for (u32 j = i; j < min(i + V, b.n); j++) {
                u32 s = b.symbols[j], width = diff_symbol_width(s, b.t);
                u64 m = diff_least<u64>((s + 1u) >> 1, b.t) + diff_read_bits(b.bits, pos, width);
                pos += width;
                diff_store_one<SIZE>(b.out, j, diff_apply<SIZE>(b.numbers, diff_load_one<SIZE>(b.base, j), (DiffNumber<SIZE>)m, s & 1u));
            }
            continue;
        }
        u32 skip = (pos + skew) & 31u, x[5] = {0, 0, 0, 0, 0};
        DiffPack bits;
        if (total) {
            const u32* at = words + ((pos + skew) >> 5);
#pragma unroll
            for (u32 k = 0; k < 5; k++)
                if (k * 32u < skip + total) x[k] = at[k];
        }
#pragma unroll
        for (u32 k = 0; k < 4; k++) bits.w[k] = __funnelshift_r(x[k], x[k + 1], skip);
#pragma unroll
        for (u32 k = 0; k < V; k++) {
            u32 s = symbols.w[k >> 2] >> 8 * (k & 3) & 255u, width = diff_symbol_width(s, b.t);
            u32 c = (s + 1u) >> 1;
            DiffNumber<SIZE> m = bits_pop<SIZE>(bits, width) + diff_least<DiffNumber<SIZE>>(c, b.t);
            diff_set<SIZE>(now, k, diff_apply<SIZE>(b.numbers, diff_get<SIZE>(old, k), m, s & 1u));
        }
        diff_store<SIZE>(b.out, i, b.n, now);
    }
}

// tiles[w] = block | tile << 32, a warp each. Reads base, symbols, raw bits (and the aligned words around them) and the tile's start,
// writes its numbers; nothing where bad[block].
KERNEL(delta_apply, (const DeltaCoded* blocks, const u64* tiles, u32 count, const u32* bad)) {
    u32 w = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (w >= count) return;
    u64 at = tiles[w];
    if (bad[(u32)at]) return;
    DeltaCoded b = blocks[(u32)at];
    u32 tile = (u32)(at >> 32);
    if (b.numbers.size == 1)
        apply_tile<1>(b, tile);
    else if (b.numbers.size == 2)
        apply_tile<2>(b, tile);
    else if (b.numbers.size == 4)
        apply_tile<4>(b, tile);
    else
        apply_tile<8>(b, tile);
}
