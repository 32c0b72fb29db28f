/* NVIDIA's management library for machines without GPUs: what it answers is read from the file $TOY_NVML at each
   reading of utilization, "GPU BUSY USED_GIB WATTS CELSIUS ECC" a line; -1: this GPU does not have the figure. The
   file $TOY_NVML.xids holds the Xids that wait, one a line. */
#include <stdio.h>
#include <stdlib.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, TIMEOUT = 10 };
static struct { int busy, used, watts, celsius, ecc; } gpus[8];
static int count;

static void look(void)
{
    FILE *file = fopen(getenv("TOY_NVML"), "r");
    int number;
    for (count = 0; file && count < 8; count++)
        if (fscanf(file, "%d %d %d %d %d %d", &number, &gpus[count].busy, &gpus[count].used, &gpus[count].watts,
                   &gpus[count].celsius, &gpus[count].ecc) != 6)
            break;
    if (file)
        fclose(file);
}

int nvmlInitWithFlags(unsigned flags) { look(); return OK; }
const char *nvmlErrorString(int code) { return "as the test says"; }

int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **device)
{
    *device = (void *)(long)(number + 1);
    return (int)number < count ? OK : INVALID;
}

#define AT(device) gpus[(long)(device) - 1]

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2])
{
    look();
    rates[0] = AT(device).busy;
    return AT(device).busy < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
    memory[0] = 24ull << 30; /* total, free, used */
    memory[2] = (unsigned long long)AT(device).used << 30;
    memory[1] = memory[0] - memory[2];
    return AT(device).used < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    *milliwatts = 1000 * AT(device).watts;
    return AT(device).watts < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    *celsius = AT(device).celsius;
    return AT(device).celsius < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *errors)
{
    *errors = AT(device).ecc;
    return AT(device).ecc < 0 ? NOT_SUPPORTED : OK;
}

int nvmlEventSetCreate(void **set) { *set = &count; return OK; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) { return types == 8 ? OK : INVALID; }

int nvmlEventSetWait_v2(void *set, struct { void *device; unsigned long long type, data; unsigned gi, ci; } *event,
                        unsigned milliseconds)
{
    char path[4096];
    static long at;
    FILE *file;
    int read;
    snprintf(path, sizeof path, "%s.xids", getenv("TOY_NVML"));
    if (!(file = fopen(path, "r")))
        return TIMEOUT;
    fseek(file, at, SEEK_SET);
    read = fscanf(file, "%llu\n", &event->data);
    at = ftell(file);
    fclose(file);
    return read == 1 ? OK : TIMEOUT;
}
