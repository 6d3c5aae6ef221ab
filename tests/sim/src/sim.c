#include "sim.h"
#include "store.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static struct store inventory, faults, state;
static char loaded[64];
static int loaded_open;
static int visible[SIM_MAX_GPUS], visible_count;

const char *sim_path(const char *path, char buffer[4096])
{
    const char *root = getenv("QWEN_SIM_ROOT");
    snprintf(buffer, 4096, "%s%s", root ? root : "", path);
    return buffer;
}

static const char *lookup(const struct store *store, const char *format, va_list arguments)
{
    char key[SIM_TEXT];
    vsnprintf(key, sizeof key, format, arguments);
    return store_get(store, key);
}

static const char *stored(const struct store *store, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *stored(const struct store *store, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *value = lookup(store, format, arguments);
    va_end(arguments);
    return value;
}

const char *sim_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *value = lookup(&faults, format, arguments);
    va_end(arguments);
    return value;
}

const char *sim_host(const char *key)
{
    return stored(&inventory, "host.%s", key);
}

const char *sim_loaded_version(void)
{
    return *loaded ? loaded : NULL;
}

static void read_loaded_module(void)
{
    char path[4096], text[1024] = "";
    *loaded = 0;
    FILE *file = fopen(sim_path("/proc/driver/nvidia/version", path), "r");
    if (file) {
        size_t got = fread(text, 1, sizeof text - 1, file);
        text[got] = 0;
        fclose(file);
    }
    loaded_open = strstr(text, "Open Kernel Module") != NULL;
    for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n"))
        if (isdigit((unsigned char)word[0]) && strchr(word, '.') && !strchr(word, ':')) {
            snprintf(loaded, sizeof loaded, "%s", word);
            break;
        }
}

/* Silicon that the loaded module cannot drive does not appear at all, as in "No devices were found". */
static int driven(int hardware)
{
    const char *flavour = stored(&inventory, "gpu.%d.module", hardware);
    const char *last = stored(&inventory, "gpu.%d.last_branch", hardware);
    const char *first = stored(&inventory, "gpu.%d.first_branch", hardware);
    if (sim_fault("gpu.%d.absent", hardware))
        return 0;
    if (!*loaded)
        return 1; /* WSL2: the Windows driver drives them */
    int branch = atoi(loaded);
    if (flavour && !strcmp(flavour, "open") && !loaded_open)
        return 0;
    if (flavour && !strcmp(flavour, "proprietary") && loaded_open)
        return 0;
    if (last && branch > atoi(last))
        return 0;
    return !(first && branch < atoi(first));
}

/* One reader of the files at a time; what an earlier reading returned stays valid (see store.c). */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

static void read_files(void)
{
    char path[4096];
    pthread_mutex_lock(&reading);
    store_refresh(&inventory, sim_path("/etc/qwen-sim/inventory", path));
    store_refresh(&faults, sim_path("/etc/qwen-sim/faults", path));
    store_refresh(&state, sim_path("/run/qwen-sim/state", path));
    read_loaded_module();
    const char *count = stored(&inventory, "gpu.count");
    int total = count ? atoi(count) : 0;
    visible_count = 0;
    for (int i = 0; i < total && i < SIM_MAX_GPUS; i++)
        if (driven(i))
            visible[visible_count++] = i;
    pthread_mutex_unlock(&reading);
}

int sim_refresh(const char *library_version)
{
    read_files();
    const char *refused = sim_fault("init");
    if (refused)
        return atoi(refused);
    const char *wsl = sim_host("wsl2");
    if (wsl && !strcmp(wsl, "1"))
        return SIM_OK;
    if (!*loaded)
        return SIM_DRIVER_NOT_LOADED;
    if (library_version && *library_version && strcmp(library_version, loaded) != 0)
        return SIM_LIB_RM_VERSION_MISMATCH;
    return SIM_OK;
}

int sim_count(void)
{
    return visible_count;
}

int sim_hardware(int gpu)
{
    return gpu >= 0 && gpu < visible_count ? visible[gpu] : -1;
}

int sim_gpu_status(int gpu)
{
    const char *lost = sim_fault("gpu.%d.lost", sim_hardware(gpu));
    return lost ? (atoi(lost) ? atoi(lost) : SIM_GPU_IS_LOST) : SIM_OK;
}

/* Is `name` in a comma-separated list? "power" also covers "power.limit" and its other children. */
static int listed(const char *list, const char *name)
{
    while (list && *list) {
        size_t length = strcspn(list, ",");
        if (length == 1 && *list == '*')
            return 1;
        if (!strncmp(list, name, length) && (name[length] == 0 || name[length] == '.'))
            return 1;
        list += length + (list[length] == ',');
    }
    return 0;
}

/* A process counts while it lives; "static" entries (a pid of another namespace) always do. */
static int alive(unsigned pid, int is_static)
{
    return is_static || kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

static int parse_processes(const char *text, struct sim_process *list, int room, int found)
{
    while (text && *text) {
        struct sim_process entry;
        int used = 0, is_static = *text == '!';
        if (sscanf(text + is_static, "%u:%c:%lf:%127[^;]%n", &entry.pid, &entry.type, &entry.mib, entry.name, &used) < 4)
            break;
        if (alive(entry.pid, is_static)) {
            if (found < room)
                list[found] = entry;
            found++;
        }
        text += is_static + used;
        text += *text == ';';
    }
    return found;
}

int sim_processes(int gpu, struct sim_process *list, int room)
{
    int hardware = sim_hardware(gpu);
    int found = parse_processes(stored(&inventory, "gpu.%d.processes", hardware), list, room, 0);
    return parse_processes(sim_fault("gpu.%d.processes", hardware), list, room, found);
}

static double memory_used(int gpu)
{
    struct sim_process list[64];
    int count = sim_processes(gpu, list, 64);
    const char *base = stored(&inventory, "gpu.%d.memory.used", sim_hardware(gpu));
    double used = base ? atof(base) : 0;
    for (int i = 0; i < count && i < 64; i++)
        used += list[i].mib;
    return used;
}

static int computed(int gpu, const char *name, char text[SIM_TEXT])
{
    int hardware = sim_hardware(gpu);
    const char *total = stored(&inventory, "gpu.%d.memory.total", hardware);
    const char *reserved = stored(&inventory, "gpu.%d.memory.reserved", hardware);
    if (!strcmp(name, "index") || !strcmp(name, "minor_number"))
        snprintf(text, SIM_TEXT, "%d", gpu);
    else if (!strcmp(name, "count"))
        snprintf(text, SIM_TEXT, "%d", visible_count);
    else if (!strcmp(name, "driver_version"))
        snprintf(text, SIM_TEXT, "%s", *loaded ? loaded : sim_host("driver_version"));
    else if (!strcmp(name, "memory.used") && total)
        snprintf(text, SIM_TEXT, "%.6f", memory_used(gpu));
    else if (!strcmp(name, "memory.free") && total)
        snprintf(text, SIM_TEXT, "%.6f", atof(total) - (reserved ? atof(reserved) : 0) - memory_used(gpu));
    else
        return 0;
    return 1;
}

int sim_field(int gpu, const char *name, char text[SIM_TEXT])
{
    int hardware = sim_hardware(gpu);
    if (listed(sim_fault("gpu.%d.error_fields", hardware), name))
        return SIM_UNKNOWN;
    if (listed(sim_fault("gpu.%d.missing_fields", hardware), name))
        return SIM_NOT_SUPPORTED;
    if (computed(gpu, name, text))
        return SIM_OK;
    const char *value = stored(&faults, "gpu.%d.set.%s", hardware, name);
    const char *uuid = stored(&inventory, "gpu.%d.uuid", hardware);
    if (!value)
        value = stored(&state, "%s.%s", uuid ? uuid : "", name);
    if (!value && !strcmp(name, "enforced.power.limit"))
        return sim_field(gpu, "power.limit", text);
    if (!value)
        value = stored(&inventory, "gpu.%d.%s", hardware, name);
    if (!value || !*value)
        return SIM_NOT_SUPPORTED;
    snprintf(text, SIM_TEXT, "%s", value);
    return SIM_OK;
}

int sim_number(int gpu, const char *name, double *value)
{
    char text[SIM_TEXT], *end;
    int code = sim_field(gpu, name, text);
    if (code)
        return code;
    *value = strtod(text, &end);
    return end == text ? SIM_NOT_SUPPORTED : SIM_OK;
}

int sim_flag(int gpu, const char *name, unsigned *value)
{
    char text[SIM_TEXT];
    int code = sim_field(gpu, name, text);
    if (code)
        return code;
    *value = !strcmp(text, "Enabled") || !strcmp(text, "On") || !strcmp(text, "Yes") || !strcmp(text, "1");
    return SIM_OK;
}

const char *sim_pair(int a, int b, const char *key)
{
    int one = sim_hardware(a), two = sim_hardware(b);
    const char *fault = stored(&faults, "pair.%d.%d.%s", one < two ? one : two, one < two ? two : one, key);
    if (fault)
        return fault;
    return stored(&inventory, "pair.%d.%d.%s", one < two ? one : two, one < two ? two : one, key);
}

const char *sim_nvlink(int gpu, unsigned link, const char *key)
{
    const char *fault = stored(&faults, "gpu.%d.nvlink.%u.%s", sim_hardware(gpu), link, key);
    return fault ? fault : stored(&inventory, "gpu.%d.nvlink.%u.%s", sim_hardware(gpu), link, key);
}

/* Replaces one line of the state file under a lock, through a rename so that readers never see half a file. */
static int remember(int gpu, const char *name, const char *value)
{
    char directory[4096], path[4096], lock[4200], temporary[4200], key[SIM_TEXT * 2], line[SIM_TEXT * 2], uuid[SIM_TEXT];
    if (sim_field(gpu, "uuid", uuid))
        return SIM_NOT_SUPPORTED;
    mkdir(sim_path("/run/qwen-sim", directory), 0755);
    sim_path("/run/qwen-sim/state", path);
    snprintf(lock, sizeof lock, "%s.lock", path);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    snprintf(key, sizeof key, "%s.%s=", uuid, name);
    int guard = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (guard < 0)
        return SIM_OPERATING_SYSTEM;
    flock(guard, LOCK_EX);
    FILE *in = fopen(path, "r"), *out = fopen(temporary, "w");
    while (in && out && fgets(line, sizeof line, in))
        if (strncmp(line, key, strlen(key)) != 0)
            fputs(line, out);
    if (in)
        fclose(in);
    if (out) {
        fprintf(out, "%s%s\n", key, value);
        fclose(out);
        rename(temporary, path);
    }
    close(guard);
    return out ? SIM_OK : SIM_OPERATING_SYSTEM;
}

int sim_set_power_limit(int gpu, double watts, double *before)
{
    double low, high;
    const char *refused = sim_fault("power_set");
    int code = sim_number(gpu, "power.limit", before);
    if (code)
        return code;
    if (sim_number(gpu, "power.min_limit", &low) || sim_number(gpu, "power.max_limit", &high))
        return SIM_NOT_SUPPORTED;
    if (refused)
        return atoi(refused);
    if (geteuid() != 0)
        return SIM_NO_PERMISSION;
    if (watts < low || watts > high)
        return SIM_INVALID_ARGUMENT;
    char text[64];
    snprintf(text, sizeof text, "%.2f", watts);
    return remember(gpu, "power.limit", text);
}

int sim_set_persistence(int gpu, unsigned on)
{
    unsigned now;
    int code = sim_flag(gpu, "persistence_mode", &now);
    const char *refused = sim_fault("persistence_set");
    if (code)
        return code;
    if (refused)
        return atoi(refused);
    if (geteuid() != 0)
        return SIM_NO_PERMISSION;
    return remember(gpu, "persistence_mode", on ? "Enabled" : "Disabled");
}
