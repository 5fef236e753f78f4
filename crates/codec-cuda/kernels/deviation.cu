// How far a reconstruction is from its tensor (mdl_codec::quant::Deviation, which says in which order sums are made).
#include "numbers.cuh"

#define DEVIATION_RUN 4096u
// Runs of a block, a warp each.
#define DEVIATION_RUNS 16u

// A part of a tensor, for one block: at most 65,536 elements. Each has the alignment of its elements.
struct DeviationJob {
    const u8* raw;
    const u8* rec;
    u64 kind;
    u64 n;
};

template <u32 KIND>
DEVICE double deviation_value(const u8* from, u32 i) {
    if (KIND == NUM_F64) return ((const double*)from)[i];
    if (KIND == NUM_F32) return (double)((const float*)from)[i];
    return (double)__uint_as_float(num_wide(KIND, ((const u16*)from)[i]));
}

struct DeviationSums {
    double most, deviation, weight;
};

// Elements at, at + 32, ... below end.
template <u32 KIND>
DEVICE DeviationSums deviation_lane(const DeviationJob& job, u32 at, u32 end) {
    DeviationSums s = {0.0, 0.0, 0.0};
#pragma unroll 8
    for (u32 i = at; i < end; i += WARP) {
        double a = deviation_value<KIND>(job.raw, i), b = deviation_value<KIND>(job.rec, i);
        double d = __dsub_rn(a, b), far = d < 0.0 ? -d : d;
        // A NaN is no distance.
        s.most = far > s.most ? far : s.most;
        s.deviation = __dadd_rn(s.deviation, __dmul_rn(d, d));
        s.weight = __dadd_rn(s.weight, __dmul_rn(a, a));
    }
    return s;
}

// Block b reads its job's elements and writes the largest deviation, the sum of squared deviations and that of squares, of all its
// runs, to out[3 b..]. 512 threads.
KERNEL(deviation_runs, (const DeviationJob* jobs, double* out)) {
    __shared__ double sums[3][DEVIATION_RUNS];
    DeviationJob job = jobs[blockIdx.x];
    u32 n = (u32)job.n, run = warp_id() * DEVIATION_RUN, at = run + lane_id(), end = min(run + DEVIATION_RUN, n);
    DeviationSums s;
    switch ((u32)job.kind) {
        case NUM_F64: s = deviation_lane<NUM_F64>(job, at, end); break;
        case NUM_F32: s = deviation_lane<NUM_F32>(job, at, end); break;
        case NUM_F16: s = deviation_lane<NUM_F16>(job, at, end); break;
        default: s = deviation_lane<NUM_BF16>(job, at, end); break;
    }
    for (u32 d = 16; d; d >>= 1) {
        double most = __shfl_down_sync(ALL, s.most, d);
        s.most = most > s.most ? most : s.most;
        s.deviation = __dadd_rn(s.deviation, __shfl_down_sync(ALL, s.deviation, d));
        s.weight = __dadd_rn(s.weight, __shfl_down_sync(ALL, s.weight, d));
    }
    if (lane_id() == 0u) {
        sums[0][warp_id()] = s.most;
        sums[1][warp_id()] = s.deviation;
        sums[2][warp_id()] = s.weight;
    }
    __syncthreads();
    if (threadIdx.x < 3u) {
        double* v = sums[threadIdx.x];
        // Pairs of neighbours, one left over going on as it is.
        for (u32 runs = (n + DEVIATION_RUN - 1u) / DEVIATION_RUN; runs > 1u; runs = (runs + 1u) / 2u) {
            for (u32 i = 0; i < runs / 2u; i++) {
                double a = v[2u * i], b = v[2u * i + 1u];
                v[i] = threadIdx.x ? __dadd_rn(a, b) : b > a ? b : a;
            }
            if (runs & 1u) v[runs / 2u] = v[runs - 1u];
        }
        out[blockIdx.x * 3u + threadIdx.x] = v[0];
    }
}
