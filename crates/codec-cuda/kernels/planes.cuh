// Eight neighbouring numbers of a lane, and what floats are cut into: mdl_codec::float says how.
#pragma once
#include "prelude.cuh"

// Where the head is cut. Without a head `bits` is 0.
struct Cut {
    // Bits of the field, the sign included; of the head; the first key of the window; whether 255 is an exception.
    u32 bits, head, lo, windowed;
};

// The symbol of a head: key 0 is 0, keys lo to lo + 253 are 1 to 254, and others 255. Without a window lo is 1 and keys are below 256.
DEVICE u32 cut_symbol(const Cut& cut, u32 head) {
    u32 key = (head & ((1u << (cut.head - 1u)) - 1u)) >> (cut.bits - 1u);
    return key == 0u ? 0u : min(key - cut.lo, 254u) + 1u;
}
DEVICE u32 cut_key(const Cut& cut, u32 head) { return (head & ((1u << (cut.head - 1u)) - 1u)) >> (cut.bits - 1u); }
DEVICE u32 cut_field(const Cut& cut, u32 head) {
    u32 below = cut.bits - 1u;
    return head >> (cut.head - 1u) << below | (head & ((1u << below) - 1u));
}
// The head of a key; more bits than it has where the key does.
DEVICE u32 cut_head(const Cut& cut, u32 key, u32 field) {
    u32 below = cut.bits - 1u;
    return field >> below << (cut.head - 1u) | key << below | (field & ((1u << below) - 1u));
}

// Byte i of this is bit i of the lower four.
DEVICE u32 spread(u32 b) { return ((b & 15u) * 0x00204081u) & 0x01010101u; }
// Bits j of eight bytes.
DEVICE u32 plane_byte(u32 low, u32 high, u32 j) {
    return ((low >> j & 0x01010101u) | (high >> j & 0x01010101u) << 4) * 0x01020408u >> 24;
}

// Eight numbers as 32-bit words: number k of 1, 2 and 4 bytes lies whole in one of them, of 8 bytes in two.
template <u32 SIZE>
struct Eight {
    u32 w[2u * SIZE];
};

template <u32 SIZE>
DEVICE void clear(Eight<SIZE>& v) {
#pragma unroll
    for (u32 k = 0; k < 2u * SIZE; k++) v.w[k] = 0u;
}

// The first m numbers, the others zero. `aligned`: p, which is a multiple of 8 numbers into something aligned to 16.
template <u32 SIZE>
DEVICE void load_eight(Eight<SIZE>& v, const u8* p, u32 m, bool aligned) {
    if (m == 8u && aligned) {
        if constexpr (SIZE == 1u) {
            uint2 x = *(const uint2*)p;
            v.w[0] = x.x;
            v.w[1] = x.y;
        } else {
#pragma unroll
            for (u32 k = 0; k < SIZE / 2u; k++) {
                uint4 x = ((const uint4*)p)[k];
                v.w[4u * k] = x.x;
                v.w[4u * k + 1u] = x.y;
                v.w[4u * k + 2u] = x.z;
                v.w[4u * k + 3u] = x.w;
            }
        }
        return;
    }
    clear(v);
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (k >= m) continue;
        if (SIZE == 1u) v.w[k >> 2] |= (u32)p[k] << 8 * (k & 3);
        if (SIZE == 2u) v.w[k >> 1] |= (u32)((const u16*)p)[k] << 16 * (k & 1);
        if (SIZE == 4u) v.w[k] = ((const u32*)p)[k];
        if (SIZE == 8u) {
            u64 x = ((const u64*)p)[k];
            v.w[2u * k % (2u * SIZE)] = (u32)x;
            v.w[(2u * k + 1u) % (2u * SIZE)] = (u32)(x >> 32);
        }
    }
}

template <u32 SIZE>
DEVICE void store_eight(const Eight<SIZE>& v, u8* p, u32 m, bool aligned) {
    if (m == 8u && aligned) {
        if constexpr (SIZE == 1u)
            *(uint2*)p = make_uint2(v.w[0], v.w[1]);
        else {
#pragma unroll
            for (u32 k = 0; k < SIZE / 2u; k++)
                ((uint4*)p)[k] = make_uint4(v.w[4u * k], v.w[4u * k + 1u], v.w[4u * k + 2u], v.w[4u * k + 3u]);
        }
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (k >= m) continue;
        if (SIZE == 1u) p[k] = (u8)(v.w[k >> 2] >> 8 * (k & 3));
        if (SIZE == 2u) ((u16*)p)[k] = (u16)(v.w[k >> 1] >> 16 * (k & 1));
        if (SIZE == 4u) ((u32*)p)[k] = v.w[k];
        if (SIZE == 8u)
            ((u64*)p)[k] = (u64)v.w[2u * k % (2u * SIZE)] | (u64)v.w[(2u * k + 1u) % (2u * SIZE)] << 32;
    }
}

// Byte b of number k lies in word `byte_word` at bit `byte_shift`.
template <u32 SIZE>
DEVICE u32 byte_word(u32 k, u32 b) { return (k * SIZE + b) / 4u; }
template <u32 SIZE>
DEVICE u32 byte_shift(u32 k, u32 b) { return (k * SIZE + b) % 4u * 8u; }

// The head of number k: its top two bytes, or the only one.
template <u32 SIZE>
DEVICE u32 head_of(const Eight<SIZE>& v, u32 k) {
    u32 bytes = SIZE == 1u ? 1u : 2u, b = SIZE - bytes;
    return v.w[byte_word<SIZE>(k, b)] >> byte_shift<SIZE>(k, b) & (SIZE == 1u ? 0xffu : 0xffffu);
}

// Symbols and fields of the heads, a byte each.
template <u32 SIZE>
DEVICE void take_heads(const Cut& cut, const Eight<SIZE>& v, u32* s, u32* f) {
    s[0] = s[1] = f[0] = f[1] = 0u;
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        u32 head = head_of(v, k);
        s[k >> 2] |= cut_symbol(cut, head) << 8 * (k & 3);
        f[k >> 2] |= cut_field(cut, head) << 8 * (k & 3);
    }
}

// Puts heads in their places, which are zero.
template <u32 SIZE>
DEVICE void put_heads(const Cut& cut, Eight<SIZE>& v, const u32* s, const u32* f) {
    u32 bytes = SIZE == 1u ? 1u : 2u, b = SIZE - bytes;
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        u32 symbol = s[k >> 2] >> 8 * (k & 3) & 255u, field = f[k >> 2] >> 8 * (k & 3) & 255u;
        u32 key = symbol ? cut.lo - 1u + symbol : 0u;
        u32 head = cut_head(cut, key, field) & (SIZE == 1u ? 0xffu : 0xffffu);
        v.w[byte_word<SIZE>(k, b)] |= head << byte_shift<SIZE>(k, b);
    }
}

// Byte p of each.
template <u32 SIZE>
DEVICE void byte_plane(const Eight<SIZE>& v, u32 p, u32* b) {
    b[0] = b[1] = 0u;
#pragma unroll
    for (u32 k = 0; k < 8; k++)
        b[k >> 2] |= (v.w[byte_word<SIZE>(k, p)] >> byte_shift<SIZE>(k, p) & 255u) << 8 * (k & 3);
}
template <u32 SIZE>
DEVICE void put_byte_plane(Eight<SIZE>& v, u32 p, const u32* b) {
#pragma unroll
    for (u32 k = 0; k < 8; k++)
        v.w[byte_word<SIZE>(k, p)] |= (b[k >> 2] >> 8 * (k & 3) & 255u) << byte_shift<SIZE>(k, p);
}

// The bits of all low bytes. Types with low bytes have two or six of them.
template <u32 SIZE>
DEVICE u64 low_or(const Eight<SIZE>& v) {
    u32 a = 0u, b = 0u;
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (SIZE == 4u) a |= v.w[k] & 0xffffu;
        if (SIZE == 8u) a |= v.w[2u * k % (2u * SIZE)], b |= v.w[(2u * k + 1u) % (2u * SIZE)] & 0xffffu;
    }
    return (u64)b << 32 | a;
}

// Bytes of a group of n numbers: its low bytes as they are (count 0), or bit planes without the `count` lowest.
DEVICE u32 group_size(u32 count, u32 n, u32 low_bytes) {
    return count ? (n + 31u) / 32u * 4u * (8u * low_bytes - count) : n * low_bytes;
}

// The count of a group whose low bytes have these bits.
DEVICE u32 group_count(u64 all, u32 n, u32 low_bytes) {
    u32 bits = 8u * low_bytes, zeros = all ? min((u32)__ffsll((i64)all) - 1u, bits) : bits;
    return (n + 31u) / 32u * 4u * (bits - zeros) < n * low_bytes ? zeros : 0u;
}

// Eight bytes at any address, of which m count; nothing past the whole words of 4 bytes that have one of these.
DEVICE void load_bytes(const u8* p, u32 m, u32* b) {
    u32 off = (u32)((u64)p & 3u), last = off + m - 1u;
    const u32* w = (const u32*)(p - off);
    u32 x = w[0], y = last >= 4u ? w[1] : 0u, z = last >= 8u ? w[2] : 0u;
    b[0] = __funnelshift_r(x, y, 8u * off);
    b[1] = __funnelshift_r(y, z, 8u * off);
}

// Low bytes that lie number by number at p, of the first m numbers.
template <u32 SIZE>
DEVICE void put_low(Eight<SIZE>& v, const u8* p, u32 m) {
    const u32 LOW = SIZE == 8u ? 6u : 2u;
    if (SIZE < 4u) return;
    // All bytes as a run of words, then to their places.
    u32 off = (u32)((u64)p & 3u), last = off + m * LOW - 1u;
    const u32* w = (const u32*)(p - off);
    u32 run[2u * LOW], x = w[0];
#pragma unroll
    for (u32 k = 0; k < 2u * LOW; k++) {
        u32 y = last >= 4u * (k + 1u) ? w[k + 1u] : 0u;
        run[k] = __funnelshift_r(x, y, 8u * off);
        x = y;
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (SIZE == 4u) v.w[k] |= run[(k >> 1) % (2u * LOW)] >> 16 * (k & 1) & 0xffffu;
        if (SIZE == 8u) {
            // Halves 3 k, 3 k + 1 and 3 k + 2 of the run.
            u32 a = run[(3u * k >> 1) % (2u * LOW)], c = run[((3u * k >> 1) + 1u) % (2u * LOW)];
            v.w[2u * k % (2u * SIZE)] |= k & 1 ? a >> 16 | c << 16 : a;
            v.w[(2u * k + 1u) % (2u * SIZE)] |= k & 1 ? c >> 16 : c & 0xffffu;
        }
    }
}

// The low bytes of the first m numbers, number by number; p is a multiple of 16 where m is 8.
template <u32 SIZE>
DEVICE void take_low(const Eight<SIZE>& v, u8* p, u32 m) {
    const u32 LOW = SIZE == 8u ? 6u : 2u;
    if (SIZE < 4u) return;
    u32 half[8u * LOW / 2u];
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (SIZE == 4u) half[k] = v.w[k] & 0xffffu;
        if (SIZE == 8u) {
            half[3u * k % (4u * LOW)] = v.w[2u * k % (2u * SIZE)] & 0xffffu;
            half[(3u * k + 1u) % (4u * LOW)] = v.w[2u * k % (2u * SIZE)] >> 16;
            half[(3u * k + 2u) % (4u * LOW)] = v.w[(2u * k + 1u) % (2u * SIZE)] & 0xffffu;
        }
    }
    if (m == 8u) {
#pragma unroll
        for (u32 k = 0; k < LOW / 2u; k++)
            ((uint4*)p)[k] = make_uint4(half[8u * k] | half[8u * k + 1u] << 16, half[8u * k + 2u] | half[8u * k + 3u] << 16,
                                        half[8u * k + 4u] | half[8u * k + 5u] << 16, half[8u * k + 6u] | half[8u * k + 7u] << 16);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 4u * LOW; k++)
        if (k < m * LOW / 2u) ((u16*)p)[k] = (u16)half[k];
}

// Bit j of each.
template <u32 SIZE>
DEVICE u32 take_bits(const Eight<SIZE>& v, u32 j) {
    u32 b = 0u;
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (SIZE == 4u) b |= (v.w[k] >> j & 1u) << k;
        if (SIZE == 8u) {
            u32 w = j < 32u ? v.w[2u * k % (2u * SIZE)] : v.w[(2u * k + 1u) % (2u * SIZE)];
            b |= (w >> (j & 31u) & 1u) << k;
        }
    }
    return b;
}

// Bit j of each, from the bits of b.
template <u32 SIZE>
DEVICE void put_bits(Eight<SIZE>& v, u32 b, u32 j) {
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        u32 bit = b >> k & 1u;
        if (SIZE == 4u) v.w[k] |= bit << j;
        if (SIZE == 8u) {
            v.w[2u * k % (2u * SIZE)] |= j < 32u ? bit << (j & 31u) : 0u;
            v.w[(2u * k + 1u) % (2u * SIZE)] |= j < 32u ? 0u : bit << (j & 31u);
        }
    }
}
