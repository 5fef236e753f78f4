/* Counts the bytes that malloc has handed out and not taken back, and the most there were: LD_PRELOAD of nn_bench.py.
   torch's tensors, Rust's vectors and Python's own objects all come from here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static atomic_long now, most;
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void *more(void *p) {
    if (!p) return p;
    long n = (long)malloc_usable_size(p);
    long total = atomic_fetch_add(&now, n) + n, seen = atomic_load(&most);
    while (total > seen && !atomic_compare_exchange_weak(&most, &seen, total)) {}
    return p;
}
static void less(void *p) { if (p) atomic_fetch_sub(&now, (long)malloc_usable_size(p)); }

void *malloc(size_t n) { return more(__libc_malloc(n)); }
void *calloc(size_t a, size_t b) { return more(__libc_calloc(a, b)); }
void free(void *p) { less(p); __libc_free(p); }
void *realloc(void *p, size_t n) { less(p); return more(__libc_realloc(p, n)); }
void *memalign(size_t a, size_t n) { return more(__libc_memalign(a, n)); }
void *aligned_alloc(size_t a, size_t n) { return more(__libc_memalign(a, n)); }
int posix_memalign(void **out, size_t a, size_t n) {
    void *p = __libc_memalign(a, n);
    if (!p) return 12;
    *out = more(p);
    return 0;
}
long live_bytes(void) { return atomic_load(&now); }
long live_bytes_most(void) { return atomic_load(&most); }
void live_bytes_reset(void) { atomic_store(&most, atomic_load(&now)); }
