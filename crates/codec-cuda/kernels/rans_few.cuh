// Streams of one lane or four, for encoders. A warp that gave its other threads nothing to do would wait for memory at every step: here all
// of them load what 32 symbols need, two groups ahead, and the lanes that have a state take it from registers.
#pragma once
#include "rans.cuh"

template <u32 L, class Table>
DEVICE u32 rans_put_lanes(const Table* table, const u8* symbols, const u8* ctx, u32 n, u32& x, u16* out, u32 at) {
    u32 lane = lane_id(), groups = (n + WARP - 1u) / WARP;
    // A row of the table for each symbol of a group; 0, which there is, for those past the end.
    auto row_of = [&](u32 group) {
        u32 i = group * WARP + lane;
        return group < groups && i < n ? (ctx ? (u32)ctx[i] << 8 : 0u) | symbols[i] : 0u;
    };
    RansPacked next = rans_entry(table, row_of(groups - 1u));
    u32 row = row_of(groups - 2u);
    for (u32 g = groups; g-- > 0;) {
        RansPacked own = next;
        next = rans_entry(table, row);
        // Below the first group there is none: its number is beyond the last one's.
        row = row_of(g - 2u);
        u32 left = min(WARP, n - g * WARP);
        // A symbol that is alone in its table leaves a state as it is.
        if (__all_sync(ALL, (own.rest & 0xffffu) == 4096u || lane >= left)) continue;
#pragma unroll 8
        for (u32 k = WARP / L; k-- > 0;) {
            u32 from = k * L + (lane & (L - 1u));
            RansPacked e;
            e.reciprocal = __shfl_sync(ALL, own.reciprocal, from);
            e.rest = __shfl_sync(ALL, own.rest, from);
            at = rans_put(e, lane < L && from < left, x, out, at);
        }
    }
    return at;
}

// As rans_put_part, on any number of lanes.
template <class Table>
DEVICE u32 rans_put_any(const Table* table, const u8* symbols, const u8* ctx, u32 n, u32 lanes, u32& x, u16* out, u32 at) {
    if (n == 0) return at;
    if (lanes == 1u) return rans_put_lanes<1u>(table, symbols, ctx, n, x, out, at);
    if (lanes == 4u) return rans_put_lanes<4u>(table, symbols, ctx, n, x, out, at);
    return rans_put_part(table, symbols, ctx, n, lanes, x, out, at);
}
