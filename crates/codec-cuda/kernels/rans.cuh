// The interleaved rANS of docs/format-segments.md, a warp to a stream: lane l has symbols l, l + lanes, ... and state l.
// Shared by every kernel that codes; the tables are made on the host (mdl_codec::rans).
//
// A step waits for the one before it, so all that does not depend on the state is fetched ahead: symbols and contexts by the
// batch, table entries of an encoder too, and the words of a decoder through a window of registers.
#pragma once
#include "prelude.cuh"

#define RANS_LOW 65536u
// Groups of symbols that are fetched at a time.
#define RANS_AHEAD 4u

// What encoding a symbol needs; 256 of these a context.
struct RansSymbol {
    u64 reciprocal;
    u32 freq;
    u32 bias;
};

// The same in half the room, for tables in shared memory: floor(2^32 / freq) or 2^32 - 1, and freq | start << 16.
struct RansPacked {
    u32 reciprocal;
    u32 rest;
};

DEVICE RansPacked rans_packed(const RansSymbol& e) {
    RansPacked p;
    // The reciprocals of 64 bits are rounded up, but none so far that its upper half is.
    p.reciprocal = (u32)(e.reciprocal >> 32);
    p.rest = e.freq | (e.freq == 1u ? e.bias - 4095u : e.bias) << 16;
    return p;
}

// Codes one group of at most `lanes` symbols: this lane's, if `live`. Words go to out[at..]; returns where the next go.
DEVICE u32 rans_put(const RansPacked& e, bool live, u32& x, u16* out, u32 at) {
    u32 freq = e.rest & 0xffffu;
    bool spill = live && x >> 20 >= freq;
    u32 mask = __ballot_sync(ALL, spill);
    if (spill) {
        // Words of a group are written from the highest lane down.
        out[at + __popc(mask & lanes_above())] = (u16)x;
        x >>= 16;
    }
    if (live) {
        // The quotient, or one less.
        u32 q = __umulhi(e.reciprocal, x);
        q += x - q * freq >= freq ? 1u : 0u;
        x += (e.rest >> 16) + q * (4096u - freq);
    }
    return at + __popc(mask);
}
DEVICE u32 rans_put(const RansSymbol& e, bool live, u32& x, u16* out, u32 at) {
    return rans_put(rans_packed(e), live, x, out, at);
}

DEVICE RansPacked rans_entry(const RansPacked* table, u32 i) { return table[i]; }
DEVICE RansPacked rans_entry(const RansSymbol* table, u32 i) { return rans_packed(table[i]); }

// The row and symbol of this lane in each of the groups g-1, g-2, ...; of 0 where there is none. ALIVE: there are, all lanes have a symbol.
template <bool ALIVE>
DEVICE void rans_fetch(u32* rows, const u8* symbols, const u8* ctx, u32 n, u32 lanes, u32 g) {
    u32 lane = lane_id();
#pragma unroll
    for (u32 k = 0; k < RANS_AHEAD; k++) {
        u32 i = ALIVE ? (g - 1u - k) * WARP + lane : (g - 1u - k) * lanes + lane;
        bool live = ALIVE || (k < g && lane < lanes && i < n);
        rows[k] = live ? (u32)symbols[i] : 0u;
        if (ctx && live) rows[k] |= (u32)ctx[i] << 8;
    }
}

// Codes whole groups of 32 symbols, RANS_AHEAD at a time, while there are so many below g; says how many are left.
template <class Table>
DEVICE u32 rans_put_full(const Table* table, const u8* symbols, const u8* ctx, u32 g, u32& x, u16* out, u32& at) {
    u32 rows[RANS_AHEAD];
    if (g < RANS_AHEAD) return g;
    rans_fetch<true>(rows, symbols, ctx, 0u, WARP, g);
    for (; g >= RANS_AHEAD; g -= RANS_AHEAD) {
        RansPacked e[RANS_AHEAD];
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) e[k] = rans_entry(table, rows[k]);
        if (g >= 2u * RANS_AHEAD) rans_fetch<true>(rows, symbols, ctx, 0u, WARP, g - RANS_AHEAD);
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) at = rans_put(e[k], true, x, out, at);
    }
    return g;
}

// Codes a part, last group first, going on from the states of what follows it.
template <class Table>
DEVICE u32 rans_put_part(const Table* table, const u8* symbols, const u8* ctx, u32 n, u32 lanes, u32& x, u16* out, u32 at) {
    u32 lane = lane_id(), g = (n + lanes - 1u) / lanes;
    while (g > 0u) {
        // Groups that are whole go by the batch: all but the last of a part, and the first few.
        if (lanes == WARP && g * WARP <= n && g >= RANS_AHEAD) {
            g = rans_put_full(table, symbols, ctx, g, x, out, at);
            continue;
        }
        u32 many = lanes == WARP ? 1u : min(g, RANS_AHEAD), rows[RANS_AHEAD];
        rans_fetch<false>(rows, symbols, ctx, n, lanes, g);
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) {
            bool live = k < many && lane < lanes && (g - 1u - k) * lanes + lane < n;
            if (k < many) at = rans_put(rans_entry(table, rows[k]), live, x, out, at);
        }
        g -= many;
    }
    return at;
}

// A stream that is being decoded. Words are taken from its end; word i is the i-th of those. Of 128 words from word 64 k on every lane
// holds a pair in `now` and one in `next`, the earlier word in the upper half. The pair after those lies in two aligned words of 4 bytes,
// which are on their way and only put together when they are needed.
struct RansStream {
    u32 x;
    u32 now, next, low, high;
    // The next word within `now`.
    u32 at;
    // Of the pairs that are fetched next: the aligned word in which this lane's begins, in how many bits, and the words from there on.
    const u32* from;
    u32 shift;
    i32 rest;
    bool bad;
};

// Fetches 64 words; zeros past the end. Reads only aligned words that have a byte of the stream.
DEVICE void rans_refill(RansStream& s) {
    s.now = s.next;
    s.next = __funnelshift_r(s.low, s.high, s.shift);
    bool low = s.rest > (s.shift < 16u ? 0 : 1), high = s.rest > 0 && s.shift;
    s.low = low ? s.from[0] : 0u;
    s.high = high ? s.from[1] : 0u;
    s.from -= 32;
    s.rest -= 64;
}

// Starts to take words where `total` of them are left, from the last one on. The states are the caller's.
DEVICE void rans_start(RansStream& s, const u8* stream, u32 total) {
    s.bad = false;
    s.rest = (i32)total - (i32)(2u * lane_id());
    u64 pair = (u64)stream + 2u * (u64)(i64)(s.rest - 2);
    s.from = (const u32*)(pair & ~3ull);
    s.shift = 8u * (u32)(pair & 3u);
    s.next = s.low = s.high = 0u;
    rans_refill(s);
    rans_refill(s);
    rans_refill(s);
    s.at = 0u;
}

// Reads the states, which end the stream. False (and nothing to decode) where it is too short.
DEVICE bool rans_open(RansStream& s, const u8* stream, u32 len, u32 lanes) {
    bool bad = len < 4u * lanes || (len & 1u);
    u32 total = bad ? 0u : (len - 4u * lanes) / 2u, lane = lane_id();
    s.x = !bad && lane < lanes ? load_u32(stream + 2u * total + 4u * lane) : RANS_LOW;
    rans_start(s, stream, total);
    s.bad = bad;
    return !bad;
}

// The next symbol of this lane, if `live`; `slots` are the 4096 of its context. Of a stream that is too short the missing words are 0.
DEVICE u32 rans_take(RansStream& s, const u32* slots, bool live) {
    u32 e = live ? slots[s.x & 4095u] : 0u;
    // At most 4096 * (2^20 - 1) + 4095: no state overflows.
    u32 x = ((e >> 20) + 1u) * (s.x >> 12) + (e >> 8 & 4095u);
    bool need = live && x < RANS_LOW;
    u32 mask = __ballot_sync(ALL, need);
    u32 i = s.at + (u32)__popc(mask & lanes_below());
    u32 now = __shfl_sync(ALL, s.now, (int)(i >> 1)), next = __shfl_sync(ALL, s.next, (int)(i >> 1));
    // The upper half of the pair where i is even, else the lower.
    if (need) x = __byte_perm(i < 64u ? now : next, x, 0x5432u - (i & 1u) * 0x22u);
    if (live) s.x = x;
    s.at += (u32)__popc(mask);
    if (s.at >= 64u) {
        s.at -= 64u;
        rans_refill(s);
    }
    return e & 255u;
}

// The slots of a symbol's context. Every value of `ctx` is below the contexts that `slots` has.
DEVICE const u32* rans_row(const u32* slots, const u8* ctx, u32 i, bool live) {
    return ctx && live ? slots + ((u32)ctx[i] << 12) : slots;
}

// Decodes a part of `n` symbols. Every value of `ctx` is below the contexts that `slots` has.
DEVICE void rans_take_part(RansStream& s, const u32* slots, const u8* ctx, u32 n, u32 lanes, u8* out) {
    u32 lane = lane_id(), at = 0u;
    const u32 BATCH = RANS_AHEAD * WARP;
    if (lanes == WARP && !ctx) {
        u8* mine = out + lane;
        for (; n - at >= BATCH; at += BATCH) {
#pragma unroll
            for (u32 k = 0; k < RANS_AHEAD; k++) mine[at + k * WARP] = (u8)rans_take(s, slots, true);
        }
    } else if (lanes == WARP && n >= BATCH) {
        u32 rows[RANS_AHEAD], next[RANS_AHEAD];
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) next[k] = ctx[k * WARP + lane];
        for (; n - at >= BATCH; at += BATCH) {
            bool more = n - at >= 2u * BATCH;
#pragma unroll
            for (u32 k = 0; k < RANS_AHEAD; k++) {
                rows[k] = next[k] << 12;
                next[k] = more ? (u32)ctx[at + BATCH + k * WARP + lane] : 0u;
            }
#pragma unroll
            for (u32 k = 0; k < RANS_AHEAD; k++) out[at + k * WARP + lane] = (u8)rans_take(s, slots + rows[k], true);
        }
    }
    for (; at < n; at += min(lanes, n - at)) {
        u32 i = at + lane;
        bool live = lane < lanes && i < n;
        u32 symbol = rans_take(s, rans_row(slots, ctx, i, live), live);
        if (live) out[i] = (u8)symbol;
    }
}

// Whether the stream ended where it should.
DEVICE bool rans_done(const RansStream& s) {
    // Three times 64 words were fetched before the first was taken.
    return __all_sync(ALL, !s.bad && (i32)s.at == s.rest + 192 + (i32)(2u * lane_id()) && s.x == RANS_LOW);
}
