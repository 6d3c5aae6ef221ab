/* `--query-gpu=... --format=csv` and `--query-compute-apps=...`. */
#include "smi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* name as asked, the field behind it, the unit in heading and value */
static const struct column {
    const char *asked, *field, *unit;
} columns[] = {
    {"index", "index", ""},
    {"count", "count", ""},
    {"name", "name", ""},
    {"gpu_name", "name", ""},
    {"uuid", "uuid", ""},
    {"gpu_uuid", "uuid", ""},
    {"serial", "serial", ""},
    {"gpu_serial", "serial", ""},
    {"driver_version", "driver_version", ""},
    {"vbios_version", "vbios_version", ""},
    {"compute_cap", "compute_cap", ""},
    {"compute_mode", "compute_mode", ""},
    {"pci.bus_id", "pci.bus_id", ""},
    {"gpu_bus_id", "pci.bus_id", ""},
    {"pci.domain", "pci.domain", ""},
    {"pci.bus", "pci.bus", ""},
    {"pci.device", "pci.device", ""},
    {"pci.device_id", "pci.device_id", ""},
    {"pci.sub_device_id", "pci.sub_device_id", ""},
    {"pcie.link.gen.current", "pcie.link.gen.current", ""},
    {"pcie.link.gen.gpucurrent", "pcie.link.gen.gpucurrent", ""},
    {"pcie.link.gen.max", "pcie.link.gen.max", ""},
    {"pcie.link.gen.gpumax", "pcie.link.gen.gpumax", ""},
    {"pcie.link.gen.hostmax", "pcie.link.gen.hostmax", ""},
    {"pcie.link.width.current", "pcie.link.width.current", ""},
    {"pcie.link.width.max", "pcie.link.width.max", ""},
    {"display_attached", "display_attached", ""},
    {"display_active", "display_active", ""},
    {"persistence_mode", "persistence_mode", ""},
    {"addressing_mode", "addressing_mode", ""},
    {"fan.speed", "fan.speed", " %"},
    {"pstate", "pstate", ""},
    {"memory.total", "memory.total", " MiB"},
    {"memory.reserved", "memory.reserved", " MiB"},
    {"memory.used", "memory.used", " MiB"},
    {"memory.free", "memory.free", " MiB"},
    {"utilization.gpu", "utilization.gpu", " %"},
    {"utilization.memory", "utilization.memory", " %"},
    {"temperature.gpu", "temperature.gpu", ""},
    {"temperature.memory", "temperature.memory", ""},
    {"power.draw", "power.draw", " W"},
    {"power.draw.average", "power.draw.average", " W"},
    {"power.draw.instant", "power.draw.instant", " W"},
    {"power.limit", "power.limit", " W"},
    {"enforced.power.limit", "enforced.power.limit", " W"},
    {"power.default_limit", "power.default_limit", " W"},
    {"power.min_limit", "power.min_limit", " W"},
    {"power.max_limit", "power.max_limit", " W"},
    {"clocks.gr", "clocks.current.gr", " MHz"},
    {"clocks.current.graphics", "clocks.current.gr", " MHz"},
    {"clocks.sm", "clocks.current.sm", " MHz"},
    {"clocks.current.sm", "clocks.current.sm", " MHz"},
    {"clocks.mem", "clocks.current.mem", " MHz"},
    {"clocks.current.memory", "clocks.current.mem", " MHz"},
    {"clocks.video", "clocks.current.video", " MHz"},
    {"clocks.max.gr", "clocks.max.gr", " MHz"},
    {"clocks.max.graphics", "clocks.max.gr", " MHz"},
    {"clocks.max.sm", "clocks.max.sm", " MHz"},
    {"clocks.max.mem", "clocks.max.mem", " MHz"},
    {"clocks.max.memory", "clocks.max.mem", " MHz"},
    {"ecc.mode.current", "ecc.mode.current", ""},
    {"ecc.mode.pending", "ecc.mode.pending", ""},
    {"ecc.errors.uncorrected.volatile.total", "ecc.errors.uncorrected.volatile.total", ""},
    {"ecc.errors.corrected.volatile.total", "ecc.errors.corrected.volatile.total", ""},
    {"mig.mode.current", "mig.mode.current", ""},
    {"mig.mode.pending", "mig.mode.pending", ""},
    {"gsp.mode.current", "gsp.mode", ""},
    {"fabric.state", "fabric.state", ""},
    {"fabric.status", "fabric.status", ""},
    {"timestamp", NULL, ""},
};

struct options {
    int heading, units;
};

static struct options read_format(const char *format)
{
    return (struct options){!strstr(format, "noheader"), !strstr(format, "nounits")};
}

static const struct column *column_named(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strlen(columns[i].asked) == length && !strncmp(columns[i].asked, word, length))
            return columns + i;
    return NULL;
}

static int split(const char *words, const struct column **list, int room)
{
    int count = 0;
    while (*words && count < room) {
        words += strspn(words, " ");
        size_t length = strcspn(words, ",");
        list[count] = column_named(words, length);
        if (!list[count++]) {
            printf("Field \"%.*s\" is not a valid field to query.\n\n", (int)length, words);
            return -1;
        }
        words += length + (words[length] == ',');
    }
    return count;
}

static void value(int gpu, const struct column *column, struct options options)
{
    char text[SIM_TEXT];
    if (!column->field) {
        timestamp("%Y/%m/%d %H:%M:%S.000", text);
        printf("%s", text);
        return;
    }
    if (show(gpu, column->field, column->unit, text)) {
        printf("[%s]", text);
        return;
    }
    if (!options.units && *column->unit)
        text[strlen(text) - strlen(column->unit)] = 0;
    printf("%s", text);
}

static int needs_csv(const char *format)
{
    if (format && !strncmp(format, "csv", 3))
        return 0;
    printf("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n");
    return 1;
}

int smi_query_gpu(const struct selection *chosen, const char *fields, const char *format)
{
    const struct column *list[64];
    if (needs_csv(format))
        return SIM_INVALID_ARGUMENT;
    struct options options = read_format(format);
    int count = split(fields, list, 64);
    if (count < 0)
        return SIM_INVALID_ARGUMENT;
    for (int i = 0; options.heading && i < count; i++) {
        printf("%s%s", i ? ", " : "", list[i]->asked);
        if (*list[i]->unit) /* the heading keeps the unit under "nounits" */
            printf(" [%s]", list[i]->unit + 1);
    }
    if (options.heading)
        printf("\n");
    for (int card = 0; card < chosen->count; card++) {
        for (int i = 0; i < count; i++) {
            printf("%s", i ? ", " : "");
            value(chosen->gpus[card], list[i], options);
        }
        printf("\n");
    }
    return SIM_OK;
}

static void app_value(int gpu, const struct sim_process *process, const char *name, size_t length, struct options options)
{
    char text[SIM_TEXT];
    if (!strncmp(name, "pid", length))
        printf("%u", process->pid);
    else if (!strncmp(name, "process_name", length) || !strncmp(name, "name", length))
        printf("%s", process->name);
    else if (!strncmp(name, "used_memory", length) || !strncmp(name, "used_gpu_memory", length))
        printf(options.units ? "%.0f MiB" : "%.0f", process->mib);
    else {
        const struct column *column = column_named(name, length);
        show(gpu, column && column->field ? column->field : name, "", text);
        printf("%s", text);
    }
}

int smi_query_apps(const struct selection *chosen, const char *fields, const char *format)
{
    struct sim_process list[64];
    if (needs_csv(format))
        return SIM_INVALID_ARGUMENT;
    struct options options = read_format(format);
    for (const char *word = fields; options.heading && *word;) {
        size_t length = strcspn(word, ",");
        printf("%.*s%s%s", (int)length, word, !strncmp(word, "used", 4) ? " [MiB]" : "", word[length] ? ", " : "\n");
        word += length + (word[length] == ',');
    }
    for (int card = 0; card < chosen->count; card++) {
        int count = sim_processes(chosen->gpus[card], list, 64);
        for (int p = 0; p < count && p < 64; p++) {
            if (list[p].type != 'C')
                continue;
            for (const char *word = fields; *word;) {
                size_t length = strcspn(word, ",");
                app_value(chosen->gpus[card], list + p, word, length, options);
                printf("%s", word[length] ? ", " : "\n");
                word += length + (word[length] == ',');
            }
        }
    }
    return SIM_OK;
}
