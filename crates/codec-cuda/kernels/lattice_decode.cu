// Encoded lattices back to reconstructions. Only what is one after the other by its nature is in the walk, a warp to a block: activity,
// streams, places of raw bits. What the parents say is looked at before it, cells after it, by all threads there are.
#include "lattice.cuh"
#include "rans.cuh"

struct LatticeDecode {
    Piece piece;
    // Or null.
    const u8* base;
    const u8* grandparent;
    u8* out;
    // Before the walk the class, and bit 7 where differences are mirrored (nothing without a base); after it the symbol of the
    // difference as it is, not mirrored. As long as n, rounded up to 128.
    u8* symbols;
    // Raw bits of its block before each group that has any.
    u32* bits_before;
    // The table of each raw context, 1024; and the slots of the tables.
    const u32* map;
    const u32* slots;
    // The likeliest symbol of each table, with its frequency, as slots have them.
    const u32* likely;
    // Becomes 1 where something does not decode.
    u32* bad;
    u32 n;
    // log2 of a block's elements, at least 7.
    u32 log;
    u32 lanes;
    u32 width, top;
    // Of its first block, in the list of all.
    u32 block;
};

struct LatticeBlock {
    const u8* stream;
    // Words that hold low_len bytes.
    const u32* low;
    // As many averages as it has columns.
    u16* averages;
    u32 len;
    u32 low_len;
    u32 job;
    // First element, and how many.
    u32 start;
    u32 n;
    // Columns whose averages it keeps, at least 32; or 0.
    u32 columns;
};

// Classes of the elements of jobs with a base.
KERNEL(lattice_classes, (const LatticeDecode* jobs)) {
    const LatticeDecode& job = jobs[blockIdx.y];
    Piece piece = job.piece;
    const u8 *base = job.base, *grandparent = job.grandparent;
    u32 n = base ? job.n : 0u;
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) * 4u; i < n; i += gridDim.x * blockDim.x * 4u) {
        u32 count = min(4u, n - i), classes = 0;
        float p[4], g[4], d[4], o[4];
        load_four(base, piece.dtype, i, count, p);
        if (grandparent) load_four(grandparent, piece.dtype, i, count, g);
        cells_of_four(piece, i, count, d, o);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            i32 guess;
            u32 cls;
            bool mirror;
            look(p[j], grandparent ? g[j] : 0.0f, grandparent != nullptr, d[j], o[j], guess, cls, mirror);
            if (j < count) classes |= (cls | (mirror ? 128u : 0u)) << 8u * j;
        }
        *(u32*)(job.symbols + i) = classes;
    }
}

// `width` bits, at most 25, from bit `at` on; zeros past the end.
DEVICE u32 bits_at(const u32* words, u32 bytes, u32 at, u32 width) {
    u32 word = at >> 5, have = (bytes + 3u) / 4u;
    u32 low = word < have ? words[word] : 0u, high = word + 1u < have ? words[word + 1u] : 0u;
    return __funnelshift_r(low, high, at & 31u) & ((1u << width) - 1u);
}

DEVICE u32 group_sum(u32 v) {
#ifdef MDL_SHIM
    return warp_sum(v);
#else
    return __reduce_add_sync(ALL, v);
#endif
}

// The symbols of a group from a stream of few lanes, L at a time. Such streams are long runs of the likeliest symbol: where all L have it
// and no state needs a word, nothing but registers is looked at. With one lane all 32 threads keep its state, and need not ask each other.
template <u32 L>
DEVICE u32 take_few(RansStream& s, const u32* slots, u32 ctx, u32 likely, u32 count) {
    u32 lane = lane_id(), symbol = likely & 255u;
    // A symbol that is alone in its table leaves a state as it is.
    if (__all_sync(ALL, likely >> 20 == 4095u || lane >= count)) return symbol;
    for (u32 k = 0; k * L < count; k++) {
        u32 from = L == 1 ? k : k * L + (lane & (L - 1u));
        u32 head = __shfl_sync(ALL, likely, from);
        bool live = (L == 1 || lane < L) && from < count;
        u32 freq = (head >> 20) + 1u, over = (s.x & 4095u) - (head >> 8 & 4095u);
        u32 x = freq * (s.x >> 12) + over;
        bool easy = !live || (over < freq && x >= RANS_LOW);
        if (L == 1 ? easy : (bool)__all_sync(ALL, easy)) {
            if (live) s.x = x;
            continue;
        }
        u32 row = __shfl_sync(ALL, ctx, from) << 12;
        u32 taken = rans_take(s, slots + row, live && lane < L);
        if (L == 1) s.x = __shfl_sync(ALL, s.x, 0);
        u32 own = __shfl_sync(ALL, taken, (lane - k * L) & 31u);
        if (lane / L == k) symbol = own;
    }
    return symbol;
}

// Decodes the symbols of block after block: see LatticeDecode and LatticeBlock for what is read and written. The stream is read within
// its len bytes, low within low_len; what is asked for past them is not there, and makes the job bad.
KERNEL(lattice_walk, (const LatticeDecode* jobs, const LatticeBlock* blocks, u32 count)) {
    __shared__ u32 maps[4][256];
    u32 b = blockIdx.x * (blockDim.x / WARP) + warp_id(), lane = lane_id();
    if (b >= count) return;
    LatticeBlock block = blocks[b];
    const LatticeDecode& job = jobs[block.job];
    for (u32 i = lane; i < 256; i += WARP) maps[warp_id()][i] = job.map[i];
    __syncwarp();
    const u8* map = (const u8*)maps[warp_id()];
    const u32 *slots = job.slots, *heads = job.likely;
    u8* symbols = job.symbols + block.start;
    const u32* classes = job.base ? (const u32*)symbols : nullptr;
    u32* bits_before = job.bits_before + block.start / GROUP;
    u32 lanes = job.lanes, width = job.width, top = job.top, columns = block.columns, n = block.n;
    u16* averages = block.averages;

    RansStream s;
    bool bad = !rans_open(s, block.stream, block.len, lanes);
    if (lanes == 1) s.x = __shfl_sync(ALL, s.x, 0);
    u32 lately = 0, bits = 0, at = 0, ahead = 0;
    // Classes come 128 at a time, the next ones under way.
    u32 fours = 0, next = classes && lane * 4u < n ? classes[lane] : 0u;
    for (u32 first = 0; first < n; first += GROUP) {
        u32 i = first + lane;
        bool live = i < n;
        if ((first & 127u) == 0) {
            fours = next;
            u32 then = first + 128u + lane * 4u;
            next = classes && then < n ? classes[then / 4u] : 0u;
        }
        u32 col = at + lane;
        if (col >= columns) col -= columns;
        u32 average = lately, v = lately;
        if (columns) {
            // A column that comes again 64 elements later or more could be asked for a group ahead.
            if (i >= columns) average = columns < 64u ? averages[col] : ahead;
            u32 then = col + GROUP;
            if (then >= columns) then -= columns;
            if (columns >= 64u && i + GROUP >= columns) ahead = averages[then];
            v = (lately + average) >> 1;
        }
        u32 known = __shfl_sync(ALL, fours, ((first & 127u) + lane) >> 2) >> 8u * (lane & 3u) & 255u;
        u32 ctx = map[(activity_step(v, top) * width + (known & 63u)) & 1023u];
        u32 left = min(GROUP, n - first), symbol;
        if (lanes == 32u) {
            symbol = rans_take(s, slots + (ctx << 12), live);
        } else if (lanes == 4u) {
            symbol = take_few<4>(s, slots, ctx, heads[ctx], left);
        } else {
            symbol = take_few<1>(s, slots, ctx, heads[ctx], left);
        }
        if (!live) symbol = 0;
        u32 c = (symbol + 1u) >> 1, far = c;
        if (__any_sync(ALL, symbol > PLAIN)) {
            u32 shift = class_shift(c);
            bad |= shift > 20u;
            shift = min(shift, 20u);
            u32 before = warp_before(shift);
            if (lane == 0) bits_before[first / GROUP] = bits;
            far = min(class_least(c) + bits_at(block.low, block.low_len, bits + before, shift), 255u);
            bits += __shfl_sync(ALL, before + shift, 31);
        }
        // Odd is positive: a mirrored one goes to its neighbour.
        if (known & 128u && symbol) symbol = (symbol & 1u) ? symbol + 1u : symbol - 1u;
        if (live) symbols[i] = (u8)symbol;
        if (columns) {
            averages[col] = (u16)(average - (average >> 4) + 16u * far);
            at += GROUP;
            if (at >= columns) at -= columns;
        }
        lately = (lately + 8u * group_sum(far)) >> 1;
        __syncwarp();
    }
    bool good = rans_done(s) && !__any_sync(ALL, bad) && (bits + 7u) / 8u == block.low_len;
    if (!good && lane == 0) atomicOr(job.bad, 1u);
}

// Numbers of the levels that symbols, raw bits and the base give, to out.
KERNEL(lattice_numbers, (const LatticeDecode* jobs, const LatticeBlock* blocks)) {
    const LatticeDecode& job = jobs[blockIdx.y];
    Piece piece = job.piece;
    u32 n = job.n, dtype = piece.dtype, own = threadIdx.x & 7u;
    const u8* base = job.base;
    bool bad = false;
    for (u32 start = blockIdx.x * blockDim.x * 4u; start < n; start += gridDim.x * blockDim.x * 4u) {
        u32 i = start + threadIdx.x * 4u;
        u32 count = i < n ? min(4u, n - i) : 0u;
        u32 symbols = count ? *(const u32*)(job.symbols + i) : 0u;
        if (count < 4u) symbols &= (1u << 8u * count) - 1u;
        float p[4], d[4], o[4], y[4];
        if (base) load_four(base, dtype, i, count, p);
        cells_of_four(piece, i, count, d, o);
        // Raw bits of these four, and of those before them in the group: eight threads have one.
        u32 shifts = 0;
#pragma unroll
        for (u32 j = 0; j < 4; j++) shifts += min(class_shift(((symbols >> 8u * j & 255u) + 1u) >> 1), 20u);
        u32 at = 0, low_len = 0;
        const u32* low = nullptr;
        if (__any_sync(ALL, shifts != 0)) {
            u32 sum = shifts;
            for (u32 k = 1; k < 8; k <<= 1) {
                u32 other = __shfl_up_sync(ALL, sum, k);
                if (own >= k) sum += other;
            }
            if (shifts) {
                const LatticeBlock& block = blocks[job.block + (i >> job.log)];
                at = job.bits_before[i / GROUP] + sum - shifts;
                low = block.low;
                low_len = block.low_len;
            }
        }
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 symbol = symbols >> 8u * j & 255u, c = (symbol + 1u) >> 1, shift = min(class_shift(c), 20u);
            u32 magnitude = class_least(c);
            if (shift) magnitude += bits_at(low, low_len, at, shift);
            at += shift;
            u32 q = (symbol & 1u) ? magnitude : 0u - magnitude;
            if (base) q += (u32)level_of(inside_of(p[j], d[j], o[j]));
            i32 level = (i32)q;
            bad |= j < count && (level >= (1 << 20) || level <= -(1 << 20));
            y[j] = number_of(level, d[j], o[j]);
        }
        if (count) store_four(job.out, dtype, i, count, y);
    }
    if (__any_sync(ALL, bad) && lane_id() == 0) atomicOr(job.bad, 1u);
}

// Frequencies, 256 to a table and 4096 in sum, to slots, as mdl_codec::seams::DecTable has them: a block of 256 threads to a table.
KERNEL(lattice_slots, (const u16* freqs, u32* slots)) {
    __shared__ u32 starts[256];
    __shared__ u32 sums[8];
    const u16* own = freqs + 256u * blockIdx.x;
    u32 freq = own[threadIdx.x], before = warp_before(freq);
    if (lane_id() == 31u) sums[warp_id()] = before + freq;
    __syncthreads();
    for (u32 w = 0; w < warp_id(); w++) before += sums[w];
    starts[threadIdx.x] = before;
    __syncthreads();
    for (u32 slot = threadIdx.x; slot < 4096u; slot += 256u) {
        // The last symbol that starts here or before: those without a frequency start where the next one does.
        u32 symbol = 0;
        for (u32 step = 128; step; step >>= 1)
            if (starts[symbol + step] <= slot) symbol += step;
        slots[4096u * blockIdx.x + slot] = symbol | (slot - starts[symbol]) << 8 | ((u32)own[symbol] - 1u) << 20;
    }
}
