// Floats (and other numbers) taken apart into planes of symbols, and put together again: docs/format-segments.md, "Scheme 2". A lane has
// eight neighbours at a time, a warp 256: eight groups of 32 whose bit planes have a byte from each of four lanes.
#include "planes.cuh"

// A segment that is taken apart.
struct PlanesJob {
    // n numbers.
    const u8* raw;
    // The heads' symbols, a byte each, with room for a multiple of 16.
    u8* symbols;
    // Bit planes of the fields: cut.bits words for each 32 numbers.
    u32* fields;
    // Mode 1: a count for each 128 numbers. Mode 2: planes, `pitch` bytes (a multiple of 16, at least n) apart; null: count only.
    u8* low;
    // 256 for each plane, the heads first: what is there is added to.
    u32* counts;
    u64 pitch;
    Cut cut;
    u32 n;
    // 0: no low bytes; 1: groups; 2: planes.
    u32 mode;
    // Low bytes of a number.
    u32 low_bytes;
    // Of the heads one chunk of 1024 in so many is counted.
    u32 stride;
};

// Numbers of a block of threads, and of the format's blocks, in each of which chunks are counted from 0.
#define TILE 16384u
#define BLOCK 262144u

template <u32 SIZE>
DEVICE void split(const PlanesJob* jobs, const u32* tiles) {
    __shared__ u32 counts[8 * 256 + 8 * 256];
    __shared__ u32 stage[8][64];
    const PlanesJob job = jobs[tiles[2u * blockIdx.x]];
    u32 start = tiles[2u * blockIdx.x + 1u] * TILE, warp = warp_id(), lane = lane_id();
    for (u32 i = threadIdx.x; i < 4096u; i += blockDim.x) counts[i] = 0u;
    __syncthreads();
    u32* mine = counts + 256u * warp;
    u32* low_counts = counts + 2048u;
    bool aligned = ((u64)job.raw & 15u) == 0u;
    // Small numbers are fetched a step ahead: of the large ones enough is under way as it is.
    Eight<SIZE> v, next;
    u32 here = start + warp * 256u + 8u * lane;
    if (SIZE < 4u) load_eight(next, job.raw + (u64)here * SIZE, here < job.n ? min(job.n - here, 8u) : 0u, aligned);
    for (u32 u = 0; u < TILE / 2048u; u++) {
        u32 first = start + u * 2048u + warp * 256u, i = first + 8u * lane;
        u32 m = i < job.n ? min(job.n - i, 8u) : 0u;
        if (SIZE < 4u) {
            v = next;
            u32 then = i + 2048u;
            bool more = u + 1u < TILE / 2048u && then < job.n;
            load_eight(next, job.raw + (u64)then * SIZE, more ? min(job.n - then, 8u) : 0u, aligned);
        } else
            load_eight(v, job.raw + (u64)i * SIZE, m, aligned);
        if (job.cut.bits) {
            u32 s[2], f[2];
            take_heads(job.cut, v, s, f);
            if (m) *(uint2*)(job.symbols + i) = make_uint2(s[0], s[1]);
            if ((first % BLOCK >> 10) % job.stride == 0u) {
#pragma unroll
                for (u32 k = 0; k < 8; k++)
                    if (k < m) atomicAdd(&mine[s[k >> 2] >> 8 * (k & 3) & 255u], 1u);
            }
            // Bytes of the bit planes, put in order in shared memory. Missing numbers are zero, and so are their bits.
            u8* bytes = (u8*)stage[warp] + (lane >> 2) * 4u * job.cut.bits + (lane & 3u);
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                if (j < job.cut.bits) bytes[4u * j] = (u8)plane_byte(f[0], f[1], j);
            __syncwarp();
            u32 words = first < job.n ? min((job.n - first + 31u) / 32u, 8u) * job.cut.bits : 0u;
            u32* out = job.fields + first / 32u * job.cut.bits;
            for (u32 w = lane; w < words; w += 32u) out[w] = stage[warp][w];
            __syncwarp();
        }
        if (job.mode == 1u) {
            // Half a warp has the 128 numbers of a group.
            u64 all = low_or(v);
            for (u32 d = 1; d < 16u; d <<= 1) all |= __shfl_xor_sync(ALL, all, d);
            u32 g = i / 128u;
            if ((lane & 15u) == 0u && m) {
                u32 c = group_count(all, min(job.n - g * 128u, 128u), job.low_bytes);
                job.low[g] = (u8)c;
                atomicAdd(&low_counts[c], 1u);
            }
        }
        if (job.mode == 2u) {
#pragma unroll
            for (u32 p = 0; p < SIZE; p++) {
                if (p >= job.low_bytes) continue;
                u32 b[2];
                byte_plane(v, p, b);
                if (m && job.low) *(uint2*)(job.low + p * job.pitch + i) = make_uint2(b[0], b[1]);
                u32* row = low_counts + 256u * p;
                // Eight equal ones are common in planes that have few symbols.
                if (m == 8u && b[0] == b[1] && b[0] == (b[0] & 255u) * 0x01010101u) {
                    atomicAdd(&row[b[0] & 255u], 8u);
                    continue;
                }
#pragma unroll
                for (u32 k = 0; k < 8; k++)
                    if (k < m) atomicAdd(&row[b[k >> 2] >> 8 * (k & 3) & 255u], 1u);
            }
        }
    }
    __syncthreads();
    u32 heads = job.cut.bits ? 1u : 0u, low = job.mode == 2u ? job.low_bytes : job.mode;
    for (u32 i = threadIdx.x; i < 256u; i += blockDim.x) {
        u32 sum = 0u;
        for (u32 w = 0; w < 8; w++) sum += counts[256u * w + i];
        if (sum) atomicAdd(&job.counts[i], sum);
    }
    for (u32 i = threadIdx.x; i < 256u * low; i += blockDim.x)
        if (low_counts[i]) atomicAdd(&job.counts[256u * heads + i], low_counts[i]);
}

// Take jobs apart, a tile for each block of 256 threads: tiles[2 b] is the job, tiles[2 b + 1] which TILE numbers of it.
KERNEL(planes_split1, (const PlanesJob* jobs, const u32* tiles)) { split<1>(jobs, tiles); }
KERNEL(planes_split2, (const PlanesJob* jobs, const u32* tiles)) { split<2>(jobs, tiles); }
KERNEL(planes_split4, (const PlanesJob* jobs, const u32* tiles)) { split<4>(jobs, tiles); }
KERNEL(planes_split8, (const PlanesJob* jobs, const u32* tiles)) { split<8>(jobs, tiles); }

// A block of a segment that is put together.
struct PlanesBlock {
    // n numbers.
    u8* out;
    // The heads' symbols, or null: all are `symbol`.
    const u8* symbols;
    // Bit planes of the fields: 4 * cut.bits bytes for each 32 numbers.
    const u8* fields;
    // Mode 1: the groups' bytes, where each begins, and their counts, or null: all are `plane[0]`. All groups lie in their bytes.
    const u8* groups;
    const u32* offsets;
    const u8* group_counts;
    // Mode 2: the planes, or null: all bytes are `plane[p]`.
    const u8* low[8];
    u8 plane[8];
    Cut cut;
    u32 n;
    u32 symbol;
    u32 mode;
    u32 low_bytes;
    u32 unused;
};

// Numbers of a block of threads that puts together.
#define JOIN_TILE 8192u

template <u32 SIZE>
DEVICE void join(const PlanesBlock* blocks, const u32* tiles) {
    const PlanesBlock* job = blocks + tiles[2u * blockIdx.x];
    u32 start = tiles[2u * blockIdx.x + 1u] * JOIN_TILE, lane = lane_id();
    Cut cut = job->cut;
    u32 n = job->n, mode = job->mode, bits = cut.bits, symbol = job->symbol * 0x01010101u;
    u8* out = job->out;
    const u8 *symbols = job->symbols, *fields = job->fields;
    bool aligned = ((u64)out & 15u) == 0u;
    for (u32 u = 0; u < JOIN_TILE / 2048u; u++) {
        u32 i = start + u * 2048u + warp_id() * 256u + 8u * lane;
        if (i >= n) break;
        u32 m = min(n - i, 8u);
        Eight<SIZE> v;
        clear(v);
        if (bits) {
            u32 s[2] = {symbol, symbol}, f[2] = {0u, 0u};
            if (symbols) load_bytes(symbols + i, m, s);
            const u8* planes = fields + (u64)(i / 32u) * 4u * bits + (i / 8u & 3u);
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                if (j >= bits) continue;
                u32 b = planes[4u * j];
                f[0] |= spread(b) << j;
                f[1] |= spread(b >> 4) << j;
            }
            put_heads(cut, v, s, f);
        }
        if (mode == 1u) {
            u32 g = i / 128u, c = job->group_counts ? (u32)job->group_counts[g] : (u32)job->plane[0];
            const u8* from = job->groups + job->offsets[g];
            if (c == 0u)
                put_low(v, from + (u64)(i - g * 128u) * job->low_bytes, m);
            else {
                u32 have = 8u * job->low_bytes - c;
                from += (i / 32u & 3u) * 4u * have + (i / 8u & 3u);
                for (u32 j = 0; j < have; j++) put_bits(v, from[4u * j], c + j);
            }
        }
        if (mode == 2u) {
#pragma unroll
            for (u32 p = 0; p < SIZE; p++) {
                if (p >= job->low_bytes) continue;
                u32 b[2] = {job->plane[p] * 0x01010101u, job->plane[p] * 0x01010101u};
                if (job->low[p]) load_bytes(job->low[p] + i, m, b);
                put_byte_plane(v, p, b);
            }
        }
        store_eight(v, out + (u64)i * SIZE, m, aligned);
    }
}

// Put blocks together, a tile for each block of 256 threads: tiles[2 b] is the block, tiles[2 b + 1] which JOIN_TILE numbers of it.
KERNEL(planes_join1, (const PlanesBlock* blocks, const u32* tiles)) { join<1>(blocks, tiles); }
KERNEL(planes_join2, (const PlanesBlock* blocks, const u32* tiles)) { join<2>(blocks, tiles); }
KERNEL(planes_join4, (const PlanesBlock* blocks, const u32* tiles)) { join<4>(blocks, tiles); }
KERNEL(planes_join8, (const PlanesBlock* blocks, const u32* tiles)) { join<8>(blocks, tiles); }
