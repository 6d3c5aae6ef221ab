/* Texts that stand for numbers: processor lists and return codes. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

/* "0-15,32-47" into a bit mask; SIM_INSUFFICIENT_SIZE when a processor lies beyond it. */
int sim_cpu_mask(const char *list, unsigned long long *words, unsigned count)
{
    memset(words, 0, count * sizeof *words);
    while (list && *list) {
        int first, last, used = 0;
        if (sscanf(list, "%d-%d%n", &first, &last, &used) < 2 || !used) {
            if (sscanf(list, "%d%n", &first, &used) < 1)
                return SIM_NOT_SUPPORTED;
            last = first;
        }
        for (int cpu = first; cpu <= last; cpu++) {
            if ((unsigned)cpu / 64 >= count)
                return SIM_INSUFFICIENT_SIZE;
            words[cpu / 64] |= 1ULL << (cpu % 64);
        }
        list += used;
        list += *list == ',';
    }
    return SIM_OK;
}

const char *sim_error_text(int code)
{
    static const struct {
        int code;
        const char *text;
    } texts[] = {
        {0, "Success"},
        {1, "Uninitialized"},
        {2, "Invalid Argument"},
        {3, "Not Supported"},
        {4, "Insufficient Permissions"},
        {5, "Already Initialized"},
        {6, "Not Found"},
        {7, "Insufficient Size"},
        {8, "Insufficient External Power"},
        {9, "Driver Not Loaded"},
        {10, "Timeout"},
        {11, "Interrupt Request Issue"},
        {12, "NVML Shared Library Not Found"},
        {13, "Function Not Found"},
        {14, "Corrupted infoROM"},
        {15, "GPU is lost"},
        {16, "GPU requires reset"},
        {17, "The operating system has blocked the request"},
        {18, "Driver/library version mismatch"},
        {19, "In use by another client"},
        {20, "Insufficient Memory"},
        {21, "No data"},
        {25, "Argument version mismatch"},
        {26, "This API has been deprecated"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code)
            return texts[i].text;
    return "Unknown Error";
}
