/* The part of NVML's binary interface that the simulator serves, declared here from NVML's public documentation.
 * Layouts are proved against nvidia-ml-py's ctypes structures by tests/sim/test_nvml.py. */
#ifndef QWEN_SIM_NVML_H
#define QWEN_SIM_NVML_H

#include "sim.h"

typedef int nvmlReturn_t;
typedef struct device *nvmlDevice_t;

#define API __attribute__((visibility("default")))
#define VERSIONED(type, number) ((unsigned)(sizeof(type) | ((unsigned)(number) << 24)))

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlBAR1Memory_t;

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned version, sensor;
    int temperature;
} nvmlTemperature_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;

typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned char state;
    unsigned healthMask;
} nvmlGpuFabricInfo_v2_t;

typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned char state;
    unsigned healthMask;
    unsigned char healthSummary;
} nvmlGpuFabricInfo_v3_t;

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount;
    unsigned sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef union {
    double dVal;
    unsigned uiVal;
    unsigned long long ullVal;
} nvmlValue_t;

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

/* Entry points start with one of these: what is broken answers before the function does. */
nvmlReturn_t enter(const char *function);
nvmlReturn_t enter_device(const char *function, nvmlDevice_t device, int *gpu, int *mig);

#define ENTER() \
    do { \
        nvmlReturn_t entered_ = enter(__func__); \
        if (entered_) \
            return entered_; \
    } while (0)

#define ENTER_DEVICE(device) \
    int gpu = 0, mig = -1; \
    do { \
        nvmlReturn_t entered_ = enter_device(__func__, device, &gpu, &mig); \
        if (entered_) \
            return entered_; \
    } while (0); \
    (void)mig

#define TRY(expression) \
    do { \
        nvmlReturn_t tried_ = (expression); \
        if (tried_) \
            return tried_; \
    } while (0)

nvmlReturn_t copy_text(const char *text, char *out, unsigned size);
nvmlReturn_t copy_field(int gpu, const char *name, char *out, unsigned size);
nvmlReturn_t copy_unsigned(int gpu, const char *name, double scale, unsigned *out);
nvmlReturn_t copy_flag(int gpu, const char *name, unsigned *out);
nvmlReturn_t slice_field(int gpu, int mig, const char *name, char text[SIM_TEXT]);
nvmlReturn_t slice_number(int gpu, int mig, const char *name, double *value);
nvmlDevice_t device_handle(int gpu, int mig);
unsigned long long mib_bytes(double mib);

#endif
