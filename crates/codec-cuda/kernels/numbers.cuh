// Numbers of 1, 2, 4 or 8 bytes, their differences and the classes of these: what mdl_codec::diff is on the processor. Shared by
// `delta` and `sparse`. A warp takes tiles of NUMBER_TILE numbers, each lane 16 bytes of them at a time.
#pragma once
#include "prelude.cuh"

#define NUMBER_TILE 2048u

// mdl_codec::diff::Numbers, as its `words` gives it.
struct Numbers {
    u32 size;
    u32 is_float;
    u32 mantissa;
    u32 offset;
};

template <u32 SIZE>
struct NumberWord {
    typedef u32 type;
};
template <>
struct NumberWord<8> {
    typedef u64 type;
};
template <u32 SIZE>
using Number = typename NumberWord<SIZE>::type;

// Most bits under the top one that may join the class.
template <u32 SIZE>
DEVICE u32 most_t() {
    return SIZE == 8 ? 1u : SIZE == 4 ? 2u : 3u;
}

// The 16 bytes that a lane works on.
struct Pack {
    u32 w[4];
};

// Number k of a pack; k is known where the code is compiled.
template <u32 SIZE>
DEVICE Number<SIZE> pack_get(const Pack& p, u32 k) {
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
DEVICE void pack_set(Pack& p, u32 k, Number<SIZE> v) {
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
DEVICE Number<SIZE> number_load(const u8* p, u32 i) {
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
DEVICE void number_store(u8* p, u32 i, Number<SIZE> v) {
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
DEVICE Pack pack_load(const u8* p, u32 i, u32 n) {
    const u32 V = 16 / SIZE;
    Pack out = {{0, 0, 0, 0}};
    const u8* at = p + (u64)i * SIZE;
    if (i + V <= n && ((u64)at & 15) == 0) {
        uint4 v = *(const uint4*)at;
        out.w[0] = v.x;
        out.w[1] = v.y;
        out.w[2] = v.z;
        out.w[3] = v.w;
    } else {
#pragma unroll
        for (u32 k = 0; k < V; k++)
            if (i + k < n) pack_set<SIZE>(out, k, number_load<SIZE>(p, i + k));
    }
    return out;
}

// Writes numbers i on of the n at p.
template <u32 SIZE>
DEVICE void pack_store(u8* p, u32 i, u32 n, const Pack& v) {
    const u32 V = 16 / SIZE;
    u8* at = p + (u64)i * SIZE;
    if (i + V <= n && ((u64)at & 15) == 0)
        *(uint4*)at = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
    else {
#pragma unroll
        for (u32 k = 0; k < V; k++)
            if (i + k < n) number_store<SIZE>(p, i + k, pack_get<SIZE>(v, k));
    }
}

// A byte for each number of a pack, number i the first; p + i is aligned to as many bytes as a pack has numbers.
template <u32 SIZE>
DEVICE void bytes_store(u8* p, u32 i, u32 n, const Pack& v) {
    const u32 V = 16 / SIZE;
    if (i + V <= n) {
        if constexpr (SIZE == 8)
            *(u16*)(p + i) = (u16)v.w[0];
        else if constexpr (SIZE == 4)
            *(u32*)(p + i) = v.w[0];
        else if constexpr (SIZE == 2)
            *(uint2*)(p + i) = make_uint2(v.w[0], v.w[1]);
        else
            *(uint4*)(p + i) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
    } else {
#pragma unroll
        for (u32 k = 0; k < V; k++)
            if (i + k < n) p[i + k] = (u8)(v.w[k >> 2] >> 8 * (k & 3));
    }
}

// What bytes_store wrote; zeros past the end.
template <u32 SIZE>
DEVICE Pack bytes_load(const u8* p, u32 i, u32 n) {
    const u32 V = 16 / SIZE;
    Pack out = {{0, 0, 0, 0}};
    if (i + V <= n) {
        if constexpr (SIZE == 8)
            out.w[0] = *(const u16*)(p + i);
        else if constexpr (SIZE == 4)
            out.w[0] = *(const u32*)(p + i);
        else if constexpr (SIZE == 2) {
            uint2 v = *(const uint2*)(p + i);
            out.w[0] = v.x;
            out.w[1] = v.y;
        } else {
            uint4 v = *(const uint4*)(p + i);
            out.w[0] = v.x;
            out.w[1] = v.y;
            out.w[2] = v.z;
            out.w[3] = v.w;
        }
    } else {
#pragma unroll
        for (u32 k = 0; k < V; k++)
            if (i + k < n) out.w[k >> 2] |= (u32)p[i + k] << 8 * (k & 3);
    }
    return out;
}

template <u32 SIZE>
DEVICE bool is_negative(Number<SIZE> v) {
    return v >> (8 * SIZE - 1) & 1;
}

// The monotone integer of a number, and the other way.
template <u32 SIZE>
DEVICE Number<SIZE> monotone(const Numbers& numbers, Number<SIZE> v) {
    const Number<SIZE> low = ((Number<SIZE>)1 << (8 * SIZE - 1)) - 1;
    return numbers.is_float && is_negative<SIZE>(v) ? v ^ low : v;
}

// The magnitude of the difference `now` has to `old`; `positive` says whether it is above 0.
template <u32 SIZE>
DEVICE Number<SIZE> difference(const Numbers& numbers, Number<SIZE> now, Number<SIZE> old, bool& positive) {
    bool turn = numbers.is_float && is_negative<SIZE>(old);
    Number<SIZE> d = monotone<SIZE>(numbers, now) - monotone<SIZE>(numbers, old);
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
DEVICE Number<SIZE> apply(const Numbers& numbers, Number<SIZE> old, Number<SIZE> magnitude, bool positive) {
    const Number<SIZE> mask = SIZE >= 4 ? ~(Number<SIZE>)0 : ((Number<SIZE>)1 << (8 * SIZE & 31)) - 1;
    bool turn = numbers.is_float && is_negative<SIZE>(old);
    Number<SIZE> m = monotone<SIZE>(numbers, old);
    m = positive != turn ? m + magnitude : m - magnitude;
    return monotone<SIZE>(numbers, m & mask);
}

// The base's exponent.
template <u32 SIZE>
DEVICE u32 exponent_of(const Numbers& numbers, Number<SIZE> old) {
    if (!numbers.is_float) return 0;
    u32 e = (u32)((old & (((Number<SIZE>)1 << (8 * SIZE - 1)) - 1)) >> numbers.mantissa);
    return min(e - min(e, numbers.offset), 255u);
}

// Position of the top bit; 0 for 0.
DEVICE u32 top_of(u32 m) { return 31u - (u32)__clz((i32)(m | 1u)); }
DEVICE u32 top_of(u64 m) { return 63u - (u32)__clzll((i64)(m | 1ull)); }

// The class of a magnitude with top bit p.
template <class T>
DEVICE u32 class_of(T m, u32 p, u32 t) {
    u32 q = max(p, t);
    return ((q - t) << t) + (u32)(m >> (q - t));
}
// Its raw bits.
DEVICE u32 width_of(u32 p, u32 t) { return max(p, t) - t; }
DEVICE u32 symbol_of(u32 c, bool positive) { return (2u * c - (positive ? 1u : 0u)) & 255u; }

// Raw bits of a symbol, any byte: 63 at most.
DEVICE u32 symbol_width(u32 s, u32 t) {
    u32 c = (s + 1u) >> 1;
    return min(max(c >> t, 1u) - 1u, 63u);
}
// The least magnitude of a class, modulo 2 to the bits of T.
template <class T>
DEVICE T class_least(u32 c, u32 t) {
    if (c >> t < 2u) return c;
    u32 raw = (c >> t) - 1u;
    T head = 1u << t | (c & ((1u << t) - 1u));
    return raw < 8u * sizeof(T) ? head << raw : 0;
}

// `width` bits (63 at most) from bit `pos` of data on. All of them lie in it, and so does the aligned word around each of its bytes in
// the memory that holds it.
DEVICE u64 read_bits(const u8* data, u32 pos, u32 width) {
    if (width == 0) return 0;
    u64 at = (u64)data + (pos >> 3);
    const u32* words = (const u32*)(at & ~3ull);
    u32 skip = (u32)(at & 3) * 8u + (pos & 7u);
    u64 low = words[0], high = 0;
    if (skip + width > 32u) low |= (u64)words[1] << 32;
    if (skip + width > 64u) high = words[2];
    return (low >> skip | (high << 1) << (63u - skip)) & ((1ull << width) - 1ull);
}
