// The interleaved rANS of docs/format-segments.md, a warp to a stream: lane l has symbols l, l + lanes, ... and state l.
// Shared by every kernel that codes; the tables are made on the host (mdl_codec::rans).
#pragma once
#include "prelude.cuh"

#define RANS_LOW 65536u

// What encoding a symbol needs; 256 of these a context.
struct RansSymbol {
    u64 reciprocal;
    u32 freq;
    u32 bias;
};

// Codes one group of at most `lanes` symbols: this lane's, if `live`. Words go to out[at..]; returns where the next go.
DEVICE u32 rans_put(const RansSymbol& e, bool live, u32& x, u16* out, u32 at) {
    bool spill = live && (u64)x >= (u64)e.freq << 20;
    u32 mask = __ballot_sync(ALL, spill);
    if (spill) {
        // Words of a group are written from the highest lane down.
        out[at + __popc(mask & lanes_above())] = (u16)x;
        x >>= 16;
    }
    if (live) x += e.bias + (u32)__umul64hi(e.reciprocal, (u64)x) * (4096u - e.freq);
    return at + __popc(mask);
}

// Codes a part, last group first, going on from the states of what follows it.
DEVICE u32 rans_put_part(const RansSymbol* table, const u8* symbols, const u8* ctx, u32 n, u32 lanes, u32& x, u16* out,
                         u32 at) {
    u32 lane = lane_id();
    for (u32 g = (n + lanes - 1u) / lanes; g-- > 0;) {
        u32 i = g * lanes + lane;
        bool live = lane < lanes && i < n;
        u32 row = live && ctx ? (u32)ctx[i] << 8 : 0u;
        RansSymbol e = table[row | (live ? symbols[i] : 0u)];
        at = rans_put(e, live, x, out, at);
    }
    return at;
}

// A stream that is being decoded: words are taken from its end.
struct RansStream {
    const u8* words;
    u32 left;
    u32 x;
    bool bad;
};

// Reads the states, which end the stream. False (and nothing to decode) where it is too short.
DEVICE bool rans_open(RansStream& s, const u8* stream, u32 len, u32 lanes) {
    s.words = stream;
    s.bad = len < 4u * lanes || (len & 1u);
    s.left = s.bad ? 0u : (len - 4u * lanes) / 2u;
    u32 lane = lane_id();
    s.x = !s.bad && lane < lanes ? load_u32(stream + 2u * s.left + 4u * lane) : RANS_LOW;
    return !s.bad;
}

// The next symbol of this lane, if `live`; `slots` are the 4096 of its context.
DEVICE u32 rans_take(RansStream& s, const u32* slots, bool live) {
    u32 e = live ? slots[s.x & 4095u] : 0u;
    u32 x = ((e >> 20) + 1u) * (s.x >> 12) + (e >> 8 & 4095u);
    bool need = live && x < RANS_LOW;
    u32 mask = __ballot_sync(ALL, need);
    u32 count = (u32)__popc(mask), before = (u32)__popc(mask & lanes_below());
    if (need) x = before < s.left ? x << 16 | load_u16(s.words + 2u * (s.left - 1u - before)) : RANS_LOW;
    if (live) s.x = x;
    s.bad |= count > s.left;
    s.left -= min(count, s.left);
    return e & 255u;
}

// Decodes a part of `n` symbols. Every value of `ctx` is below the contexts that `slots` has.
DEVICE void rans_take_part(RansStream& s, const u32* slots, const u8* ctx, u32 n, u32 lanes, u8* out) {
    u32 lane = lane_id();
    for (u32 at = 0; at < n; at += lanes) {
        u32 i = at + lane;
        bool live = lane < lanes && i < n;
        u32 row = live && ctx ? (u32)ctx[i] << 12 : 0u;
        u32 symbol = rans_take(s, slots + row, live);
        if (live) out[i] = (u8)symbol;
    }
}

// Whether the stream ended where it should.
DEVICE bool rans_done(const RansStream& s) {
    return __all_sync(ALL, !s.bad && s.left == 0u && s.x == RANS_LOW);
}
