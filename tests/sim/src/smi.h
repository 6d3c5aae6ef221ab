/* nvidia-smi's output forms, each over the same fields as the NVML library. */
#ifndef QWEN_SIM_SMI_H
#define QWEN_SIM_SMI_H

#include "sim.h"

struct selection {
    int gpus[SIM_MAX_GPUS];
    int count;
};

/* A field as nvidia-smi writes it: watts with two places, MiB rounded; `unit` is appended unless it is N/A. */
int show(int gpu, const char *name, const char *unit, char text[SIM_TEXT]);

int smi_table(const struct selection *chosen);
int smi_list(const struct selection *chosen);
int smi_xml(const struct selection *chosen);
int smi_query_gpu(const struct selection *chosen, const char *fields, const char *format);
int smi_query_apps(const struct selection *chosen, const char *fields, const char *format);
int smi_topology(void);
int smi_peers(const char *capability);
void timestamp(const char *format, char text[64]);

#endif
