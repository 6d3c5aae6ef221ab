/* The simulated machine, read from text files, shared by the NVML library and nvidia-smi.
 *
 * Three files, each of lines `key=value` (see tests/sim/compiled.py for the keys):
 *   $QWEN_SIM_ROOT/etc/qwen-sim/inventory   the hardware, written from an inventory
 *   $QWEN_SIM_ROOT/etc/qwen-sim/faults      what is broken now; may change while a client runs
 *   $QWEN_SIM_ROOT/run/qwen-sim/state       what a client has set; gone after a boot, like the real driver's
 * The loaded kernel module is whatever $QWEN_SIM_ROOT/proc/driver/nvidia/version says.
 */
#ifndef QWEN_SIM_H
#define QWEN_SIM_H

#include <stddef.h>

enum { SIM_MAX_GPUS = 64, SIM_TEXT = 512 };

/* NVML return codes, by NVML's numbers. */
enum {
    SIM_OK = 0,
    SIM_UNINITIALIZED = 1,
    SIM_INVALID_ARGUMENT = 2,
    SIM_NOT_SUPPORTED = 3,
    SIM_NO_PERMISSION = 4,
    SIM_NOT_FOUND = 6,
    SIM_INSUFFICIENT_SIZE = 7,
    SIM_DRIVER_NOT_LOADED = 9,
    SIM_LIBRARY_NOT_FOUND = 12,
    SIM_FUNCTION_NOT_FOUND = 13,
    SIM_GPU_IS_LOST = 15,
    SIM_OPERATING_SYSTEM = 17,
    SIM_LIB_RM_VERSION_MISMATCH = 18,
    SIM_ARGUMENT_VERSION_MISMATCH = 25,
    SIM_UNKNOWN = 999,
};

struct sim_process {
    unsigned pid;
    char type; /* C compute, G graphics */
    double mib;
    char name[128];
};

/* Reads whatever changed on disk since the last call; SIM_OK, or why no driver answers. */
int sim_refresh(const char *library_version);

const char *sim_host(const char *key);                  /* host.<key>, NULL when absent */
const char *sim_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *sim_loaded_version(void);                   /* of the kernel module, NULL when none is loaded */

int sim_count(void);                                    /* cards that the loaded driver shows, in PCI bus order */
int sim_hardware(int gpu);                              /* the card's place in the inventory */
int sim_gpu_status(int gpu);                            /* SIM_OK, or the code of a lost card */

/* A field of a card under its `nvidia-smi --query-gpu` name. SIM_NOT_SUPPORTED: N/A; SIM_UNKNOWN: ERR!. */
int sim_field(int gpu, const char *name, char text[SIM_TEXT]);
int sim_number(int gpu, const char *name, double *value);
int sim_flag(int gpu, const char *name, unsigned *value); /* Enabled, On, Yes or Disabled, Off, No */

/* What lies between two cards: pair.<a>.<b>.<key>; NULL when the inventory does not say. */
const char *sim_pair(int a, int b, const char *key);
const char *sim_nvlink(int gpu, unsigned link, const char *key);

int sim_processes(int gpu, struct sim_process *list, int room); /* how many hold memory on the card */

int sim_set_power_limit(int gpu, double watts, double *before);
int sim_set_persistence(int gpu, unsigned on);

const char *sim_error_text(int code);
const char *sim_path(const char *path, char buffer[4096]);
int sim_cpu_mask(const char *list, unsigned long long *words, unsigned count);

#endif
