/* Shared with the record's fuzz target. */
#ifndef FTH_RECORD_RECORD_INTERNAL_H
#define FTH_RECORD_RECORD_INTERNAL_H

#include "record/record.h"

/* Adds what the lines of an events file say to `summary`, whose `folder` and `events` are set. */
fth_status fth_record_read_events(const char *text, size_t size, fth_record_summary *summary);

#endif
