// Keys outside the window of a segment of the scheme "planes": marked and counted, listed, put back. They are rare as a rule.
#include "planes.cuh"

// A segment whose symbols are made.
struct RareJob {
    const u8* raw;
    // n symbols, aligned to 16, with room for a multiple of 16.
    u8* symbols;
    // One for each LISTED symbols.
    u32* counts;
    Cut cut;
    u32 n;
    u32 size;
    // Symbols that stay: 0, and `kept` from `first` on.
    u32 first, kept;
};

// Symbols of a warp.
#define LISTED 4096u

DEVICE bool keeps(u32 s, u32 first, u32 kept) { return s == 0u || s - first < kept; }

// Makes exceptions (255) of the symbols that do not stay, and counts all; a warp has LISTED of them. tiles[2 b] is the job of a block of
// 256 threads, tiles[2 b + 1] which 8 * LISTED symbols of it.
KERNEL(exceptions_mark, (const RareJob* jobs, const u32* tiles)) {
    const RareJob* job = jobs + tiles[2u * blockIdx.x];
    u32 tile = tiles[2u * blockIdx.x + 1u] * 8u + warp_id();
    u32 n = job->n, first = job->first, kept = job->kept, count = 0u;
#pragma unroll 4
    for (u32 k = 0; k < LISTED / 512u; k++) {
        u32 i = tile * LISTED + k * 512u + 16u * lane_id();
        if (i >= n) continue;
        uint4* at = (uint4*)(job->symbols + i);
        uint4 s = *at;
        u32 w[4] = {s.x, s.y, s.z, s.w}, m = min(n - i, 16u), marks = 0u;
#pragma unroll
        for (u32 j = 0; j < 16; j++)
            if (!keeps(w[j >> 2] >> 8 * (j & 3) & 255u, first, kept) && j < m) marks |= 1u << j;
        if (marks) {
#pragma unroll
            for (u32 j = 0; j < 16; j++) w[j >> 2] |= (marks >> j & 1u) * 255u << 8 * (j & 3);
            *at = make_uint4(w[0], w[1], w[2], w[3]);
            count += (u32)__popc(marks);
        }
    }
    count = warp_sum(count);
    if (lane_id() == 0u && tile * LISTED < n) job->counts[tile] = count;
}

// Lists the exceptions of `count` runs of LISTED symbols, a warp each: tiles[3 t] is the job, tiles[3 t + 1] which run, tiles[3 t + 2] where in
// `out` its exceptions begin. Each is its place in the run << 16 | its key.
KERNEL(exceptions_list, (const RareJob* jobs, const u32* tiles, u32 count, u32* out)) {
    u32 t = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (t >= count) return;
    const RareJob* job = jobs + tiles[3u * t];
    Cut cut = job->cut;
    u32 start = tiles[3u * t + 1u] * LISTED, at = tiles[3u * t + 2u], n = job->n, size = job->size;
    for (u32 k = 0; k < LISTED; k += WARP) {
        u32 i = start + k + lane_id();
        bool mine = i < n && job->symbols[i] == 255u;
        u32 mask = __ballot_sync(ALL, mine);
        // Only types of two bytes or more have a window.
        if (mine) out[at + __popc(mask & lanes_below())] = (k + lane_id()) << 16 | cut_key(cut, load_u16(job->raw + (u64)(i + 1u) * size - 2u));
        at += (u32)__popc(mask);
    }
}

// The exceptions of a block that is put together.
struct PatchJob {
    u8* out;
    // Place in the block, below its length, and key: two words each.
    const u32* list;
    Cut cut;
    u32 count;
    u32 size;
};

// Gives heads their keys. tiles[2 b] is the job of a block of threads, tiles[2 b + 1] which blockDim.x of its exceptions.
KERNEL(exceptions_put, (const PatchJob* jobs, const u32* tiles)) {
    const PatchJob* job = jobs + tiles[2u * blockIdx.x];
    u32 e = tiles[2u * blockIdx.x + 1u] * blockDim.x + threadIdx.x;
    if (e >= job->count) return;
    u16* head = (u16*)(job->out + (u64)(job->list[2u * e] + 1u) * job->size - 2u);
    *head = (u16)cut_head(job->cut, job->list[2u * e + 1u], cut_field(job->cut, *head));
}
