/* Paths, and formatted text in new memory.
 *
 * A path is NULL if there was no memory for it. All functions of path.h, file.h and folder.h accept
 * NULL: those that can fail return FTH_NO_MEMORY, and nothing exists there. So a path can be made,
 * used and freed without a check; check only before passing it to other functions. */
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
