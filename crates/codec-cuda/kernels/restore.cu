// Numbers straight to their reconstruction, one look-up each (mdl_codec::quant::restore).
//
// What a key becomes is constant along runs of keys, at most a few hundred of them. So the table of all 65,536 keys fits in shared
// memory in two steps: a line of 16 keys says where its entries are and how many (1 or 16). A gather from there takes a few cycles
// whatever the keys; one from a table of 256 KiB in L1 takes one for every line of cache that a warp touches, most of 32.
#include "numbers.cuh"

#define RESTORE_LINES 4096u
#define RESTORE_ENTRIES 8832u
// 16-byte words of a table: lines of u32 (first entry | 0 or 15 << 16), entries of u16.
#define RESTORE_WORDS ((4u * RESTORE_LINES + 2u * RESTORE_ENTRIES) / 16u)
#define RESTORE_THREADS 512u
// Entries that are no finite float's upper half; the least of them.
#define RESTORE_PROTECT 0xffffu
#define RESTORE_NON_FINITE 0xfffeu
#define RESTORE_NO_BIN 0xfffdu

// A part of a tensor, for one block: elements [0, n).
struct RestoreJob {
    const u8* weights;
    const u8* gradient;  // or null
    u8* out;
    const uint4* table;
    u32* flags;  // bit 0: NaNs or infinities, bit 1: a bin is needed and there is none
    u64 kinds;   // of weights | of gradients << 32
    u64 n;
    u64 floats;  // protected sensitivity's bits | pruned one's << 32
};

// The upper or only 16 bits of what a number becomes.
DEVICE u32 restore_settle(u32 kind, u32 bits, u32 code, u32& flags) {
    if (code == RESTORE_PROTECT) {
        u32 kept = num_to_bf16(num_wide(kind, bits));
        return kind == NUM_F16 ? num_to_f16(kept << 16) : kept;
    }
    flags |= code == RESTORE_NON_FINITE ? 1u : 2u;
    return 0u;
}

// Writes elements first..first + n of n <= per <= 8 (those of 16 bytes) from their upper halves.
DEVICE void restore_store(u32 kind, u8* to, u64 first, u32 per, u32 n, const u32 (&code)[8]) {
    u8* p = to + first * num_size(kind);
    bool whole = n == per && ((u64)p & 15u) == 0u;
    if (kind == NUM_F64) {
        u64 wide[2];
#pragma unroll
        for (u32 j = 0; j < 2; j++) wide[j] = (u64)__double_as_longlong((double)__uint_as_float(code[j] << 16));
        if (whole) {
            *(uint4*)p = make_uint4((u32)wide[0], (u32)(wide[0] >> 32), (u32)wide[1], (u32)(wide[1] >> 32));
            return;
        }
#pragma unroll
        for (u32 j = 0; j < 2; j++)
            if (j < n) *(uint2*)(p + 8u * j) = make_uint2((u32)wide[j], (u32)(wide[j] >> 32));
    } else if (kind == NUM_F32) {
        if (whole) {
            *(uint4*)p = make_uint4(code[0] << 16, code[1] << 16, code[2] << 16, code[3] << 16);
            return;
        }
#pragma unroll
        for (u32 j = 0; j < 4; j++)
            if (j < n) *(u32*)(p + 4u * j) = code[j] << 16;
    } else {
        if (whole) {
            *(uint4*)p = make_uint4(code[0] | code[1] << 16, code[2] | code[3] << 16, code[4] | code[5] << 16,
                                    code[6] | code[7] << 16);
            return;
        }
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            if (j < n) *(u16*)(p + 2u * j) = (u16)code[j];
    }
}

template <bool GRADIENT>
DEVICE void restore_part(const RestoreJob* jobs, uint4* table) {
    RestoreJob job = jobs[blockIdx.x];
    for (u32 i = threadIdx.x; i < RESTORE_WORDS; i += RESTORE_THREADS) table[i] = job.table[i];
    __syncthreads();
    const u32* lines = (const u32*)table;
    const u16* entries = (const u16*)(table + RESTORE_LINES / 4u);
    u32 kind = (u32)job.kinds, per = 16u / num_size(kind), flags = 0u;
    float high = __uint_as_float((u32)job.floats), low = __uint_as_float((u32)(job.floats >> 32));
    for (u64 first = (u64)per * threadIdx.x; first < job.n; first += (u64)per * RESTORE_THREADS) {
        u32 n = (u32)min((u64)per, job.n - first), bits[8], code[8];
        num_load(kind, job.weights, first, per, n, bits);
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            code[j] = 0u;
            if (j >= per) continue;
            u32 key = num_key(kind, bits[j]), line = lines[key >> 4];
            code[j] = entries[(line & 0xffffu) + (key & line >> 16)];
        }
        if (GRADIENT) {
            u32 g[8], gradients = (u32)(job.kinds >> 32);
            num_load(gradients, job.gradient, first, per, n, g);
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                if (j >= per) continue;
                u32 s = num_sensitivity(num_wide(gradients, g[j]), num_wide(kind, bits[j]));
                float f = __uint_as_float(s);
                // Cuts::with_sensitivity. NaNs and infinities stay what they are.
                if (code[j] >= RESTORE_NON_FINITE) continue;
                if (s < 0x7f800000u && f >= high)
                    code[j] = RESTORE_PROTECT;
                else if (f < low)
                    code[j] = 0u;
            }
        }
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            if (code[j] < RESTORE_NO_BIN) continue;
            // Elements that are not there are 0, which may need a bin.
            u32 ours = 0u;
            code[j] = restore_settle(kind, bits[j], code[j], ours);
            if (j < n) flags |= ours;
        }
        restore_store(kind, job.out, first, per, n, code);
    }
    if (flags) atomicOr(job.flags, flags);
}

// Each block reads its job's elements and table, writes as many elements to its `out` (which may be `weights`) and sets its flags.
KERNEL(restore_plain, (const RestoreJob* jobs)) {
    __shared__ uint4 table[RESTORE_WORDS];
    restore_part<false>(jobs, table);
}
KERNEL(restore_sensitive, (const RestoreJob* jobs)) {
    __shared__ uint4 table[RESTORE_WORDS];
    restore_part<true>(jobs, table);
}
