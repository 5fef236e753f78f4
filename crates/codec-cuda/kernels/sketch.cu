// Counts of keys: sketches of magnitude, of sensitivity, and of what is neither pruned nor protected (mdl_codec::quant).
//
// Weights have a few thousand keys within a few octaves: a block counts them in shared memory, in a window that it places over a
// sample of its part, and adds them to the tensor's 65,536 counters at the end. What lies outside goes there at once.
#include "numbers.cuh"

// A part of a tensor, for one block: elements [0, n) at `weights` and, where there is one, at `gradient`.
struct SketchJob {
    const u8* weights;
    const u8* gradient;
    u32* keys;           // 65,536 counters of keys
    u32* sensitivities;  // 65,536 counters of |g w|'s keys, or null
    u64 kinds;           // of weights | of gradients << 32
    u64 n;
    u64 cut;             // first protected magnitude key | first that is not pruned << 32
    u64 floats;          // protected sensitivity's bits | pruned one's << 32
};

#define SKETCH_THREADS 512u
// Counters of a block but the two of zeros: keys, then sensitivities.
#define SKETCH_ROOM 12032u

// Where a window of `octaves` octaves has most of the sample: the middle of all such places, so that there is room for what the
// sample missed on both sides. `octave` are the sample's counts of 256 octaves. All threads.
DEVICE u32 sketch_place(const u32* octave, u32 octaves, u32* best) {
    if (threadIdx.x < 2u) best[threadIdx.x] = 0u;
    __syncthreads();
    if (threadIdx.x < 256u) {
        u32 sum = 0;
        for (u32 i = threadIdx.x; i < min(threadIdx.x + octaves, 256u); i++) sum += octave[i];
        atomicMax(best, sum << 8 | threadIdx.x);
        atomicMax(best + 1, sum << 8 | (255u - threadIdx.x));
    }
    __syncthreads();
    u32 at = ((best[0] & 255u) + 255u - (best[1] & 255u)) / 2u;
    __syncthreads();
    return at;
}

// Adds 1 to counter key[j] of `to` for each bit j of `mine`. The first lane's key is added once for all lanes that have it, so
// that a tensor of one value that no window holds does not wait for itself.
DEVICE void sketch_outside(u32* to, const u32 (&key)[8], u32 mine) {
    if (!__any_sync(ALL, mine != 0u)) return;
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        bool one = mine >> j & 1u;
        u32 mask = __ballot_sync(ALL, one);
        if (!mask) continue;
        u32 leader = (u32)__ffs((i32)mask) - 1u;
        u32 hot = __shfl_sync(ALL, key[j], (i32)leader);
        u32 same = __ballot_sync(ALL, one && key[j] == hot);
        if (lane_id() == leader)
            atomicAdd(to + hot, (u32)__popc(same));
        else if (one && key[j] != hot)
            atomicAdd(to + key[j], 1u);
    }
}

struct SketchPiece {
    u32 key[8];
    u32 sens[8];
    u32 counted;  // bit j: key[j] is counted
    u32 n;
};

// Reads elements first.. of the part (at most those of 16 bytes of weights) and decides which keys count.
template <u32 MODE>
DEVICE void sketch_read(const SketchJob& job, u64 first, SketchPiece& out) {
    u32 kind = (u32)job.kinds, per = 16u / num_size(kind);
    out.n = first < job.n ? (u32)min((u64)per, job.n - first) : 0u;
    u32 w[8];
    num_load(kind, job.weights, first, per, out.n, w);
#pragma unroll
    for (u32 j = 0; j < 8; j++) out.key[j] = num_key(kind, w[j]);
    out.counted = (1u << out.n) - 1u;
    if (MODE == 0u) return;
    u32 g[8], gradients = (u32)(job.kinds >> 32);
    num_load(gradients, job.gradient, first, per, out.n, g);
    u32 protect = (u32)job.cut, prune = (u32)(job.cut >> 32), infinity = kind == NUM_F16 ? 0x7c00u : 0x7f80u;
    float high = __uint_as_float((u32)job.floats), low = __uint_as_float((u32)(job.floats >> 32));
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        out.sens[j] = 0u;
        if (j >= per) continue;
        u32 s = num_sensitivity(num_wide(gradients, g[j]), num_wide(kind, w[j]));
        out.sens[j] = s >> 16;
        if (MODE == 2u) {
            u32 m = out.key[j] & 0x7fffu;
            float f = __uint_as_float(s);
            // Cuts::of_key and Cuts::with_sensitivity.
            bool by_key = m <= infinity && (m >= protect || m < prune);
            bool by_sensitivity = (s < 0x7f800000u && f >= high) || f < low;
            if (by_key || by_sensitivity) out.counted &= ~(1u << j);
        }
    }
}

// MODE 0: keys. 1: keys and sensitivities. 2: keys that are neither pruned nor protected.
template <u32 MODE>
DEVICE void sketch_count(const SketchJob* jobs, u32* counters, u32* small) {
    SketchJob job = jobs[blockIdx.x];
    u32 kind = (u32)job.kinds, per = 16u / num_size(kind), shift = kind == NUM_F16 ? 10u : 7u;
    // Magnitudes of a window.
    const u32 span = MODE == 1u ? 4096u : 6016u, wide = MODE == 1u ? SKETCH_ROOM - 2u * span : 0u;
    u32* zeros = small;
    u32* best = small + 3;

    // The sample: the first piece of every thread. Its octaves are counted where the counters will be.
    SketchPiece piece;
    for (u32 i = threadIdx.x; i < 512u; i += SKETCH_THREADS) counters[i] = 0u;
    if (threadIdx.x < 3u) small[threadIdx.x] = 0u;
    __syncthreads();
    sketch_read<MODE>(job, threadIdx.x * (u64)per, piece);
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        u32 m = piece.key[j] & 0x7fffu;
        if (piece.counted >> j & 1u && m != 0u) atomicAdd(counters + (m >> shift), 1u);
        if (MODE == 1u && piece.counted >> j & 1u && piece.sens[j] != 0u) atomicAdd(counters + 256u + (piece.sens[j] >> 7), 1u);
    }
    __syncthreads();
    u32 octaves = (span >> shift) + (kind == NUM_F16 && MODE != 1u ? 1u : 0u);
    u32 top = (sketch_place(counters, octaves, best) + octaves) << shift;
    // From the top: where a window is no whole number of octaves its lowest is cut.
    u32 from = top > span ? top - span : 0u, from_sens = 0u;
    if (MODE == 1u) from_sens = sketch_place(counters + 256, wide >> 7, best) << 7;
    for (u32 i = threadIdx.x; i < SKETCH_ROOM; i += SKETCH_THREADS) counters[i] = 0u;
    __syncthreads();

    u64 step = (u64)per * SKETCH_THREADS;
    for (u64 tile = 0; tile < job.n; tile += step) {
        sketch_read<MODE>(job, tile + (u64)per * threadIdx.x, piece);
        u32 outside = 0u, outside_sens = 0u;
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            if (!(piece.counted >> j & 1u)) continue;
            // The sign below the magnitude: one comparison for both signs.
            u32 turned = (piece.key[j] << 1 | piece.key[j] >> 15) & 0xffffu, slot = turned - 2u * from;
            if (turned < 2u)
                atomicAdd(zeros + turned, 1u);
            else if (slot < 2u * span)
                atomicAdd(counters + slot, 1u);
            else
                outside |= 1u << j;
            if constexpr (MODE == 1u) {
                u32 at = piece.sens[j] - from_sens;
                if (piece.sens[j] == 0u)
                    atomicAdd(zeros + 2, 1u);
                else if (at < wide)
                    atomicAdd(counters + 2u * span + at, 1u);
                else
                    outside_sens |= 1u << j;
            }
        }
        sketch_outside(job.keys, piece.key, outside);
        if (MODE == 1u) sketch_outside(job.sensitivities, piece.sens, outside_sens);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 2u * span; i += SKETCH_THREADS) {
        u32 n = counters[i], turned = i + 2u * from;
        if (n) atomicAdd(job.keys + (turned >> 1 | (turned & 1u) << 15), n);
    }
    if constexpr (MODE == 1u)
        for (u32 i = threadIdx.x; i < wide; i += SKETCH_THREADS) {
            u32 n = counters[2u * span + i];
            if (n) atomicAdd(job.sensitivities + from_sens + i, n);
        }
    if (threadIdx.x == 0) {
        if (zeros[0]) atomicAdd(job.keys, zeros[0]);
        if (zeros[1]) atomicAdd(job.keys + 0x8000, zeros[1]);
        if (MODE == 1u && zeros[2]) atomicAdd(job.sensitivities, zeros[2]);
    }
}

// Each block reads its job's elements and adds to its counters.
KERNEL(sketch_keys, (const SketchJob* jobs)) {
    __shared__ u32 counters[SKETCH_ROOM], small[5];
    sketch_count<0u>(jobs, counters, small);
}
KERNEL(sketch_survey, (const SketchJob* jobs)) {
    __shared__ u32 counters[SKETCH_ROOM], small[5];
    sketch_count<1u>(jobs, counters, small);
}
KERNEL(sketch_rest, (const SketchJob* jobs)) {
    __shared__ u32 counters[SKETCH_ROOM], small[5];
    sketch_count<2u>(jobs, counters, small);
}

// Block b: of the 65,536 counters of row b those that are not 0, as key | count << 32 in ascending order to pairs[65536 b..], and
// how many to lengths[b]. 1,024 threads: a warp has 2,048 neighbours, counts them, and reads them again.
KERNEL(sketch_pack, (const u32* counters, u64* pairs, u32* lengths)) {
    __shared__ u32 sums[32];
    u32 first = warp_id() * 2048u + lane_id() * 4u, found = 0;
    const u32* row = counters + (u64)blockIdx.x * 65536u;
    u64* out = pairs + (u64)blockIdx.x * 65536u;
#pragma unroll 8
    for (u32 i = 0; i < 2048u; i += 128u) {
        uint4 v = *(const uint4*)(row + first + i);
        found += (v.x != 0u) + (v.y != 0u) + (v.z != 0u) + (v.w != 0u);
    }
    found = warp_sum(found);
    if (lane_id() == 0u) sums[warp_id()] = found;
    __syncthreads();
    u32 at = warp_sum(lane_id() < warp_id() ? sums[lane_id()] : 0u);
    if (threadIdx.x == 1023u) lengths[blockIdx.x] = at + found;
#pragma unroll 2
    for (u32 i = 0; i < 2048u; i += 128u) {
        uint4 v = *(const uint4*)(row + first + i);
        u32 n[4] = {v.x, v.y, v.z, v.w}, mine = (v.x != 0u) + (v.y != 0u) + (v.z != 0u) + (v.w != 0u);
        u32 before = warp_before(mine), place = at + before;
#pragma unroll
        for (u32 j = 0; j < 4; j++)
            if (n[j]) out[place++] = (u64)(first + i + j) | (u64)n[j] << 32;
        at += __shfl_sync(ALL, before + mine, 31);
    }
}
