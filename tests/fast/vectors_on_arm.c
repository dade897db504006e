/* Compute the numbers of vectors in a file, and write them: for processors that only an emulator has here. */
#include "numbers.c"

#include <stdio.h>

int main(int count, char **words)
{
    static float table[256];
    FILE *from = fopen(words[1], "rb");
    int64_t head[5]; /* kind, want, threads, elements, bytes */
    if (count != 2 || !from || fread(table, sizeof table, 1, from) != 1)
        return 1;
    while (fread(head, sizeof head, 1, from) == 1) {
        char *room = malloc((size_t)head[4]);
        request asked = {room, (size_t)head[3], table, (int32_t)head[0], (int32_t)head[1], (int32_t)head[2], 0, {0}};
        if (!room || fread(room, 1, (size_t)head[4], from) != (size_t)head[4])
            return 1;
        int64_t said = probe_fast_numbers(&asked);
        fwrite(&said, sizeof said, 1, stdout);
        fwrite(&asked.found, sizeof asked.found, 1, stdout);
        free(room);
    }
    return 0;
}
