// Low bytes in groups of 128 numbers that share a count of trailing zeros: where they begin, and how they are packed. `planes` takes the
// counts and puts groups back.
#include "planes.cuh"

// A block of a segment.
struct GroupsJob {
    // n numbers; not looked at to find places.
    const u8* raw;
    // A count for each group, or null: all are `count`.
    const u8* counts;
    // One for each group: where it begins.
    u32* offsets;
    // The groups, aligned to 16.
    u8* out;
    u32 n;
    u32 low_bytes;
    u32 count;
    u32 unused;
};

// Finds where groups begin, a block of 256 threads for a job; totals[2 b] becomes their length, totals[2 b + 1] whether one has more zeros
// than bits.
KERNEL(groups_place, (const GroupsJob* jobs, u32* totals)) {
    __shared__ u32 sums[8];
    GroupsJob job = jobs[blockIdx.x];
    u32 groups = (job.n + 127u) / 128u, bits = 8u * job.low_bytes, base = 0u, bad = 0u;
    for (u32 start = 0; start < groups; start += 256u) {
        u32 g = start + threadIdx.x, size = 0u;
        if (g < groups) {
            u32 c = job.counts ? (u32)job.counts[g] : job.count;
            bad |= c > bits ? 1u : 0u;
            size = group_size(min(c, bits), min(job.n - g * 128u, 128u), job.low_bytes);
        }
        u32 before = warp_before(size);
        if (lane_id() == 31u) sums[warp_id()] = before + size;
        __syncthreads();
        u32 all = 0u;
        for (u32 w = 0; w < 8; w++) {
            if (w < warp_id()) before += sums[w];
            all += sums[w];
        }
        if (g < groups) job.offsets[g] = base + before;
        base += all;
        __syncthreads();
    }
    bad = __any_sync(ALL, bad != 0u) ? 1u : 0u;
    if (lane_id() == 0u) sums[warp_id()] = bad;
    __syncthreads();
    if (threadIdx.x == 0u) {
        for (u32 w = 1; w < 8; w++) bad |= sums[w];
        totals[2u * blockIdx.x] = base;
        totals[2u * blockIdx.x + 1u] = bad;
    }
}

// Numbers of a block of 256 threads.
#define PACKED 8192u

template <u32 SIZE>
DEVICE void pack(const GroupsJob* jobs, const u32* tiles) {
    GroupsJob job = jobs[tiles[2u * blockIdx.x]];
    u32 start = tiles[2u * blockIdx.x + 1u] * PACKED;
    bool aligned = ((u64)job.raw & 15u) == 0u;
    for (u32 u = 0; u < PACKED / 2048u; u++) {
        u32 i = start + u * 2048u + threadIdx.x * 8u, m = i < job.n ? min(job.n - i, 8u) : 0u;
        // A word of a plane is written whole, even where its last numbers are missing.
        if ((i & ~31u) >= job.n) break;
        Eight<SIZE> v;
        load_eight(v, job.raw + (u64)i * SIZE, m, aligned);
        u32 g = i / 128u, c = job.counts ? (u32)job.counts[g] : job.count;
        u8* out = job.out + job.offsets[g];
        if (c == 0u) {
            if (m) take_low(v, out + (i - g * 128u) * job.low_bytes, m);
            continue;
        }
        u32 have = 8u * job.low_bytes - c;
        out += (i / 32u & 3u) * 4u * have + (i / 8u & 3u);
        for (u32 j = 0; j < have; j++) out[4u * j] = (u8)take_bits(v, c + j);
    }
}

// Pack groups whose places are known. tiles[2 b] is the job, tiles[2 b + 1] which PACKED numbers of it.
KERNEL(groups_pack4, (const GroupsJob* jobs, const u32* tiles)) { pack<4>(jobs, tiles); }
KERNEL(groups_pack8, (const GroupsJob* jobs, const u32* tiles)) { pack<8>(jobs, tiles); }
