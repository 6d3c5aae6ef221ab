/* What lies between cards: common ancestor, peer status, NVLink, fabric, affinity. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINKS = 18 };

static int code_of(const char *name, const char *const *names, const int *codes)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name))
            return codes[i];
    return -1;
}

static int ancestor(int a, int b)
{
    static const char *const names[] = {"PIX", "PXB", "PHB", "NODE", "SYS", NULL};
    static const int codes[] = {10, 20, 30, 40, 50};
    const char *name = a == b ? NULL : sim_pair(a, b, "ancestor");
    return a == b ? 0 : name ? code_of(name, names, codes) : -1;
}

API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other_device, unsigned *level)
{
    ENTER_DEVICE(device);
    int other = 0, other_mig = -1;
    TRY(enter_device(__func__, other_device, &other, &other_mig));
    int code = ancestor(gpu, other);
    if (code < 0)
        return SIM_NOT_SUPPORTED;
    *level = (unsigned)code;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned level, unsigned *count, nvmlDevice_t *list)
{
    ENTER_DEVICE(device);
    unsigned found = 0;
    for (int other = 0; other < sim_count(); other++) {
        int code = ancestor(gpu, other);
        if (other == gpu || code < 0 || (unsigned)code > level)
            continue;
        if (list && found < *count)
            list[found] = device_handle(other, -1);
        found++;
    }
    *count = found;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other_device, unsigned index, unsigned *status)
{
    static const char *const kinds[] = {"read", "write", "nvlink", "atomics", "prop"};
    static const char *const names[] = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U", NULL};
    static const int codes[] = {0, 1, 2, 3, 4, 5, 6};
    ENTER_DEVICE(device);
    int other = 0, other_mig = -1;
    char key[16];
    TRY(enter_device(__func__, other_device, &other, &other_mig));
    if (index > 4 || gpu == other)
        return SIM_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "p2p.%s", kinds[index]);
    const char *name = sim_pair(gpu, other, key);
    if (!name)
        return SIM_NOT_SUPPORTED;
    *status = (unsigned)code_of(name, names, codes);
    return SIM_OK;
}

static nvmlReturn_t link_value(int gpu, unsigned link, const char *key, const char **value)
{
    double count;
    TRY(sim_number(gpu, "nvlink.count", &count));
    if (link >= MAX_LINKS || link >= (unsigned)count)
        return SIM_INVALID_ARGUMENT;
    *value = sim_nvlink(gpu, link, key);
    return *value ? SIM_OK : SIM_NOT_SUPPORTED;
}

static nvmlReturn_t link_number(int gpu, unsigned link, const char *key, unsigned *number)
{
    const char *value;
    TRY(link_value(gpu, link, key, &value));
    *number = (unsigned)strtoul(value, NULL, 0);
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active)
{
    ENTER_DEVICE(device);
    return link_number(gpu, link, "state", active);
}

API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *version)
{
    ENTER_DEVICE(device);
    return link_number(gpu, link, "version", version);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type)
{
    ENTER_DEVICE(device);
    return link_number(gpu, link, "remote_type", type);
}

/* 0 peer access, 1 and 3 system memory, 2 peer atomics, 4 SLI bridge, 5 capabilities valid */
API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned link, unsigned capability, unsigned *result)
{
    ENTER_DEVICE(device);
    unsigned active;
    TRY(link_number(gpu, link, "state", &active));
    if (capability > 5)
        return SIM_INVALID_ARGUMENT;
    *result = active && (capability == 0 || capability == 2 || capability == 5);
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, unsigned counter, unsigned long long *value)
{
    ENTER_DEVICE(device);
    const char *text;
    TRY(link_value(gpu, link, "state", &text));
    text = sim_nvlink(gpu, link, "errors");
    *value = text ? strtoull(text, NULL, 0) : 0;
    return counter > 4 ? SIM_INVALID_ARGUMENT : SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci)
{
    ENTER_DEVICE(device);
    const char *remote;
    unsigned active;
    TRY(link_number(gpu, link, "state", &active));
    if (!active)
        return SIM_NOT_SUPPORTED;
    TRY(link_value(gpu, link, "remote", &remote));
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "%s", remote);
    sscanf(remote, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

static nvmlReturn_t fabric(int gpu, unsigned char uuid[16], nvmlReturn_t *status, unsigned *clique, unsigned char *state)
{
    static const char *const names[] = {"Not Supported", "Not Started", "In Progress", "Completed", NULL};
    static const int codes[] = {0, 1, 2, 3};
    char text[SIM_TEXT];
    memset(uuid, 0, 16);
    *clique = 0, *status = SIM_OK, *state = 0;
    if (sim_field(gpu, "fabric.state", text) == SIM_OK) {
        int code = code_of(text, names, codes);
        *state = (unsigned char)(code < 0 ? 0 : code);
    }
    if (sim_field(gpu, "fabric.status", text) == SIM_OK && strcmp(text, "Success") != 0)
        *status = SIM_UNKNOWN;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    ENTER_DEVICE(device);
    return fabric(gpu, info->clusterUuid, &info->status, &info->cliqueId, &info->state);
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info)
{
    ENTER_DEVICE(device);
    if (info->version == VERSIONED(nvmlGpuFabricInfo_v3_t, 3))
        info->healthSummary = 0;
    else if (info->version != VERSIONED(nvmlGpuFabricInfo_v2_t, 2))
        return SIM_ARGUMENT_VERSION_MISMATCH;
    info->healthMask = 0;
    return fabric(gpu, info->clusterUuid, &info->status, &info->cliqueId, &info->state);
}

API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned count, unsigned long long *words)
{
    ENTER_DEVICE(device);
    char text[SIM_TEXT];
    TRY(sim_field(gpu, "cpu_affinity", text));
    return sim_cpu_mask(text, words, count);
}

API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned count, unsigned long long *words,
                                                     unsigned scope)
{
    return scope > 1 ? SIM_INVALID_ARGUMENT : nvmlDeviceGetCpuAffinity(device, count, words);
}

API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned count, unsigned long long *words, unsigned scope)
{
    ENTER_DEVICE(device);
    char text[SIM_TEXT];
    if (scope > 1)
        return SIM_INVALID_ARGUMENT;
    TRY(sim_field(gpu, "numa_affinity", text));
    return sim_cpu_mask(text, words, count);
}

API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node)
{
    ENTER_DEVICE(device);
    return copy_unsigned(gpu, "gpu_numa_id", 1, node);
}

/* The field identifiers that a topology reader asks for, each an existing value under another name. */
API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    static const struct {
        unsigned id;
        const char *field;
        double scale;
    } fields[] = {{91, "nvlink.count", 1},        {185, "power.draw", 1000},           {186, "power.draw", 1000},
                  {187, "power.min_limit", 1000}, {188, "power.max_limit", 1000},      {189, "power.default_limit", 1000},
                  {190, "power.limit", 1000},     {192, "power.limit", 1000},          {90, "nvlink.speed_mbps", 1}};
    ENTER_DEVICE(device);
    for (int i = 0; i < count; i++) {
        values[i].nvmlReturn = SIM_NOT_SUPPORTED;
        values[i].timestamp = values[i].latencyUsec = 0;
        values[i].valueType = 1;
        for (size_t known = 0; known < sizeof fields / sizeof *fields; known++)
            if (fields[known].id == values[i].fieldId)
                values[i].nvmlReturn = copy_unsigned(gpu, fields[known].field, fields[known].scale, &values[i].value.uiVal);
    }
    return SIM_OK;
}
