// Streams of symbols that lie ready, with or without contexts: a warp to a stream.
#include "rans_few.cuh"

#define RANS_WARPS 4u
// Contexts whose symbols fit the shared memory of an encoder's team.
#define RANS_SHARED 4u

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

// The streams of a block of threads: `count` (at most RANS_WARPS) from `first` on. If `contexts` is not 0 they have the same table, which
// has so many contexts.
struct RansTeam {
    u32 first, count, contexts, unused;
};

template <class Table>
DEVICE void rans_encode_one(const Table* table, const RansJob& job, u32* length) {
    u32 x = RANS_LOW;
    u16* out = (u16*)job.stream;
    u32 at = rans_put_any(table, job.symbols[1], job.ctx[1], job.n[1], job.lanes, x, out, 0u);
    at = rans_put_any(table, job.symbols[0], job.ctx[0], job.n[0], job.lanes, x, out, at);
    if (lane_id() < job.lanes) store_u32(job.stream + 2u * at + 4u * lane_id(), x);
    if (lane_id() == 0) *length = 2u * at + 4u * job.lanes;
}

// lengths[j] becomes the bytes of stream j. Reads the jobs' symbols, contexts and tables, writes their streams.
KERNEL(rans_encode, (const RansJob* jobs, const RansTeam* teams, u32* lengths)) {
    __shared__ RansPacked table[256u * RANS_SHARED];
    RansTeam team = teams[blockIdx.x];
    bool shared = team.contexts > 0u && team.contexts <= RANS_SHARED;
    if (shared) {
        const RansSymbol* from = (const RansSymbol*)jobs[team.first].table;
        for (u32 i = threadIdx.x; i < 256u * team.contexts; i += blockDim.x) table[i] = rans_packed(from[i]);
    }
    __syncthreads();
    if (warp_id() >= team.count) return;
    u32 j = team.first + warp_id();
    RansJob job = jobs[j];
    if (shared)
        rans_encode_one(table, job, lengths + j);
    else
        rans_encode_one((const RansSymbol*)job.table, job, lengths + j);
}

// bad[j] becomes 1 where stream j does not decode; its symbols are then of no use. Reads the jobs' streams, contexts and tables, writes
// their symbols.
KERNEL(rans_decode, (const RansJob* jobs, const RansTeam* teams, u32* bad)) {
    __shared__ u32 slots[4096];
    RansTeam team = teams[blockIdx.x];
    bool shared = team.contexts == 1u;
    if (shared) {
        const u32* from = (const u32*)jobs[team.first].table;
        for (u32 i = threadIdx.x; i < 4096u; i += blockDim.x) slots[i] = from[i];
    }
    __syncthreads();
    if (warp_id() >= team.count) return;
    u32 j = team.first + warp_id();
    RansJob job = jobs[j];
    RansStream s;
    rans_open(s, job.stream, job.len, job.lanes);
    if (shared) {
        rans_take_part(s, slots, 0, job.n[0], job.lanes, (u8*)job.symbols[0]);
        rans_take_part(s, slots, 0, job.n[1], job.lanes, (u8*)job.symbols[1]);
    } else {
        const u32* table = (const u32*)job.table;
        rans_take_part(s, table, job.ctx[0], job.n[0], job.lanes, (u8*)job.symbols[0]);
        rans_take_part(s, table, job.ctx[1], job.n[1], job.lanes, (u8*)job.symbols[1]);
    }
    bool good = rans_done(s);
    if (lane_id() == 0) bad[j] = good ? 0u : 1u;
}
