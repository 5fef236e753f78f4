// BLAKE3 in derive-key mode: a thread hashes a chunk of 1,024 bytes, blocks of threads make the tree of 256 nodes at a time. The host
// makes the root. Bytes that are hashed: a head of a few, then the content, so that chunks lie across any alignment.
#include "prelude.cuh"

// A hash.
struct Blake3Job {
    u64 content;
    u64 len;
    const u8* head;
    u64 head_len;
    u32* nodes;  // 8 words for each chunk; 16-byte aligned
};

#define BLAKE3_CHUNK_START 1u
#define BLAKE3_CHUNK_END 2u
#define BLAKE3_PARENT 4u
#define BLAKE3_DERIVED 64u
// Words of a chunk that are staged at a time (2 of its blocks and what alignment adds), and a stride without bank conflicts.
#define BLAKE3_ROW 37u
#define BLAKE3_WARPS 4u

DEVICE void blake3_mix(u32& a, u32& b, u32& c, u32& d, u32 x, u32 y) {
    a = a + b + x;
    d = __funnelshift_r(d ^ a, d ^ a, 16u);
    c = c + d;
    b = __funnelshift_r(b ^ c, b ^ c, 12u);
    a = a + b + y;
    d = __funnelshift_r(d ^ a, d ^ a, 8u);
    c = c + d;
    b = __funnelshift_r(b ^ c, b ^ c, 7u);
}

DEVICE void blake3_compress(u32 (&cv)[8], const u32 (&message)[16], u64 counter, u32 len, u32 flags) {
    u32 m[16], v[16] = {cv[0],       cv[1],       cv[2],       cv[3],       cv[4],        cv[5],
                        cv[6],       cv[7],       0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u,  0xa54ff53au,
                        (u32)counter, (u32)(counter >> 32), len, flags};
#pragma unroll
    for (u32 i = 0; i < 16; i++) m[i] = message[i];
#pragma unroll
    for (u32 round = 0; round < 7; round++) {
        blake3_mix(v[0], v[4], v[8], v[12], m[0], m[1]);
        blake3_mix(v[1], v[5], v[9], v[13], m[2], m[3]);
        blake3_mix(v[2], v[6], v[10], v[14], m[4], m[5]);
        blake3_mix(v[3], v[7], v[11], v[15], m[6], m[7]);
        blake3_mix(v[0], v[5], v[10], v[15], m[8], m[9]);
        blake3_mix(v[1], v[6], v[11], v[12], m[10], m[11]);
        blake3_mix(v[2], v[7], v[8], v[13], m[12], m[13]);
        blake3_mix(v[3], v[4], v[9], v[14], m[14], m[15]);
        // Words only change their names: all indices are known when this is compiled.
        u32 next[16] = {m[2],  m[6],  m[3], m[10], m[7], m[0],  m[4], m[13],
                        m[1], m[11], m[12], m[5], m[9], m[14], m[15], m[8]};
#pragma unroll
        for (u32 i = 0; i < 16; i++) m[i] = next[i];
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) cv[i] = v[i] ^ v[i + 8];
}

// The 16 bytes at the aligned address q of where content and, before it, head would be in one piece; 0 outside of both.
DEVICE uint4 blake3_piece(const Blake3Job& job, u64 q) {
    u64 end = job.content + job.len;
    if (q >= job.content && q < end && end - q >= 16u) return *(const uint4*)q;
    u64 half[2] = {0u, 0u};
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
#pragma unroll 1
        for (u32 k = 0; k < 8; k++) {
            u64 at = q + 8u * h + k, byte = 0u;
            if (at < job.content) {
                u64 back = job.content - at;
                if (back <= job.head_len) byte = job.head[job.head_len - back];
            } else if (at < end) {
                byte = *(const u8*)at;
            }
            half[h] |= byte << 8u * k;
        }
    }
    return make_uint4((u32)half[0], (u32)(half[0] >> 32), (u32)half[1], (u32)(half[1] >> 32));
}

// A warp to a task (job | first of its 32 chunks / 32 << 32): reads their bytes of head and content, writes 8 words for each chunk
// that there is to the job's `nodes`. `key` has 8 words. 128 threads.
KERNEL(blake3_chunks, (const Blake3Job* jobs, const u64* tasks, u32 count, const u32* key)) {
    __shared__ u32 stage[BLAKE3_WARPS * 32u * BLAKE3_ROW];
    u32 lane = lane_id(), at = blockIdx.x * BLAKE3_WARPS + warp_id();
    bool there = at < count;
    u64 task = tasks[there ? at : 0u];
    Blake3Job job = jobs[(u32)task];
    u64 first = (task >> 32) * 32u, chunk = first + lane, total = job.head_len + job.len;
    u64 left = there && total > chunk * 1024u ? total - chunk * 1024u : 0u;
    u32 length = (u32)min(left, (u64)1024u), blocks = (length + 63u) / 64u;
    u32* rows = stage + warp_id() * 32u * BLAKE3_ROW;
    const u32* row = rows + lane * BLAKE3_ROW;

    // Where the first chunk's first byte would be: the same remainder for all chunks and stages.
    u64 base = job.content - job.head_len + first * 1024u;
    u32 skew = (u32)base & 15u, shift = (skew & 3u) * 8u;
    base -= skew;
    row += skew >> 2;

    u32 cv[8];
#pragma unroll
    for (u32 i = 0; i < 8; i++) cv[i] = key[i];
#pragma unroll 1
    for (u32 s = 0; s < 8; s++) {
        if (!__any_sync(ALL, blocks > 2u * s)) break;
        __syncwarp();
#pragma unroll
        for (u32 r = 0; r < 8; r++) {
            u32 to = r * 4u + lane / 8u, part = lane % 8u;
            uint4 v = blake3_piece(job, base + to * 1024u + s * 128u + part * 16u);
            u32* p = rows + to * BLAKE3_ROW + part * 4u;
            p[0] = v.x;
            p[1] = v.y;
            p[2] = v.z;
            p[3] = v.w;
        }
        if (skew) {
            uint4 v = blake3_piece(job, base + lane * 1024u + s * 128u + 128u);
            u32* p = rows + lane * BLAKE3_ROW + 32u;
            p[0] = v.x;
            p[1] = v.y;
            p[2] = v.z;
            p[3] = v.w;
        }
        __syncwarp();
#pragma unroll 1
        for (u32 b = 0; b < 2; b++) {
            u32 block = 2u * s + b, m[16], below = row[16u * b];
            if (block >= blocks) continue;
#pragma unroll
            for (u32 i = 0; i < 16; i++) {
                // Without skew the word after the last is of no use, and shifted out.
                u32 above = row[16u * b + i + 1u];
                m[i] = __funnelshift_r(below, above, shift);
                below = above;
            }
            u32 flags = BLAKE3_DERIVED | (block == 0u ? BLAKE3_CHUNK_START : 0u) |
                        (block + 1u == blocks ? BLAKE3_CHUNK_END : 0u);
            blake3_compress(cv, m, chunk, min(length - 64u * block, 64u), flags);
        }
    }
    if (blocks) {
        uint4* to = (uint4*)(job.nodes + chunk * 8u);
        to[0] = make_uint4(cv[0], cv[1], cv[2], cv[3]);
        to[1] = make_uint4(cv[4], cv[5], cv[6], cv[7]);
    }
}

// Nodes of a tree: at most 256 neighbours, of which the first is an even one at this level and the next eight.
struct Blake3Group {
    const u32* from;
    u32* to;
    u64 n;       // 1 to 256
    u64 target;  // 1; or 2, where these are all of the tree and only its root is to be left
};

// Block b: makes group b's nodes (8 words each) into `target` nodes, in pairs of neighbours, one left over going on as it is.
// 128 threads.
KERNEL(blake3_parents, (const Blake3Group* groups, const u32* key)) {
    __shared__ u32 nodes[256 * 9];
    Blake3Group group = groups[blockIdx.x];
    u32 n = (u32)group.n, t = threadIdx.x;
    for (u32 i = t; i < 8u * n; i += blockDim.x) nodes[(i >> 3) * 9u + (i & 7u)] = group.from[i];
    __syncthreads();
#pragma unroll 1
    while (n > (u32)group.target) {
        u32 cv[8], pairs = n / 2u, next = (n + 1u) / 2u;
        if (t < next) {
            const u32* left = nodes + t * 18u;
            u32 m[16];
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                m[i] = left[i];
                m[i + 8] = t < pairs ? left[i + 9] : 0u;
                cv[i] = key[i];
            }
            if (t < pairs) {
                blake3_compress(cv, m, 0u, 64u, BLAKE3_DERIVED | BLAKE3_PARENT);
            } else {
#pragma unroll
                for (u32 i = 0; i < 8; i++) cv[i] = m[i];
            }
        }
        __syncthreads();
        if (t < next) {
#pragma unroll
            for (u32 i = 0; i < 8; i++) nodes[t * 9u + i] = cv[i];
        }
        __syncthreads();
        n = next;
    }
    for (u32 i = t; i < 8u * n; i += blockDim.x) group.to[i] = nodes[(i >> 3) * 9u + (i & 7u)];
}
