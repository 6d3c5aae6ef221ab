/* A libcuda.so.1 for the peer test: two cards in host memory. FAKE_CUDA makes it hang, corrupt, refuse or fail. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int status;
static int is(const char *word) {
    const char *mode = getenv("FAKE_CUDA");
    return mode && !strcmp(mode, word);
}
static int contexts[2];
static int peers_enabled;

status cuInit(unsigned flags) { return flags || is("no-driver") ? 100 : 0; }
status cuGetErrorName(status error, const char **name) {
    *name = error == 100 ? "CUDA_ERROR_NO_DEVICE" : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
status cuDeviceGetCount(int *count) { *count = 2; return 0; }
status cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, 0, 16);
    uuid[15] = (unsigned char)(device + 1);
    return 0;
}
status cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
status cuDeviceCanAccessPeer(int *answer, int device, int peer) {
    (void)device; (void)peer;
    *answer = !is("refuse");
    return 0;
}
status cuDevicePrimaryCtxRetain(void **context, int device) { *context = &contexts[device]; return 0; }
status cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
status cuCtxEnablePeerAccess(void *context, unsigned flags) {
    (void)context; (void)flags;
    peers_enabled++;
    return is("fail") ? 999 : 0;
}
status cuMemAlloc_v2(uint64_t *pointer, size_t size) {
    *pointer = is("full") ? 0 : (uint64_t)(uintptr_t)malloc(size);
    return *pointer ? 0 : 2;
}
status cuMemsetD32_v2(uint64_t pointer, unsigned value, size_t count) {
    memset((void *)(uintptr_t)pointer, (int)value, 4 * count);
    return 0;
}
status cuMemcpyHtoD_v2(uint64_t into, const void *from, size_t size) {
    memcpy((void *)(uintptr_t)into, from, size);
    return 0;
}
status cuMemcpyDtoH_v2(void *into, uint64_t from, size_t size) {
    memcpy(into, (void *)(uintptr_t)from, size);
    return 0;
}
status cuModuleLoadData(void **module, const char *image) {
    static int loaded;
    *module = &loaded;
    return strstr(image, ".entry pull") && strstr(image, ".target sm_75\n") ? 0 : 218;
}
status cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "pull") ? 500 : 0;
}
status cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **parameters, void **extra) {
    (void)f; (void)gy; (void)gz; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
    uint64_t into = *(uint64_t *)parameters[0], from = *(uint64_t *)parameters[1];
    uint32_t count = *(uint32_t *)parameters[2];
    if (peers_enabled < 2 || (uint64_t)gx * bx < count) return 700;
    memcpy((void *)(uintptr_t)into, (void *)(uintptr_t)from, 4 * (size_t)count);
    if (is("corrupt")) ((unsigned char *)(uintptr_t)into)[4 * (size_t)count - 7] ^= 1;
    return 0;
}
status cuCtxSynchronize(void) {
    if (is("hang")) pause();
    if (is("crash")) abort();
    return 0;
}
