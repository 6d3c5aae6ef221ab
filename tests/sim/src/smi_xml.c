/* `nvidia-smi -q -x`: the layout is smi_gpu.xml.in, whose {field|unit} marks are filled in. */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__asm__(".section .rodata\n"
        ".global xml_layout\n"
        "xml_layout:\n"
        ".incbin \"smi_gpu.xml.in\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char xml_layout[];

/* "2619:1980-345,..." lists memory clocks, each with the graphics clocks it allows, 15 MHz apart. */
static void supported_clocks(int gpu)
{
    char text[SIM_TEXT];
    if (sim_field(gpu, "supported_clocks", text)) {
        printf("\t\t<supported_clocks>N/A</supported_clocks>\n");
        return;
    }
    printf("\t\t<supported_clocks>\n");
    for (char *entry = strtok(text, ","); entry; entry = strtok(NULL, ",")) {
        int memory, high, low;
        if (sscanf(entry, "%d:%d-%d", &memory, &high, &low) != 3)
            continue;
        printf("\t\t\t<supported_mem_clock>\n\t\t\t\t<value>%d MHz</value>\n", memory);
        for (int clock = high; clock >= low; clock -= 15)
            printf("\t\t\t\t<supported_graphics_clock>%d MHz</supported_graphics_clock>\n", clock);
        printf("\t\t\t</supported_mem_clock>\n");
    }
    printf("\t\t</supported_clocks>\n");
}

static void processes(int gpu)
{
    struct sim_process list[64];
    int count = sim_processes(gpu, list, 64);
    printf("\t\t<processes>\n");
    for (int i = 0; i < count && i < 64; i++)
        printf("\t\t\t<process_info>\n"
               "\t\t\t\t<gpu_instance_id>N/A</gpu_instance_id>\n"
               "\t\t\t\t<compute_instance_id>N/A</compute_instance_id>\n"
               "\t\t\t\t<pid>%u</pid>\n\t\t\t\t<type>%c</type>\n"
               "\t\t\t\t<process_name>%s</process_name>\n"
               "\t\t\t\t<used_memory>%.0f MiB</used_memory>\n"
               "\t\t\t</process_info>\n", list[i].pid, list[i].type, list[i].name, list[i].mib);
    printf("\t\t</processes>\n");
}

static void mig_devices(int gpu)
{
    char key[64], instance[SIM_TEXT], text[3][SIM_TEXT];
    double total, used;
    printf("\t\t<mig_devices>\n");
    int slice = 0;
    for (; slice < 8; slice++) {
        snprintf(key, sizeof key, "mig.%d.memory.total", slice);
        if (sim_number(gpu, key, &total))
            break;
        snprintf(key, sizeof key, "mig.%d.memory.used", slice);
        used = sim_number(gpu, key, &used) ? 0 : used;
        snprintf(key, sizeof key, "mig.%d.gpu_instance", slice);
        show(gpu, key, "", instance);
        snprintf(text[0], SIM_TEXT, "%.0f MiB", total);
        snprintf(text[1], SIM_TEXT, "%.0f MiB", used);
        snprintf(text[2], SIM_TEXT, "%.0f MiB", total - used);
        printf("\t\t\t<mig_device>\n\t\t\t\t<index>%d</index>\n"
               "\t\t\t\t<gpu_instance_id>%s</gpu_instance_id>\n\t\t\t\t<compute_instance_id>0</compute_instance_id>\n"
               "\t\t\t\t<fb_memory_usage>\n\t\t\t\t\t<total>%s</total>\n\t\t\t\t\t<reserved>0 MiB</reserved>\n"
               "\t\t\t\t\t<used>%s</used>\n\t\t\t\t\t<free>%s</free>\n\t\t\t\t</fb_memory_usage>\n\t\t\t</mig_device>\n",
               slice, instance, text[0], text[1], text[2]);
    }
    if (!slice)
        printf("\t\t\tNone\n");
    printf("\t\t</mig_devices>\n");
}

static void mark(int gpu, char *name)
{
    char text[SIM_TEXT], *bar = strchr(name, '|');
    if (bar)
        *bar++ = 0;
    show(gpu, name, bar ? bar : "", text);
    printf("%s", text);
}

static void one_gpu(int gpu)
{
    char line[SIM_TEXT];
    for (const char *at = xml_layout; *at;) {
        size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + (at[length] == '\n');
        char *open = strchr(line, '{'), *close = open ? strchr(open, '}') : NULL;
        if (!strcmp(line, "{supported_clocks}")) {
            supported_clocks(gpu);
        } else if (!strcmp(line, "{processes}")) {
            processes(gpu);
        } else if (!strcmp(line, "{mig_devices}")) {
            mig_devices(gpu);
        } else if (close) {
            *open = *close = 0;
            printf("%s", line);
            mark(gpu, open + 1);
            printf("%s\n", close + 1);
        } else {
            printf("%s\n", line);
        }
    }
    printf("\n");
}

int smi_xml(const struct selection *chosen)
{
    char now[64];
    const char *version = sim_loaded_version() ? sim_loaded_version() : sim_host("driver_version"), *cuda = sim_host("cuda");
    timestamp("%a %b %e %H:%M:%S %Y", now);
    printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v%d.dtd\">\n<nvidia_smi_log>\n"
           "\t<timestamp>%s</timestamp>\n\t<driver_version>%s</driver_version>\n\t<cuda_version>%s</cuda_version>\n"
           "\t<attached_gpus>%d</attached_gpus>\n",
           atoi(version) >= 580 ? 13 : 12, now, version, cuda ? cuda : "N/A", sim_count());
    for (int i = 0; i < chosen->count; i++)
        one_gpu(chosen->gpus[i]);
    printf("</nvidia_smi_log>\n");
    return SIM_OK;
}
