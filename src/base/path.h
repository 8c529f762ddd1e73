/* Paths, and text in memory of its own.
 *
 * A path that there was no memory for is NULL. All of path.h, file.h and folder.h takes NULL for a
 * path: what can fail fails with FTH_NO_MEMORY, and nothing exists there. So a path can be made,
 * used and freed without a check in between; one is needed only before other functions see it. */
#ifndef FTH_BASE_PATH_H
#define FTH_BASE_PATH_H

/* Joins with a single '/'; free() the result. NULL without memory, and where either is NULL. */
char *fth_path_join(const char *folder, const char *name);
/* The folder that holds `path`, "." for a bare name; free() it. NULL without memory, and for
 * NULL. */
char *fth_path_folder(const char *path);

/* snprintf() into fresh memory; free() the result. NULL without memory. */
char *fth_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
