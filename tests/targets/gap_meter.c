/* Looks at the clock without pause; what lies between two looks was taken by somebody else.
 *
 * A gap from half a microsecond to 200 is an interrupt's; a longer one is the scheduler's. */
#define _GNU_SOURCE
#include <stdint.h>
#include <time.h>

struct gaps {
    uint64_t looks, short_count, short_ns, long_count, long_ns, wall_ns;
};

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void gap_meter(uint64_t duration_ns, struct gaps *gaps) {
    uint64_t start = now(), last = start, here;
    *gaps = (struct gaps){0};
    do {
        here = now();
        uint64_t gap = here - last;
        gaps->looks++;
        if (gap >= 200000) {
            gaps->long_count++;
            gaps->long_ns += gap;
        } else if (gap >= 500) {
            gaps->short_count++;
            gaps->short_ns += gap;
        }
        last = here;
    } while (here - start < duration_ns);
    gaps->wall_ns = here - start;
}
