/* What client.c and download.c share. */
#ifndef FTH_HTTP_HTTP_INTERNAL_H
#define FTH_HTTP_HTTP_INTERNAL_H

/* Before the first use of libcurl, from any thread; again does no harm. */
void fth_http_start_curl(void);

#endif
