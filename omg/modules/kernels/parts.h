/* The parts of a call on several threads. Helpers take parts, and so does the caller, who also takes
 * those that no helper has begun: a helper whose core is busy with something else costs nothing, and
 * nobody waits for it to wake up. Who waits spins for a short while, then sleeps. What a part computes
 * must depend on its number only, not on who computes it.
 *
 * A call from a second thread meanwhile, and one in a forked child whose parent was in the middle of
 * another, computes its parts alone. */
#ifndef OMG_PARTS_H
#define OMG_PARTS_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#define MOST_HELPERS 255
#define SPIN_FOR_WORK 2000  /* pauses, of 20 ns or so */
#define SPIN_FOR_END 10000

typedef void (*part_t)(const void *told, int part);

static struct {
    pthread_mutex_t caller, lock;
    pthread_cond_t work, done;
    _Atomic uint64_t ticket; /* number of the call << 32 | its parts << 16 | the next part */
    _Atomic(part_t) run;
    _Atomic(const void *) told;
    atomic_int finished, asleep, waiting;
    int helpers;
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
static inline int parts_left(uint64_t ticket) { return parts_of(ticket) - (int)(ticket & 0xFFFF); }

/* Computes one part that nobody has begun; 0: there is none. `run` and `told` are those of the
 * ticket, because a new call changes them only when no part of the last one is left. */
static int compute_a_part(void) {
    uint64_t ticket = atomic_load(&pool.ticket);
    while (parts_left(ticket) > 0) {
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

static void *help(void *nothing) {
    for (;;) {
        while (compute_a_part()) {
        }
        for (int i = 0; i < SPIN_FOR_WORK && parts_left(atomic_load(&pool.ticket)) <= 0; i++)
            pause_briefly();
        if (parts_left(atomic_load(&pool.ticket)) > 0) continue;
        pthread_mutex_lock(&pool.lock);
        atomic_fetch_add(&pool.asleep, 1);
        while (parts_left(atomic_load(&pool.ticket)) <= 0)
            pthread_cond_wait(&pool.work, &pool.lock);
        atomic_fetch_sub(&pool.asleep, 1);
        pthread_mutex_unlock(&pool.lock);
    }
    return nothing;
}

/* As many helpers as are wanted and can be had; signals are the business of other threads. */
static void have_helpers(int wanted) {
    if (pool.process != getpid()) { /* they do not survive a fork */
        pool.process = getpid(), pool.helpers = 0;
        atomic_store(&pool.asleep, 0);
        pthread_mutex_init(&pool.lock, NULL);
        pthread_cond_init(&pool.work, NULL);
        pthread_cond_init(&pool.done, NULL);
    }
    sigset_t all, before;
    sigfillset(&all);
    for (; pool.helpers < wanted && pool.helpers < MOST_HELPERS; pool.helpers++) {
        pthread_t thread;
        pthread_sigmask(SIG_SETMASK, &all, &before);
        const int failed = pthread_create(&thread, NULL, help, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (failed) return;
        pthread_detach(thread);
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

/* run(told, 0 … parts - 1) on up to `threads` threads; returns when all are done. */
static void in_parts(int threads, int parts, part_t run, const void *told) {
    if (threads < 2 || parts < 2 || parts > 0xFFFF || pthread_mutex_trylock(&pool.caller)) {
        for (int part = 0; part < parts; part++) run(told, part);
        return;
    }
    have_helpers((threads < parts ? threads : parts) - 1);
    atomic_store(&pool.finished, 0);
    atomic_store(&pool.run, run);
    atomic_store(&pool.told, told);
    const uint64_t call = (atomic_load(&pool.ticket) >> 32) + 1;
    atomic_store(&pool.ticket, call << 32 | (uint64_t)parts << 16);
    if (atomic_load(&pool.asleep)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.work);
        pthread_mutex_unlock(&pool.lock);
    }
    while (compute_a_part()) {
    }
    wait_for_all(parts);
    pthread_mutex_unlock(&pool.caller);
}

#endif
