// Fibers, the scheduler of a block, and the table of kernels.
#include "shim.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace shim {
thread_local Dim thread, block, block_size, grid_size;

namespace {
constexpr size_t STACK = 256 << 10;

#if defined(__x86_64__)
// Saves what the calling convention wants kept, and goes on where `to` was left.
extern "C" void mdl_shim_switch(void** from, void* to);
__asm__(R"(
.text
.globl mdl_shim_switch
.type mdl_shim_switch, @function
mdl_shim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size mdl_shim_switch, .-mdl_shim_switch
)");
#endif

#if defined(MDL_SHIM_THREAD)
// A thread sanitiser looks for races: a fiber is a thread to it, and what orders fibers is what is said here, not that they take turns.
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* at);
void __tsan_release(void* at);
}
void before(void* at) { __tsan_release(at); }
void after(void* at) { __tsan_acquire(at); }
#else
void before(void*) {}
void after(void*) {}
#endif

struct Warp {
    uint64_t value[2][32];
    uint32_t arrived[2];
    uint32_t line[2];
};

struct Fiber {
    std::unique_ptr<char[]> stack;
#if defined(__x86_64__)
    void* at = nullptr;
#else
    ucontext_t at;
#endif
    bool done = false;
    uint32_t collectives = 0, barriers = 0;
#if defined(MDL_SHIM_THREAD)
    void* twin = __tsan_create_fiber(0);
    Fiber() = default;
    Fiber(Fiber&& other) = delete;
    ~Fiber() { __tsan_destroy_fiber(twin); }
#endif
};

// The order in which a block's fibers run, and blocks: threads have none on a GPU, so that a kernel which is right in one order only lacks a
// barrier. MDL_SHIM_SEED shuffles.
uint64_t seed() {
    static const uint64_t given = [] {
        const char* text = std::getenv("MDL_SHIM_SEED");
        return text ? std::strtoull(text, nullptr, 10) : 0ull;
    }();
    return given;
}

struct Block {
    std::deque<Fiber> fibers;
    // Who runs first, and who after each.
    std::vector<uint32_t> after;
    uint32_t first = 0;
    std::vector<Warp> warps;
    uint32_t size = 0, running = 0, waiting = 0, barriers = 0, current = 0;
    uint32_t line = 0;
    const char* name = "";
    Run run = nullptr;
    void** params = nullptr;
    // What orders threads: two barriers in turn, and the block before this one.
    char barrier[2], turn;
#if defined(MDL_SHIM_THREAD)
    void* twin = nullptr;
#endif
#if defined(__x86_64__)
    void* home = nullptr;
#else
    ucontext_t home;
#endif
};
thread_local Block the;

[[noreturn]] void fail(const char* why) {
    std::fprintf(stderr, "shim: %s: %s\n", the.name, why);
    std::abort();
}

void go(uint32_t from, uint32_t to) {
    the.current = to;
    thread.x = to;
#if defined(MDL_SHIM_THREAD)
    __tsan_switch_to_fiber(the.fibers[to].twin, 1);
#endif
#if defined(__x86_64__)
    mdl_shim_switch(&the.fibers[from].at, the.fibers[to].at);
#else
    swapcontext(&the.fibers[from].at, &the.fibers[to].at);
#endif
}

// Lets the next fiber run that is not done.
void yield() {
    uint32_t me = the.current, next = me;
    do next = the.after[next];
    while (the.fibers[next].done);
    if (next == me) fail("a collective that some thread of the block does not reach");
    go(me, next);
}

void entry() {
    after(&the.turn);
    the.run(the.params);
    before(&the.turn);
    Fiber& me = the.fibers[the.current];
    me.done = true;
    if (--the.running == 0) {
#if defined(MDL_SHIM_THREAD)
        __tsan_switch_to_fiber(the.twin, 1);
#endif
#if defined(__x86_64__)
        void* unused;
        mdl_shim_switch(&unused, the.home);
#else
        setcontext(&the.home);
#endif
    }
    yield();
    fail("a thread came back after its end");
}

void prepare(Fiber& f) {
    if (!f.stack) f.stack.reset(new char[STACK]);
    f.done = false;
    f.collectives = f.barriers = 0;
#if defined(__x86_64__)
    auto top = reinterpret_cast<uintptr_t>(f.stack.get() + STACK) & ~uintptr_t(15);
    auto words = reinterpret_cast<void**>(top);
    *--words = nullptr;  // where `entry` would return to: keeps its stack aligned as after a call
    *--words = reinterpret_cast<void*>(&entry);
    for (int i = 0; i < 6; i++) *--words = nullptr;
    f.at = words;
#else
    getcontext(&f.at);
    f.at.uc_stack.ss_sp = f.stack.get();
    f.at.uc_stack.ss_size = STACK;
    f.at.uc_link = nullptr;
    makecontext(&f.at, entry, 0);
#endif
}

// Decides who runs after whom.
void shuffle(uint64_t turn) {
    std::vector<uint32_t> order(the.size);
    for (uint32_t i = 0; i < the.size; i++) order[i] = i;
    uint64_t x = (seed() + turn) * 0x9e3779b97f4a7c15ull | 1;
    for (uint32_t i = the.size; seed() && i > 1; i--) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        std::swap(order[i - 1], order[x % i]);
    }
    the.after.resize(the.size);
    for (uint32_t i = 0; i < the.size; i++) the.after[order[i]] = order[(i + 1) % the.size];
    the.first = order[0];
}

std::map<std::string, Run>& table() {
    static std::map<std::string, Run> all;
    return all;
}
}  // namespace

Entry::Entry(const char* name, Run run) { table()[name] = run; }

void sync_block(unsigned line) {
    uint32_t mine = ++the.fibers[the.current].barriers;
    if (the.waiting == 0) the.line = line;
    if (the.line != line) fail("threads of a block wait for each other in unlike places");
    before(&the.barrier[mine & 1]);
    if (++the.waiting == the.size) {
        the.waiting = 0;
        the.barriers = mine;
    }
    while (the.barriers < mine) yield();
    after(&the.barrier[mine & 1]);
}

const uint64_t* exchange(uint64_t value, unsigned line, bool ordered) {
    uint32_t tid = the.current, lane = tid & 31, slot = the.fibers[tid].collectives++ & 1;
    Warp& w = the.warps[tid >> 5];
    if (w.arrived[slot] == 0) w.line[slot] = line;
    if (w.line[slot] != line) fail("lanes of a warp wait for each other in unlike places");
    if (ordered) before(&w.line[slot]);
    w.value[slot][lane] = value;
    w.arrived[slot] |= 1u << lane;
    // Whoever arrives here has read what the other slot held.
    if (w.arrived[slot] == ~0u) w.arrived[slot ^ 1] = 0;
    while (w.arrived[slot] != ~0u) yield();
    if (ordered) after(&w.line[slot]);
    return w.value[slot];
}
}  // namespace shim

using namespace shim;

// Has the linker bring the kernels.
extern "C" void mdl_shim_kernels();

extern "C" int mdl_shim_launch(const char* name, unsigned gx, unsigned gy, unsigned threads, void** params) {
    mdl_shim_kernels();
    auto found = table().find(name);
    if (found == table().end()) return 1;
    if (threads == 0 || threads % 32 || threads > 1024 || gx == 0 || gy == 0 || gy > 65535) return 2;
    the.run = found->second;
    the.name = found->first.c_str();
    the.params = params;
    the.size = threads;
    while (the.fibers.size() < threads) the.fibers.emplace_back();
    block_size = {threads, 1, 1};
    grid_size = {gx, gy, 1};
    uint64_t blocks = (uint64_t)gx * gy;
    for (uint64_t turn = 0; turn < blocks; turn++) {
        uint64_t at = seed() ? blocks - 1 - turn : turn;
        block = {unsigned(at % gx), unsigned(at / gx), 0};
        if (turn == 0 || seed()) shuffle(turn);
        the.warps.assign(threads / 32, Warp{});
        the.running = threads;
        the.waiting = the.barriers = 0;
        for (unsigned t = 0; t < threads; t++) prepare(the.fibers[t]);
        the.current = the.first;
        thread = {the.first, 0, 0};
#if defined(MDL_SHIM_THREAD)
        the.twin = __tsan_get_current_fiber();
        if (turn == 0) before(&the.turn);
        __tsan_switch_to_fiber(the.fibers[the.first].twin, 1);
#endif
#if defined(__x86_64__)
        mdl_shim_switch(&the.home, the.fibers[the.first].at);
#else
        swapcontext(&the.home, &the.fibers[the.first].at);
#endif
    }
    after(&the.turn);
    return 0;
}
