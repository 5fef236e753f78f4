// Numbers of 1, 2, 4 or 8 bytes, their differences and the classes of these: what mdl_codec::diff is on the processor. Shared by
// `delta` and `sparse`. A warp takes tiles of DIFF_TILE numbers, each lane a pack of them at a time.
#pragma once
#include "prelude.cuh"

#define DIFF_TILE 2048u
// Numbers of a pack: 16 bytes, but no more than 8, whose intermediates fit the registers of many warps.
#define DIFF_PER_LANE(size) ((size) == 1 ? 8u : 16u / (size))

// mdl_codec::diff::Numbers, as its `words` gives it.
struct DiffNumbers {
    u32 size;
    u32 is_float;
    u32 mantissa;
    u32 offset;
};

template <u32 SIZE>
struct DiffWord {
    typedef u32 type;
};
template <>
struct DiffWord<8> {
    typedef u64 type;
};
template <u32 SIZE>
using DiffNumber = typename DiffWord<SIZE>::type;

// Most bits under the top one that may join the class.
template <u32 SIZE>
DEVICE u32 diff_most_t() {
    return SIZE == 8 ? 1u : SIZE == 4 ? 2u : 3u;
}

// What a lane works on, or a byte for each number of that.
struct DiffPack {
    u32 w[4];
};

// Number k of a pack; k is known where the code is compiled.
template <u32 SIZE>
DEVICE DiffNumber<SIZE> diff_get(const DiffPack& p, u32 k) {
    if constexpr (SIZE == 8)
        return p.w[2 * k] | (u64)p.w[2 * k + 1] << 32;
    else if constexpr (SIZE == 4)
        return p.w[k];
    else if constexpr (SIZE == 2)
        return p.w[k >> 1] >> 16 * (k & 1) & 0xffffu;
    else
        return p.w[k >> 2] >> 8 * (k & 3) & 0xffu;
}

// Sets number k of a pack that holds 0 there.
template <u32 SIZE>
DEVICE void diff_set(DiffPack& p, u32 k, DiffNumber<SIZE> v) {
    if constexpr (SIZE == 8) {
        p.w[2 * k] = (u32)v;
        p.w[2 * k + 1] = (u32)(v >> 32);
    } else if constexpr (SIZE == 4)
        p.w[k] = v;
    else if constexpr (SIZE == 2)
        p.w[k >> 1] |= v << 16 * (k & 1);
    else
        p.w[k >> 2] |= v << 8 * (k & 3);
}

template <u32 SIZE>
DEVICE DiffNumber<SIZE> diff_load_one(const u8* p, u32 i) {
    if constexpr (SIZE == 8)
        return ((const u64*)p)[i];
    else if constexpr (SIZE == 4)
        return ((const u32*)p)[i];
    else if constexpr (SIZE == 2)
        return ((const u16*)p)[i];
    else
        return p[i];
}

template <u32 SIZE>
DEVICE void diff_store_one(u8* p, u32 i, DiffNumber<SIZE> v) {
    if constexpr (SIZE == 8)
        ((u64*)p)[i] = v;
    else if constexpr (SIZE == 4)
        ((u32*)p)[i] = v;
    else if constexpr (SIZE == 2)
        ((u16*)p)[i] = (u16)v;
    else
        p[i] = (u8)v;
}

// Numbers i on of the n at p, which is aligned to a number; zeros past the end.
template <u32 SIZE>
DEVICE DiffPack diff_load(const u8* p, u32 i, u32 n) {
    const u32 V = DIFF_PER_LANE(SIZE);
    DiffPack out = {{0, 0, 0, 0}};
    const u8* at = p + (u64)i * SIZE;
    if (i + V <= n && ((u64)at & (V * SIZE - 1)) == 0) {
        if constexpr (SIZE == 1) {
            uint2 v = *(const uint2*)at;
            out = {{v.x, v.y, 0, 0}};
        } else {
            uint4 v = *(const uint4*)at;
            out = {{v.x, v.y, v.z, v.w}};
        }
    } else {
#pragma unroll
        for (u32 k = 0; k < V; k++)
            if (i + k < n) diff_set<SIZE>(out, k, diff_load_one<SIZE>(p, i + k));
    }
    return out;
}

// Writes numbers i on of the n at p.
template <u32 SIZE>
DEVICE void diff_store(u8* p, u32 i, u32 n, const DiffPack& v) {
    const u32 V = DIFF_PER_LANE(SIZE);
    u8* at = p + (u64)i * SIZE;
    if (i + V <= n && ((u64)at & (V * SIZE - 1)) == 0) {
        if constexpr (SIZE == 1)
            *(uint2*)at = make_uint2(v.w[0], v.w[1]);
        else
            *(uint4*)at = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
    } else {
#pragma unroll
        for (u32 k = 0; k < V; k++)
            if (i + k < n) diff_store_one<SIZE>(p, i + k, diff_get<SIZE>(v, k));
    }
}

// A byte for each number of a pack, number i the first; p + i is aligned to as many bytes as a pack has numbers.
template <u32 SIZE>
DEVICE void diff_store_bytes(u8* p, u32 i, u32 n, const DiffPack& v) {
    const u32 V = DIFF_PER_LANE(SIZE);
    if (i + V <= n) {
        if constexpr (SIZE == 8)
            *(u16*)(p + i) = (u16)v.w[0];
        else if constexpr (SIZE == 4)
            *(u32*)(p + i) = v.w[0];
        else
            *(uint2*)(p + i) = make_uint2(v.w[0], v.w[1]);
    } else {
#pragma unroll
        for (u32 k = 0; k < V; k++)
            if (i + k < n) p[i + k] = (u8)(v.w[k >> 2] >> 8 * (k & 3));
    }
}

// What diff_store_bytes wrote; zeros past the end.
template <u32 SIZE>
DEVICE DiffPack diff_load_bytes(const u8* p, u32 i, u32 n) {
    const u32 V = DIFF_PER_LANE(SIZE);
    DiffPack out = {{0, 0, 0, 0}};
    if (i + V <= n) {
        if constexpr (SIZE == 8)
            out.w[0] = *(const u16*)(p + i);
        else if constexpr (SIZE == 4)
            out.w[0] = *(const u32*)(p + i);
        else {
            uint2 v = *(const uint2*)(p + i);
            out = {{v.x, v.y, 0, 0}};
        }
    } else {
#pragma unroll
        for (u32 k = 0; k < V; k++)
            if (i + k < n) out.w[k >> 2] |= (u32)p[i + k] << 8 * (k & 3);
    }
    return out;
}

template <u32 SIZE>
DEVICE bool diff_negative(DiffNumber<SIZE> v) {
    return v >> (8 * SIZE - 1) & 1;
}

// The monotone integer of a number, and the other way.
template <u32 SIZE>
DEVICE DiffNumber<SIZE> diff_monotone(const DiffNumbers& numbers, DiffNumber<SIZE> v) {
    const DiffNumber<SIZE> low = ((DiffNumber<SIZE>)1 << (8 * SIZE - 1)) - 1;
    return numbers.is_float && diff_negative<SIZE>(v) ? v ^ low : v;
}

// The magnitude of the difference `now` has to `old`; `positive` says whether it is above 0.
template <u32 SIZE>
DEVICE DiffNumber<SIZE> diff_of(const DiffNumbers& numbers, DiffNumber<SIZE> now, DiffNumber<SIZE> old, bool& positive) {
    bool turn = numbers.is_float && diff_negative<SIZE>(old);
    DiffNumber<SIZE> d = diff_monotone<SIZE>(numbers, now) - diff_monotone<SIZE>(numbers, old);
    if constexpr (SIZE == 8) {
        // The least 64-bit number stays what it is when it is turned.
        i64 s = (i64)(turn ? 0ull - d : d);
        positive = s > 0;
        return s < 0 ? 0ull - (u64)s : (u64)s;
    } else {
        i32 s = SIZE == 4 ? (i32)d : SIZE == 2 ? (i32)(i16)d : (i32)(i8)d;
        positive = s != 0 && (s < 0) == turn;
        return s < 0 ? 0u - (u32)s : (u32)s;
    }
}

// The number whose difference to `old` this is (magnitudes as they are modulo the number's width).
template <u32 SIZE>
DEVICE DiffNumber<SIZE> diff_apply(const DiffNumbers& numbers, DiffNumber<SIZE> old, DiffNumber<SIZE> magnitude, bool positive) {
    const DiffNumber<SIZE> mask = SIZE >= 4 ? ~(DiffNumber<SIZE>)0 : ((DiffNumber<SIZE>)1 << (8 * SIZE & 31)) - 1;
    bool turn = numbers.is_float && diff_negative<SIZE>(old);
    DiffNumber<SIZE> m = diff_monotone<SIZE>(numbers, old);
    m = positive != turn ? m + magnitude : m - magnitude;
    return diff_monotone<SIZE>(numbers, m & mask);
}

// The base's exponent.
template <u32 SIZE>
DEVICE u32 diff_exponent(const DiffNumbers& numbers, DiffNumber<SIZE> old) {
    if (!numbers.is_float) return 0;
    u32 e = (u32)((old & (((DiffNumber<SIZE>)1 << (8 * SIZE - 1)) - 1)) >> numbers.mantissa);
    return min(e - min(e, numbers.offset), 255u);
}

// Position of the top bit; 0 for 0.
DEVICE u32 diff_top(u32 m) { return 31u - (u32)__clz((i32)(m | 1u)); }
DEVICE u32 diff_top(u64 m) { return 63u - (u32)__clzll((i64)(m | 1ull)); }

// The class of a magnitude with top bit p.
template <class T>
DEVICE u32 diff_class(T m, u32 p, u32 t) {
    u32 q = max(p, t);
    return ((q - t) << t) + (u32)(m >> (q - t));
}
// Its raw bits.
DEVICE u32 diff_width(u32 p, u32 t) { return max(p, t) - t; }
DEVICE u32 diff_symbol(u32 c, bool positive) { return (2u * c - (positive ? 1u : 0u)) & 255u; }

// Raw bits of a symbol, any byte: 63 at most.
DEVICE u32 diff_symbol_width(u32 s, u32 t) {
    u32 c = (s + 1u) >> 1;
    return min(max(c >> t, 1u) - 1u, 63u);
}
// The least magnitude of a class, modulo 2 to the bits of T.
template <class T>
DEVICE T diff_least(u32 c, u32 t) {
    if (c >> t < 2u) return c;
    u32 raw = (c >> t) - 1u;
    T head = 1u << t | (c & ((1u << t) - 1u));
    return raw < 8u * sizeof(T) ? head << raw : 0;
}

// `width` bits (63 at most) from bit `pos` of data on. All of them lie in it, and so does the aligned word around each of its bytes in
// the memory that holds it.
DEVICE u64 diff_read_bits(const u8* data, u32 pos, u32 width) {
    if (width == 0) return 0;
    u64 at = (u64)data + (pos >> 3);
    const u32* words = (const u32*)(at & ~3ull);
    u32 skip = (u32)(at & 3) * 8u + (pos & 7u);
    u64 low = words[0], high = 0;
    if (skip + width > 32u) low |= (u64)words[1] << 32;
    if (skip + width > 64u) high = words[2];
    return (low >> skip | (high << 1) << (63u - skip)) & ((1ull << width) - 1ull);
}
