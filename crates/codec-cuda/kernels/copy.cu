// Pieces of memory, gathered into one run or spread out of one.
#include "prelude.cuh"

struct Copy {
    const u8* from;
    u8* to;
    u64 len;
};

// Copies len bytes each; a block takes every gridDim.x-th 16 KiB of copy blockIdx.y.
KERNEL(copy_all, (const Copy* copies)) {
    Copy c = copies[blockIdx.y];
    const u64 part = 16384;
    bool aligned = (((u64)c.from | (u64)c.to) & 15) == 0;
    for (u64 start = blockIdx.x * part; start < c.len; start += gridDim.x * part) {
        u64 end = min(start + part, c.len);
        u64 at = start;
        if (aligned) {
            u64 whole = end & ~15ull;
            for (u64 i = start + threadIdx.x * 16ull; i < whole; i += blockDim.x * 16ull)
                *(uint4*)(c.to + i) = *(const uint4*)(c.from + i);
            at = max(start, whole);
        }
        for (u64 i = at + threadIdx.x; i < end; i += blockDim.x) c.to[i] = c.from[i];
    }
}
