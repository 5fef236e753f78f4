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

// The row and symbol of this lane in each of the groups g-1, g-2, ... of a part; 0 where there is none.
DEVICE void rans_fetch(u32* rows, const u8* symbols, const u8* ctx, u32 n, u32 lanes, u32 g) {
    u32 lane = lane_id();
#pragma unroll
    for (u32 k = 0; k < RANS_AHEAD; k++) {
        u32 i = (g - 1u - k) * lanes + lane;
        bool live = k < g && lane < lanes && i < n;
        rows[k] = live ? (u32)symbols[i] : 0u;
        if (ctx && live) rows[k] |= (u32)ctx[i] << 8;
    }
}

// Codes a part, last group first, going on from the states of what follows it.
template <class Table>
DEVICE u32 rans_put_part(const Table* table, const u8* symbols, const u8* ctx, u32 n, u32 lanes, u32& x, u16* out, u32 at) {
    u32 lane = lane_id(), g = (n + lanes - 1u) / lanes;
    u32 rows[RANS_AHEAD], next[RANS_AHEAD];
    rans_fetch(next, symbols, ctx, n, lanes, g);
    while (g > 0u) {
        u32 many = min(g, RANS_AHEAD);
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) rows[k] = next[k];
        rans_fetch(next, symbols, ctx, n, lanes, g - many);
        RansPacked e[RANS_AHEAD];
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) e[k] = rans_entry(table, rows[k]);
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) {
            bool live = k < many && lane < lanes && (g - 1u - k) * lanes + lane < n;
            at = rans_put(e[k], live, x, out, at);
        }
        g -= many;
    }
    return at;
}

// A stream that is being decoded. Words are taken from its end; word i is the i-th of those. Of 128 words from word 64 k on every lane
// holds a pair in `now` and one in `next`, the earlier word in the upper half; `ahead` is on its way.
struct RansStream {
    const u8* words;
    u32 total;
    // Words that are left: negative where a stream was too short.
    i32 left;
    u32 x;
    u32 now, next, ahead;
    // The next word within `now`, and the first one of `ahead`.
    u32 at, from;
    bool bad;
};

// This lane's pair of the 64 words from `first` on; zeros past the end. Reads whole aligned words of 4 bytes that have a byte of the stream.
DEVICE u32 rans_pair(const RansStream& s, u32 first) {
    i32 rest = (i32)s.total - (i32)(first + 2u * lane_id());
    if (rest <= 0) return 0u;
    if (rest == 1) return load_u16(s.words) << 16;
    const u8* p = s.words + 2u * (u32)(rest - 2);
    u32 off = (u32)((u64)p & 3u);
    const u32* whole = (const u32*)(p - off);
    u32 low = whole[0];
    return off ? __funnelshift_r(low, whole[1], 8u * off) : low;
}

// Reads the states, which end the stream. False (and nothing to decode) where it is too short.
DEVICE bool rans_open(RansStream& s, const u8* stream, u32 len, u32 lanes) {
    s.words = stream;
    s.bad = len < 4u * lanes || (len & 1u);
    s.total = s.bad ? 0u : (len - 4u * lanes) / 2u;
    s.left = (i32)s.total;
    u32 lane = lane_id();
    s.x = !s.bad && lane < lanes ? load_u32(stream + 2u * s.total + 4u * lane) : RANS_LOW;
    s.now = rans_pair(s, 0u);
    s.next = rans_pair(s, 64u);
    s.ahead = rans_pair(s, 128u);
    s.at = 0u;
    s.from = 128u;
    return !s.bad;
}

// The next symbol of this lane, if `live`; `slots` are the 4096 of its context. Of a stream that is too short the missing words are 0.
DEVICE u32 rans_take(RansStream& s, const u32* slots, bool live) {
    u32 e = live ? slots[s.x & 4095u] : 0u;
    // At most 4096 * (2^20 - 1) + 4095: no state overflows.
    u32 x = ((e >> 20) + 1u) * (s.x >> 12) + (e >> 8 & 4095u);
    bool need = live && x < RANS_LOW;
    u32 mask = __ballot_sync(ALL, need);
    u32 i = s.at + (u32)__popc(mask & lanes_below());
    u32 now = __shfl_sync(ALL, s.now, (int)(i >> 1 & 31u)), next = __shfl_sync(ALL, s.next, (int)(i >> 1 & 31u));
    u32 pair = i < 64u ? now : next;
    if (need) x = __byte_perm(pair, x, i & 1u ? 0x5410u : 0x5432u);
    if (live) s.x = x;
    u32 count = (u32)__popc(mask);
    s.left -= (i32)count;
    s.at += count;
    if (s.at >= 64u) {
        s.at -= 64u;
        s.from += 64u;
        s.now = s.next;
        s.next = s.ahead;
        s.ahead = rans_pair(s, s.from);
    }
    return e & 255u;
}

// Decodes a part of `n` symbols. Every value of `ctx` is below the contexts that `slots` has.
DEVICE void rans_take_part(RansStream& s, const u32* slots, const u8* ctx, u32 n, u32 lanes, u8* out) {
    u32 lane = lane_id(), rows[RANS_AHEAD];
#pragma unroll
    for (u32 k = 0; k < RANS_AHEAD; k++) rows[k] = 0u;
    if (!ctx) {
        u32 at = 0;
        for (; at + lanes <= n; at += lanes) {
            u32 symbol = rans_take(s, slots, lane < lanes);
            if (lane < lanes) out[at + lane] = (u8)symbol;
        }
        if (at < n) {
            bool live = at + lane < n && lane < lanes;
            u32 symbol = rans_take(s, slots, live);
            if (live) out[at + lane] = (u8)symbol;
        }
        return;
    }
    u32 next[RANS_AHEAD];
#pragma unroll
    for (u32 k = 0; k < RANS_AHEAD; k++) {
        u32 i = k * lanes + lane;
        next[k] = lane < lanes && i < n ? (u32)ctx[i] << 12 : 0u;
    }
    for (u32 at = 0; at < n; at += RANS_AHEAD * lanes) {
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) {
            rows[k] = next[k];
            u64 i = (u64)at + (RANS_AHEAD + k) * lanes + lane;
            next[k] = lane < lanes && i < n ? (u32)ctx[i] << 12 : 0u;
        }
#pragma unroll
        for (u32 k = 0; k < RANS_AHEAD; k++) {
            u32 i = at + k * lanes + lane;
            bool live = lane < lanes && i < n;
            u32 symbol = rans_take(s, slots + rows[k], live);
            if (live) out[i] = (u8)symbol;
        }
    }
}

// Whether the stream ended where it should.
DEVICE bool rans_done(const RansStream& s) {
    return __all_sync(ALL, !s.bad && s.left == 0 && s.x == RANS_LOW);
}
