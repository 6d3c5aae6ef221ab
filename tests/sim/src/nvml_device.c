/* What one card is and does: identity, PCI, memory, modes, sensors. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A field that is a plain text or a plain number needs nothing but its name. */
#define TEXT(function, field) \
    API nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned size) \
    { \
        ENTER_DEVICE(device); \
        return copy_field(gpu, field, text, size); \
    }
#define NUMBER(function, field, scale) \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *value) \
    { \
        ENTER_DEVICE(device); \
        return copy_unsigned(gpu, field, scale, value); \
    }
#define FLAG(function, field) \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *value) \
    { \
        ENTER_DEVICE(device); \
        return copy_flag(gpu, field, value); \
    }
#define CURRENT_AND_PENDING(function, current_field, pending_field) \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *current, unsigned *pending) \
    { \
        ENTER_DEVICE(device); \
        TRY(copy_flag(gpu, current_field, current)); \
        return copy_flag(gpu, pending_field, pending); \
    }

TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios_version")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
NUMBER(nvmlDeviceGetMinorNumber, "minor_number", 1)
NUMBER(nvmlDeviceGetModuleId, "module_id", 1)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.link.gen.current", 1)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.link.gen.max", 1)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.link.gen.gpumax", 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.link.width.current", 1)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.link.width.max", 1)
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replay_counter", 1)
NUMBER(nvmlDeviceGetPcieSpeed, "pcie.link.speed", 1)
NUMBER(nvmlDeviceGetMemoryBusWidth, "memory.bus_width", 1)
NUMBER(nvmlDeviceGetNumGpuCores, "cores", 1)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power.limit", 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "enforced.power.limit", 1000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power.default_limit", 1000)
NUMBER(nvmlDeviceGetPowerUsage, "power.draw", 1000)
NUMBER(nvmlDeviceGetFanSpeed, "fan.speed", 1)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig.max_devices", 1)
FLAG(nvmlDeviceGetPersistenceMode, "persistence_mode")
FLAG(nvmlDeviceGetDisplayActive, "display_active")
FLAG(nvmlDeviceGetDisplayMode, "display_attached")
FLAG(nvmlDeviceGetMultiGpuBoard, "multigpu_board")
CURRENT_AND_PENDING(nvmlDeviceGetEccMode, "ecc.mode.current", "ecc.mode.pending")
CURRENT_AND_PENDING(nvmlDeviceGetMigMode, "mig.mode.current", "mig.mode.pending")

static nvmlReturn_t name_in(int gpu, const char *field, const char *const *names, unsigned *value)
{
    char text[SIM_TEXT];
    TRY(sim_field(gpu, field, text));
    for (unsigned i = 0; names[i]; i++)
        if (!strcasecmp(names[i], text)) {
            *value = i;
            return SIM_OK;
        }
    return SIM_UNKNOWN;
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size)
{
    ENTER_DEVICE(device);
    char text[SIM_TEXT], profile[SIM_TEXT], both[SIM_TEXT * 2 + 8];
    TRY(sim_field(gpu, "name", text));
    if (mig < 0)
        return copy_text(text, name, size);
    TRY(slice_field(gpu, mig, "profile", profile));
    snprintf(both, sizeof both, "%s MIG %s", text, profile);
    return copy_text(both, name, size);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size)
{
    ENTER_DEVICE(device);
    char text[SIM_TEXT];
    TRY(mig < 0 ? sim_field(gpu, "uuid", text) : slice_field(gpu, mig, "uuid", text));
    return copy_text(text, uuid, size);
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    ENTER_DEVICE(device);
    *index = (unsigned)(mig < 0 ? gpu : mig);
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand)
{
    static const struct {
        const char *name;
        unsigned value;
    } brands[] = {{"Quadro", 1}, {"Tesla", 2}, {"GeForce", 5}, {"Titan", 6}, {"Quadro RTX", 12}, {"NVIDIA RTX", 13}, {"NVIDIA", 14}};
    ENTER_DEVICE(device);
    char text[SIM_TEXT];
    TRY(sim_field(gpu, "product_brand", text));
    *brand = 0;
    for (size_t i = 0; i < sizeof brands / sizeof *brands; i++)
        if (!strcmp(brands[i].name, text))
            *brand = brands[i].value;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture)
{
    static const char *const names[] = {"", "", "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere",
                                        "Ada Lovelace", "Hopper", "Blackwell", NULL};
    ENTER_DEVICE(device);
    return name_in(gpu, "product_architecture", names, architecture);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    ENTER_DEVICE(device);
    char text[SIM_TEXT];
    TRY(sim_field(gpu, "compute_cap", text));
    return sscanf(text, "%d.%d", major, minor) == 2 ? SIM_OK : SIM_NOT_SUPPORTED;
}

static nvmlReturn_t pci_numbers(int gpu, unsigned numbers[5], char bus_id[32])
{
    char text[SIM_TEXT];
    TRY(sim_field(gpu, "pci.bus_id", text));
    snprintf(bus_id, 32, "%.31s", text);
    if (sscanf(text, "%x:%x:%x", numbers, numbers + 1, numbers + 2) != 3)
        return SIM_UNKNOWN;
    TRY(sim_field(gpu, "pci.device_id", text));
    numbers[3] = (unsigned)strtoul(text, NULL, 16);
    numbers[4] = sim_field(gpu, "pci.sub_device_id", text) ? 0 : (unsigned)strtoul(text, NULL, 16);
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTER_DEVICE(device);
    unsigned n[5];
    memset(pci, 0, sizeof *pci);
    TRY(pci_numbers(gpu, n, pci->busId));
    pci->domain = n[0], pci->bus = n[1], pci->device = n[2], pci->pciDeviceId = n[3], pci->pciSubSystemId = n[4];
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", n[0] & 0xffff, n[1] & 0xff, n[2] & 0xff);
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
    ENTER_DEVICE(device);
    unsigned n[5], version = VERSIONED(nvmlPciInfoExt_t, 1);
    double base = 3, sub = 0;
    if (pci->version != version)
        return SIM_ARGUMENT_VERSION_MISMATCH;
    memset(pci, 0, sizeof *pci);
    TRY(pci_numbers(gpu, n, pci->busId));
    sim_number(gpu, "pci.baseClass", &base);
    sim_number(gpu, "pci.subClass", &sub);
    pci->version = version, pci->domain = n[0], pci->bus = n[1], pci->device = n[2];
    pci->pciDeviceId = n[3], pci->pciSubSystemId = n[4], pci->baseClass = (unsigned)base, pci->subClass = (unsigned)sub;
    return SIM_OK;
}

/* total, reserved, used in MiB of a card or of a MIG slice */
static nvmlReturn_t memory(int gpu, int mig, double mib[3])
{
    mib[1] = 0;
    if (mig >= 0) {
        TRY(slice_number(gpu, mig, "memory.total", mib));
        return slice_number(gpu, mig, "memory.used", mib + 2) ? (mib[2] = 0, SIM_OK) : SIM_OK;
    }
    TRY(sim_number(gpu, "memory.total", mib));
    sim_number(gpu, "memory.reserved", mib + 1);
    return sim_number(gpu, "memory.used", mib + 2);
}

/* The first form counts what the driver keeps as used; the second tells it apart. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    ENTER_DEVICE(device);
    double mib[3];
    TRY(memory(gpu, mig, mib));
    info->total = mib_bytes(mib[0]);
    info->used = mib_bytes(mib[1] + mib[2]);
    info->free = info->total - info->used;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    ENTER_DEVICE(device);
    double mib[3];
    if (info->version != VERSIONED(nvmlMemory_v2_t, 2))
        return SIM_ARGUMENT_VERSION_MISMATCH;
    TRY(memory(gpu, mig, mib));
    info->total = mib_bytes(mib[0]);
    info->reserved = mib_bytes(mib[1]);
    info->used = mib_bytes(mib[2]);
    info->free = info->total - info->reserved - info->used;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *info)
{
    ENTER_DEVICE(device);
    double total, used = 0;
    TRY(sim_number(gpu, "bar1.total", &total));
    sim_number(gpu, "bar1.used", &used);
    info->total = mib_bytes(total), info->used = mib_bytes(used), info->free = info->total - info->used;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    ENTER_DEVICE(device);
    TRY(copy_unsigned(gpu, "utilization.gpu", 1, &rates->gpu));
    return copy_unsigned(gpu, "utilization.memory", 1, &rates->memory);
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *degrees)
{
    ENTER_DEVICE(device);
    return sensor ? SIM_INVALID_ARGUMENT : copy_unsigned(gpu, "temperature.gpu", 1, degrees);
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    ENTER_DEVICE(device);
    double degrees;
    if (temperature->version != VERSIONED(nvmlTemperature_t, 1))
        return SIM_ARGUMENT_VERSION_MISMATCH;
    TRY(sim_number(gpu, "temperature.gpu", &degrees));
    temperature->temperature = (int)degrees;
    return SIM_OK;
}

static const char *const clock_names[] = {"gr", "sm", "mem", "video"};

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    ENTER_DEVICE(device);
    char key[64];
    if (type > 3)
        return SIM_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "clocks.current.%s", clock_names[type]);
    return copy_unsigned(gpu, key, 1, mhz);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    ENTER_DEVICE(device);
    char key[64];
    if (type > 3)
        return SIM_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "clocks.max.%s", clock_names[type]);
    return copy_unsigned(gpu, key, 1, mhz);
}

API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *state)
{
    ENTER_DEVICE(device);
    char text[SIM_TEXT];
    TRY(sim_field(gpu, "pstate", text));
    return sscanf(text, "P%u", state) == 1 ? SIM_OK : SIM_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode)
{
    static const char *const names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process", NULL};
    ENTER_DEVICE(device);
    return name_in(gpu, "compute_mode", names, mode);
}

API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *low, unsigned *high)
{
    ENTER_DEVICE(device);
    TRY(copy_unsigned(gpu, "power.min_limit", 1000, low));
    return copy_unsigned(gpu, "power.max_limit", 1000, high);
}

API nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned milliwatts)
{
    ENTER_DEVICE(device);
    double before;
    return sim_set_power_limit(gpu, milliwatts / 1000.0, &before);
}

API nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode)
{
    ENTER_DEVICE(device);
    return mode > 1 ? SIM_INVALID_ARGUMENT : sim_set_persistence(gpu, mode);
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter, unsigned long long *count)
{
    ENTER_DEVICE(device);
    double value;
    unsigned ecc;
    TRY(sim_flag(gpu, "ecc.mode.current", &ecc));
    if (!ecc)
        return SIM_NOT_SUPPORTED;
    TRY(sim_number(gpu, type ? (counter ? "ecc.errors.uncorrected.aggregate.total" : "ecc.errors.uncorrected.volatile.total")
                             : (counter ? "ecc.errors.corrected.aggregate.total" : "ecc.errors.corrected.volatile.total"),
                   &value));
    *count = (unsigned long long)value;
    return SIM_OK;
}

/* No size in this call: NVML asks for room of 64 bytes. */
API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    ENTER_DEVICE(device);
    return copy_field(gpu, "gsp_firmware_version", version, 64);
}
