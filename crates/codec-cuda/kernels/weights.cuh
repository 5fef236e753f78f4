// Weights that stay compressed: a warp decodes CHUNK neighbouring numbers of a block from a seek point on, 32 a step, lane by lane in
// registers, and hands each step to a sink that stores or multiplies it. Nothing is written in between.
//
// A seek point is what the 32 states of a stream are before a chunk, and how many words are taken by then; `weights_index` finds them.
#pragma once
#include "numbers.cuh"
#include "planes.cuh"
#include "rans.cuh"

// Numbers between two seek points: a multiple of 128.
#define CHUNK 8192u
// Words of a seek point: words taken, then the states.
#define POINT 33u
// Chunks of a block of threads, a warp each, which share the block's table.
#define WEIGHT_WARPS 8u

// Where symbols come from; WEIGHT_PLAIN: there are none, the numbers lie as they are.
#define WEIGHT_PLAIN 0u
#define WEIGHT_CONST 1u
#define WEIGHT_RAW 2u
#define WEIGHT_RANS 3u

// A block of a segment, in the device's memory for as long as the weights are.
struct WeightBlock {
    // The stream of `len` bytes, n raw symbols, or n numbers, which lie at a multiple of their size.
    const u8* symbols;
    // Bit planes of the fields: 4 * cut.bits bytes for each 32 numbers, at any address. Few mantissa bits: cut.bits for each number, one
    // after the other from the lowest bit of a byte on.
    const u8* fields;
    // f32: low bytes in groups of 128 numbers, where each group begins in them, and their counts; without offsets all counts are 0.
    const u8* groups;
    const u32* offsets;
    const u8* counts;
    // A seek point for each chunk.
    const u32* points;
    // Place in the chunk | key << 16 of each exception, in order; those of chunk c are starts[c] to starts[c + 1].
    const u32* exceptions;
    const u32* starts;
    // 256 frequencies that add up to 4096.
    const u16* freqs;
    // Few mantissa bits: the coefficient of each 1 << scale_log numbers of a part of 2^18, 7 bits; else null.
    const u8* scales;
    // Number of the tensor with which it begins.
    u64 first;
    Cut cut;
    // n numbers, at least 1.
    u32 n, len;
    u32 kind, symbol;
    u32 scale_log;
    // Its first chunk, of all that the tensor has.
    u32 chunk;
};

// 4096 slots of a table from frequencies, by all threads of a block. `starts` has 256 numbers. Both are shared.
DEVICE void weight_table(const u16* freqs, u32* slots, u32* starts) {
    if (warp_id() == 0u) {
        u32 sum = 0u;
        for (u32 k = 0; k < 8; k++) sum += freqs[8u * lane_id() + k];
        u32 start = warp_before(sum);
        for (u32 k = 0; k < 8; k++) {
            starts[8u * lane_id() + k] = start;
            start += freqs[8u * lane_id() + k];
        }
    }
    __syncthreads();
    // The run of a symbol is filled by a warp: neighbours write neighbours.
    for (u32 s = warp_id(); s < 256u; s += blockDim.x / WARP) {
        u32 freq = freqs[s], start = starts[s];
        for (u32 i = lane_id(); i < freq; i += WARP) slots[(start + i) & 4095u] = s | i << 8 | (freq - 1u) << 20;
    }
    __syncthreads();
}

// Bits j of the lanes' words, as a word: lane l gets bit l of every lane's word, in the lanes' order.
DEVICE u32 transpose(u32 v) {
    u32 lane = lane_id(), mask = 0x0000ffffu;
#pragma unroll
    for (u32 d = 16; d; d >>= 1) {
        u32 other = __shfl_xor_sync(ALL, v, (int)d);
        v = lane & d ? (v & ~mask) | (other >> d & mask) : (v & mask) | (other << d & ~mask);
        mask ^= mask << (d >> 1);
    }
    return v;
}

// This lane's word of the bit planes of four times 32 numbers from `from` (a multiple of 128) on: plane lane % 8 of 32 numbers lane / 8,
// zero where there is none. Reads only aligned words that have a byte of the planes.
DEVICE u32 weight_fields(const WeightBlock& b, u32 from) {
    u32 plane = lane_id() & 7u, group = from / 32u + (lane_id() >> 3);
    if (plane >= b.cut.bits || group * 32u >= b.n) return 0u;
    const u8* p = b.fields + ((u64)group * b.cut.bits + plane) * 4u;
    u32 off = (u32)((u64)p & 3u);
    const u32* w = (const u32*)(p - off);
    u32 low = w[0], high = off ? w[1] : 0u;
    return __funnelshift_r(low, high, 8u * off);
}

// The low bytes of number k of a block of f32.
DEVICE u32 weight_low(const WeightBlock& b, u32 k) {
    if (!b.offsets) return load_u16(b.groups + 2u * (u64)k);
    u32 g = k / 128u, c = (u32)b.counts[g];
    const u8* from = b.groups + b.offsets[g];
    if (c == 0u) return load_u16(from + 2u * (k & 127u));
    u32 have = 16u - c, low = 0u;
    from += (k / 32u & 3u) * 4u * have + (k / 8u & 3u);
    for (u32 j = 0; j < have; j++) low |= ((u32)from[4u * j] >> (k & 7u) & 1u) << (c + j);
    return low;
}

// The bits of number k, of few mantissa bits (mdl_codec::quant::neuzip). Any symbol above 254 counts as that.
DEVICE u32 weight_scaled(const WeightBlock& b, u32 kind, u32 symbol, u32 k) {
    u32 keep = b.cut.bits - 1u, at = k * b.cut.bits, field = (u32)b.fields[at >> 3] >> (at & 7u);
    u32 scale = (u32)b.scales[(((u32)b.first & 262143u) + k) >> b.scale_log] & 127u;
    if (symbol == 0u) return 0u;
    u32 bits = (field >> keep & 1u) << 31 | min(symbol, 254u) << 23 | (field & ((1u << keep) - 1u)) << (23u - keep);
    bits = __float_as_uint(__fmul_rn(__uint_as_float(bits), __uint_as_float(127u << 23 | scale << 16)));
    bits = (bits & 0x80000000u) | min(bits & 0x7fffffffu, 0x7f7fffffu);
    return kind == NUM_F32 ? bits : kind == NUM_BF16 ? num_to_bf16(bits) : num_to_f16(bits);
}

DEVICE u32 weight_plain(const WeightBlock& b, u32 kind, u32 k) {
    return kind == NUM_F32 ? ((const u32*)b.symbols)[k] : (u32)((const u16*)b.symbols)[k];
}

// The exceptions of a chunk: the next one, those after it, and its place in the block; beyond every place where there is none.
struct Exceptions {
    const u32 *next, *end;
    u32 from, due;
};

DEVICE void exceptions_see(Exceptions& e) { e.due = e.next < e.end ? e.from + (*e.next & 0xffffu) : ALL; }

// Decodes chunk `chunk` of a block; `slots` is its table where it has one. For each 32 numbers all lanes call
// sink.step(m, k, bits): m of them are there, this lane's is number k of the block if lane < m, `bits` what it is.
template <u32 KIND, class Sink>
DEVICE void weight_walk(const WeightBlock& b, const u32* slots, u32 chunk, Sink& sink) {
    u32 lane = lane_id(), from = chunk * CHUNK, to = min(b.n - from, CHUNK) + from;
    if (b.kind == WEIGHT_PLAIN) {
        for (u32 i = from; i < to; i += WARP) {
            u32 m = min(to - i, WARP);
            sink.step(m, i + lane, lane < m ? weight_plain(b, KIND, i + lane) : 0u);
        }
        return;
    }
    const Cut cut = b.cut;
    RansStream s;
    if (b.kind == WEIGHT_RANS) {
        const u32* point = b.points + POINT * chunk;
        rans_start(s, b.symbols, (b.len - 4u * WARP) / 2u - point[0]);
        s.x = point[1u + lane];
    }
    Exceptions e = {b.exceptions, b.exceptions, from, ALL};
    if (b.starts) {
        e.next += b.starts[chunk];
        e.end += b.starts[chunk + 1u];
        exceptions_see(e);
    }
    u32 ahead = b.scales ? 0u : weight_fields(b, from), fields = 0u;
    for (u32 i = from; i < to; i += 4u * WARP) {
        if (!b.scales) {
            fields = transpose(ahead);
            ahead = i + 4u * WARP < to ? weight_fields(b, i + 4u * WARP) : 0u;
        }
#pragma unroll
        for (u32 q = 0; q < 4; q++) {
            u32 at = i + q * WARP, k = at + lane;
            if (at >= to) break;
            u32 m = min(to - at, WARP), symbol = b.symbol;
            bool live = lane < m;
            if (b.kind == WEIGHT_RANS) symbol = rans_take(s, slots, live);
            if (b.kind == WEIGHT_RAW) symbol = live ? (u32)b.symbols[k] : 0u;
            u32 field = fields >> 8u * q & 255u, bits;
            if (b.scales) {
                bits = live ? weight_scaled(b, KIND, symbol, k) : 0u;
            } else {
                u32 key = symbol ? cut.lo - 1u + symbol : 0u;
                while (e.due < at + WARP) {
                    if (k == e.due) key = *e.next >> 16;
                    e.next++;
                    exceptions_see(e);
                }
                bits = cut_head(cut, key, field) & 0xffffu;
                if (KIND == NUM_F32) bits = bits << 16 | (live ? weight_low(b, k) : 0u);
            }
            sink.step(m, k, bits);
        }
    }
}

// Block and first chunk of a block of threads: tiles[2 t] and tiles[2 t + 1]; each warp has the next chunk.
template <u32 KIND, class Sink>
DEVICE void weight_tile(const WeightBlock* blocks, const u32* tiles, Sink& sink) {
    __shared__ u32 slots[4096];
    __shared__ u32 starts[256];
    const WeightBlock b = blocks[tiles[2u * blockIdx.x]];
    u32 chunk = tiles[2u * blockIdx.x + 1u] + warp_id();
    if (b.kind == WEIGHT_RANS) weight_table(b.freqs, slots, starts);
    if (chunk * CHUNK >= b.n) return;
    sink.begin(b, chunk);
    weight_walk<KIND>(b, slots, chunk, sink);
    sink.end();
}
