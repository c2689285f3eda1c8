/* The pool of threads for the parts of a call (parts.h). Helpers take parts, and so does the caller,
 * who also takes those that no helper has begun: a helper whose core is busy with something else
 * costs nothing, and nobody waits for it to wake up. Who waits spins for a short while, then sleeps.
 *
 * A call from a second thread meanwhile, and one in a forked child whose parent was in the middle of
 * another, computes its parts alone. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RUSAGE_THREAD */
#endif
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MOST_HELPERS 255
#define SPIN_FOR_END 10000 /* pauses, of 20 ns or so */
/* How long a helper without work spins, in microseconds: to wake it takes some 50, and the next call
 * comes within 500. Where another process wants its core, which it notices by being interrupted, only
 * shortly, until it was left alone CALM times. */
#ifdef RUSAGE_THREAD
#define SPIN_ALONE 500
#else
#define SPIN_ALONE SPIN_BESIDE /* it would not notice */
#endif
#define SPIN_BESIDE 40
#define CALM 50

typedef void (*part_t)(const void *told, int part);

static struct {
    pthread_mutex_t caller, lock;
    pthread_cond_t work, done;
    _Atomic uint64_t ticket; /* number of the call << 40 | its helpers << 32 | parts << 16 | next */
    _Atomic(part_t) run;
    _Atomic(const void *) told;
    atomic_int finished, asleep, waiting;
    int helpers; /* how many there are */
    pid_t process;
} pool = {.caller = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static inline int parts_of(uint64_t ticket) { return (int)(ticket >> 16 & 0xFFFF); }

/* Whether a part is left for a helper; they count from 1, and number 0 is the caller. */
static inline int wanted(uint64_t ticket, int number) {
    return (int)(ticket & 0xFFFF) < parts_of(ticket) && number <= (int)(ticket >> 32 & 0xFF);
}

/* Computes one part that nobody has begun; 0: there is none. `run` and `told` are those of the
 * ticket, because a new call changes them only when no part of the last one is left. */
static int compute_a_part(int number) {
    uint64_t ticket = atomic_load(&pool.ticket);
    while (wanted(ticket, number)) {
        const part_t run = atomic_load(&pool.run);
        const void *told = atomic_load(&pool.told);
        if (!atomic_compare_exchange_weak(&pool.ticket, &ticket, ticket + 1)) continue;
        run(told, (int)(ticket & 0xFFFF));
        if (atomic_fetch_add(&pool.finished, 1) + 1 == parts_of(ticket) &&
            atomic_load(&pool.waiting)) {
            pthread_mutex_lock(&pool.lock);
            pthread_cond_signal(&pool.done);
            pthread_mutex_unlock(&pool.lock);
        }
        return 1;
    }
    return 0;
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

/* How often this thread has lost its core to another. */
static long interruptions(void) {
#ifdef RUSAGE_THREAD
    struct rusage usage;
    if (!getrusage(RUSAGE_THREAD, &usage)) return usage.ru_nivcsw;
#endif
    return 0;
}

/* Whether work came while it spun. */
static int spin_for_work(int number, double most) {
    const double end = microseconds() + most;
    do {
        for (int i = 0; i < 16; i++) {
            if (wanted(atomic_load(&pool.ticket), number)) return 1;
            pause_briefly();
        }
    } while (microseconds() < end);
    return 0;
}

static void *help(void *told) {
    const int number = (int)(intptr_t)told;
    long lost = interruptions();
    int calm = CALM;
    for (;;) {
        while (compute_a_part(number)) {
        }
        const long by_now = interruptions();
        calm = by_now != lost ? 0 : calm < CALM ? calm + 1 : CALM;
        lost = by_now;
        if (spin_for_work(number, calm == CALM ? SPIN_ALONE : SPIN_BESIDE)) continue;
        pthread_mutex_lock(&pool.lock);
        atomic_fetch_add(&pool.asleep, 1);
        while (!wanted(atomic_load(&pool.ticket), number))
            pthread_cond_wait(&pool.work, &pool.lock);
        atomic_fetch_sub(&pool.asleep, 1);
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

/* As many helpers as are needed and can be had; signals are the business of other threads. */
static void have_helpers(int needed) {
    if (pool.process != getpid()) { /* they do not survive a fork */
        pool.process = getpid(), pool.helpers = 0;
        atomic_store(&pool.asleep, 0);
        pthread_mutex_init(&pool.lock, NULL);
        pthread_cond_init(&pool.work, NULL);
        pthread_cond_init(&pool.done, NULL);
    }
    sigset_t all, before;
    sigfillset(&all);
    while (pool.helpers < needed) {
        pthread_t thread;
        pthread_sigmask(SIG_SETMASK, &all, &before);
        const int failed = pthread_create(&thread, NULL, help, (void *)(intptr_t)(pool.helpers + 1));
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (failed) return;
        pthread_detach(thread);
        pool.helpers++;
    }
}

static void wait_for_all(int parts) {
    for (int i = 0; i < SPIN_FOR_END && atomic_load(&pool.finished) < parts; i++) pause_briefly();
    if (atomic_load(&pool.finished) >= parts) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.waiting, 1);
    while (atomic_load(&pool.finished) < parts) pthread_cond_wait(&pool.done, &pool.lock);
    atomic_store(&pool.waiting, 0);
    pthread_mutex_unlock(&pool.lock);
}

/* See in_parts_t. */
void in_parts(int threads, int parts, part_t run, const void *told) {
    if (threads < 2 || parts < 2 || parts > 0xFFFF || pthread_mutex_trylock(&pool.caller)) {
        for (int part = 0; part < parts; part++) run(told, part);
        return;
    }
    int needed = (threads < parts ? threads : parts) - 1;
    if (needed > MOST_HELPERS) needed = MOST_HELPERS;
    have_helpers(needed);
    atomic_store(&pool.finished, 0);
    atomic_store(&pool.run, run);
    atomic_store(&pool.told, told);
    const uint64_t call = (atomic_load(&pool.ticket) >> 40) + 1;
    atomic_store(&pool.ticket, call << 40 | (uint64_t)needed << 32 | (uint64_t)parts << 16);
    if (atomic_load(&pool.asleep)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.work);
        pthread_mutex_unlock(&pool.lock);
    }
    while (compute_a_part(0)) {
    }
    wait_for_all(parts);
    pthread_mutex_unlock(&pool.caller);
}
