/* `nvidia-smi` (the layout of branch 570 and later) and `nvidia-smi -L`. */
#include "smi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char rule[] = "+-----------------------------------------+------------------------+----------------------+\n";
static const char wide[] = "+-----------------------------------------------------------------------------------------+\n";

/* A number without decimals and its unit; ERR! and N/A as the table prints them. */
static void cell(int gpu, const char *name, const char *unit, char text[32])
{
    double value;
    int code = sim_number(gpu, name, &value);
    if (code)
        snprintf(text, 32, "%s", code == SIM_NOT_SUPPORTED ? "N/A" : "ERR!");
    else
        snprintf(text, 32, "%.0f%s", !strcmp(unit, "MiB") ? floor(value + 0.5) : trunc(value), unit);
}

static void word(int gpu, const char *name, char text[SIM_TEXT])
{
    int code = sim_field(gpu, name, text);
    if (code)
        snprintf(text, SIM_TEXT, "%s", code == SIM_NOT_SUPPORTED ? "N/A" : "ERR!");
}

static const char *on_off(int gpu, const char *name)
{
    unsigned on;
    int code = sim_flag(gpu, name, &on);
    return code == SIM_NOT_SUPPORTED ? "N/A" : code ? "ERR!" : on ? "On" : "Off";
}

static void header(void)
{
    const char *version = sim_loaded_version() ? sim_loaded_version() : sim_host("driver_version"), *cuda = sim_host("cuda");
    printf("%s", wide);
    if (atoi(version) >= 610)
        printf("| NVIDIA-SMI %-23sKMD Version: %-14sCUDA UMD Version: %-9s|\n", version, version, cuda ? cuda : "N/A");
    else
        printf("| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|\n", version, version, cuda ? cuda : "N/A");
    printf("%s"
           "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
           "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
           "|                                         |                        |               MIG M. |\n"
           "|=========================================+========================+======================|\n", rule);
}

static void card(int gpu)
{
    char name[SIM_TEXT], bus_id[SIM_TEXT], state[SIM_TEXT], mode[SIM_TEXT], mig[SIM_TEXT];
    char fan[32], degrees[32], draw[32], limit[32], used[32], total[32], busy[32], errors[32];
    unsigned sliced = 0, corrects = 0;
    sim_flag(gpu, "mig.mode.current", &sliced);
    word(gpu, "name", name);
    word(gpu, "pci.bus_id", bus_id);
    word(gpu, "pstate", state);
    word(gpu, "compute_mode", mode);
    word(gpu, "mig.mode.current", mig);
    cell(gpu, "fan.speed", "%", fan);
    cell(gpu, "temperature.gpu", "C", degrees);
    cell(gpu, "power.draw", "W", draw);
    cell(gpu, "power.limit", "W", limit);
    cell(gpu, "memory.used", "MiB", used);
    cell(gpu, "memory.total", "MiB", total);
    cell(gpu, "utilization.gpu", "%", busy);
    cell(gpu, "ecc.errors.uncorrected.volatile.total", "", errors);
    int ecc = sim_flag(gpu, "ecc.mode.current", &corrects);
    const char *column = sliced ? "On" : ecc == SIM_NOT_SUPPORTED ? "N/A" : ecc ? "ERR!" : corrects ? errors : "Off";
    printf("| %3d  %-30.30s %-3s |   %16s %3s | %20s |\n", gpu, name, on_off(gpu, "persistence_mode"), bus_id,
           on_off(gpu, "display_active"), column);
    printf(strcmp(state, "ERR!") ? "|%4s  %4s    %-4s%14s / %5s |" : "|%4s  %4s %-7s%14s / %5s |", fan, degrees, state, draw, limit);
    printf(" %10s / %9s | %7s %12s |\n", used, total, sliced ? "N/A" : busy, !strcmp(mode, "Exclusive_Process") ? "E. Process" : mode);
    printf("|                                         |                        | %20s |\n%s", mig, rule);
}

static int slices(int gpu, int heading)
{
    char key[64], instance[SIM_TEXT];
    double total, used;
    int found = 0;
    for (int slice = 0; slice < 8; slice++) {
        snprintf(key, sizeof key, "mig.%d.memory.total", slice);
        if (sim_number(gpu, key, &total))
            break;
        snprintf(key, sizeof key, "mig.%d.memory.used", slice);
        if (sim_number(gpu, key, &used))
            used = 0;
        snprintf(key, sizeof key, "mig.%d.gpu_instance", slice);
        sim_field(gpu, key, instance);
        if (heading && !found)
            printf("\n%s"
                   "| MIG devices:                                                                            |\n"
                   "+------------------+----------------------------------+-----------+-----------------------+\n"
                   "| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |\n"
                   "|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |\n"
                   "|                  |                                  |        ECC|                       |\n"
                   "|==================+==================================+===========+=======================|\n", wide);
        printf("| %2d  %3s   0  %2d  |         %8.0fMiB / %5.0fMiB      | 14      0 |  1   0    1    0    0 |\n"
               "|                  |                0MiB /  8191MiB     |           |                       |\n"
               "+------------------+----------------------------------+-----------+-----------------------+\n",
               gpu, instance, slice, used, total);
        found++;
    }
    return found;
}

static void processes(const struct selection *chosen)
{
    struct sim_process list[64];
    char memory[32];
    int shown = 0;
    printf("\n%s"
           "| Processes:                                                                              |\n"
           "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
           "|        ID   ID                                                               Usage      |\n"
           "|=========================================================================================|\n", wide);
    for (int i = 0; i < chosen->count; i++) {
        int count = sim_processes(chosen->gpus[i], list, 64);
        for (int p = 0; p < count && p < 64; p++, shown++) {
            snprintf(memory, sizeof memory, "%.0fMiB", list[p].mib);
            printf("|%5d   N/A  N/A%16u%7c   %-36.36s%10s |\n", chosen->gpus[i], list[p].pid, list[p].type, list[p].name, memory);
        }
    }
    if (!shown)
        printf("|  No running processes found                                                             |\n");
    printf("%s", wide);
}

int smi_table(const struct selection *chosen)
{
    char now[64];
    int sliced = 0;
    timestamp("%a %b %e %H:%M:%S %Y", now);
    printf("%s       \n", now);
    header();
    for (int i = 0; i < chosen->count; i++)
        card(chosen->gpus[i]);
    for (int i = 0; i < chosen->count; i++)
        sliced += slices(chosen->gpus[i], !sliced);
    processes(chosen);
    return SIM_OK;
}

int smi_list(const struct selection *chosen)
{
    char name[SIM_TEXT], uuid[SIM_TEXT], key[64], profile[SIM_TEXT], slice_uuid[SIM_TEXT];
    for (int i = 0; i < chosen->count; i++) {
        int gpu = chosen->gpus[i];
        show(gpu, "name", "", name);
        show(gpu, "uuid", "", uuid);
        printf("GPU %d: %s (UUID: %s)\n", gpu, name, uuid);
        for (int slice = 0; slice < 8; slice++) {
            snprintf(key, sizeof key, "mig.%d.profile", slice);
            if (sim_field(gpu, key, profile))
                break;
            snprintf(key, sizeof key, "mig.%d.uuid", slice);
            show(gpu, key, "", slice_uuid);
            printf("  MIG %-10s  Device %2d: (UUID: %s)\n", profile, slice, slice_uuid);
        }
    }
    return SIM_OK;
}
