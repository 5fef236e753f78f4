// CUDA's words in C++, for one block at a time: every thread of the block is a fiber, and a collective is a place where fibers wait for
// each other. Correctness only: races show where a sanitizer looks for them (build.rs), and no memory is far away.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define MDL_SHIM 1
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __constant__ static const
#define __align__(n) alignas(n)
#define DEVICE static inline

namespace shim {
struct Dim {
    unsigned x, y, z;
};
// Of the fiber that runs.
extern thread_local Dim thread, block, block_size, grid_size;

// Collectives say in which line they are: threads that meet in unlike ones have lost each other.
void sync_block(unsigned line);
// Puts `value` beside those of the other lanes, waits for all 32, and gives their values, which stay until the next exchange but one.
// Only an `ordered` one shows each lane what the others wrote before.
const uint64_t* exchange(uint64_t value, unsigned line, bool ordered = false);

using Run = void (*)(void** params);
struct Entry {
    Entry(const char* name, Run run);
};
template <auto F>
struct Call;
template <class... A, void (*F)(A...)>
struct Call<F> {
    template <size_t... I>
    static void with(void** p, std::index_sequence<I...>) {
        F(*static_cast<std::remove_cv_t<A>*>(p[I])...);
    }
    static void run(void** p) { with(p, std::index_sequence_for<A...>{}); }
};
}  // namespace shim

#define KERNEL(name, params)                                             \
    static void name params;                                             \
    static const shim::Entry name##_entry(#name, &shim::Call<&name>::run); \
    static void name params

#define threadIdx shim::thread
#define blockIdx shim::block
#define blockDim shim::block_size
#define gridDim shim::grid_size

#define SHIM_LINE unsigned shim_line = __builtin_LINE()
inline void __syncthreads(SHIM_LINE) { shim::sync_block(shim_line); }
inline void __syncwarp(unsigned = ~0u, SHIM_LINE) { shim::exchange(0, shim_line, true); }
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
inline T shim_lane(const uint64_t* all, unsigned lane) {
    T out;
    std::memcpy(&out, &all[lane & 31], sizeof(T));
    return out;
}
template <class T>
inline uint64_t shim_bits(T v) {
    static_assert(sizeof(T) <= 8);
    uint64_t out = 0;
    std::memcpy(&out, &v, sizeof(T));
    return out;
}
template <class T>
inline T __shfl_sync(unsigned, T v, int lane, int = 32, SHIM_LINE) {
    return shim_lane<T>(shim::exchange(shim_bits(v), shim_line), lane);
}
template <class T>
inline T __shfl_xor_sync(unsigned, T v, int mask, int = 32, SHIM_LINE) {
    unsigned me = shim::thread.x & 31;
    return shim_lane<T>(shim::exchange(shim_bits(v), shim_line), me ^ mask);
}
template <class T>
inline T __shfl_up_sync(unsigned, T v, unsigned d, int = 32, SHIM_LINE) {
    unsigned me = shim::thread.x & 31;
    return shim_lane<T>(shim::exchange(shim_bits(v), shim_line), me < d ? me : me - d);
}
template <class T>
inline T __shfl_down_sync(unsigned, T v, unsigned d, int = 32, SHIM_LINE) {
    unsigned me = shim::thread.x & 31;
    return shim_lane<T>(shim::exchange(shim_bits(v), shim_line), me + d > 31 ? me : me + d);
}
inline unsigned __ballot_sync(unsigned, int p, SHIM_LINE) {
    const uint64_t* all = shim::exchange(p != 0, shim_line);
    unsigned out = 0;
    for (int i = 0; i < 32; i++) out |= unsigned(all[i] & 1) << i;
    return out;
}
inline int __any_sync(unsigned m, int p, SHIM_LINE) { return __ballot_sync(m, p, shim_line) != 0; }
inline int __all_sync(unsigned m, int p, SHIM_LINE) { return __ballot_sync(m, p, shim_line) == ~0u; }
template <class T>
inline unsigned __match_any_sync(unsigned, T v, SHIM_LINE) {
    uint64_t mine = shim_bits(v);
    const uint64_t* all = shim::exchange(mine, shim_line);
    unsigned out = 0;
    for (int i = 0; i < 32; i++) out |= unsigned(all[i] == mine) << i;
    return out;
}

// Launches run one after the other on their thread: nobody else is at the same memory, and only who looks for races (build.rs) must see
// that these are atomic.
template <class T, class F>
inline T shim_change(T* p, F f) {
#if defined(MDL_SHIM_THREAD)
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, f(old), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
#else
    T old = *p;
    *p = f(old);
#endif
    return old;
}
template <class T>
inline T atomicAdd(T* p, T v) {
    return shim_change(p, [=](T old) { return T(old + v); });
}
template <class T>
inline T atomicOr(T* p, T v) {
    return shim_change(p, [=](T old) { return T(old | v); });
}
template <class T>
inline T atomicMax(T* p, T v) {
    return shim_change(p, [=](T old) { return v > old ? v : old; });
}
template <class T>
inline T atomicMin(T* p, T v) {
    return shim_change(p, [=](T old) { return v < old ? v : old; });
}
template <class T>
inline T atomicCAS(T* p, T expected, T v) {
    return shim_change(p, [=](T old) { return old == expected ? v : old; });
}

inline unsigned relaxed_load(const unsigned* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
inline void relaxed_store(unsigned* p, unsigned v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) {
    unsigned out = 0;
    for (int i = 0; i < 32; i++) out |= (v >> i & 1) << (31 - i);
    return out;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) {
    return unsigned((((unsigned long long)hi << 32) | lo) >> (s & 31));
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
    return unsigned(((((unsigned long long)hi << 32) | lo) << (s & 31)) >> 32);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= unsigned(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
inline unsigned __float_as_uint(float f) { return shim_bits(f); }
inline int __float_as_int(float f) { return int(shim_bits(f)); }
inline float __uint_as_float(unsigned u) {
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}
inline float __int_as_float(int i) { return __uint_as_float(unsigned(i)); }
inline long long __double_as_longlong(double d) { return (long long)shim_bits(d); }
inline double __longlong_as_double(long long v) {
    double d;
    std::memcpy(&d, &v, 8);
    return d;
}
// Compiled without contraction: each of these is one rounded operation.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __double2float_rn(double d) { return float(d); }
template <class T>
inline T __ldg(const T* p) {
    return *p;
}
template <class T>
inline T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
inline T max(T a, T b) {
    return a < b ? b : a;
}
// Aligned as on a device, so that a sanitizer, and often the processor, refuses addresses that a GPU would.
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
