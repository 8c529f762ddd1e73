/* Choosing a GPU for a process that shares a machine with peers. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cluster/launcher.h"

#define VISIBLE_GPUS "CUDA_VISIBLE_DEVICES"

/* /dev/nvidia0, /dev/nvidia1, ... */
static int count_device_files(void)
{
    int count = 0;
    DIR *folder = opendir("/dev");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *number = strncmp(entry->d_name, "nvidia", 6) == 0 ? entry->d_name + 6 : "";
        count += *number && number[strspn(number, "0123456789")] == '\0';
    }
    if (folder)
        closedir(folder);
    return count;
}

int fth_cli_count_gpus(void)
{
    const char *visible = getenv(VISIBLE_GPUS);
    if (!visible)
        return count_device_files();
    int count = *visible != '\0';
    for (; *visible; visible++)
        count += *visible == ',';
    return count;
}

/* Makes one GPU the only one visible to this process. */
static fth_status take_gpu(int local_rank)
{
    int count = fth_cli_count_gpus(), index = count > 0 ? local_rank % count : 0;
    if (count < 2)
        return FTH_OK;
    const char *visible = getenv(VISIBLE_GPUS);
    char *own = NULL;
    if (!visible) {
        own = fth_format("%d", index);
    } else {
        for (; index > 0; index--)
            visible = strchr(visible, ',') + 1;
        own = fth_format("%.*s", (int)strcspn(visible, ","), visible);
    }
    fth_status status = own && setenv(VISIBLE_GPUS, own, 1) == 0 ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory");
    free(own);
    return status;
}

fth_status fth_cli_take_gpu(void)
{
    fth_launched launched = {0};
    fth_status status = fth_launcher_find(&launched);
    if (status == FTH_OK && launched.local_size > 1)
        status = take_gpu(launched.local_rank);
    fth_launched_release(&launched);
    return status;
}
