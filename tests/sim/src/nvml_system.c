/* Start, stop, versions and handles. */
#define _GNU_SOURCE
#include "nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct device {
    int mig; /* -1: the whole card */
};

enum { SLICES = 8 };
static struct device cards[SIM_MAX_GPUS][SLICES + 1];
static int initialised;

/* As in the real driver, the library's version is in its file name: libnvidia-ml.so.580.126.09. */
static const char *library_version(void)
{
    static char version[64];
    char real[PATH_MAX];
    Dl_info here;
    const char *stated = sim_host("library_version"), *name;
    if (dladdr((void *)library_version, &here) && realpath(here.dli_fname, real) &&
        (name = strstr(real, "libnvidia-ml.so.")) && isdigit((unsigned char)name[16]) && strchr(name + 16, '.'))
        snprintf(version, sizeof version, "%s", name + 16);
    else
        snprintf(version, sizeof version, "%s", stated ? stated : "");
    return version;
}

static nvmlReturn_t start(void)
{
    sim_refresh(NULL);
    nvmlReturn_t code = sim_refresh(library_version());
    if (code == SIM_OK)
        __atomic_add_fetch(&initialised, 1, __ATOMIC_SEQ_CST);
    return code;
}

nvmlReturn_t enter(const char *function)
{
    if (!__atomic_load_n(&initialised, __ATOMIC_SEQ_CST))
        return SIM_UNINITIALIZED;
    sim_refresh(NULL);
    const char *fault = sim_fault("function.%s", function);
    return fault ? atoi(fault) : SIM_OK;
}

nvmlReturn_t enter_device(const char *function, nvmlDevice_t device, int *gpu, int *mig)
{
    TRY(enter(function));
    ptrdiff_t place = (char *)device - (char *)cards;
    if (place < 0 || place >= (ptrdiff_t)sizeof cards)
        return SIM_INVALID_ARGUMENT;
    *gpu = (int)(place / (ptrdiff_t)sizeof cards[0]);
    *mig = (int)(place % (ptrdiff_t)sizeof cards[0] / (ptrdiff_t)sizeof cards[0][0]) - 1;
    if (sim_hardware(*gpu) < 0)
        return SIM_INVALID_ARGUMENT;
    TRY(sim_gpu_status(*gpu));
    const char *fault = sim_fault("function.%s.%d", function, sim_hardware(*gpu));
    return fault ? atoi(fault) : SIM_OK;
}

nvmlDevice_t device_handle(int gpu, int mig)
{
    return &cards[gpu][mig + 1];
}

nvmlReturn_t copy_text(const char *text, char *out, unsigned size)
{
    if (!out)
        return SIM_INVALID_ARGUMENT;
    if (strlen(text) + 1 > size)
        return SIM_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SIM_OK;
}

nvmlReturn_t copy_field(int gpu, const char *name, char *out, unsigned size)
{
    char text[SIM_TEXT];
    TRY(sim_field(gpu, name, text));
    return copy_text(text, out, size);
}

nvmlReturn_t copy_unsigned(int gpu, const char *name, double scale, unsigned *out)
{
    double value;
    TRY(sim_number(gpu, name, &value));
    *out = (unsigned)(value * scale + 0.5);
    return SIM_OK;
}

nvmlReturn_t copy_flag(int gpu, const char *name, unsigned *out)
{
    return sim_flag(gpu, name, out);
}

unsigned long long mib_bytes(double mib)
{
    return (unsigned long long)(mib * 1048576.0 + 0.5);
}

API nvmlReturn_t nvmlInit_v2(void)
{
    return start();
}

API nvmlReturn_t nvmlInit(void)
{
    return start();
}

API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return start();
}

API nvmlReturn_t nvmlShutdown(void)
{
    if (!__atomic_load_n(&initialised, __ATOMIC_SEQ_CST))
        return SIM_UNINITIALIZED;
    __atomic_sub_fetch(&initialised, 1, __ATOMIC_SEQ_CST);
    return SIM_OK;
}

API const char *nvmlErrorString(nvmlReturn_t code)
{
    return sim_error_text(code);
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    ENTER();
    const char *text = sim_loaded_version() ? sim_loaded_version() : sim_host("driver_version");
    return text ? copy_text(text, version, size) : SIM_UNKNOWN;
}

/* NVML's own version is the CUDA major version and the library's: 13.580.159.04. Answers before nvmlInit too. */
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    char text[160];
    sim_refresh(NULL);
    const char *cuda = sim_host("cuda_version"), *library = library_version(), *stated = sim_host("driver_version");
    snprintf(text, sizeof text, "%s.%s", cuda && strlen(cuda) > 2 ? (char[]){cuda[0], cuda[1], 0} : "13",
             *library ? library : stated ? stated : "0");
    return copy_text(text, version, size);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER();
    const char *cuda = sim_host("cuda_version");
    if (!cuda)
        return SIM_LIBRARY_NOT_FOUND;
    *version = atoi(cuda);
    return SIM_OK;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    ENTER();
    struct sim_process list[64];
    for (int gpu = 0; gpu < sim_count(); gpu++) {
        int count = sim_processes(gpu, list, 64);
        for (int i = 0; i < count && i < 64; i++)
            if (list[i].pid == pid)
                return copy_text(list[i].name, name, size);
    }
    return SIM_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER();
    *count = (unsigned)sim_count();
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    ENTER();
    if (index >= (unsigned)sim_count())
        return SIM_INVALID_ARGUMENT;
    const char *fault = sim_fault("function.%s.%d", __func__, sim_hardware((int)index));
    if (fault)
        return atoi(fault);
    TRY(sim_gpu_status((int)index));
    *device = device_handle((int)index, -1);
    return SIM_OK;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    ENTER();
    char text[SIM_TEXT], key[32];
    for (int gpu = 0; gpu < sim_count(); gpu++) {
        if (!sim_field(gpu, "uuid", text) && !strcmp(text, uuid)) {
            TRY(sim_gpu_status(gpu));
            *device = device_handle(gpu, -1);
            return SIM_OK;
        }
        for (int slice = 0; slice < SLICES; slice++) {
            snprintf(key, sizeof key, "mig.%d.uuid", slice);
            if (!sim_field(gpu, key, text) && !strcmp(text, uuid)) {
                *device = device_handle(gpu, slice);
                return SIM_OK;
            }
        }
    }
    return SIM_NOT_FOUND;
}

/* Accepts 0000:01:00.0, 00000000:01:00.0 and 01:00.0, in either case. */
static int same_bus_id(const char *one, const char *two)
{
    unsigned a[4] = {0}, b[4] = {0};
    if (sscanf(one, "%x:%x:%x.%x", a, a + 1, a + 2, a + 3) < 3)
        a[0] = 0, sscanf(one, "%x:%x.%x", a + 1, a + 2, a + 3);
    if (sscanf(two, "%x:%x:%x.%x", b, b + 1, b + 2, b + 3) < 3)
        b[0] = 0, sscanf(two, "%x:%x.%x", b + 1, b + 2, b + 3);
    return !memcmp(a, b, sizeof a);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    ENTER();
    char text[SIM_TEXT];
    for (int gpu = 0; gpu < sim_count(); gpu++)
        if (!sim_field(gpu, "pci.bus_id", text) && same_bus_id(text, bus_id)) {
            TRY(sim_gpu_status(gpu));
            *device = device_handle(gpu, -1);
            return SIM_OK;
        }
    return SIM_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}
