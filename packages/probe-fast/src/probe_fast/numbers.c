/* Max, min, sum, sum of squares and sketch of a tensor in one read of its memory (probe-format's spec/statistics.md).

   No header of Python's: called by ctypes. Never compiled or linked with -ffast-math, which turns denormals off in the
   whole process as the library is loaded. Everything up to float32 is added in float64, which holds the square of each
   element exactly and the sum of as many as fit into memory: nothing over- or underflows. Element i of a block goes to
   lane i % 16, and blocks are merged in their order, so that the numbers depend neither on the processor nor on how many
   threads there are. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LANES 16   /* as many as a sketch has numbers */
#define PIECE 1024 /* elements that are widened, and added, before they go to the sums of a block */
#define BLOCK (1 << 16)
#define AHEAD 4096      /* bytes */
#define MANY 64         /* threads at most */
#define INLINE static inline __attribute__((always_inline))

enum { F32, F64, F16, BF16, CODES, BOOL, I8, I16, I32, I64, U8, U16, U32, U64, KINDS };
enum { ZEROS = 1, SKETCH = 2 };    /* what is asked for besides */
enum { FINE, BROKEN, UNSURE };     /* BROKEN: not all are finite. UNSURE: the reference has to look */

/* What Python reads (its fields stand in __init__.py as well). While blocks are read: the sum in place of the mean, the
   sum of squares in place of the norm. */
typedef struct {
    double max, min, mean, norm;      /* max, min: of the finite elements, where not all are */
    int64_t top, bottom;              /* the extremes of integers of 64 bits, of uint64 by their bits */
    int64_t nan, above, below, zeros; /* counts; above, below: infinities */
    double sketch[LANES];
} numbers;

typedef struct {
    const char *elements;
    size_t count;
    int kind, want;
    const float *table; /* of CODES: what each of the 256 codes means */
    numbers *parts;
    size_t blocks, step; /* step: how many threads take turns */
} job;

typedef struct {
    const job *of;
    size_t first;
} share;

/* -- a piece of elements, as float or double ------------------------------------------------------------------ */

typedef union {
    float f32[PIECE];
    double f64[PIECE];
} room;

#define WIDEN(T, TO, NEXT)                                                                                             \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        T one = ((const T *)x)[i];                                                                                     \
        TO[i] = NEXT;                                                                                                  \
    }                                                                                                                  \
    return TO
#define EXTREMES(T, LOWEST, HIGHEST)                                                                                   \
    {                                                                                                                  \
        T top = LOWEST, bottom = HIGHEST;                                                                              \
        for (size_t i = 0; i < n; i++) {                                                                               \
            T one = ((const T *)x)[i];                                                                                 \
            top = one > top ? one : top, bottom = one < bottom ? one : bottom;                                         \
        }                                                                                                              \
        out->top = top > (T)out->top ? (int64_t)top : out->top;                                                        \
        out->bottom = bottom < (T)out->bottom ? (int64_t)bottom : out->bottom;                                         \
    }

INLINE float float_of(uint32_t bits)
{
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

/* Without an operation on a denormal: their exponent is put in front, and taken away again. */
INLINE float half(uint16_t h)
{
    uint32_t size = (uint32_t)(h & 0x7FFF) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    float small = float_of(size + (113u << 23)) - float_of(113u << 23);
    uint32_t tiny, normal = size + (112u << 23), endless = size + (224u << 23);
    __builtin_memcpy(&tiny, &small, sizeof tiny);
    return float_of((size < (1u << 23) ? tiny : size >= (31u << 23) ? endless : normal) | sign);
}

INLINE const float *floats(int kind, const void *x, size_t n, const float *table, float *to)
{
    switch (kind) {
    case F16: WIDEN(uint16_t, to, half(one));
    case BF16: WIDEN(uint16_t, to, float_of((uint32_t)one << 16));
    case CODES: WIDEN(uint8_t, to, table[one]);
    default: return x;
    }
}

/* float64 holds all integers of 32 bits; of those of 64 the extremes are found apart. */
INLINE const double *doubles(int kind, const void *x, size_t n, numbers *out, double *to)
{
    switch (kind) {
    case I8: WIDEN(int8_t, to, one);
    case I16: WIDEN(int16_t, to, one);
    case I32: WIDEN(int32_t, to, one);
    case U8: WIDEN(uint8_t, to, one);
    case U16: WIDEN(uint16_t, to, one);
    case U32: WIDEN(uint32_t, to, one);
    case I64: EXTREMES(int64_t, INT64_MIN, INT64_MAX) WIDEN(int64_t, to, (double)one);
    case U64: EXTREMES(uint64_t, 0, UINT64_MAX) WIDEN(uint64_t, to, (double)one);
    default: return x;
    }
}

/* The numbers of a block while it is read. What compares false skips NaN. */
typedef struct {
    double sum[LANES], squares[LANES], sketch[LANES], high[LANES], low[LANES];
} lanes;

#define ADD(V, j, i)                                                                                                   \
    do {                                                                                                               \
        double wide = (double)v[i];                                                                                    \
        sum[j] += wide, squares[j] += wide * wide;                                                                     \
        high[j] = v[i] > high[j] ? v[i] : high[j], low[j] = v[i] < low[j] ? v[i] : low[j];                             \
        if (signs)                                                                                                     \
            sketch[j] += sign * wide;                                                                                  \
    } while (0)

/* ADDED: signs of the rows for a sketch, NULL without. Memory is asked for some time before it is read. */
#define FOR_FLOATS(V, ADDED, COUNTED, ZERO)                                                                            \
    INLINE void ADDED(const V *v, size_t n, const double *signs, lanes *all)                                           \
    {                                                                                                                  \
        double sum[LANES] = {0}, squares[LANES] = {0}, sketch[LANES] = {0};                                            \
        V high[LANES], low[LANES];                                                                                     \
        size_t i = 0;                                                                                                  \
        for (int j = 0; j < LANES; j++)                                                                                \
            high[j] = -(V)INFINITY, low[j] = (V)INFINITY;                                                              \
        for (; i + LANES <= n; i += LANES) {                                                                           \
            double sign = signs ? signs[i / LANES] : 0;                                                                \
            for (size_t line = 0; line < sizeof(V) * LANES; line += 64)                                                \
                __builtin_prefetch((const char *)(v + i) + AHEAD + line);                                              \
            for (size_t j = 0; j < LANES; j++)                                                                         \
                ADD(V, j, i + j);                                                                                      \
        }                                                                                                              \
        for (size_t j = 0; i + j < n; j++) {                                                                           \
            double sign = signs ? signs[i / LANES] : 0;                                                                \
            ADD(V, j, i + j);                                                                                          \
        }                                                                                                              \
        for (int j = 0; j < LANES; j++) {                                                                              \
            all->sum[j] += sum[j], all->squares[j] += squares[j], all->sketch[j] += sketch[j];                         \
            all->high[j] = high[j] > all->high[j] ? high[j] : all->high[j];                                            \
            all->low[j] = low[j] < all->low[j] ? low[j] : all->low[j];                                                 \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void COUNTED(const V *v, size_t n, numbers *out)                                                               \
    {                                                                                                                  \
        int32_t nan = 0, above = 0, below = 0;                                                                         \
        V high[LANES], low[LANES];                                                                                     \
        for (int j = 0; j < LANES; j++)                                                                                \
            high[j] = -(V)INFINITY, low[j] = (V)INFINITY;                                                              \
        for (size_t i = 0; i < n; i++)                                                                                 \
            nan += v[i] != v[i], above += v[i] == (V)INFINITY, below += v[i] == -(V)INFINITY;                          \
        for (size_t i = 0; i + LANES <= n; i += LANES)                                                                 \
            for (int j = 0; j < LANES; j++) {                                                                          \
                V up = v[i + j] < (V)INFINITY ? v[i + j] : -(V)INFINITY;                                               \
                V down = v[i + j] > -(V)INFINITY ? v[i + j] : (V)INFINITY;                                             \
                high[j] = up > high[j] ? up : high[j], low[j] = down < low[j] ? down : low[j];                         \
            }                                                                                                          \
        for (size_t i = n - n % LANES, j = 0; i < n; i++, j++) {                                                       \
            high[j] = v[i] > high[j] && v[i] < (V)INFINITY ? v[i] : high[j];                                           \
            low[j] = v[i] < low[j] && v[i] > -(V)INFINITY ? v[i] : low[j];                                             \
        }                                                                                                              \
        for (int j = 0; j < LANES; j++) {                                                                              \
            out->max = high[j] > out->max ? high[j] : out->max;                                                        \
            out->min = low[j] < out->min ? low[j] : out->min;                                                          \
        }                                                                                                              \
        out->nan += nan, out->above += above, out->below += below;                                                     \
    }                                                                                                                  \
    INLINE void ZERO(const V *v, size_t n, numbers *out)                                                                  \
    {                                                                                                                  \
        int32_t zeros = 0;                                                                                             \
        for (size_t i = 0; i < n; i++)                                                                                 \
            zeros += v[i] == 0;                                                                                        \
        out->zeros += zeros;                                                                                           \
    }

FOR_FLOATS(float, add_f32, count_f32, zero_f32)
FOR_FLOATS(double, add_f64, count_f64, zero_f64)

/* Give the signs of the rows of a piece, as the specification makes them. */
INLINE void signs_of(uint32_t row, double *signs)
{
    for (uint32_t i = 0; i < PIECE / LANES; i++) {
        uint32_t h = row + i;
        h = (h ^ (h >> 16)) * 0x7FEB352Du;
        h = (h ^ (h >> 15)) * 0x846CA68Bu;
        signs[i] = 1.0 - 2.0 * (int)((h ^ (h >> 16)) & 1);
    }
}

static const unsigned char SIZES[KINDS] = {4, 8, 2, 2, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8};
enum { NARROW = 1 << F32 | 1 << F16 | 1 << BF16 | 1 << CODES }; /* those that are read as float */

INLINE void block(const job *of, size_t index)
{
    size_t first = index * BLOCK, end = of->count - first < BLOCK ? of->count : first + BLOCK;
    int kind = of->kind, want = of->want, narrow = NARROW >> kind & 1;
    numbers *out = of->parts + index;
    room hold;
    lanes all = {0};
    double signs[PIECE / LANES];
    if (kind == BOOL) {
        uint32_t yes = 0;
        for (size_t i = first; i < end; i++)
            yes += of->elements[i] != 0;
        *out = (numbers){yes > 0, yes == end - first, yes, yes, .zeros = (int64_t)(end - first - yes)};
        return;
    }
    *out = (numbers){-INFINITY, INFINITY, .top = kind == U64 ? 0 : INT64_MIN, .bottom = kind == U64 ? -1 : INT64_MAX};
    for (int j = 0; j < LANES; j++)
        all.high[j] = -INFINITY, all.low[j] = INFINITY;
    for (size_t at = first; at < end; at += PIECE) {
        size_t n = end - at < PIECE ? end - at : PIECE;
        const char *x = of->elements + at * SIZES[kind];
        const float *f = narrow ? floats(kind, x, n, of->table, hold.f32) : NULL;
        const double *d = narrow ? NULL : doubles(kind, x, n, out, hold.f64);
        if (want & SKETCH) {
            signs_of((uint32_t)(at / LANES), signs);
            narrow ? add_f32(f, n, signs, &all) : add_f64(d, n, signs, &all);
        } else
            narrow ? add_f32(f, n, NULL, &all) : add_f64(d, n, NULL, &all);
        if (want & ZEROS)
            narrow ? zero_f32(f, n, out) : zero_f64(d, n, out);
    }
    for (int j = 0; j < LANES; j++)
        out->sketch[j] = all.sketch[j];
    for (int width = LANES / 2; width; width /= 2)
        for (int j = 0; j < width; j++) {
            all.sum[j] += all.sum[j + width], all.squares[j] += all.squares[j + width];
            all.high[j] = all.high[j + width] > all.high[j] ? all.high[j + width] : all.high[j];
            all.low[j] = all.low[j + width] < all.low[j] ? all.low[j + width] : all.low[j];
        }
    out->mean = all.sum[0], out->norm = all.squares[0];
    if (out->norm - out->norm == 0) {
        out->max = all.high[0], out->min = all.low[0];
        return;
    }
    for (size_t at = first; at < end; at += PIECE) { /* something is not finite, or a float64 is very large */
        size_t n = end - at < PIECE ? end - at : PIECE;
        const char *x = of->elements + at * SIZES[kind];
        narrow ? count_f32(floats(kind, x, n, of->table, hold.f32), n, out) : count_f64((const double *)x, n, out);
    }
}

/* -- the processor ------------------------------------------------------------------------------------------------ */

/* The same code for each: WAYS. Its best one is 0, plain (on aarch64 that has NEON), 1, AVX2, or 2, AVX-512.

   The rounding, and what is done with denormals, are the run's own: numbers are made by the plain rules, and then the
   run gets its own back, with the flags that it had. */
typedef void (*const a_way)(const job *, size_t);
static void block_plain(const job *of, size_t index) { block(of, index); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void block_avx2(const job *of, size_t index) { block(of, index); }
__attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) static void
block_avx512(const job *of, size_t index) { block(of, index); }
static a_way WAYS[] = {block_plain, block_avx2, block_avx512};
int probe_fast_best(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return 2;
    return __builtin_cpu_supports("avx2") ? 1 : 0;
}
typedef unsigned int rules;
static rules plain_rules(void)
{
    rules had = _mm_getcsr();
    _mm_setcsr(0x1F80);
    return had;
}
static void give_back(rules had) { _mm_setcsr(had); }
#elif defined(__aarch64__)
static a_way WAYS[] = {block_plain};
int probe_fast_best(void) { return 0; }
typedef struct { uint64_t control, flags; } rules;
static rules plain_rules(void)
{
    rules had;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr\n\tmsr fpcr, xzr" : "=r"(had.control), "=r"(had.flags)::"memory");
    return had;
}
static void give_back(rules had)
{
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" ::"r"(had.control), "r"(had.flags) : "memory");
}
#else
#error "probe-fast knows x86-64 and aarch64"
#endif
static int way;
__attribute__((constructor)) static void begin(void) { way = probe_fast_best(); }

/* Take a way from now on; -1: this processor lacks it. */
int probe_fast_use(int chosen) { return chosen < 0 || chosen > probe_fast_best() ? -1 : (way = chosen); }

/* Do every step-th block. */
static void *work(void *given)
{
    const share *mine = given;
    rules had = plain_rules();
    for (size_t i = mine->first; i < mine->of->blocks; i += mine->of->step)
        WAYS[way](mine->of, i);
    give_back(had);
    return NULL;
}

/* Do all blocks, on threads that begin and end here: nothing of them is left for a fork, and none takes a signal. What
   cannot be started is done by the caller. */
static void work_together(const job *of)
{
    pthread_t others[MANY];
    share shares[MANY];
    size_t started = 1;
    sigset_t all, had;
    for (size_t i = 0; i < of->step; i++)
        shares[i] = (share){of, i};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &had);
    while (started < of->step && !pthread_create(&others[started], NULL, work, &shares[started]))
        started++;
    pthread_sigmask(SIG_SETMASK, &had, NULL);
    work(&shares[0]);
    for (size_t i = started; i < of->step; i++)
        work(&shares[i]);
    while (--started)
        pthread_join(others[started], NULL);
}

/* Add up the parts, in their order. */
static int merged(const job *of, numbers *out)
{
    numbers all = of->parts[0];
    for (size_t i = 1; i < of->blocks; i++) {
        const numbers *p = of->parts + i;
        int wraps = of->kind == U64, over = wraps ? (uint64_t)p->top > (uint64_t)all.top : p->top > all.top;
        int under = wraps ? (uint64_t)p->bottom < (uint64_t)all.bottom : p->bottom < all.bottom;
        all.max = p->max > all.max ? p->max : all.max, all.min = p->min < all.min ? p->min : all.min;
        all.top = over ? p->top : all.top, all.bottom = under ? p->bottom : all.bottom;
        all.mean += p->mean, all.norm += p->norm;
        all.nan += p->nan, all.above += p->above, all.below += p->below, all.zeros += p->zeros;
        for (int j = 0; j < LANES; j++)
            all.sketch[j] += p->sketch[j];
    }
    double squares = all.norm;
    all.mean /= (double)of->count, all.norm = sqrt(squares);
    *out = all;
    if (all.nan || all.above || all.below)
        return BROKEN;
    /* Squares of float64 that went below or beyond it. */
    int lost = squares - squares != 0 || (squares < 1e-280 && (all.max != 0 || all.min != 0));
    return of->kind == F64 && lost ? UNSURE : FINE;
}

/* What is asked, and the answer: one argument, since each costs ctypes more than a few elements cost here.

   elements: `count` of them, one or more. want: of ZEROS and SKETCH, whose elements are in C order. table: of CODES. */
typedef struct {
    const void *elements;
    size_t count;
    const float *table;
    int32_t kind, want, threads, unused;
    numbers found;
} request;

/* Answer with FINE, BROKEN or UNSURE. */
int probe_fast_numbers(request *r)
{
    size_t blocks = (r->count + BLOCK - 1) / BLOCK, many = r->threads < 1 ? 1 : r->threads > MANY ? MANY : r->threads;
    job of = {r->elements, r->count, r->kind, r->want, r->table, &r->found, blocks, many < blocks ? many : blocks};
    if (r->kind < 0 || r->kind >= KINDS || !r->count || (r->kind == CODES && !r->table) ||
        (blocks > 1 && !(of.parts = malloc(blocks * sizeof(numbers)))))
        return UNSURE;
    rules had = plain_rules();
    if (of.step > 1)
        work_together(&of);
    else
        for (size_t i = 0; i < blocks; i++)
            WAYS[way](&of, i);
    int found = merged(&of, &r->found);
    give_back(had);
    if (of.parts != &r->found)
        free(of.parts);
    return found;
}
