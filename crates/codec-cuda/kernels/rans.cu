// Streams of symbols that lie ready, with or without contexts: a warp to a stream.
#include "rans_few.cuh"

// Two parts, coded one after the other on the same states; the second may be empty.
struct RansJob {
    const u8* symbols[2];
    // A context for each symbol, or null: then all are in context 0.
    const u8* ctx[2];
    // To encode: RansSymbol. To decode: u32 slots.
    const void* table;
    // To encode: words and states go here, 2 bytes a symbol and 4 a lane at most. To decode: the stream.
    u8* stream;
    u32 n[2];
    u32 lanes;
    // To decode: bytes of the stream.
    u32 len;
};

// lengths[j] becomes the bytes of stream j.
KERNEL(rans_encode, (const RansJob* jobs, u32 count, u32* lengths)) {
    u32 j = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (j >= count) return;
    RansJob job = jobs[j];
    const RansSymbol* table = (const RansSymbol*)job.table;
    u32 x = RANS_LOW;
    u16* out = (u16*)job.stream;
    u32 at = 0;
    for (u32 p = 2; p-- > 0;) {
        // No run-time index into the structure: it would have to lie in memory.
        const u8 *symbols = p ? job.symbols[1] : job.symbols[0], *ctx = p ? job.ctx[1] : job.ctx[0];
        at = rans_put_any(table, symbols, ctx, p ? job.n[1] : job.n[0], job.lanes, x, out, at);
    }
    if (lane_id() < job.lanes) store_u32(job.stream + 2u * at + 4u * lane_id(), x);
    if (lane_id() == 0) lengths[j] = 2u * at + 4u * job.lanes;
}

// bad[j] becomes 1 where stream j does not decode; its symbols are then of no use.
KERNEL(rans_decode, (const RansJob* jobs, u32 count, u32* bad)) {
    u32 j = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (j >= count) return;
    RansJob job = jobs[j];
    RansStream s;
    rans_open(s, job.stream, job.len, job.lanes);
    for (u32 p = 0; p < 2; p++)
        rans_take_part(s, (const u32*)job.table, job.ctx[p], job.n[p], job.lanes, (u8*)job.symbols[p]);
    bool good = rans_done(s);
    if (lane_id() == 0) bad[j] = good ? 0u : 1u;
}
