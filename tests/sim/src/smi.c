/* nvidia-smi of the simulated machine: options, start-up failures, power limit and persistence. */
#define _GNU_SOURCE
#include "smi.h"

#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static void *library;

void timestamp(const char *format, char text[64])
{
    time_t now = time(NULL);
    strftime(text, 64, format, localtime(&now));
}

int show(int gpu, const char *name, const char *unit, char text[SIM_TEXT])
{
    char raw[SIM_TEXT];
    int code = sim_field(gpu, name, raw);
    if (code) {
        snprintf(text, SIM_TEXT, "%s", code == SIM_NOT_SUPPORTED ? "N/A" : sim_error_text(code));
        return code;
    }
    if (!strcmp(unit, " W"))
        snprintf(text, SIM_TEXT, "%.2f W", atof(raw));
    else if (!strcmp(unit, " MiB"))
        snprintf(text, SIM_TEXT, "%.0f MiB", floor(atof(raw) + 0.5));
    else
        snprintf(text, SIM_TEXT, "%s%s", raw, unit);
    return SIM_OK;
}

static int no_driver(int code)
{
    if (code == SIM_DRIVER_NOT_LOADED)
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
               "Make sure that the latest NVIDIA driver is installed and running.\n\n");
    else
        printf("Failed to initialize NVML: %s\n", sim_error_text(code));
    if (code == SIM_LIB_RM_VERSION_MISMATCH) {
        char version[80] = "";
        int (*ask)(char *, unsigned) = (int (*)(char *, unsigned))dlsym(library, "nvmlSystemGetNVMLVersion");
        if (ask && !ask(version, sizeof version)) {
            char *major = strchr(version, '.'), *build = major ? strchr(major + 1, '.') : NULL;
            char *patch = build ? strchr(build + 1, '.') : NULL;
            if (patch)
                *patch = 0;
            printf("NVML library version: %s\n", major ? major + 1 : version);
        }
    }
    return code < 256 ? code : 255;
}

/* The driver's answer comes through the installed library, as for every other program on the host. */
static int start(void)
{
    sim_refresh(NULL);
    const char *hang = sim_fault("smi.hang_s"), *text = sim_fault("smi.output"), *code = sim_fault("smi.exit_code");
    if (hang)
        sleep((unsigned)atoi(hang));
    if (text)
        printf("%s\n", text);
    if (code)
        return atoi(code);
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;
    if (!init) {
        printf("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. "
               "Please make sure that the NVIDIA Display Driver is properly installed and present in your system.\n"
               "Please also try adding directory that contains libnvidia-ml.so to your system PATH.\n");
        return SIM_LIBRARY_NOT_FOUND;
    }
    int refused = init();
    return refused ? no_driver(refused) : SIM_OK;
}

/* A card whose handle cannot be had ends every command, as the real tool does. */
static int check_handles(const struct selection *chosen)
{
    char bus_id[SIM_TEXT];
    for (int i = 0; i < chosen->count; i++) {
        int gpu = chosen->gpus[i], code = sim_gpu_status(gpu);
        const char *fault = sim_fault("function.nvmlDeviceGetHandleByIndex_v2.%d", sim_hardware(gpu));
        if (!code && fault)
            code = atoi(fault);
        if (!code)
            continue;
        sim_field(gpu, "pci.bus_id", bus_id);
        printf("Unable to determine the device handle for GPU%d: %s: %s%s\n", gpu, bus_id + 4, sim_error_text(code),
               code == SIM_GPU_IS_LOST ? ".  Reboot the system to recover this GPU" : "");
        return code < 256 ? code : 255;
    }
    return SIM_OK;
}

static int matches(int gpu, const char *word, size_t length)
{
    char text[SIM_TEXT], index[16];
    snprintf(index, sizeof index, "%d", gpu);
    if (strlen(index) == length && !strncmp(index, word, length))
        return 1;
    if (!sim_field(gpu, "uuid", text) && strlen(text) == length && !strncasecmp(text, word, length))
        return 1;
    if (sim_field(gpu, "pci.bus_id", text))
        return 0;
    const char *tail = strlen(text) >= length ? text + strlen(text) - length : text;
    return length >= 7 && !strncasecmp(tail, word, length);
}

static struct selection select_gpus(const char *words)
{
    struct selection chosen = {.count = 0};
    for (int gpu = 0; gpu < sim_count(); gpu++) {
        int wanted = !words;
        for (const char *word = words; word && *word;) {
            size_t length = strcspn(word, ",");
            wanted |= matches(gpu, word, length);
            word += length + (word[length] == ',');
        }
        if (wanted)
            chosen.gpus[chosen.count++] = gpu;
    }
    return chosen;
}

static int set_power(const struct selection *chosen, const char *argument)
{
    char bus_id[SIM_TEXT];
    double watts = atof(argument), before, low = 0, high = 0;
    for (int i = 0; i < chosen->count; i++) {
        int gpu = chosen->gpus[i];
        sim_field(gpu, "pci.bus_id", bus_id);
        int code = sim_set_power_limit(gpu, watts, &before);
        if (code == SIM_NOT_SUPPORTED) {
            printf("Changing power management limit is not supported for GPU: %s.\nTreating as warning and moving on.\n", bus_id);
        } else if (code == SIM_INVALID_ARGUMENT) {
            sim_number(gpu, "power.min_limit", &low);
            sim_number(gpu, "power.max_limit", &high);
            printf("Provided power limit %.2f W is not a valid power limit which should be between %.2f W and %.2f W for GPU %s\n"
                   "Terminating early due to previous error.\n", watts, low, high, bus_id);
            return code;
        } else if (code) {
            printf("Failed to set power management limit for GPU %s: %s\nTerminating early due to previous error.\n", bus_id,
                   sim_error_text(code));
            return code < 256 ? code : 255;
        } else {
            printf("Power limit for GPU %s was set to %.2f W from %.2f W.\n", bus_id, watts, before);
        }
    }
    printf("All done.\n");
    return SIM_OK;
}

static int set_persistence(const struct selection *chosen, const char *argument)
{
    char bus_id[SIM_TEXT];
    unsigned on = !strcmp(argument, "1") || !strcasecmp(argument, "ENABLED"), before = 0;
    for (int i = 0; i < chosen->count; i++) {
        int gpu = chosen->gpus[i];
        sim_field(gpu, "pci.bus_id", bus_id);
        sim_flag(gpu, "persistence_mode", &before);
        int code = before == on ? SIM_OK : sim_set_persistence(gpu, on);
        if (code) {
            printf("Unable to set persistence mode for GPU %s: %s\nTerminating early due to previous error.\n", bus_id,
                   sim_error_text(code));
            return code < 256 ? code : 255;
        }
        if (before == on)
            printf("Persistence mode is already %s for GPU %s.\n", on ? "Enabled" : "Disabled", bus_id);
        else
            printf("%s persistence mode for GPU %s.\n", on ? "Enabled" : "Disabled", bus_id);
    }
    printf("All done.\n");
    return SIM_OK;
}

static int invalid(const char *word)
{
    printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
    fprintf(stderr, "nvidia-smi: the simulator does not know %s\n", word);
    return 1;
}

static int topology(int argc, char **argv)
{
    if (argc > 2 && (!strcmp(argv[2], "-m") || !strcmp(argv[2], "--matrix")))
        return smi_topology();
    if (argc > 3 && (!strcmp(argv[2], "-p2p") || !strcmp(argv[2], "--p2p_status")))
        return smi_peers(argv[3]);
    return invalid("this topo command");
}

struct request {
    const char *ids, *fields, *apps, *format, *power, *persistence;
    int list, query, xml, version;
};

static int read_options(int argc, char **argv, struct request *wanted)
{
    static const struct option options[] = {
        {"id", 1, 0, 'i'}, {"list-gpus", 0, 0, 'L'}, {"query", 0, 0, 'q'}, {"xml-format", 0, 0, 'x'},
        {"query-gpu", 1, 0, 'Q'}, {"query-compute-apps", 1, 0, 'A'}, {"format", 1, 0, 'F'},
        {"power-limit", 1, 0, 'P'}, {"persistence-mode", 1, 0, 'M'}, {"pl", 1, 0, 'P'}, {"pm", 1, 0, 'M'},
        {"version", 0, 0, 'V'}, {0}};
    int letter;
    opterr = 0;
    /* "-pl" and "-pm" are words with one dash, hence the _only form */
    while ((letter = getopt_long_only(argc, argv, "i:Lqx", options, NULL)) != -1) {
        switch (letter) {
        case 'i': wanted->ids = optarg; break;
        case 'L': wanted->list = 1; break;
        case 'q': wanted->query = 1; break;
        case 'x': wanted->xml = 1; break;
        case 'Q': wanted->fields = optarg; break;
        case 'A': wanted->apps = optarg; break;
        case 'F': wanted->format = optarg; break;
        case 'P': wanted->power = optarg; break;
        case 'M': wanted->persistence = optarg; break;
        case 'V': wanted->version = 1; break;
        default: return 1;
        }
    }
    return optind < argc;
}

static int show_version(void)
{
    char nvml[80] = "";
    int (*ask)(char *, unsigned) = (int (*)(char *, unsigned))dlsym(library, "nvmlSystemGetNVMLVersion");
    if (ask)
        ask(nvml, sizeof nvml);
    char *build = strchr(nvml, '.');
    printf("NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %s\n",
           build ? build + 1 : nvml, build ? build + 1 : nvml,
           sim_loaded_version() ? sim_loaded_version() : sim_host("driver_version"), sim_host("cuda"));
    return SIM_OK;
}

int main(int argc, char **argv)
{
    struct request wanted = {.format = NULL};
    int is_topology = argc > 1 && !strcmp(argv[1], "topo");
    if (!is_topology && read_options(argc, argv, &wanted))
        return invalid("one of these options");
    int code = start();
    if (code || sim_fault("smi.output"))
        return code;
    if (wanted.version)
        return show_version();
    struct selection chosen = select_gpus(wanted.ids);
    if (!chosen.count) {
        printf("No devices were found\n");
        return SIM_NOT_FOUND;
    }
    if ((code = check_handles(&chosen)))
        return code;
    if (is_topology)
        return topology(argc, argv);
    if (wanted.power)
        return set_power(&chosen, wanted.power);
    if (wanted.persistence)
        return set_persistence(&chosen, wanted.persistence);
    if (wanted.list)
        return smi_list(&chosen);
    if (wanted.fields)
        return smi_query_gpu(&chosen, wanted.fields, wanted.format);
    if (wanted.apps)
        return smi_query_apps(&chosen, wanted.apps, wanted.format);
    if (wanted.query && wanted.xml)
        return smi_xml(&chosen);
    return wanted.query || wanted.xml ? invalid("-q without -x") : smi_table(&chosen);
}
