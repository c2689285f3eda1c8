/* What a kernel that computes a loss is told of a block of packed rows. */
#ifndef OMG_BLOCK_H
#define OMG_BLOCK_H

#include <stdint.h>

/* Where the rows of a block lie, step by step: how many they are, and the first one's place among
 * all packed rows and among those that the block keeps. */
typedef struct {
    int T;
    const int64_t *rows, *from, *at;
} block_t;

#endif
