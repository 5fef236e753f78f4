// Canonical Huffman with codes of at most 12 bits, for planes that are small or lean: a block of threads makes a stream, a thread reads one.
#include "prelude.cuh"

struct HuffmanJob {
    u8* symbols;
    // To encode: u32 code | length << 16 for each symbol. To decode: 4096 of u16 symbol | length << 8, 0 where no code lies.
    const void* table;
    // To encode: zeros, aligned to 4, 12 bits a symbol and 4 bytes more. To decode: the stream.
    u8* stream;
    u32 n;
    // To decode: bytes of the stream.
    u32 len;
};

// lengths[b] becomes the bytes of stream b; 256 threads each. n is below 2^28.
KERNEL(huffman_encode, (const HuffmanJob* jobs, u32* lengths)) {
    __shared__ u32 codes[256];
    __shared__ u32 sums[8];
    HuffmanJob job = jobs[blockIdx.x];
    codes[threadIdx.x] = ((const u32*)job.table)[threadIdx.x];
    __syncthreads();
    u32 base = 0u;
    u32* out = (u32*)job.stream;
    for (u32 start = 0; start < job.n; start += 2048u) {
        u32 code[8], bits = 0u;
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            u32 i = start + 8u * threadIdx.x + k;
            code[k] = i < job.n ? codes[job.symbols[i]] : 0u;
            bits += code[k] >> 16;
        }
        u32 before = warp_before(bits);
        if (lane_id() == 31u) sums[warp_id()] = before + bits;
        __syncthreads();
        u32 at = base + before;
        for (u32 w = 0; w < 8; w++) {
            if (w < warp_id()) at += sums[w];
            base += sums[w];
        }
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            u32 len = code[k] >> 16, low = code[k] & 0xffffu, off = at & 31u;
            if (len) atomicOr(&out[at >> 5], low << off);
            if (off + len > 32u) atomicOr(&out[(at >> 5) + 1u], low >> (32u - off));
            at += len;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0u) lengths[blockIdx.x] = (base + 7u) / 8u;
}

// bad[j] becomes 1 where stream j does not decode; a thread each.
KERNEL(huffman_decode, (const HuffmanJob* jobs, u32 count, u32* bad)) {
    u32 j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= count) return;
    HuffmanJob job = jobs[j];
    const u16* slots = (const u16*)job.table;
    u32 at = 0u;
    bool good = true;
    for (u32 i = 0; i < job.n; i++) {
        u32 b = at >> 3, w = 0u;
        if (b < job.len) w = job.stream[b];
        if (b + 1u < job.len) w |= (u32)job.stream[b + 1u] << 8;
        if (b + 2u < job.len) w |= (u32)job.stream[b + 2u] << 16;
        u32 e = slots[w >> (at & 7u) & 4095u];
        if (e == 0u) {
            good = false;
            break;
        }
        job.symbols[i] = (u8)e;
        at += e >> 8;
    }
    bad[j] = good && (at + 7u) / 8u == job.len ? 0u : 1u;
}
