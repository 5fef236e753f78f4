// Tensors to reconstructions on a lattice, and reconstructions to symbols in contexts.
#include "lattice.cuh"

struct LatticeQuantise {
    Piece piece;
    const u8* from;
    u8* to;
    u32* worst;
    u32 n;
};

// Writes the number of the level of each of the n elements at `from` to `to`; *worst becomes the worst reason against it: 1 a level
// that does not come back, 2 one too large, 3 a value that is not finite.
KERNEL(lattice_quantise, (const LatticeQuantise* jobs)) {
    LatticeQuantise job = jobs[blockIdx.y];
    u32 dtype = job.piece.dtype, worst = 0;
    for (u32 base = blockIdx.x * blockDim.x * 4u; base < job.n; base += gridDim.x * blockDim.x * 4u) {
        u32 i = base + threadIdx.x * 4u;
        u32 count = i < job.n ? min(4u, job.n - i) : 0u;
        if (count == 0) continue;
        float w[4], d[4], o[4];
        load_four(job.from, dtype, i, count, w);
        cells_of_four(job.piece, i, count, d, o);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            float x = place_of(w[j], d[j], o[j]);
            bool finite = (__float_as_uint(w[j]) & 0x7f800000u) != 0x7f800000u, small = fabsf(x) < LATTICE_LIMIT - 1.0f;
            float y = number_of(level_of(x), d[j], o[j]);
            bool same = true;
            if (dtype != DTYPE_F32) {
                float back = place_of(in_dtype(y, dtype), d[j], o[j]);
                same = fabsf(back) < LATTICE_LIMIT &&
                       __float_as_uint(number_of(level_of(back), d[j], o[j])) == __float_as_uint(y);
            }
            if (j < count) worst = max(worst, !finite ? 3u : !small ? 2u : !same ? 1u : 0u);
            w[j] = y;
        }
        store_four(job.to, dtype, i, count, w);
    }
    for (u32 d = 16; d; d >>= 1) worst = max(worst, __shfl_xor_sync(ALL, worst, d));
    if (worst && lane_id() == 0) atomicMax(job.worst, worst);
}

// A segment on its way to symbols. Lists of bytes are as long as n, rounded up to 128, and begin at multiples of 16.
struct LatticeEncode {
    Piece piece;
    const u8* raw;
    // Or null.
    const u8* base;
    const u8* grandparent;
    u8* symbols;
    // min(|e|, 255), where e is the difference that the symbol stands for.
    u8* far;
    u8* cls;
    // Steps of activity; after lattice_contexts the context.
    u8* ctx;
    // Of each group of 32: the sum of far, and its raw bits in the upper half.
    u32* groups;
    // Of each group: activity before it, and the raw bits of its block before it.
    u16* lately;
    u32* bits_before;
    // Raw bits of each block.
    u32* bits;
    // 1 where a value is not on the lattice; the largest symbol.
    u32* facts;
    // alphabet for each raw context.
    u32* counts;
    // The table of each raw context.
    const u8* map;
    // Raw bits: zeros at first. Those of block b begin at the word low_at[b].
    u32* low;
    const u32* low_at;
    u32 n;
    // log2 of a block's elements.
    u32 log;
    // Averages of columns that all blocks but the last keep, and that the last one keeps; 0 for none.
    u32 columns, columns_last;
    // Raw context: width * step + class; steps are at most top.
    u32 width, top;
    u32 alphabet;
};

// Makes symbols, far, cls, groups and facts (zeros at first) of what raw, base and grandparent hold.
KERNEL(lattice_symbols, (const LatticeEncode* jobs)) {
    const LatticeEncode& job = jobs[blockIdx.y];
    Piece piece = job.piece;
    u32 n = job.n, dtype = piece.dtype, top = 0;
    const u8 *raw = job.raw, *base = job.base, *grandparent = job.grandparent;
    bool bad = false;
    for (u32 start = blockIdx.x * blockDim.x * 4u; start < n; start += gridDim.x * blockDim.x * 4u) {
        u32 i = start + threadIdx.x * 4u;
        u32 count = i < n ? min(4u, n - i) : 0u;
        float w[4], p[4], g[4], d[4], o[4];
        load_four(raw, dtype, i, count, w);
        if (base) load_four(base, dtype, i, count, p);
        if (grandparent) load_four(grandparent, dtype, i, count, g);
        cells_of_four(piece, i, count, d, o);
        u32 symbols = 0, fars = 0, classes = 0, sum = 0;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            float x = place_of(w[j], d[j], o[j]);
            i32 q = level_of(x), guess = 0;
            float back = in_dtype(number_of(q, d[j], o[j]), dtype);
            u32 cls = 0;
            bool mirror = false;
            if (base) look(p[j], grandparent ? g[j] : 0.0f, grandparent != nullptr, d[j], o[j], guess, cls, mirror);
            i32 e = (i32)((u32)q - (u32)guess);
            if (mirror) e = (i32)(0u - (u32)e);
            u32 magnitude = e < 0 ? 0u - (u32)e : (u32)e, shift = shift_of(magnitude);
            u32 symbol = (((shift << 2) + (magnitude >> shift)) * 2u - (e > 0 ? 1u : 0u)) & 255u, far = min(magnitude, 255u);
            if (j < count) {
                bad |= !(fabsf(x) < LATTICE_LIMIT) || __float_as_uint(back) != __float_as_uint(w[j]);
                symbols |= symbol << 8u * j;
                fars |= far << 8u * j;
                classes |= cls << 8u * j;
                sum += far | shift << 16;
                top = max(top, symbol);
            }
        }
        if (count) {
            *(u32*)(job.symbols + i) = symbols;
            *(u32*)(job.far + i) = fars;
            *(u32*)(job.cls + i) = classes;
        }
        // Eight threads have a group.
        for (u32 k = 4; k; k >>= 1) sum += __shfl_xor_sync(ALL, sum, k);
        if (count && (threadIdx.x & 7u) == 0) job.groups[i / GROUP] = sum;
    }
    for (u32 k = 16; k; k >>= 1) top = max(top, __shfl_xor_sync(ALL, top, k));
    bool any = __any_sync(ALL, bad);
    if (lane_id() == 0) {
        if (any) atomicOr(job.facts, 1u);
        atomicMax(job.facts + 1, top);
    }
}

// Activity and raw bits before each group, and the raw bits of each block: a warp to a block. L becomes (L + 8 * sum) / 2, rounded down,
// and roundings down nest: k groups later it is (L + sum of 2^j * 8 * sum_j) / 2^k, which lanes add up side by side.
KERNEL(lattice_before, (const LatticeEncode* jobs)) {
    const LatticeEncode& job = jobs[blockIdx.y];
    u32 block = blockIdx.x * (blockDim.x / WARP) + warp_id(), lane = lane_id();
    u32 first = block << job.log;
    if (first >= job.n) return;
    u32 groups = (min(job.n - first, 1u << job.log) + GROUP - 1u) / GROUP, at = first / GROUP;
    u32 lately = 0, bits = 0;
    u32 next = lane < groups ? job.groups[at + lane] : 0u;
    for (u32 g = 0; g < groups; g += WARP) {
        u32 k = g + lane, now = next;
        next = k + WARP < groups ? job.groups[at + k + WARP] : 0u;
        u64 own = (u64)((now & 0xffffu) * 8u) << lane, sum = own;
        for (u32 d = 1; d < WARP; d <<= 1) {
            u64 other = __shfl_up_sync(ALL, sum, d);
            if (lane >= d) sum += other;
        }
        u32 before = warp_before(now >> 16);
        if (k < groups) {
            job.lately[at + k] = (u16)((lately + (sum - own)) >> lane);
            job.bits_before[at + k] = bits + before;
        }
        lately = (u32)((lately + __shfl_sync(ALL, sum, 31)) >> 32);
        bits += __shfl_sync(ALL, before + (now >> 16), 31);
    }
    if (lane == 0) job.bits[block] = bits;
}

// Steps of V adjacent columns of a block, row by row; what a column's average is depends on nothing but the column and L.
template <u32 V>
DEVICE void steps_of_columns(const LatticeEncode& job, u32 first, u32 n, u32 columns, u32 col) {
    const u8* far = job.far + first;
    const u16* lately = job.lately + first / GROUP;
    u8* out = job.ctx + first;
    u32 c[V], top = job.top;
#pragma unroll
    for (u32 v = 0; v < V; v++) c[v] = lately[(col + v) / GROUP];
    // Loads of several rows before the first store: the compiler may not move them over it.
    const u32 ROWS = 8;
    for (u32 i = col; i < n; i += ROWS * columns) {
        u32 f[ROWS], now[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            u32 at = i + r * columns;
            f[r] = at < n ? V == 1 ? (u32)far[at] : *(const u32*)(far + at) : 0u;
            now[r] = at < n ? lately[at / GROUP] : 0u;
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            u32 at = i + r * columns, steps = 0;
#pragma unroll
            for (u32 v = 0; v < V; v++) {
                steps |= activity_step((now[r] + c[v]) >> 1, top) << 8u * v;
                c[v] = c[v] - (c[v] >> 4) + 16u * (f[r] >> 8u * v & 255u);
            }
            if (at >= n) continue;
            if (V == 1) {
                out[at] = (u8)steps;
            } else {
                *(u32*)(out + at) = steps;
            }
        }
    }
}

// Writes the steps of activity of every element to ctx. Block blockIdx.y of those in `blocks` (job, block), tile by tile of columns.
KERNEL(lattice_steps, (const LatticeEncode* jobs, const u32* blocks)) {
    const LatticeEncode& job = jobs[blocks[2u * blockIdx.y]];
    u32 first = blocks[2u * blockIdx.y + 1u] << job.log;
    u32 n = min(job.n - first, 1u << job.log);
    u32 columns = first + n == job.n ? job.columns_last : job.columns;
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    if (columns == 0) {
        for (u32 i = thread * 4u; i < n; i += threads * 4u)
            *(u32*)(job.ctx + first + i) = activity_step(job.lately[(first + i) / GROUP], job.top) * 0x01010101u;
    } else if ((columns & 3u) == 0) {
        for (u32 col = thread * 4u; col < columns; col += threads * 4u) steps_of_columns<4>(job, first, n, columns, col);
    } else {
        for (u32 col = thread; col < columns; col += threads) steps_of_columns<1>(job, first, n, columns, col);
    }
}

#define COUNTERS 7168u

// Adds up counts (zeros at first) by raw context and symbol. Common symbols are counted near by, the others where they belong.
KERNEL(lattice_count, (const LatticeEncode* jobs)) {
    __shared__ u32 near[COUNTERS];
    const LatticeEncode& job = jobs[blockIdx.y];
    u32 contexts = job.width * (job.top + 1u), alphabet = job.alphabet, width = job.width, n = job.n;
    u32 kept = min(alphabet, COUNTERS / contexts), used = kept * contexts;
    for (u32 i = threadIdx.x; i < used; i += blockDim.x) near[i] = 0;
    __syncthreads();
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) * 16u; i < n; i += gridDim.x * blockDim.x * 16u) {
        uint4 s = *(const uint4*)(job.symbols + i), t = *(const uint4*)(job.ctx + i), c = *(const uint4*)(job.cls + i);
        u32 count = min(16u, n - i);
#pragma unroll
        for (u32 j = 0; j < 16; j++) {
            u32 by = 8u * (j & 3u);
            u32 symbol = (j < 4 ? s.x : j < 8 ? s.y : j < 12 ? s.z : s.w) >> by & 255u;
            u32 step = (j < 4 ? t.x : j < 8 ? t.y : j < 12 ? t.z : t.w) >> by & 255u;
            u32 cls = (j < 4 ? c.x : j < 8 ? c.y : j < 12 ? c.z : c.w) >> by & 255u;
            u32 row = step * width + cls;
            if (j >= count) continue;
            if (symbol < kept) {
                atomicAdd(&near[row * kept + symbol], 1u);
            } else {
                atomicAdd(&job.counts[row * alphabet + symbol], 1u);
            }
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < used; i += blockDim.x) {
        u32 count = near[i];
        if (count) atomicAdd(&job.counts[i / kept * alphabet + i % kept], count);
    }
}

// Turns steps and classes into contexts, in ctx.
KERNEL(lattice_contexts, (const LatticeEncode* jobs)) {
    __shared__ u8 map[1024];
    const LatticeEncode& job = jobs[blockIdx.y];
    u32 contexts = job.width * (job.top + 1u), width = job.width;
    for (u32 i = threadIdx.x; i < contexts; i += blockDim.x) map[i] = job.map[i];
    __syncthreads();
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) * 16u; i < job.n; i += gridDim.x * blockDim.x * 16u) {
        uint4 t = *(const uint4*)(job.ctx + i), c = *(const uint4*)(job.cls + i);
        // What lies past the end is anything.
        auto four = [&](u32 steps, u32 classes) {
            u32 out = 0;
#pragma unroll
            for (u32 by = 0; by < 32; by += 8) out |= (u32)map[((steps >> by & 255u) * width + (classes >> by & 255u)) & 1023u] << by;
            return out;
        };
        *(uint4*)(job.ctx + i) = make_uint4(four(t.x, c.x), four(t.y, c.y), four(t.z, c.z), four(t.w, c.w));
    }
}

// Writes the raw bits of the groups that have any to low. What they are is worked out anew: few groups have any, or there is no parent
// to read. A warp looks at 32 groups.
KERNEL(lattice_low, (const LatticeEncode* jobs)) {
    __shared__ u32 fields[8][24];
    const LatticeEncode& job = jobs[blockIdx.y];
    Piece piece = job.piece;
    u32 n = job.n, dtype = piece.dtype, lane = lane_id(), groups = (n + GROUP - 1u) / GROUP;
    u32* own = fields[warp_id()];
    for (u32 g = (blockIdx.x * (blockDim.x / WARP) + warp_id()) * WARP; g < groups; g += gridDim.x * (blockDim.x / WARP) * WARP) {
        u32 bits = g + lane < groups ? job.groups[g + lane] >> 16 : 0u;
        u32 before = g + lane < groups ? job.bits_before[g + lane] : 0u;
        for (u32 left = __ballot_sync(ALL, bits != 0); left; left &= left - 1u) {
            u32 k = (u32)__ffs((i32)left) - 1u, i = (g + k) * GROUP + lane;
            u32 start = __shfl_sync(ALL, before, k), end = start + __shfl_sync(ALL, bits, k);
            u32 magnitude = 0, shift = 0;
            if (i < n) {
                float d, o;
                cell_of(piece, i, d, o);
                i32 q = level_of(place_of(load_value(job.raw, dtype, i), d, o)), guess = 0;
                // Which way differences are mirrored does not change how large they are.
                if (job.base) guess = level_of(inside_of(load_value(job.base, dtype, i), d, o));
                i32 e = (i32)((u32)q - (u32)guess);
                magnitude = e < 0 ? 0u - (u32)e : (u32)e;
                shift = shift_of(magnitude);
            }
            u32 at = (start & 31u) + warp_before(shift);
            if (lane < 24) own[lane] = 0;
            __syncwarp();
            if (shift) {
                u64 field = (u64)(magnitude & ((1u << shift) - 1u)) << (at & 31u);
                atomicOr(&own[at >> 5], (u32)field);
                if (field >> 32) atomicOr(&own[(at >> 5) + 1u], (u32)(field >> 32));
            }
            __syncwarp();
            u32 words = ((end - 1u) >> 5) - (start >> 5) + 1u;
            if (lane < words) {
                u32* to = job.low + job.low_at[((g + k) * GROUP) >> job.log] + (start >> 5) + lane;
                // The first word and the last one may hold bits of other groups.
                if (lane == 0 || lane + 1u == words) {
                    atomicOr(to, own[lane]);
                } else {
                    *to = own[lane];
                }
            }
            __syncwarp();
        }
    }
}
