#include "store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The old text is kept for good: another thread may still hold a value of it, and files change a few times a run. */
static void forget(struct store *store)
{
    memset(store, 0, sizeof *store);
}

static char *read_all(int file, size_t *size)
{
    size_t room = 1 << 16, used = 0;
    char *text = malloc(room + 1);
    for (;;) {
        ssize_t got = read(file, text + used, room - used);
        if (got <= 0)
            break;
        used += (size_t)got;
        if (used == room)
            text = realloc(text, (room *= 2) + 1);
    }
    text[used] = 0;
    *size = used;
    return text;
}

void store_refresh(struct store *store, const char *path)
{
    struct stat now;
    if (stat(path, &now) != 0) {
        forget(store);
        return;
    }
    if (store->present && now.st_ino == store->seen.st_ino && now.st_size == store->seen.st_size &&
        now.st_mtim.tv_sec == store->seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == store->seen.st_mtim.tv_nsec)
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    forget(store);
    if (file < 0)
        return;
    size_t size;
    store->text = read_all(file, &size);
    close(file);
    store->seen = now;
    store->present = 1;
    int lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += store->text[i] == '\n';
    store->keys = calloc((size_t)lines, sizeof *store->keys);
    for (char *line = store->text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        char *equals = strchr(line, '=');
        if (!equals || *line == '#')
            continue;
        *equals = 0;
        store->keys[store->count++] = line;
    }
    qsort(store->keys, (size_t)store->count, sizeof *store->keys, by_key);
}

const char *store_get(const struct store *store, const char *key)
{
    if (!store->count)
        return NULL;
    const char **hit = bsearch(&key, store->keys, (size_t)store->count, sizeof *store->keys, by_key);
    return hit ? *hit + strlen(*hit) + 1 : NULL;
}
