// Tables of rANS from frequencies, which are a thirtieth of what goes over the bus otherwise.
#include "rans.cuh"

// Where each symbol begins. 256 threads, `starts` shared.
DEVICE u32 table_start(u32 freq, u32* room) {
    u32 start = warp_before(freq);
    if (lane_id() == 31u) room[warp_id()] = start + freq;
    __syncthreads();
    for (u32 w = 0; w < warp_id(); w++) start += room[w];
    return start;
}

// A block of 256 threads to a context: 256 frequencies to as many symbols.
KERNEL(tables_encode, (const u16* freqs, RansSymbol* out)) {
    __shared__ u32 room[8];
    u64 i = (u64)blockIdx.x * 256u + threadIdx.x;
    u32 freq = freqs[i], start = table_start(freq, room);
    RansSymbol e = {0, freq, start};
    // Frequency 1 would need 2^64: 2^64 - 1 divides to x - 1 instead, and the bias makes up for it.
    if (freq == 0) e.bias = 0;
    if (freq == 1u) e.reciprocal = ~0ull, e.bias = start + 4095u;
    if (freq > 1u) e.reciprocal = ~0ull / freq + 1ull;
    out[i] = e;
}

// Likewise to 4,096 slots; the frequencies of a context add up to that.
KERNEL(tables_decode, (const u16* freqs, u32* out)) {
    __shared__ u32 room[8];
    __shared__ u32 starts[256];
    __shared__ u32 counts[256];
    u32 freq = freqs[(u64)blockIdx.x * 256u + threadIdx.x];
    starts[threadIdx.x] = table_start(freq, room);
    counts[threadIdx.x] = freq;
    __syncthreads();
    for (u32 slot = threadIdx.x; slot < 4096u; slot += 256u) {
        // The last symbol that begins here or before: those without a frequency begin where their successor does.
        u32 s = 0;
        for (u32 step = 128u; step; step >>= 1)
            if (starts[s + step] <= slot) s += step;
        out[(u64)blockIdx.x * 4096u + slot] = s | (slot - starts[s]) << 8 | (counts[s] - 1u) << 20;
    }
}
