/* Take floats out of JSON text: what the pattern in probe-format's json_floats.py finds, in a third of the time.

   No header of Python's: called by ctypes. Bytes are only compared and copied; what a number is worth is not asked. */
#include <stddef.h>
#include <string.h>

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Return where a float ends; NULL for what is none, such as a whole number. */
static const char *float_end(const char *at, const char *end)
{
    at += at < end && *at == '-';
    const char *first = at;
    while (at < end && is_digit(*at))
        at++;
    if (at == first || at == end || (*at != '.' && *at != 'e' && *at != 'E'))
        return NULL;
    do
        at++;
    while (at < end && (is_digit(*at) || *at == 'e' || *at == 'E' || *at == '-' || *at == '+'));
    return at;
}

/* Copy the floats behind `count` keys to *floats, a comma behind each; return where the last one ends, or NULL where not
   all keys are there, one right after the other and each with a float. */
static const char *taken(const char *at, const char *end, const char *key, size_t count, char **floats)
{
    char *to = *floats;
    for (; count; count--) {
        size_t size = strlen(key);
        if ((size_t)(end - at) < size || memcmp(at, key, size))
            return NULL;
        const char *number = at + size;
        if (!(at = float_end(number, end)))
            return NULL;
        memcpy(to, number, (size_t)(at - number));
        to += at - number;
        *to++ = ',';
        key += size + 1;
    }
    *floats = to;
    return at;
}

/* Write the floats, a comma behind each, and the text with a 0 in place of each run of keys and floats.

   keys: `count` of them, as they stand in the text, a 0 behind each; the first has two bytes or more. rest, floats: room
   for `length` bytes each. lengths: how many were written there. */
void probe_fast_take_floats(const char *text, size_t length, const char *keys, size_t count, char *rest, char *floats,
                            size_t lengths[2])
{
    const char *at = text, *end = text + length, *kept = text;
    char *to = rest, *numbers = floats;
    /* By the second byte of the first key: the first is a quote, of which there are many. */
    while (end - at > 1 && (at = memchr(at + 1, keys[1], (size_t)(end - at) - 1))) {
        const char *behind = taken(at - 1, end, keys, count, &numbers);
        if (!behind)
            continue;
        memcpy(to, kept, (size_t)(at - 1 - kept));
        to += at - 1 - kept;
        *to++ = 0;
        at = kept = behind;
    }
    memcpy(to, kept, (size_t)(end - kept));
    lengths[0] = (size_t)(to + (end - kept) - rest);
    lengths[1] = (size_t)(numbers - floats);
}
