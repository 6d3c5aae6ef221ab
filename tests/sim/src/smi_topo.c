/* `nvidia-smi topo -m` and `nvidia-smi topo -p2p r|w|n|a|p`. */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int nic_count(void)
{
    const char *count = sim_host("nic.count");
    return count ? atoi(count) : 0;
}

static const char *nic_link(const char *format, int nic, int other)
{
    char key[64];
    snprintf(key, sizeof key, format, nic, other);
    const char *label = sim_host(key);
    return label ? label : "SYS";
}

static void gpu_row(int gpu)
{
    char cpus[SIM_TEXT], node[SIM_TEXT], own[SIM_TEXT];
    printf("GPU%d\t", gpu);
    for (int other = 0; other < sim_count(); other++) {
        const char *lanes = sim_pair(gpu, other, "nvlink"), *ancestor = sim_pair(gpu, other, "ancestor");
        if (other == gpu)
            printf(" X \t");
        else if (lanes && atoi(lanes) > 0)
            printf("NV%s\t", lanes);
        else
            printf("%s\t", ancestor ? ancestor : "N/A");
    }
    for (int nic = 0; nic < nic_count(); nic++)
        printf("%s\t", nic_link("nic.%d.gpu.%d", nic, sim_hardware(gpu)));
    if (sim_field(gpu, "cpu_affinity", cpus))
        *cpus = 0;
    show(gpu, "numa_affinity", "", node);
    show(gpu, "gpu_numa_id", "", own);
    printf("%s\t%s\t\t%s\n", cpus, node, own);
}

static const char legend[] =
    "\nLegend:\n\n"
    "  X    = Self\n"
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
    "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node\n"
    "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)\n"
    "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)\n"
    "  PIX  = Connection traversing at most a single PCIe bridge\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n";

int smi_topology(void)
{
    int nics = nic_count();
    /* the real tool underlines the heading even in a pipe */
    printf("\t\033[4m");
    for (int gpu = 0; gpu < sim_count(); gpu++)
        printf("GPU%d\t", gpu);
    for (int nic = 0; nic < nics; nic++)
        printf("NIC%d\t", nic);
    printf("CPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n");
    for (int gpu = 0; gpu < sim_count(); gpu++)
        gpu_row(gpu);
    for (int nic = 0; nic < nics; nic++) {
        printf("NIC%d\t", nic);
        for (int gpu = 0; gpu < sim_count(); gpu++)
            printf("%s\t", nic_link("nic.%d.gpu.%d", nic, sim_hardware(gpu)));
        for (int other = 0; other < nics; other++)
            printf("%s\t", other == nic ? " X " : nic_link("nic.%d.nic.%d", nic < other ? nic : other, nic < other ? other : nic));
        printf("\t\t\n");
    }
    printf("%s", legend);
    for (int nic = 0; nic < nics; nic++) {
        char key[32];
        snprintf(key, sizeof key, "nic.%d.name", nic);
        printf("%s  NIC%d: %s\n%s", nic ? "" : "\nNIC Legend:\n\n", nic, sim_host(key), nic + 1 == nics ? "\n" : "");
    }
    return SIM_OK;
}

int smi_peers(const char *capability)
{
    static const struct {
        char letter;
        const char *key;
    } kinds[] = {{'r', "p2p.read"}, {'w', "p2p.write"}, {'n', "p2p.nvlink"}, {'a', "p2p.atomics"}, {'p', "p2p.prop"}};
    const char *key = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].letter == *capability && !capability[1])
            key = kinds[i].key;
    if (!key) {
        printf("Invalid argument for -p2p: %s\n", capability);
        return SIM_INVALID_ARGUMENT;
    }
    printf(" \t");
    for (int gpu = 0; gpu < sim_count(); gpu++)
        printf("GPU%d\t", gpu);
    for (int gpu = 0; gpu < sim_count(); gpu++) {
        printf("\n GPU%d\t", gpu);
        for (int other = 0; other < sim_count(); other++) {
            const char *status = sim_pair(gpu, other, key);
            printf("%s\t", other == gpu ? "X" : status ? status : "U");
        }
    }
    printf("\n\nLegend:\n\n"
           "  X    = Self\n"
           "  OK   = Status Ok\n"
           "  CNS  = Chipset not supported\n"
           "  GNS  = GPU not supported\n"
           "  TNS  = Topology not supported\n"
           "  NS   = Not supported\n"
           "  U    = Unknown\n");
    return SIM_OK;
}
