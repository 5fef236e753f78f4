// Weights that stay compressed, checked once and decoded as often as a layer needs them.
#include "weights.cuh"

// Decodes the streams of blocks to find their seek points, a warp to a block of threads and to a block: points[POINT * c] becomes the words
// taken before chunk c, then come the states. bad[t] becomes 1 where the stream of block which[t] does not end where it should. Blocks that
// have no stream are not among them.
KERNEL(weights_index, (const WeightBlock* blocks, const u32* which, u32* bad)) {
    __shared__ u32 slots[4096];
    __shared__ u32 starts[256];
    const WeightBlock b = blocks[which[blockIdx.x]];
    u32 lane = lane_id(), n = b.n;
    u32* points = (u32*)b.points;
    weight_table(b.freqs, slots, starts);
    RansStream s;
    rans_open(s, b.symbols, b.len, WARP);
    u32 total = s.bad ? 0u : (b.len - 4u * WARP) / 2u;
    for (u32 i = 0; i < n; i += WARP) {
        if (i % CHUNK == 0u) {
            u32* point = points + POINT * (i / CHUNK);
            // Three times 64 words were fetched before the first was taken. Of a stream that is too short all are.
            u32 taken = total - (u32)(s.rest + 192 + (i32)(2u * lane)) + s.at;
            if (lane == 0u) point[0] = min(taken, total);
            point[1u + lane] = s.x;
        }
        rans_take(s, slots, i + lane < n);
    }
    bool good = rans_done(s);
    if (lane == 0u) bad[blockIdx.x] = good ? 0u : 1u;
}

// A stream to be made, with its seek points.
struct WeightStream {
    const u8* symbols;
    // 256 symbols.
    const RansSymbol* table;
    // Words and states go here, 2 bytes a symbol and 4 a lane at most.
    u8* stream;
    // One for each chunk.
    u32* points;
    u64 n;
};

// Codes streams as rans_encode does, a warp to a block of threads and to a stream, and notes what the states are before each chunk.
// lengths[j] becomes the bytes of stream j.
KERNEL(weights_encode, (const WeightStream* jobs, u32* lengths)) {
    __shared__ RansPacked table[256];
    const WeightStream job = jobs[blockIdx.x];
    for (u32 i = threadIdx.x; i < 256u; i += blockDim.x) table[i] = rans_packed(job.table[i]);
    __syncthreads();
    u32 lane = lane_id(), n = (u32)job.n, x = RANS_LOW, at = 0u;
    u16* out = (u16*)job.stream;
    for (u32 c = (n + CHUNK - 1u) / CHUNK; c-- > 0u;) {
        at = rans_put_part(table, job.symbols + c * CHUNK, 0, min(n - c * CHUNK, CHUNK), WARP, x, out, at);
        if (lane == 0u) job.points[POINT * c] = at;
        job.points[POINT * c + 1u + lane] = x;
    }
    store_u32(job.stream + 2u * at + 4u * lane, x);
    __syncwarp();
    // A decoder takes the words from the last to the first.
    for (u32 c = lane; c * CHUNK < n; c += WARP) job.points[POINT * c] = at - job.points[POINT * c];
    if (lane == 0u) lengths[blockIdx.x] = 2u * at + 4u * WARP;
}

// Stores numbers, 16 or 32 bits each.
template <u32 KIND>
struct Store {
    u8* out;
    u8* at;
    __device__ __forceinline__ void begin(const WeightBlock& b, u32) { at = out + b.first * num_size(KIND); }
    __device__ __forceinline__ void step(u32 m, u32 k, u32 bits) {
        if (lane_id() >= m) return;
        if (KIND == NUM_F32)
            ((u32*)at)[k] = bits;
        else
            ((u16*)at)[k] = (u16)bits;
    }
    __device__ __forceinline__ void end() {}
};

template <u32 KIND>
DEVICE void decode(const WeightBlock* blocks, const u32* tiles, u8* out) {
    Store<KIND> store = {out, out};
    weight_tile<KIND>(blocks, tiles, store);
}

// Decode all blocks of weights into `out`, a block of 256 threads to a tile (weights.cuh).
KERNEL(weights_decode_f32, (const WeightBlock* blocks, const u32* tiles, u8* out)) { decode<NUM_F32>(blocks, tiles, out); }
KERNEL(weights_decode_f16, (const WeightBlock* blocks, const u32* tiles, u8* out)) { decode<NUM_F16>(blocks, tiles, out); }
KERNEL(weights_decode_bf16, (const WeightBlock* blocks, const u32* tiles, u8* out)) { decode<NUM_BF16>(blocks, tiles, out); }
