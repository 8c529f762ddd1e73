/* See private_folder.h. */
#include "base/private_folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

fth_status fth_folder_create_private(const char *path)
{
    fth_status status = FTH_OK;
    struct stat facts;
    FTH_REQUIRE(mkdir(path, 0700) == 0 || errno == EEXIST, FTH_IO, "cannot create %s: %s", path, strerror(errno));
    FTH_REQUIRE(lstat(path, &facts) == 0, FTH_IO, "cannot examine %s: %s", path, strerror(errno));
    FTH_REQUIRE(S_ISDIR(facts.st_mode), FTH_INVALID, "%s is not a folder; remove it, or set XDG_RUNTIME_DIR", path);
    FTH_REQUIRE(facts.st_uid == geteuid(), FTH_INVALID, "%s belongs to another user; set XDG_RUNTIME_DIR", path);
    FTH_REQUIRE((facts.st_mode & 077) == 0, FTH_INVALID, "%s can be entered by others; run chmod 700 %s", path, path);

out:
    return status;
}
