/* A file of `key=value` lines, looked up by key and read again when the file changes. */
#ifndef QWEN_SIM_STORE_H
#define QWEN_SIM_STORE_H

#include <sys/stat.h>

struct store {
    char *text;
    const char **keys; /* sorted; the value follows the key's terminating zero */
    int count;
    struct stat seen;
    int present;
};

void store_refresh(struct store *store, const char *path);
const char *store_get(const struct store *store, const char *key);

#endif
