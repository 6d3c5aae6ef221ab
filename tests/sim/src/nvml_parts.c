/* What runs on a card, and the MIG instances that it is cut into. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t slice_field(int gpu, int mig, const char *name, char text[SIM_TEXT])
{
    char key[64];
    snprintf(key, sizeof key, "mig.%d.%s", mig, name);
    return sim_field(gpu, key, text);
}

nvmlReturn_t slice_number(int gpu, int mig, const char *name, double *value)
{
    char key[64];
    snprintf(key, sizeof key, "mig.%d.%s", mig, name);
    return sim_number(gpu, key, value);
}

static nvmlReturn_t processes(int gpu, char type, unsigned *count, nvmlProcessInfo_t *list)
{
    struct sim_process all[64];
    int found = sim_processes(gpu, all, 64);
    unsigned matching = 0;
    for (int i = 0; i < found && i < 64; i++) {
        if (all[i].type != type)
            continue;
        if (list && matching < *count)
            list[matching] = (nvmlProcessInfo_t){all[i].pid, mib_bytes(all[i].mib), 0xffffffffu, 0xffffffffu};
        matching++;
    }
    int enough = matching <= *count && (list || !matching);
    *count = matching;
    return enough ? SIM_OK : SIM_INSUFFICIENT_SIZE;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *list)
{
    ENTER_DEVICE(device);
    return processes(gpu, 'C', count, list);
}

API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *list)
{
    ENTER_DEVICE(device);
    return processes(gpu, 'G', count, list);
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    ENTER_DEVICE(device);
    *is_mig = mig >= 0;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *slice)
{
    ENTER_DEVICE(device);
    char text[SIM_TEXT];
    unsigned enabled;
    TRY(sim_flag(gpu, "mig.mode.current", &enabled));
    if (!enabled)
        return SIM_NOT_SUPPORTED;
    if (index > 7 || slice_field(gpu, (int)index, "uuid", text))
        return SIM_NOT_FOUND;
    *slice = device_handle(gpu, (int)index);
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t slice, nvmlDevice_t *device)
{
    ENTER_DEVICE(slice);
    *device = device_handle(gpu, -1);
    return mig < 0 ? SIM_INVALID_ARGUMENT : SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    ENTER_DEVICE(device);
    double value;
    TRY(mig < 0 ? SIM_INVALID_ARGUMENT : slice_number(gpu, mig, "gpu_instance", &value));
    *id = (unsigned)value;
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
    ENTER_DEVICE(device);
    *id = 0;
    return mig < 0 ? SIM_INVALID_ARGUMENT : SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    ENTER_DEVICE(device);
    double value;
    memset(attributes, 0, sizeof *attributes);
    TRY(mig < 0 ? SIM_NOT_SUPPORTED : slice_number(gpu, mig, "memory.total", &value));
    attributes->memorySizeMB = (unsigned long long)value;
    if (!slice_number(gpu, mig, "slices", &value))
        attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = (unsigned)value;
    return SIM_OK;
}
